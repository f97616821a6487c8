"""The input of consumer groups (KIP-848): topics, configuration, and regular expressions resolved in a thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from minikafka.broker.front.turns import in_steps
from minikafka.core.group.consumer.group import ResolvedRegex
from minikafka.core.group.consumer.policy import MigrationPolicy
from minikafka.core.group.consumer.settings import ConsumerGroupConfig, ConsumerSettings, GroupIntervals
from minikafka.core.metadata.image import RESOURCE_GROUP
from minikafka.core.pattern import InvalidPattern, matching

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.config.dynamic import Settings
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.heavy_work import HeavyWork
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.core.metadata.image import BrokerRegistration, TopicImage


class ImageTopic:
    """A topic of a metadata image."""

    __slots__ = ("_brokers", "_topic")

    def __init__(self, topic: TopicImage, brokers: Mapping[int, BrokerRegistration]) -> None:
        self._topic = topic
        self._brokers = brokers

    @property
    def name(self) -> str:
        """The topic's name."""
        return self._topic.name

    @property
    def topic_id(self) -> bytes:
        """The topic's id."""
        return self._topic.topic_id

    @property
    def partition_count(self) -> int:
        """The number of partitions."""
        return len(self._topic.partitions)

    def racks(self, index: int) -> list[str]:
        """The racks of a partition's replicas, without the replicas whose broker has no rack."""
        partition = self._topic.partitions.get(index)
        brokers = [] if partition is None else [self._brokers.get(replica) for replica in partition.replicas]
        return [broker.rack for broker in brokers if broker is not None and broker.rack is not None]


class ImageTopics:
    """The topics of the newest metadata image."""

    def __init__(self, metadata: MetadataHost) -> None:
        self._metadata = metadata

    @property
    def version(self) -> int:
        """The offset of the image."""
        return self._metadata.image.offset

    def by_name(self, name: str) -> ImageTopic | None:
        """The topic with this name, or None."""
        topic = self._metadata.image.topics_by_name.get(name)
        return None if topic is None else ImageTopic(topic, self._metadata.image.brokers)

    def by_id(self, topic_id: bytes) -> ImageTopic | None:
        """The topic with this id, or None."""
        topic = self._metadata.image.topics_by_id.get(topic_id)
        return None if topic is None else ImageTopic(topic, self._metadata.image.brokers)

    def names(self) -> list[str]:
        """The names of all topics."""
        return list(self._metadata.image.topics_by_name)


def consumer_settings(config: BrokerConfig, settings: Settings, metadata: MetadataHost) -> ConsumerSettings:
    """The settings that every shard gets."""

    def intervals(group_id: str) -> GroupIntervals:
        own = metadata.image.config(RESOURCE_GROUP, group_id)
        session_ms, heartbeat_ms = config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms
        assignment_ms = settings.group_consumer_assignment_interval_ms
        if not own:
            return GroupIntervals(session_ms, heartbeat_ms, assignment_ms)

        def value(name: str, default: int) -> int:
            text = own.get(name, "")
            # Another node may have stored the value, and this node has not validated it.
            return int(text) if text.strip().isdecimal() else default

        return GroupIntervals(
            session_timeout_ms=value("consumer.session.timeout.ms", session_ms),
            heartbeat_interval_ms=value("consumer.heartbeat.interval.ms", heartbeat_ms),
            assignment_interval_ms=value("consumer.assignment.interval.ms", assignment_ms),
        )

    limits = ConsumerGroupConfig(
        assignors=tuple(config.group_consumer_assignors),
        size_max=config.group_consumer_max_size,
        regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
        migration=MigrationPolicy.named(config.group_consumer_migration_policy, config.group_max_size),
    )
    return ConsumerSettings(limits, ImageTopics(metadata), intervals)


class TopicPatterns:
    """Resolves regular expressions to topics, as far as the client may see them."""

    def __init__(
        self,
        environment: Environment,
        metadata: MetadataHost,
        heavy_work: HeavyWork,
        may_describe: Callable[[Any, str], bool],
    ) -> None:
        """`may_describe(context, topic)`: whether the sender of the request may describe the topic."""
        self._clock = environment.clock
        self._metadata = metadata
        self._heavy_work = heavy_work
        self._may_describe = may_describe

    async def check(self, pattern: str) -> None:
        """Check that a regular expression is valid. Raises InvalidPattern."""
        await self._heavy_work.run(matching, pattern, ())

    async def resolve(self, context: Any, patterns: Collection[str]) -> dict[str, ResolvedRegex]:
        """The topics that match each pattern; no topics for an invalid pattern."""
        image = self._metadata.image
        started_ms = self._clock.wall_ms()
        names = list(image.topics_by_name)
        found = {}
        for pattern in sorted(patterns):
            try:
                topics = await self._heavy_work.run(matching, pattern, names)
            except InvalidPattern:
                topics = set()
            visible = [name async for name in in_steps(sorted(topics)) if self._may_describe(context, name)]
            found[pattern] = ResolvedRegex(frozenset(visible), image.offset, started_ms)
        return found
