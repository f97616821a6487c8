"""The transaction coordinator: a plug-in of the runtime over `__transaction_state`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from minikafka.broker.coordinators.coordinator_topic import CoordinatorTopic
from minikafka.broker.coordinators.runtime import CoordinatorKind, CoordinatorRuntime
from minikafka.core.transaction.coordinator import FENCED_MARKER, TransactionShard
from minikafka.core.transaction.effects import Markers, TransactionConfig, TransactionEffects
from minikafka.core.transaction.state import PartitionKey
from minikafka.wire.errors import ErrorCode
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
#: A topic that is not known for so many tries is gone: what was written there is gone with it.
UNKNOWN_TOPIC_TRIES = 20
logger = logging.getLogger("minikafka.transaction")


class TransactionHost:
    """Gives transaction shards their producer ids and the time, and sends their markers; the runtime does the rest."""

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
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: How many transactions were open for too long.
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
        kind = CoordinatorKind(
            name="transaction",
            new_shard=lambda index, epoch: TransactionShard(self._shard_config, epoch, lambda: self.transaction_version),
            decode_key=decode_transaction_key,
            decode_value=decode_transaction_value,
            carry_out=self._carry_out,
            on_loaded=lambda index, shard: None,
            now_ms=environment.clock.wall_ms,
            append_timeout_ms=config.request_timeout_ms,
            load_buffer_bytes=config.transaction_state_log_load_buffer_size,
            base_sequence=-1,
        )
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(kind, environment, replicas, self.topic, steps)
        #: How long loading a partition took, ms.
        self.loads = self.runtime.loads

    def start(self) -> None:
        """Begin to look for transactions that take too long and for ids that are not used any more."""
        self._every(self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms, "timeouts", self._abort_timed_out)
        self._every(self._config.transaction_remove_expired_transaction_cleanup_interval_ms, "expiry", self._remove_expired)

    async def stop(self) -> None:
        """Answer what waits and forget the shards."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        self.runtime.stop()

    def _every(self, interval_ms: int, name: str, work: Callable[[TransactionShard, int], list[str]]) -> None:
        def run() -> None:
            self._every(interval_ms, name, work)
            for index, shard in self.runtime.loaded():
                found = work(shard, self._clock.wall_ms())
                self.timeouts += len(found) if name == "timeouts" else 0
                for transactional_id in found:
                    logger.info("%s of %s-%d: %s", name, TRANSACTIONS_TOPIC, index, transactional_id)
                self.run_effects(index, shard)

        self._timers[name] = self._environment.supervisor.call_later(interval_ms / 1000, f"transactions: {name}", run)

    @staticmethod
    def _abort_timed_out(shard: TransactionShard, now_ms: int) -> list[str]:
        return shard.abort_timed_out(now_ms)

    @staticmethod
    def _remove_expired(shard: TransactionShard, now_ms: int) -> list[str]:
        return shard.remove_expired(now_ms)

    # -- which shard -----------------------------------------------------------------------------------------------

    def shard(self, transactional_id: str) -> tuple[int, TransactionShard]:
        """The shard of an id. Raises COORDINATOR_LOAD_IN_PROGRESS or NOT_COORDINATOR."""
        return self.runtime.shard(transactional_id)

    def shards(self) -> list[TransactionShard]:
        """Every shard, in partition order. Raises COORDINATOR_LOAD_IN_PROGRESS while one is loading."""
        return self.runtime.shards()

    @property
    def loaded_shards(self) -> list[TransactionShard]:
        """Those that are loaded, whatever the others do."""
        return self.runtime.loaded_shards()

    def run_effects(self, index: int, shard: TransactionShard) -> None:
        """Carry out what the shard asks for."""
        self.runtime.run(index, shard)

    @property
    def transaction_version(self) -> int:
        """The cluster's finalized transaction.version."""
        return self._metadata.image.features.get(TRANSACTION_VERSION, 0)

    # -- effects ---------------------------------------------------------------------------------------------------

    def _carry_out(self, index: int, shard: TransactionShard, effects: TransactionEffects) -> None:
        for markers in effects.markers:
            self._send(index, shard, markers, 0)
        for callback in effects.ids:
            self._give_id(index, shard, callback)
        for work in effects.later:
            self._after(RETRY_MS, index, shard, lambda work=work: work(self._clock.wall_ms()))  # type: ignore[misc]

    def _after(self, delay_ms: int, index: int, shard: TransactionShard, work: Callable[[], None]) -> None:
        def run() -> None:
            if self.runtime.is_current(index, shard):
                work()
                self.run_effects(index, shard)

        self._environment.supervisor.call_later(delay_ms / 1000, "transactions: retry", run)

    def _give_id(self, index: int, shard: TransactionShard, callback: Callable[[ErrorCode, int, int], None]) -> None:
        async def give() -> None:
            code, producer_id = await self._producer_ids.next_id()
            callback(code, producer_id, self._clock.wall_ms())
            self.run_effects(index, shard)

        task = self._environment.supervisor.start(give(), "transactions: a producer id")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, index: int, shard: TransactionShard, markers: Markers, tries: int) -> None:
        def answered(results: dict[PartitionKey, ErrorCode]) -> None:
            if not self.runtime.is_current(index, shard):
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
