"""The group coordinator: a plug-in of the runtime over `__consumer_offsets`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.broker.coordinators.coordinator_host import CoordinatorHost
from minikafka.broker.coordinators.coordinator_topic import CoordinatorTopic
from minikafka.broker.coordinators.late_import import LateImport
from minikafka.broker.coordinators.runtime import CoordinatorKind
from minikafka.core.group.config import GroupConfig
from minikafka.core.group.effects import Effects, StateAnswers
from minikafka.wire.errors import ErrorCode
from minikafka.wire.records.frame import decode_group_key, decode_group_value

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.coordinators.consumer_groups import TopicPatterns
    from minikafka.broker.coordinators.loader import StepQueue
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.core.group.consumer.settings import ConsumerSettings
    from minikafka.core.group.coordinator import GroupShard
    from minikafka.core.group.effects import Creation, StateQuestion
    from minikafka.core.group.share.settings import ShareSettings
    from minikafka.core.group.streams.settings import StreamsSettings
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage

OFFSETS_TOPIC = "__consumer_offsets"
LOAD_BUFFER_BYTES = 1 << 20


class StatePersister(Protocol):
    """Sends requests to share coordinators."""

    async def answer(self, question: StateQuestion) -> StateAnswers:
        """The share coordinators' answers."""


class TopicCreator(Protocol):
    """Creates internal topics."""

    def create(self, creation: Creation) -> None:
        """Start the creation, or put the reason for a refusal into the answer."""


class GroupHost(CoordinatorHost["GroupShard"]):
    """Gives group shards their configuration, reports deleted topics to them, and expires offsets. The runtime does the rest."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        controller: ControllerChannel,
        steps: StepQueue,
        consumer: ConsumerSettings | None = None,
        patterns: TopicPatterns | None = None,
        share: ShareSettings | None = None,
        persister: StatePersister | None = None,
        streams: StreamsSettings | None = None,
        internal_topics: TopicCreator | None = None,
    ) -> None:
        """`consumer`, `patterns`: for groups of the consumer protocol (KIP-848); `share`, `persister`: for share groups (KIP-932);
        `streams`, `internal_topics`: for streams groups (KIP-1071)."""
        self._streams = streams
        self._internal_topics = internal_topics
        self._share = share
        self._persister = persister
        self._consumer = consumer
        self._patterns = patterns
        self._config = config
        self._environment = environment
        self._metadata = metadata
        self._shards = LateImport("minikafka.core.group.coordinator", environment)
        #: Partition -> topics that were deleted while its shard was being loaded.
        self._deleted: dict[int, list[str]] = {}
        topic = CoordinatorTopic(
            OFFSETS_TOPIC,
            metadata,
            controller,
            environment.supervisor,
            partitions=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
        super().__init__(self._kind(config), environment, replicas, topic, steps)
        metadata.subscribe(self._metadata_changed)

    def _kind(self, config: BrokerConfig) -> CoordinatorKind[GroupShard]:
        limits = GroupConfig(
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_size_max=config.group_max_size,
            offset_metadata_bytes_max=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        )

        def new_shard(index: int, leader_epoch: int) -> GroupShard:
            from minikafka.core.group.coordinator import GroupShard

            self._deleted.pop(index, None)
            return GroupShard(limits, self._new_uuid, self._wall_ms, self._consumer, self._share, self._streams)

        return CoordinatorKind(
            name="group",
            new_shard=new_shard,
            decode_key=decode_group_key,
            decode_value=decode_group_value,
            carry_out=self._carry_out,
            on_loaded=self._forget_deleted_topics,
            now_ms=self._environment.clock.now_ms,
            append_timeout_ms=config.offsets_commit_timeout_ms,
            load_buffer_bytes=LOAD_BUFFER_BYTES,
            base_sequence=0,
            before_leadership=self._shards.before,
        )

    async def ensure_topic(self) -> None:
        """Create the topic if it is missing, and wait until it exists or the time is up. Its first shards are near."""
        self._shards.begin()
        await super().ensure_topic()

    async def start(self) -> None:
        """Start the periodic expiry of offsets."""
        self.every(self._config.offsets_retention_check_interval_ms, "expiry of offsets", self._expire)

    def _forget_deleted_topics(self, index: int, shard: GroupShard) -> None:
        deleted = self._deleted.pop(index, None)
        if deleted:
            self.runtime.run_steps(index, shard, shard.partitions_deleted(deleted))

    def _carry_out(self, index: int, shard: GroupShard, effects: Effects) -> Iterator[None]:
        for creation in effects.creations:
            if self._internal_topics is not None:
                self._internal_topics.create(creation)
        for reply, response in effects.answers:
            reply.respond(response)
            yield
        for steps in effects.work:
            self.runtime.run_steps(index, shard, steps)
        for context, group_id, regexes in effects.resolutions:
            work = self._resolve(index, shard, context, group_id, regexes)
            self._environment.supervisor.start(work, "the resolution of patterns", ends=self.runtime.ends(index, shard))
        for question in effects.questions:
            work = self._ask(index, shard, question)
            self._environment.supervisor.start(work, "a question for share coordinators", ends=self.runtime.ends(index, shard))

    async def _ask(self, index: int, shard: GroupShard, question: StateQuestion) -> None:
        assert self._persister is not None
        answers = await self._persister.answer(question)
        if self.runtime.is_current(index, shard):
            question.done(answers, self._environment.clock.now_ms())
            self.runtime.run(index, shard)

    async def _resolve(self, index: int, shard: GroupShard, context: Any, group_id: str, regexes: tuple[str, ...]) -> None:
        found = None
        try:
            if self._patterns is not None:
                found = await self._patterns.resolve(context, regexes)
        finally:
            # The group may ask again, whatever the result was.
            if self.runtime.is_current(index, shard):
                shard.consumers.resolved(group_id, found, self._environment.clock.now_ms())
                self.runtime.run(index, shard)

    @property
    def group_counts(self) -> dict[str, int]:
        """The number of groups in each state, for the metrics."""
        counts: dict[str, int] = {}
        for shard in self.runtime.loaded_shards():
            for _, _, state, _ in shard.listed():
                counts[state] = counts.get(state, 0) + 1
        return counts

    # -- metadata changes and expiry -------------------------------------------------------------------------------

    def _metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        deleted = [topic.name for topic in delta.deleted_topics.values()]
        changed = {topic.name for topic in delta.changed_topics.values()}
        if deleted or changed:
            has_new = any(topic.is_new for topic in delta.changed_topics.values())
            for index, shard in self.runtime.all_shards():
                with self._supervisor.watching("groups whose topics change", ends=self.runtime.ends(index, shard)):
                    shard.consumers.topics_changed(changed.union(deleted), has_new=has_new)
                    shard.shares.topics_changed(changed.union(deleted))
                    shard.streams.topics_changed(changed.union(deleted))
        if deleted:
            for index in self.runtime.loading():
                self._deleted.setdefault(index, []).extend(deleted)
            for index, shard in self.runtime.loaded():
                shard.shares.topics_deleted(delta.deleted_topics, self._environment.clock.now_ms())
                self.runtime.run_steps(index, shard, shard.partitions_deleted(deleted))

    def _expire(self, index: int, shard: GroupShard) -> Iterator[None]:
        return shard.expire_offsets(self._environment.clock.now_ms())

    # -- access to the metadata --------------------------------------------------------------------------------------

    def _new_uuid(self) -> str:
        return str(uuid.UUID(int=self._environment.random.getrandbits(128), version=4))

    def _wall_ms(self, now_ms: int) -> int:
        clock = self._environment.clock
        return clock.wall_ms() - (clock.now_ms() - now_ms)

    def resolve_topic(self, name: str, topic_id: bytes, index: int) -> tuple[str, bytes] | ErrorCode:
        """Name and id of a partition's topic, found by its name; the error if the cluster does not have it."""
        topic = self._metadata.image.topics_by_name.get(name)
        if topic is None or index not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return topic.name, topic.topic_id

    def resolve_topic_id(self, name: str, topic_id: bytes, index: int) -> tuple[str, bytes] | ErrorCode:
        """The same by the topic's id."""
        topic = self._metadata.image.topics_by_id.get(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return (topic.name, topic_id) if index in topic.partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
