"""A whole node inside the test's event loop, with real sockets on free ports."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.environment import Environment
from minikafka.broker.node import Node
from minikafka.net.clock import SystemClock
from minikafka.net.server import SocketNetwork
from minikafka.storage.filesystem import FileSystem, OsFileSystem
from minikafka.storage.log_dir import MetaProperties, format_directory
from minikafka.wire.uuid import uuid_to_text

#: Every start is another incarnation.
_SEEDS = itertools.count(7)
CLUSTER_ID = uuid_to_text(bytes(range(16)))


def free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])


def still() -> float:
    """A clock for `turn_clock_s` by which no turn is ever over, however little the machine gives it: everything ends in the turn in which
    it begins."""
    return 0.0


@contextlib.asynccontextmanager
async def live_node(
    directory: Path, properties: Mapping[str, str] | None = None, *, filesystem: FileSystem | None = None, log_dirs: int = 1,
    turn_clock_s: Callable[[], float] | None = None,
) -> AsyncIterator[Node]:  # fmt: skip
    """One combined node, in service; stopped at the end. A directory that has been used before is used again."""
    loop = asyncio.get_running_loop()

    async def run_blocking(function: Any, *arguments: Any) -> Any:
        return await loop.run_in_executor(None, function, *arguments)

    generator = random.Random(next(_SEEDS))
    environment = Environment(
        SocketNetwork(loop), filesystem or OsFileSystem(), SystemClock(), generator, loop, run_blocking, time.monotonic,
        turn_clock_s=turn_clock_s,
    )  # fmt: skip
    data = [str(directory / f"data-{number}") for number in range(log_dirs)]
    for number, path in enumerate(data):
        if not environment.filesystem.exists(f"{path}/meta.properties"):
            format_directory(environment.filesystem, path, MetaProperties(CLUSTER_ID, 1, bytes(range(number + 1, number + 17))), 0)
    controller_port = free_port()
    config = BrokerConfig.from_properties(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": ",".join(data),
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(properties or {}),
        }
    )
    node = Node(config, environment)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def broker_port(node: Node) -> int:
    return node.listeners["PLAINTEXT"].port


def controller_port(node: Node) -> int:
    return node.listeners["CONTROLLER"].port
