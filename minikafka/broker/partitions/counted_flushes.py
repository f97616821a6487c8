"""The syncs that flush.messages asks for, on another thread. A sync covers what is in the log when it begins, so that however many appends
come meanwhile share the next one."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from minikafka.broker.log_flush import flush
from minikafka.core.partition.replication_wait import ReplicationWait
from minikafka.storage.errors import LogClosed, ResourceShortage, StorageError
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from minikafka.broker.environment import Environment
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.waiting import Waiting
    from minikafka.core.partition.leader import PartitionLeader
    from minikafka.storage.log import Log

logger = logging.getLogger("minikafka.replicas")
#: How long after a shortage the next attempt comes.
RETRY_S = 1.0


async def sync_followed(log: Log, environment: Environment, is_due: Callable[[], bool], on_shortage: Callable[[], None]) -> None:
    """Flush a follower's log as flush.messages asks, as long as `is_due` says so too. `on_shortage`: called before a wait for descriptors
    or memory. Raises StorageError."""
    while log.is_sync_due and is_due():
        try:
            await flush(log, environment.run_blocking)
        except ResourceShortage as error:
            logger.warning("trying again: %s", error)
            on_shortage()
            await asyncio.sleep(RETRY_S)


class CountedFlushes:
    """Syncs the logs of partitions that this broker leads, each at most once at a time."""

    def __init__(self, environment: Environment, waiting: Waiting) -> None:
        self._environment = environment
        self._waiting = waiting
        self._running: dict[Partition, asyncio.Task[None]] = {}

    def begin(self, partition: Partition) -> None:
        """Begin a sync, unless one is under way; the partition is asked again behind it."""
        if partition not in self._running:
            name = f"syncing {partition} for flush.messages"
            self._running[partition] = self._environment.supervisor.start(self._sync(partition), name)

    async def finish(self) -> None:
        """The partitions are led no more: wait for the syncs under way."""
        if self._running:
            await asyncio.wait(list(self._running.values()))

    async def _sync(self, partition: Partition) -> None:
        try:
            await flush(partition.log, self._environment.run_blocking)
        except LogClosed:
            pass  # a move between directories may have replaced it by a copy, which is asked next
        except ResourceShortage as error:
            logger.warning("%s: trying again: %s", partition, error)
            partition.failed_syncs += 1
            self._waiting.produces.wake(partition.key)
            await asyncio.sleep(RETRY_S)
        except StorageError as error:
            logger.error("%s cannot be synced: %s", partition, error)
        finally:
            del self._running[partition]
        partition.count_synced(self._environment.clock.now_ms())
        self._waiting.produces.wake(partition.key)


class SyncWait(ReplicationWait):
    """An append that must be synced before it counts, whatever its acks."""

    __slots__ = ("_failed_syncs", "_partition")

    def __init__(self, partition: Partition, leader: PartitionLeader | None, required: int) -> None:
        super().__init__(partition, leader, required)
        self._partition = partition
        self._failed_syncs = partition.failed_syncs

    def try_complete(self, key: Hashable = None) -> bool:
        """Settle if everything before `required` is synced, or will not be soon."""
        partition = self._partition
        if partition.log.failure is not None:
            code = ErrorCode.KAFKA_STORAGE_ERROR
        elif self._leader is None or partition.leader is not self._leader:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif self._required <= partition.log.counted_end:
            code = ErrorCode.NONE
        elif partition.failed_syncs != self._failed_syncs:
            code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            return False
        self.is_done = True
        self.settled(code)
        return True
