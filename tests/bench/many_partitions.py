"""One topic of very many partitions on a cluster of three: what creating, describing, restarting, fencing and failing over take.

`PYTHONPATH=.:tests python -m bench.many_partitions [--partitions 10000] [--replicas 3] [--directory DIR] [--least-ms 20] [--logs DIR]`.
Each node has a process of its own, on asyncio's loop, every callback of which is measured (`long_turns`). Printed for each step: the time
until the cluster has done it, and of each node the processor time, the longest callbacks of its loop in processor time and what they ran.
`--directory` is on the disk to measure; turns of `--least-ms` and more are listed; `--logs` is for what the nodes have to say.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.long_turns import Measured
from helpers.live_node import CLUSTER_ID, free_port
from helpers.work_unit import unit_s

from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.environment import Environment
from minikafka.broker.node import Node
from minikafka.net.channel import Channel
from minikafka.net.clock import SystemClock
from minikafka.net.garbage import GarbagePauses
from minikafka.net.server import SocketNetwork
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log_dir import MetaProperties, format_directory
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.metadata import MetadataRequest

IDS = (1, 2, 3)
STEP_S = 240


# -- a node --------------------------------------------------------------------------------------------------------------


def settings(node_id: int, directory: str, ports: dict[int, tuple[int, int]]) -> dict[str, str]:
    broker, controller = ports[node_id]
    return {
        "process.roles": "broker,controller", "node.id": str(node_id), "log.dirs": f"{directory}/{node_id}",
        "controller.quorum.voters": ",".join(f"{other}@127.0.0.1:{ports[other][1]}" for other in IDS),
        "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}", "controller.listener.names": "CONTROLLER",
        "auto.create.topics.enable": "false", "leader.imbalance.check.interval.seconds": "3",
    }  # fmt: skip


async def serve(node_id: int, directory: str, ports: dict[int, tuple[int, int]], least_s: float, pipe: Any) -> None:
    measured = Measured(least_s)
    loop = asyncio.get_running_loop()

    async def run_blocking(function: Any, *arguments: Any) -> Any:
        return await loop.run_in_executor(None, function, *arguments)

    environment = Environment(
        SocketNetwork(loop), OsFileSystem(), SystemClock(), random.Random(), loop, run_blocking, time.monotonic
    )
    path = f"{directory}/{node_id}"
    if not os.path.exists(f"{path}/meta.properties"):
        format_directory(environment.filesystem, path, MetaProperties(CLUSTER_ID, node_id, bytes(15) + bytes([200 + node_id])), 0)
    node = Node(BrokerConfig.from_properties(settings(node_id, directory, ports)), environment)
    garbage = GarbagePauses()
    garbage.start()
    await node.start()
    garbage.keep()
    pipe.send("started")
    while True:
        asked = await loop.run_in_executor(None, pipe.recv)
        if asked == "end":
            break
        pipe.send((measured.found, time.process_time(), node.controller is not None and node.controller.is_active))
        measured.found = []
    await node.stop()
    pipe.send((measured.found, time.process_time(), False))


def node_process(node_id: int, directory: str, ports: dict[int, tuple[int, int]], least_s: float, logs: Path | None, pipe: Any) -> None:
    if logs is not None:
        form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
        logging.basicConfig(filename=logs / f"{node_id}.log", level=logging.INFO, format=form)
    asyncio.run(serve(node_id, directory, ports, least_s, pipe))


@dataclass
class Process:
    process: Any
    pipe: Any
    cpu_s: float = 0.0

    def ask(self, what: str) -> tuple[list[dict[str, Any]], float, bool]:
        self.pipe.send(what)
        found, cpu_s, is_active = self.pipe.recv()
        used_s, self.cpu_s = cpu_s - self.cpu_s, cpu_s
        return found, used_s, is_active


# -- the steps -----------------------------------------------------------------------------------------------------------


class Cluster:
    """Three nodes, and a client of each."""

    def __init__(self, directory: str, options: argparse.Namespace) -> None:
        self.directory, self.partitions, self.replicas = directory, options.partitions, options.replicas
        self.least_s, self.logs = options.least_ms / 1000, options.logs
        self.ports = {node_id: (free_port(), free_port()) for node_id in IDS}
        self.nodes: dict[int, Process] = {}
        self._context = get_context("spawn")
        self.problems: list[str] = []

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            ours, theirs = self._context.Pipe()
            arguments = (node_id, self.directory, self.ports, self.least_s, self.logs, theirs)
            process = self._context.Process(target=node_process, args=arguments, daemon=True)
            process.start()
            self.nodes[node_id] = Process(process, ours)

    def started(self, *node_ids: int) -> None:
        for node_id in node_ids:
            assert self.nodes[node_id].pipe.recv() == "started"

    def report(self, what: str, began_s: float) -> int:
        """Prints the step and returns the active controller."""
        print(f"{what}: {time.monotonic() - began_s:.1f} s, load {os.getloadavg()[0]:.1f}, unit {1000 * unit_s():.2f} ms", flush=True)
        active = 0
        for node_id, node in self.nodes.items():
            found, used_s, is_active = node.ask("found")
            active = node_id if is_active else active
            self.show(node_id, found, used_s, is_active)
        return active

    def show(self, node_id: int, found: list[dict[str, Any]], used_s: float, is_active: bool) -> None:
        longest = sorted(found, key=lambda row: -row["cpu_s"])
        long = f"{len(found)} turns over {1000 * self.least_s:.0f} ms"
        print(f"  node {node_id}{' (controller)' if is_active else ''}: {used_s:.2f} CPU s, {long}", flush=True)
        for row in longest[:4]:
            print(f"    {1000 * row['cpu_s']:6.1f} ms ({1000 * row['gc_s']:.1f} gc) {row['stack'] or row['what']}", flush=True)

    async def until(self, node_id: int, holds: Callable[[Any], bool]) -> None:
        """Until the node's metadata of the topic are so; it is asked for a part of the partitions only at the end."""
        deadline_s = time.monotonic() + STEP_S
        kind = MetadataRequest
        while True:
            assert time.monotonic() < deadline_s, "it takes too long"
            with contextlib.suppress(OSError, EOFError, ConnectionError):
                channel = await self.channel(node_id)
                answer: Any = await channel.request(kind(topics=[kind.MetadataRequestTopic(name="many")]), timeout_ms=60_000)
                channel.close()
                if holds(answer.topics[0].partitions):
                    return
            await asyncio.sleep(0.5)

    async def channel(self, node_id: int) -> Channel:
        return await Channel.open(SocketNetwork(asyncio.get_running_loop()), "127.0.0.1", self.ports[node_id][0], client_id="bench")

    async def create(self) -> None:
        channel, kind = await self.channel(1), CreateTopicsRequest
        topic = kind.CreatableTopic(name="many", num_partitions=self.partitions, replication_factor=self.replicas)
        answer: Any = await channel.request(kind(topics=[topic], timeout_ms=120_000), timeout_ms=120_000)
        assert answer.topics[0].error_code == 0, answer.topics[0]
        channel.close()

    def led(self, partitions: Any) -> bool:
        return len(partitions) == self.partitions and all(one.leader_id >= 0 for one in partitions)

    def left(self, node_id: int) -> Callable[[Any], bool]:
        return lambda partitions: self.led(partitions) and all(node_id not in one.isr_nodes for one in partitions)

    def whole(self, partitions: Any) -> bool:
        return self.led(partitions) and all(len(one.isr_nodes) == self.replicas for one in partitions)


async def measured(cluster: Cluster, what: str, step: Awaitable[None], settle_s: float = 3.0) -> int:
    began_s = time.monotonic()
    await step
    took_s = time.monotonic() - began_s
    await asyncio.sleep(settle_s)
    return cluster.report(what, time.monotonic() - took_s)


async def run(cluster: Cluster) -> None:
    cluster.start(*IDS)
    cluster.started(*IDS)
    await measured(cluster, "start of an empty cluster", in_service(cluster))
    active = await measured(cluster, f"create {cluster.partitions} partitions of {cluster.replicas} replicas", create(cluster))
    await measured(cluster, "metadata of all, from each", describe(cluster))
    victim = next(node_id for node_id in IDS if node_id != active)
    witness = next(node_id for node_id in IDS if node_id not in (active, victim))
    await measured(cluster, f"fence: broker {victim} is killed, until all have other leaders", kill(cluster, victim, witness))
    await measured(cluster, "start: it is back in all in-sync sets", begin(cluster, victim, witness), 8)
    await measured(cluster, f"controlled shutdown of broker {victim} (its own turns first)", shut_down(cluster, victim, witness))
    await measured(cluster, "start again", begin(cluster, victim, witness), 8)
    await measured(cluster, f"fail-over: the controller {active} is killed, until all have other leaders", kill(cluster, active, witness))
    await measured(cluster, "start of the old controller", begin(cluster, active, witness), 8)
    for node_id in list(cluster.nodes):
        cluster.nodes.pop(node_id).process.kill()


async def in_service(cluster: Cluster) -> None:
    while True:
        with contextlib.suppress(OSError, ConnectionError):
            channel = await cluster.channel(1)
            answer: Any = await channel.request(MetadataRequest(topics=[]))
            channel.close()
            if len(answer.brokers) == len(IDS):
                return
        await asyncio.sleep(0.3)


async def create(cluster: Cluster) -> None:
    await cluster.create()
    await cluster.until(1, cluster.whole)


async def describe(cluster: Cluster) -> None:
    for node_id in IDS:
        channel = await cluster.channel(node_id)
        await channel.request(MetadataRequest(topics=None), timeout_ms=60_000)
        channel.close()


async def kill(cluster: Cluster, node_id: int, witness: int) -> None:
    node = cluster.nodes.pop(node_id)
    node.process.kill()
    node.process.join()
    await cluster.until(witness, cluster.left(node_id))


async def begin(cluster: Cluster, node_id: int, witness: int) -> None:
    cluster.start(node_id)
    await asyncio.to_thread(cluster.started, node_id)
    await cluster.until(witness, cluster.whole)


async def shut_down(cluster: Cluster, node_id: int, witness: int) -> None:
    node = cluster.nodes.pop(node_id)
    found, used_s, _ = await asyncio.to_thread(node.ask, "end")
    cluster.show(node_id, found, used_s, False)
    await asyncio.to_thread(node.process.join)
    await cluster.until(witness, cluster.left(node_id))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--least-ms", type=float, default=20)
    parser.add_argument("--logs", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as temporary:
        asyncio.run(run(Cluster(temporary, options)))
