"""A broker's coordinators over logs in memory; the test plays the partition leader."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from helpers.memory_filesystem import MemoryFileSystem

from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.coordinators.group_coordinator import OFFSETS_TOPIC, GroupHost
from minikafka.broker.coordinators.loader import StepQueue
from minikafka.broker.coordinators.transaction_coordinator import TRANSACTIONS_TOPIC, TransactionHost
from minikafka.broker.supervise import Supervisor
from minikafka.net.turn_share import TurnShares
from minikafka.storage.config import LogConfig
from minikafka.storage.errors import StorageError
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.record import Record
from minikafka.wire.records.frame import encode_coordinator_key, encode_coordinator_value

CONFIG = {
    "process.roles": "broker", "node.id": "1", "controller.quorum.voters": "2@localhost:1", "log.dirs": "/data",
    "listeners": "PLAINTEXT://:1", "controller.listener.names": "C",
}  # fmt: skip


def coordinator_log(topic: str, index: int = 0) -> Log:
    """An empty log."""
    return load_log(MemoryFileSystem(), f"/data/{topic}-{index}", topic, index, LogConfig(), wall_ms=1)


def append_records(log: Log, pairs: list[tuple[Any, Any, int]], **batch: Any) -> None:
    """One batch of (key, value, version)."""
    records = [
        Record(
            offset=number, timestamp=1, key=encode_coordinator_key(key),
            value=None if value is None else encode_coordinator_value(value, version), headers=(),
        )
        for number, (key, value, version) in enumerate(pairs)
    ]  # fmt: skip
    log.append_as_leader(memoryview(build_batch(records, **{"base_sequence": 0, **batch})), 0, 1, origin="coordinator")


class Partition:
    """A partition that this broker leads. What it writes is replicated at once, unless `is_stalled`."""

    def __init__(self, world: CoordinatorWorld, log: Log) -> None:
        self._world = world
        self.log = log
        self.index = 0
        self.topic = log.topic
        self.leader_epoch = 1
        self.is_stalled = False
        self.refusal: ErrorCode | None = None

    def append(self, records: memoryview, acks: int, wall_ms: int, now_ms: int, origin: str) -> Any:
        """As `Partition.append`."""
        if self.refusal is not None:
            raise ApiError(self.refusal)
        try:
            info = self.log.append_as_leader(records, self.leader_epoch, wall_ms, origin=origin)
        except StorageError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if not self.is_stalled:
            self.replicate()
        return info

    def replicate(self, offset: int | None = None) -> None:
        """Move the high watermark, by default to the end of the log."""
        self.log.update_high_watermark(self.log.log_end_offset if offset is None else offset)
        for callback in self._world.commits.get(self.topic, ()):
            callback(self)


class CoordinatorWorld:
    """Both coordinators, over partition 0 of their topics."""

    def __init__(self, offsets: Log | None = None, transactions: Log | None = None, **properties: str) -> None:
        self.config = BrokerConfig.from_properties({**CONFIG, **properties})
        self.now_ms = 0
        #: Whether the broker's session may have ended.
        self.is_in_doubt = False
        #: Whether the partitions' turns to be opened have not come yet.
        self.is_about_to_lead = False
        loop = asyncio.get_running_loop()
        self.supervisor = Supervisor(loop)
        clock = SimpleNamespace(now_ms=lambda: self.now_ms, wall_ms=lambda: 1 + self.now_ms)
        environment: Any = SimpleNamespace(
            clock=clock, loop=loop, random=random.Random(1), supervisor=self.supervisor, shares=TurnShares(lambda: self.now_ms / 1000),
            run_blocking=lambda function, *arguments: loop.run_in_executor(None, function, *arguments),
        )  # fmt: skip
        self.commits: dict[str, list[Callable[[Any], None]]] = {}
        self._leads: dict[str, Callable[[int, int, bool], None]] = {}
        self._changed: list[Callable[[Any, Any], None]] = []
        self.partitions = {
            OFFSETS_TOPIC: Partition(self, offsets or coordinator_log(OFFSETS_TOPIC)),
            TRANSACTIONS_TOPIC: Partition(self, transactions or coordinator_log(TRANSACTIONS_TOPIC)),
        }
        replicas: Any = SimpleNamespace(
            partition=lambda topic, index: self.partitions[topic], require=lambda topic, topic_id, index: self.partitions[topic],
            is_in_doubt=lambda partition: self.is_in_doubt, is_about_to_lead=lambda topic, index: self.is_about_to_lead,
            subscribe_leadership=self._leads.__setitem__,
            subscribe_commits=lambda topic, callback: self.commits.setdefault(topic, []).append(callback),
        )  # fmt: skip
        names = dict.fromkeys(self.partitions, SimpleNamespace(partitions={0: None}))
        self.image = SimpleNamespace(topics_by_name=names, topics_by_id={}, features={"transaction.version": 2})
        metadata: Any = SimpleNamespace(image=self.image, subscribe=self._changed.append)
        nobody: Any = None
        self.steps = StepQueue(environment)
        self.groups = GroupHost(self.config, environment, replicas, metadata, nobody, self.steps)
        self.transactions = TransactionHost(self.config, environment, replicas, metadata, nobody, nobody, nobody, self.steps)

    @property
    def offsets(self) -> Partition:
        """The partition of `__consumer_offsets`."""
        return self.partitions[OFFSETS_TOPIC]

    def lead(self, topic: str = OFFSETS_TOPIC, *, leader: bool = True) -> None:
        """Win, or lose, the leadership in a new epoch."""
        partition = self.partitions[topic]
        partition.leader_epoch += 1
        self._leads[topic](0, partition.leader_epoch, leader)

    def delete_topic(self, name: str) -> None:
        """A topic is gone from the metadata."""
        for callback in self._changed:
            callback(SimpleNamespace(deleted_topics={b"": SimpleNamespace(name=name)}, changed_topics={}), self.image)

    def refusal(self, topic: str = OFFSETS_TOPIC, key: str = "g") -> ErrorCode | None:
        """The error with which the shard refuses requests."""
        host: Any = self.groups if topic == OFFSETS_TOPIC else self.transactions
        try:
            host.shard(key)
        except ApiError as error:
            return error.code
        return None

    async def loaded(self, topic: str = OFFSETS_TOPIC) -> int:
        """Wait until the shard serves; the number of turns that it took."""
        turns = 0
        while self.refusal(topic) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            turns += 1
            await asyncio.sleep(0)
        return turns

    async def stop(self) -> None:
        """Both coordinators stop."""
        await self.groups.stop()
        await self.transactions.stop()
        self.supervisor.close()
