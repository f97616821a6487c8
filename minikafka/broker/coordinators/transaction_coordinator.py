"""The transaction coordinator: a plug-in of the runtime over `__transaction_state`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from minikafka.broker.coordinators.coordinator_host import CoordinatorHost
from minikafka.broker.coordinators.coordinator_topic import CoordinatorTopic
from minikafka.broker.coordinators.runtime import CoordinatorKind
from minikafka.core.transaction.coordinator import FENCED_MARKER, TransactionShard
from minikafka.core.transaction.effects import Markers, TransactionConfig, TransactionEffects
from minikafka.core.transaction.state import PartitionKey
from minikafka.core.transaction.verification import IMPLICIT_VERSION, Verification
from minikafka.counted import counted, named
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.records.frame import decode_transaction_key, decode_transaction_value

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.coordinators.loader import StepQueue
    from minikafka.broker.coordinators.producer_ids import ProducerIdBlocks
    from minikafka.broker.coordinators.transaction_markers import MarkerSender
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost

TRANSACTIONS_TOPIC = "__transaction_state"
TRANSACTION_VERSION = "transaction.version"
RETRY_MS = 50
RETRY_MS_MAX = 500
OnVerified = Callable[[dict[PartitionKey, ErrorCode]], None]
logger = logging.getLogger("minikafka.transaction")


class TransactionHost(CoordinatorHost[TransactionShard]):
    """Gives transaction shards producer ids, looks for timeouts, and sends their markers. The runtime does the rest."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        controller: ControllerChannel,
        producer_ids: ProducerIdBlocks,
        markers: MarkerSender,
        steps: StepQueue,
    ) -> None:
        self._config = config
        self._environment = environment
        self._clock = environment.clock
        self._metadata = metadata
        self._producer_ids = producer_ids
        self._markers = markers
        self._tasks: dict[asyncio.Task[None], None] = {}
        #: The number of transactions that timed out.
        self.timeouts = 0
        self.timeout_ms_max: int = config.transaction_max_timeout_ms
        #: The listener on which brokers talk to each other.
        self.listener: str = config.inter_broker_listener
        super().__init__(self._kind(), environment, replicas, _topic(config, environment, metadata, controller), steps)

    def _kind(self) -> CoordinatorKind[TransactionShard]:
        config = self._config
        limits = TransactionConfig(timeout_ms_max=config.transaction_max_timeout_ms, expiration_ms=config.transactional_id_expiration_ms)
        return CoordinatorKind(
            name="transaction",
            new_shard=lambda index, epoch: TransactionShard(limits, epoch, lambda: self.transaction_version),
            decode_key=decode_transaction_key,
            decode_value=decode_transaction_value,
            carry_out=self._carry_out,
            on_loaded=lambda index, shard: None,
            now_ms=self._clock.wall_ms,
            append_timeout_ms=config.request_timeout_ms,
            load_buffer_bytes=config.transaction_state_log_load_buffer_size,
            base_sequence=-1,
        )

    def start(self) -> None:
        """Start looking for transactions that time out and for ids that expire."""
        config = self._config
        self.every(config.transaction_abort_timed_out_transaction_cleanup_interval_ms, "transactions: timeouts", self._abort_timed_out)
        self.every(config.transaction_remove_expired_transaction_cleanup_interval_ms, "transactions: expiry", self._remove_expired)

    async def stop(self) -> None:
        """Answer all waiting requests and forget the shards."""
        for task in self._tasks:
            task.cancel()
        await super().stop()

    def _abort_timed_out(self, index: int, shard: TransactionShard) -> Iterator[None]:
        now_ms = self._clock.wall_ms()
        while shard.has_timed_out(now_ms):
            aborted = shard.abort_timed_out(now_ms)
            self.timeouts += len(aborted)
            _log_ids("are aborted, because their transactions timed out", index, aborted)
            yield

    def _remove_expired(self, index: int, shard: TransactionShard) -> Iterator[None]:
        now_ms = self._clock.wall_ms()
        while shard.has_expired(now_ms):
            _log_ids("are removed, because they were idle for transactional.id.expiration.ms", index, shard.remove_expired(now_ms))
            yield

    # -- verification ----------------------------------------------------------------------------------------------

    def add_or_verify(self, verification: Verification, done: OnVerified) -> None:
        """Add or verify partitions for their leader, this broker or another. Calls `done(partition -> error)`, perhaps before returning."""
        partitions = verification.partitions
        unknown = self.unknown_partitions(partitions)
        if unknown:
            done(refused_for(partitions, unknown))
            return
        try:
            if not verification.transactional_id:
                raise ApiError(ErrorCode.INVALID_REQUEST)
            index, shard = self.shard(verification.transactional_id)
        except ApiError as error:
            done(dict.fromkeys(sorted(partitions), error.code))
            return
        if not verification.adds:
            done(shard.verify_partitions(verification.transactional_id, verification.producer_id, verification.producer_epoch, partitions))
            return
        shard.add_partitions(
            verification.transactional_id,
            verification.producer_id,
            verification.producer_epoch,
            partitions,
            IMPLICIT_VERSION,
            lambda code: done(dict.fromkeys(sorted(partitions), code)),
            self._clock.wall_ms(),
        )
        self.run_effects(index, shard)

    def unknown_partitions(self, partitions: Iterable[PartitionKey]) -> frozenset[PartitionKey]:
        """The partitions that are not in the metadata. A transaction never gains such a partition, so one that is missing when its markers
        are sent has been deleted."""
        topics = self._metadata.image.topics_by_name
        return frozenset(key for key in partitions if (topic := topics.get(key[0])) is None or key[1] not in topic.partitions)

    @property
    def transaction_version(self) -> int:
        """The cluster's finalized transaction.version."""
        return self._metadata.image.features.get(TRANSACTION_VERSION, 0)

    # -- effects ---------------------------------------------------------------------------------------------------

    def _carry_out(self, index: int, shard: TransactionShard, effects: TransactionEffects) -> Iterator[None]:
        for markers in effects.markers:
            yield  # what was appended before may have used up the turn
            for part in markers.parts():
                self._send(index, shard, part, 0)
                yield
        for callback in effects.ids:
            self._give_id(index, shard, callback)
            yield
        for work in effects.later:
            self._after(RETRY_MS, index, shard, lambda work=work: work(self._clock.wall_ms()))  # type: ignore[misc]

    def _after(self, delay_ms: int, index: int, shard: TransactionShard, work: Callable[[], None]) -> None:
        def run() -> None:
            if self.runtime.is_current(index, shard):
                work()
                self.run_effects(index, shard)

        ends = self.runtime.ends(index, shard)
        self._environment.supervisor.call_later(delay_ms / 1000, "transactions: retry", run, ends=ends)

    def _give_id(self, index: int, shard: TransactionShard, callback: Callable[[ErrorCode, int, int], None]) -> None:
        async def give() -> None:
            code, producer_id = await self._producer_ids.next_id()
            callback(code, producer_id, self._clock.wall_ms())
            self.run_effects(index, shard)

        ends = self.runtime.ends(index, shard)
        task = self._environment.supervisor.start(give(), "transactions: a producer id", ends=ends)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _send(self, index: int, shard: TransactionShard, markers: Markers, tries: int) -> None:
        """Send until every partition has its marker or has been deleted."""

        ends = self.runtime.ends(index, shard)

        def answered(results: dict[PartitionKey, ErrorCode]) -> None:
            with self._environment.supervisor.watching("transactions: the answer to markers", ends=ends):
                take(results)

        def take(results: dict[PartitionKey, ErrorCode]) -> None:
            if not self.runtime.is_current(index, shard):
                return
            left = shard.markers_answered(markers, results, self._clock.wall_ms())
            self.run_effects(index, shard)
            if left:
                delay_ms = min(RETRY_MS << min(tries, 8), RETRY_MS_MAX)
                again = replace(markers, partitions=left)
                self._after(delay_ms, index, shard, lambda: self._send(index, shard, again, tries + 1))
            fenced = [key for key, code in results.items() if code in FENCED_MARKER]
            if fenced:
                refused = named([f"{topic}-{partition}" for topic, partition in fenced])
                logger.warning("markers of %s were rejected, because there is a newer coordinator: %s", markers.transactional_id, refused)

        self._markers.send(markers, answered)


def refused_for(partitions: Iterable[PartitionKey], unknown: frozenset[PartitionKey]) -> dict[PartitionKey, ErrorCode]:
    """If one partition is unknown, refuse all: partitions are added together or not at all."""
    return {key: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if key in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED for key in partitions}


def _log_ids(what: str, index: int, transactional_ids: list[str]) -> None:
    if transactional_ids:
        ids = counted(len(transactional_ids), "transactional id")
        logger.info("%s of %s-%d %s: %s", ids, TRANSACTIONS_TOPIC, index, what, named(transactional_ids))


def _topic(config: BrokerConfig, environment: Environment, metadata: MetadataHost, controller: ControllerChannel) -> CoordinatorTopic:
    return CoordinatorTopic(
        TRANSACTIONS_TOPIC,
        metadata,
        controller,
        environment.supervisor,
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
