"""The state of the active controller: the newest image, including uncommitted records, and lookups over it.

Only `replay` changes it. A controller that is replaced drops the whole object, so records that were never committed leave no trace; the
next controller starts from the committed image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any

from minikafka.core.metadata.delta import MetadataDelta, TopicDelta
from minikafka.core.metadata.image import (
    NO_LEADER,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from minikafka.late_dataclass import dataclass
from minikafka.steps import Steps, paced

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"
#: Name of the resource that stands for all brokers.
CLUSTER_DEFAULT = ""

#: Records applied, or partitions put into the indexes, in one step, at a few microseconds each.
STEP_RECORDS = 512
#: Changes that need not be atomic are written in batches of this many records. Kafka's batches have up to 10,000; those who follow the log
#: apply a batch in one turn of their loop.
RECORDS_PER_BATCH = 512

PartitionKey = tuple[bytes, int]


@dataclass(slots=True)
class Result:
    """The result of a request: records to append, in one batch if `atomic`, and the response to send when they are committed."""

    response: Any = None
    records: list[Any] = field(default_factory=list)
    atomic: bool = True
    #: Called with the offset of the last record when they have been appended.
    written: Callable[[int], None] | None = None


class ControllerState:
    """The newest image and indexes over its partitions. `next_offset` is the offset of the next record."""

    __slots__ = ("_collisions", "_leaderless", "_led", "_replicas", "image", "next_offset")

    def __init__(self, image: MetadataImage, next_offset: int) -> None:
        self.image = image
        self.next_offset = next_offset
        self._replicas: dict[int, dict[PartitionKey, None]] = {}
        self._leaderless: dict[PartitionKey, None] = {}
        #: How many partitions a broker leads.
        self._led: dict[int, int] = {}
        self._collisions: dict[str, dict[str, None]] = {}

    def load(self) -> Steps[None]:
        """Make the indexes, before anything else."""
        for topic in self.image.topics_by_id.values():
            self._index_name(topic.name)
        for (topic, index, partition), is_step in paced(self.all_partitions(), STEP_RECORDS):
            self._index((topic.topic_id, index), None, partition)
            if is_step:
                yield

    def replay(self, records: list[Any], base_offset: int) -> Steps[MetadataDelta]:
        """Apply records that were appended at `base_offset`. The state is the old one, and not to be asked, until the last step."""
        delta = MetadataDelta(self.image)
        for (number, record), is_step in paced(enumerate(records), STEP_RECORDS):
            delta.apply(record, base_offset + number)
            if is_step:
                yield
        yield from self._forget(delta.deleted_topics.values())
        yield from self._index_changed(delta.changed_topics.values())
        self.next_offset = base_offset + len(records)
        self.image = delta.image(self.next_offset - 1)
        for topic in delta.deleted_topics.values():
            self._forget_name(topic)
        return delta

    # -- look-ups --------------------------------------------------------------------------------------------------

    def partitions_of(self, broker_id: int) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
        """Partitions with a replica on the broker."""
        return self._resolve(self._replicas.get(broker_id, {}))

    def leaderless_partitions(self) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
        """Partitions without a leader."""
        return self._resolve(self._leaderless)

    def all_partitions(self) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
        """Every partition."""
        for topic in list(self.image.topics_by_id.values()):
            for index, partition in topic.partitions.items():
                yield topic, index, partition

    @property
    def has_leaderless(self) -> bool:
        """Whether some partition has no leader."""
        return bool(self._leaderless)

    def leads_any(self, broker_id: int) -> bool:
        """Whether the broker leads a partition."""
        return self._led.get(broker_id, 0) > 0

    def colliding_topic(self, name: str) -> str | None:
        """A topic whose metric names would collide with those of `name`, because dots and underscores look alike there; None without
        one."""
        others = self._collisions.get(name.replace(".", "_"), {})
        return next((other for other in others if other != name), None)

    def min_isr(self, topic: str, static: int) -> int:
        """The topic's min.insync.replicas: its own, else the cluster's dynamic one, else the controller's property."""
        image = self.image
        value = image.config(RESOURCE_TOPIC, topic).get(MIN_INSYNC_REPLICAS)
        if value is None:
            value = image.config(RESOURCE_BROKER, CLUSTER_DEFAULT).get(MIN_INSYNC_REPLICAS)
        try:
            return static if value is None else int(value)
        except ValueError:
            return static

    def unclean_election(self, topic: str, node_id: int, static: bool) -> bool:
        """Whether the topic may elect a leader that is not in sync: topic, this node, cluster, then property (KAFKA-12670)."""
        image = self.image
        for resource in ((RESOURCE_TOPIC, topic), (RESOURCE_BROKER, str(node_id)), (RESOURCE_BROKER, CLUSTER_DEFAULT)):
            value = image.config(*resource).get(UNCLEAN_LEADER_ELECTION)
            if value is not None:
                return value.strip().lower() == "true"
        return static

    # -- indexes ---------------------------------------------------------------------------------------------------

    def _resolve(self, keys: dict[PartitionKey, None]) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
        topics = self.image.topics_by_id
        for topic_id, index in list(keys):
            topic = topics[topic_id]
            yield topic, index, topic.partitions[index]

    def _index_changed(self, topics: Iterable[TopicDelta]) -> Steps[None]:
        for topic in topics:
            if topic.is_new:
                self._index_name(topic.name)
        partitions = ((topic, index, partition) for topic in topics for index, partition in topic.changed.items())
        for (topic, index, partition), is_step in paced(partitions, STEP_RECORDS):
            self._index((topic.topic_id, index), topic.previous.get(index), partition)
            if is_step:
                yield

    def _index(self, key: PartitionKey, before: PartitionRegistration | None, now: PartitionRegistration) -> None:
        if before is None or before.replicas != now.replicas:
            for broker_id in () if before is None else before.replicas:
                self._replicas[broker_id].pop(key, None)
            for broker_id in now.replicas:
                self._replicas.setdefault(broker_id, {})[key] = None
        if now.leader == NO_LEADER:
            self._leaderless[key] = None
        elif before is None or before.leader == NO_LEADER:
            self._leaderless.pop(key, None)
        if before is not None:
            self._led[before.leader] -= 1
        self._led[now.leader] = self._led.get(now.leader, 0) + 1

    def _index_name(self, name: str) -> None:
        if "." in name or "_" in name:
            self._collisions.setdefault(name.replace(".", "_"), {})[name] = None

    def _forget_name(self, topic: TopicImage) -> None:
        names = self._collisions.get(topic.name.replace(".", "_"))
        if names is not None and topic.name not in self.image.topics_by_name:
            names.pop(topic.name, None)

    def _forget(self, topics: Iterable[TopicImage]) -> Steps[None]:
        partitions = ((topic, index, partition) for topic in topics for index, partition in topic.partitions.items())
        for (topic, index, partition), is_step in paced(partitions, STEP_RECORDS):
            if is_step:
                yield
            self._led[partition.leader] -= 1
            key = (topic.topic_id, index)
            self._leaderless.pop(key, None)
            for broker_id in partition.replicas:
                self._replicas[broker_id].pop(key, None)
