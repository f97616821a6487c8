"""One core's share of a Produce and of a Fetch, without sockets: dispatcher, codec, handler, log append and answer, in microseconds.

    python tests/bench/handler.py

Stable where tests/bench/raw.py is noisy: it counts CPU time of this process only. `--profile` prints where it goes.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import random
import tempfile
import time
from collections.abc import Callable
from typing import Any

import uvloop
from raw import fetch_frame, produce_frame

from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.environment import Environment
from minikafka.broker.node import Node
from minikafka.client.admin import Admin
from minikafka.net.clock import SystemClock
from minikafka.net.server import SocketNetwork
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log_dir import MetaProperties, format_directory


class NullConnection:
    """Takes answers and drops them."""

    peer_host, peer_port, closed = "127.0.0.1", 0, False
    principal, bytes_behind = "User:ANONYMOUS", 0

    def __init__(self) -> None:
        self.ticket = 0
        self.callback: Callable[[], None] | None = None

    def after_frames(self, callback: Callable[[], None]) -> None:
        self.callback = callback

    def end_frames(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()

    def begin(self) -> int:
        self.ticket += 1
        return self.ticket

    def finish(self, ticket: int, pieces: list[Any]) -> None:
        for piece in pieces:
            if hasattr(piece, "fileno"):
                piece.release()

    def close(self, reason: str = "") -> None:
        raise RuntimeError(reason)


async def started(directory: str) -> Node:
    """A node on one directory, in service."""
    loop = asyncio.get_running_loop()

    async def run_blocking(function: Any, *arguments: Any) -> Any:
        return await loop.run_in_executor(None, function, *arguments)

    environment = Environment(SocketNetwork(loop), OsFileSystem(), SystemClock(), random.Random(1), loop, run_blocking)
    format_directory(environment.filesystem, directory, MetaProperties("5L6g3nShT-eMCtK--X86sw", 1, bytes(range(16))), 0)
    config = BrokerConfig.from_properties(
        {
            "process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": "1@127.0.0.1:29193",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:29193", "controller.listener.names": "CONTROLLER",
            "log.dirs": directory,
        }
    )  # fmt: skip
    node = Node(config, environment)
    await node.start()
    return node


def measure(on_frame: Any, connection: Any, name: str, data: bytes, count: int, together: int, profile: bool) -> None:
    """Print the time of one frame, when `together` of them arrive at once: the best of three rounds of `count`."""
    pristine = data[4:]
    frames = [memoryview(bytearray(pristine)) for _ in range(together)]
    profiler = cProfile.Profile() if profile else None
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        if profiler is not None:
            profiler.enable()
        for _ in range(count // together):
            for number, frame in enumerate(frames, 1):
                connection.bytes_behind = (together - number) * len(frame)
                on_frame(connection, frame)
            connection.end_frames()
            for frame in frames:
                frame[:] = pristine
        if profiler is not None:
            profiler.disable()
        best = min(best, (time.process_time() - began) / count)
    print(f"{name:<16} {best * 1e6:6.2f} us")
    if profiler is not None:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


async def run(profile: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        node = await started(directory)
        assert node.broker is not None
        async with Admin(f"127.0.0.1:{node.listeners['PLAINTEXT'].port}") as admin:
            for topic, partitions in (("produce", 1), ("fetch", 1), ("spread", 2)):
                await admin.create_topic(topic, partitions=partitions, replication_factor=1)
        on_frame = node.broker.dispatcher.session("PLAINTEXT").on_frame
        connection: Any = NullConnection()
        fill = bytearray(produce_frame("fetch", 16 << 10, 1)[4:])
        for _ in range(200):
            on_frame(connection, memoryview(fill))
        for name, data, count, together in (
            ("produce 100 B", produce_frame("produce", 100, 1), 30_000, 1),
            ("8 together", produce_frame("produce", 100, 1), 30_000, 8),
            ("produce 16 KiB", produce_frame("produce", 16 << 10, 1), 5_000, 1),
            ("fetch 64 KiB", fetch_frame("fetch", 64 << 10), 20_000, 1),
            # As the Java client sends them.
            ("produce 2x16 KiB", produce_frame("spread", 16 << 10, 1, 2), 5_000, 1),
        ):
            measure(on_frame, connection, name, data, count, together, profile)
        await node.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", action="store_true")
    uvloop.run(run(parser.parse_args().profile))
