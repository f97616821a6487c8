"""Runs one node of an embedded cluster, in a thread or a process, and carries out the cluster's commands in the node's event loop."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.early_imports import OF_PAGE, import_early
from minikafka.broker.environment import Environment
from minikafka.broker.node import Node
from minikafka.net import descriptors
from minikafka.net.clock import SystemClock
from minikafka.net.loop_watch import LoopWatch
from minikafka.storage.filesystem import OsFileSystem
from minikafka.testing.faults import FaultRule, FaultTable
from minikafka.testing.links import BreakableNetwork

if TYPE_CHECKING:
    from minikafka.broker.partitions.partition import Partition

BLOCKING_THREADS = 2


class NodeRunner:
    """One node with its environment: `start`, `stop`, `crash`, and the commands of `handle`."""

    def __init__(self, properties: dict[str, str], loop: asyncio.AbstractEventLoop, tag: str = "minikafka") -> None:
        """`tag` is the prefix of its threads' names. Raises ConfigurationError."""
        self.config = BrokerConfig.from_properties(properties)
        self._executor = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix=f"{tag}-blocking")
        self.network = BreakableNetwork(loop, self.config.minikafka_tcp_congestion)

        async def run_blocking(function: Any, *arguments: Any) -> Any:
            return await loop.run_in_executor(self._executor, function, *arguments)

        self._loop_watch = LoopWatch(loop)
        descriptors.raise_limit()
        environment = Environment(
            self.network,
            OsFileSystem(),
            SystemClock(),
            random.SystemRandom(),
            loop,
            run_blocking,
            time.monotonic,
            self._loop_watch,
            descriptors.connections_max(),
        )
        self.node = Node(self.config, environment)
        self.faults = FaultTable(loop, self._dispatchers, self._topic_name)
        self._http: Any = None

    async def start(self) -> None:
        """Start, and return when the node is in service. Raises what Node.start raises."""
        self._loop_watch.start()
        if self.config.minikafka_http_port >= 0:
            await self.node.environment.run_blocking(import_early, OF_PAGE)
            from minikafka.broker.observe.http import HttpServer

            self._http = HttpServer(self.node)
            await self._http.start(self.config.minikafka_http_host, self.config.minikafka_http_port)
        await self.node.start()

    async def stop(self) -> None:
        """Shut down cleanly: move leaderships away, close files."""
        await self.node.stop()
        self._loop_watch.stop()
        if self._http is not None:
            await self._http.stop()
        self._executor.shutdown(wait=False)

    def crash(self) -> None:
        """Drop every connection and file as a killed process does, without a flush or a controlled shutdown."""
        self._loop_watch.stop()
        for listener in self.node.listeners.values():
            listener.close()
        self.network.drop_all()
        for directory in self.node.directories:
            directory.abandon()
        self._executor.shutdown(wait=False, cancel_futures=True)

    # -- commands --------------------------------------------------------------------------------------------------

    async def handle(self, command: str, arguments: dict[str, Any]) -> Any:
        """Carry out a command. Returns a value that JSON can represent. Raises KeyError for an unknown command, ValueError for bad
        arguments."""
        commands: dict[str, Callable[..., Any]] = {
            "fault_add": self._fault_add,
            "fault_remove": self.faults.remove,
            "fault_clear": self.faults.clear,
            "fault_hits": self.faults.hits,
            "cut": lambda ports: self.network.set_cut(set(ports)),
            "delay": self._delay,
            "metrics": self._metrics,
            "replicas": self._replicas,
            "partition": self._partition,
            "quorum": self._quorum,
            "flush": self._flush,
        }
        result = commands[command](**arguments)
        return await result if inspect.isawaitable(result) else result

    def _fault_add(self, rule: dict[str, Any]) -> int:
        return self.faults.add(FaultRule(**rule))

    def _delay(self, ports: list[int], delay_ms: int) -> None:
        for port in ports:
            self.network.delay_ms[port] = delay_ms

    def _metrics(self) -> str:
        from minikafka.broker.observe.metrics.node import NodeMetrics

        return NodeMetrics(self.node).render().decode()

    def _replicas(self) -> list[dict[str, Any]]:
        broker = self.node.broker
        return [] if broker is None else [_replica(partition) for partition in broker.replicas.partitions.values()]

    def _partition(self, topic: str, partition: int) -> dict[str, Any]:
        image = self.node.metadata.image
        image_topic = image.topics_by_name.get(topic)
        found = None if image_topic is None else image_topic.partitions.get(partition)
        if found is None:
            return {"offset": image.offset, "partition": None}
        state = {
            "leader": found.leader,
            "leader_epoch": found.leader_epoch,
            "replicas": list(found.replicas),
            "isr": list(found.isr),
            "partition_epoch": found.partition_epoch,
        }
        return {"offset": image.offset, "partition": state}

    def _quorum(self) -> dict[str, int]:
        raft = self.node.raft
        return {"leader": -1 if raft.leader_id is None else raft.leader_id, "epoch": raft.leader_epoch}

    async def _flush(self) -> None:
        """Write the checkpoints now, so that readers of the directory see the high watermarks."""
        if self.node.broker is not None:
            await self.node.broker.replicas.upkeep.write_checkpoints()

    def _dispatchers(self) -> list[Any]:
        found = [] if self.node.broker is None else [self.node.broker.dispatcher]
        controller = self.node._controller_dispatcher
        return found if controller is None else [*found, controller]

    def _topic_name(self, topic_id: bytes) -> str:
        topic = self.node.metadata.image.topics_by_id.get(topic_id)
        return "" if topic is None else topic.name


def _replica(partition: Partition) -> dict[str, Any]:
    log = partition.log
    return {
        "topic": partition.topic,
        "partition": partition.index,
        "role": "leader" if partition.leader is not None else "follower",
        "leader_epoch": partition.leader_epoch,
        "log_start_offset": log.log_start_offset,
        "high_watermark": log.high_watermark,
        "log_end_offset": log.log_end_offset,
    }
