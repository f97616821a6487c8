"""The share coordinator (KIP-932): a plug-in of the runtime over `__share_group_state`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from minikafka.broker.coordinators.consumer_groups import ImageTopics
from minikafka.broker.coordinators.coordinator_host import CoordinatorHost
from minikafka.broker.coordinators.coordinator_topic import CoordinatorTopic
from minikafka.broker.coordinators.runtime import CoordinatorKind
from minikafka.core.share.coordinator import Outcome, Reply, ShareCoordinatorConfig, ShareEffects, ShareStateShard
from minikafka.core.share.state import SharePartitionKey
from minikafka.storage.errors import StorageError
from minikafka.wire.errors import ApiError
from minikafka.wire.records.frame import decode_share_key, decode_share_value

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.coordinators.loader import StepQueue
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage

SHARE_STATE_TOPIC = "__share_group_state"
#: (shard, reply): sends a request to the shard.
Ask = Callable[[ShareStateShard, Reply], None]


class ShareStateHost(CoordinatorHost[ShareStateShard]):
    """Configures the shards, and keeps their log from growing without bound."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        controller: ControllerChannel,
        steps: StepQueue,
    ) -> None:
        self._config = config
        self._environment = environment
        self._replicas = replicas
        self._topics = ImageTopics(metadata)
        #: Index of a partition that is loading -> topics that were deleted meanwhile.
        self._deleted: dict[int, list[bytes]] = {}
        topic = CoordinatorTopic(
            SHARE_STATE_TOPIC,
            metadata,
            controller,
            environment.supervisor,
            partitions=config.share_coordinator_state_topic_num_partitions,
            replication_factor=config.share_coordinator_state_topic_replication_factor,
            configs={
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                "retention.ms": "-1",
            },
        )
        super().__init__(self._kind(), environment, replicas, topic, steps)
        metadata.subscribe(self._metadata_changed)

    def _kind(self) -> CoordinatorKind[ShareStateShard]:
        config, clock = self._config, self._environment.clock
        limits = ShareCoordinatorConfig(
            updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
            cold_interval_ms=config.share_coordinator_cold_partition_snapshot_interval_ms,
        )

        def new_shard(index: int, leader_epoch: int) -> ShareStateShard:
            self._deleted.pop(index, None)
            return ShareStateShard(limits, self._topics, clock.wall_ms)

        def at_offset(shard: ShareStateShard, offset: int) -> None:
            shard.offset = offset

        return CoordinatorKind(
            name="share state",
            new_shard=new_shard,
            decode_key=decode_share_key,
            decode_value=decode_share_value,
            carry_out=self._carry_out,
            on_loaded=self._forget_deleted_topics,
            now_ms=clock.now_ms,
            append_timeout_ms=config.share_coordinator_write_timeout_ms,
            load_buffer_bytes=config.share_coordinator_load_buffer_size,
            base_sequence=0,
            on_offset=at_offset,
        )

    def _carry_out(self, index: int, shard: ShareStateShard, effects: ShareEffects) -> Iterator[None]:
        for reply, outcome in effects.answers:
            reply(outcome)
            yield

    def ask(self, key: SharePartitionKey, ask: Ask, reply: Reply, what: str) -> None:
        """Send a request to the shard of a share partition. `reply` is called with its outcome, possibly before this returns.

        `what`: names the request in the error message when this broker does not serve the shard.
        """
        try:
            index, shard = self.shard(key.text)
        except ApiError as error:
            reply(Outcome(error.code, f"Unable to {what}: {error.code.text}"))
            return
        ask(shard, reply)
        self.run_effects(index, shard)

    # -- upkeep --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start to delete superseded records, and to write snapshots of share partitions that rarely change."""
        config = self._config
        self.every(config.share_coordinator_state_topic_prune_interval_ms, "share state: pruning", self._prune)
        self.every(config.share_coordinator_cold_partition_snapshot_interval_ms, "share state: snapshots", self._snapshot_cold)

    def _snapshot_cold(self, index: int, shard: ShareStateShard) -> Iterator[None]:
        return shard.snapshot_cold(self._environment.clock.now_ms())

    def _prune(self, index: int, shard: ShareStateShard) -> Iterator[None]:
        offset = shard.last_redundant_offset()
        partition = self._replicas.partition(SHARE_STATE_TOPIC, index)
        if offset is None or partition is None or partition.leader is None or offset <= partition.log.log_start_offset:
            return
        try:
            if partition.log.increment_log_start_offset(min(offset, partition.log.high_watermark)):
                partition.log.delete_old_segments(self._environment.clock.wall_ms())
        except StorageError:
            # The storage has reported the failure.
            return
        yield

    def _forget_deleted_topics(self, index: int, shard: ShareStateShard) -> None:
        deleted = self._deleted.pop(index, None)
        if deleted:
            self.runtime.run_steps(index, shard, shard.topics_deleted(deleted, self._environment.clock.now_ms()))

    def _metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        deleted = list(delta.deleted_topics)
        if deleted:
            for index in self.runtime.loading():
                self._deleted.setdefault(index, []).extend(deleted)
            for index, shard in self.runtime.loaded():
                self.runtime.run_steps(index, shard, shard.topics_deleted(deleted, self._environment.clock.now_ms()))
