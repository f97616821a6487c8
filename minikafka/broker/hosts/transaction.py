"""Hosts the transaction coordinator: one shard per partition of `__transaction_state` that this broker leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from minikafka.broker.hosts.coordinator_topic import CoordinatorTopic
from minikafka.broker.metrics.durations import Window
from minikafka.core.transaction.coordinator import FENCED_MARKER, TransactionShard
from minikafka.core.transaction.effects import Markers, StateAppend, TransactionConfig
from minikafka.core.transaction.state import PartitionKey
from storage.errors import StorageError
from wire.batch import build_batch, iterate_batches
from wire.errors import ApiError, ErrorCode, WireError
from wire.record import Record
from wire.records.frame import (
    decode_transaction_key,
    decode_transaction_value,
    encode_coordinator_key,
    encode_coordinator_value,
)

if TYPE_CHECKING:
    from minikafka.broker.config import BrokerConfig
    from minikafka.broker.controller_channel import ControllerChannel
    from minikafka.broker.environment import Environment
    from minikafka.broker.handlers.producer_ids import ProducerIdBlocks
    from minikafka.broker.hosts.metadata import MetadataHost
    from minikafka.broker.hosts.partition import Partition
    from minikafka.broker.hosts.replicas import ReplicaManager
    from minikafka.broker.hosts.transaction_markers import MarkerSender

TRANSACTIONS_TOPIC = "__transaction_state"
TRANSACTION_VERSION = "transaction.version"
RETRY_MS = 50
RETRY_MS_MAX = 500
#: A topic that is not known for so many tries is gone: what was written there is gone with it.
UNKNOWN_TOPIC_TRIES = 20
logger = logging.getLogger("minikafka.transaction")


class TransactionHost:
    """Feeds the shards with requests, logs and time, and carries out what they ask for.

    Invariant: a shard is loaded exactly while this broker leads its partition, the partition's log has been replayed, and all of it is
    committed: nobody acts on a decision that an election could take back.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        controller: ControllerChannel,
        producer_ids: ProducerIdBlocks,
        markers: MarkerSender,
    ) -> None:
        self._config = config
        self._environment = environment
        self._clock = environment.clock
        self._replicas = replicas
        self._metadata = metadata
        self._producer_ids = producer_ids
        self._markers = markers
        self._shards: dict[int, TransactionShard] = {}
        self._loading: dict[int, TransactionShard] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        #: How long loading a partition took, ms, and how many transactions were open for too long.
        self.loads = Window()
        self.timeouts = 0
        self._shard_config = TransactionConfig(
            timeout_ms_max=config.transaction_max_timeout_ms, expiration_ms=config.transactional_id_expiration_ms
        )
        self.timeout_ms_max: int = config.transaction_max_timeout_ms
        #: The listener on which brokers talk to each other.
        self.listener: str = config.inter_broker_listener
        self.topic = CoordinatorTopic(
            TRANSACTIONS_TOPIC,
            metadata,
            controller,
            partitions=config.transaction_state_log_num_partitions,
            replication_factor=config.transaction_state_log_replication_factor,
            configs={
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        )
        replicas.subscribe_leadership(TRANSACTIONS_TOPIC, self._leadership_changed)

    def start(self) -> None:
        """Begin to look for transactions that take too long and for ids that are not used any more."""
        self._every(self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms, "timeouts", self._abort_timed_out)
        self._every(self._config.transaction_remove_expired_transaction_cleanup_interval_ms, "expiry", self._remove_expired)

    async def stop(self) -> None:
        """Answer what waits and forget the shards."""
        self._stopping = True
        for timer in self._timers.values():
            timer.cancel()
        self.topic.stop()
        for task in self._tasks:
            task.cancel()
        for index in [*self._shards, *self._loading]:
            self._resign(index)

    def _every(self, interval_ms: int, name: str, work: Callable[[TransactionShard, int], list[str]]) -> None:
        def run() -> None:
            self._every(interval_ms, name, work)
            for index, shard in list(self._shards.items()):
                found = work(shard, self._clock.wall_ms())
                self.timeouts += len(found) if name == "timeouts" else 0
                for transactional_id in found:
                    logger.info("%s of %s-%d: %s", name, TRANSACTIONS_TOPIC, index, transactional_id)
                self.run_effects(index, shard)

        self._timers[name] = self._environment.loop.call_later(interval_ms / 1000, run)

    @staticmethod
    def _abort_timed_out(shard: TransactionShard, now_ms: int) -> list[str]:
        return shard.abort_timed_out(now_ms)

    @staticmethod
    def _remove_expired(shard: TransactionShard, now_ms: int) -> list[str]:
        return shard.remove_expired(now_ms)

    # -- which shard -----------------------------------------------------------------------------------------------

    def shard(self, transactional_id: str) -> tuple[int, TransactionShard]:
        """The shard of an id. Raises COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        index = self.topic.partition_of(transactional_id)
        if index is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if index in self._loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        shard = self._shards.get(index)
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return index, shard

    def shards(self) -> list[TransactionShard]:
        """Every shard, in partition order. Raises COORDINATOR_LOAD_IN_PROGRESS while one is loading."""
        if self._loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [self._shards[index] for index in sorted(self._shards)]

    @property
    def loaded_shards(self) -> list[TransactionShard]:
        """Those that are loaded, whatever the others do."""
        return list(self._shards.values())

    @property
    def transaction_version(self) -> int:
        """The cluster's finalized transaction.version."""
        return self._metadata.image.features.get(TRANSACTION_VERSION, 0)

    # -- leadership and loading ------------------------------------------------------------------------------------

    def _leadership_changed(self, index: int, leader_epoch: int, is_leader: bool) -> None:
        self._resign(index)
        if is_leader and not self._stopping:
            self._load(index, leader_epoch)

    def _resign(self, index: int) -> None:
        self._loading.pop(index, None)
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.shutdown()

    def _load(self, index: int, leader_epoch: int) -> None:
        partition = self._replicas.partition(TRANSACTIONS_TOPIC, index)
        if partition is None:
            return
        begun_ms = self._clock.now_ms()
        shard = TransactionShard(self._shard_config, leader_epoch, lambda: self.transaction_version)
        try:
            records = self._replay(partition, shard)
        except (StorageError, WireError) as error:
            # The directory is offline now, and another broker will lead the partition and load its transactions; or its log is corrupt, and
            # nobody coordinates them until another leads.
            logger.error("%s-%d cannot be loaded: %s", TRANSACTIONS_TOPIC, index, error)
            return
        self._loading[index] = shard
        self._await_commit(index, shard, partition, partition.log.log_end_offset, records, begun_ms)

    def _replay(self, partition: Partition, shard: TransactionShard) -> int:
        """Raises StorageError; CorruptRecord for a batch that is not what its checksum says."""
        log = partition.log
        offset, records = log.log_start_offset, 0
        while offset < log.log_end_offset:
            result = log.read(offset, self._config.transaction_state_log_load_buffer_size, end_offset=log.log_end_offset)
            with log.disk("load the transactions"):
                data = result.slice.read()
            if not data:
                break
            for batch in iterate_batches(memoryview(data)):
                batch.check()
                offset = batch.next_offset
                if batch.is_control:
                    continue
                for record in batch.records():
                    key = None if record.key is None else decode_transaction_key(bytes(record.key))
                    if key is not None:
                        records += 1
                        shard.replay(key, None if record.value is None else decode_transaction_value(key, bytes(record.value)))
        return records

    def _await_commit(
        self, index: int, shard: TransactionShard, partition: Partition, end_offset: int, records: int, begun_ms: int
    ) -> None:
        def replicated(code: ErrorCode, _: int) -> None:
            if self._loading.get(index) is not shard:
                return
            if code is ErrorCode.REQUEST_TIMED_OUT:
                self._await_commit(index, shard, partition, end_offset, records, begun_ms)
                return
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return
            del self._loading[index]
            self._shards[index] = shard
            now_ms = self._clock.now_ms()
            self.loads.record(now_ms - begun_ms, now_ms)
            if records:
                logger.info("loaded %d transaction records of %s-%d", records, TRANSACTIONS_TOPIC, index)
            shard.loaded(self._clock.wall_ms())
            self.run_effects(index, shard)

        self._replicas.when_replicated(partition, end_offset, self._config.request_timeout_ms, replicated)

    # -- effects ---------------------------------------------------------------------------------------------------

    def run_effects(self, index: int, shard: TransactionShard) -> None:
        """Carry out what the shard asks for."""
        while effects := shard.take_effects():
            for append in effects.appends:
                self._append(index, shard, append)
            for markers in effects.markers:
                self._send(index, shard, markers, 0)
            for callback in effects.ids:
                self._give_id(index, shard, callback)
            for work in effects.later:
                self._after(RETRY_MS, index, shard, lambda work=work: work(self._clock.wall_ms()))  # type: ignore[misc]

    def _after(self, delay_ms: int, index: int, shard: TransactionShard, work: Callable[[], None]) -> None:
        def run() -> None:
            if self._shards.get(index) is shard:
                work()
                self.run_effects(index, shard)

        self._environment.loop.call_later(delay_ms / 1000, run)

    def _append(self, index: int, shard: TransactionShard, append: StateAppend) -> None:
        wall_ms = self._clock.wall_ms()
        waiting = len(append.records)
        failure = ErrorCode.NONE

        def done(error: ErrorCode, base_offset: int) -> None:
            nonlocal waiting, failure
            waiting -= 1
            if error is not ErrorCode.NONE:
                failure = error
            if waiting == 0:
                append.on_done(failure, self._clock.wall_ms())
                self.run_effects(index, shard)

        for record in append.records:
            value = None if record.value is None else encode_coordinator_value(record.value, record.version)
            batch = build_batch([Record(offset=0, timestamp=wall_ms, key=encode_coordinator_key(record.key), value=value, headers=())])
            self._replicas.append_records(
                TRANSACTIONS_TOPIC, index, batch, -1, self._config.request_timeout_ms, done, origin="coordinator"
            )

    def _give_id(self, index: int, shard: TransactionShard, callback: Callable[[ErrorCode, int, int], None]) -> None:
        async def give() -> None:
            code, producer_id = await self._producer_ids.next_id()
            callback(code, producer_id, self._clock.wall_ms())
            self.run_effects(index, shard)

        task = asyncio.ensure_future(give())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, index: int, shard: TransactionShard, markers: Markers, tries: int) -> None:
        def answered(results: dict[PartitionKey, ErrorCode]) -> None:
            if self._shards.get(index) is not shard:
                return
            if tries >= UNKNOWN_TOPIC_TRIES:
                known = self._metadata.image.topics_by_name
                results = {key: ErrorCode.NONE if key[0] not in known else code for key, code in results.items()}
            left = shard.markers_answered(markers, results, self._clock.wall_ms())
            self.run_effects(index, shard)
            if left:
                delay_ms = min(RETRY_MS << min(tries, 8), RETRY_MS_MAX)
                again = replace(markers, partitions=left)
                self._after(delay_ms, index, shard, lambda: self._send(index, shard, again, tries + 1))
            fenced = [key for key, code in results.items() if code in FENCED_MARKER]
            if fenced:
                logger.warning("markers of %s are refused, a later coordinator has written: %s", markers.transactional_id, fenced)

        self._markers.send(markers, answered)
