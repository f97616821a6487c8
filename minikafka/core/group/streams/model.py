"""Types of streams groups (KIP-1071): tasks, topologies, and the input of assignors.

Rules: org.apache.kafka.coordinator.group.streams of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import IntEnum

from minikafka.late_dataclass import dataclass
from minikafka.steps import Steps
from minikafka.wire.records.group_records import StreamsGroupTopologyValue

#: Partitions by subtopology id: each is a task. No entry is empty.
Tasks = Mapping[str, frozenset[int]]
#: Active tasks, each with the member epoch in which it was assigned.
TaskEpochs = Mapping[str, Mapping[int, int]]
#: Offsets of tasks by subtopology id and partition.
TaskOffsets = Mapping[str, Mapping[int, int]]


class Status(IntEnum):
    """States of the group in a heartbeat's answer, besides errors (StreamsGroupHeartbeatResponse.Status)."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


@dataclass(frozen=True, slots=True)
class TasksTuple:
    """Tasks of a member: active tasks that it processes, standby tasks whose state it keeps, and warm-up tasks whose state it restores."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


@dataclass(frozen=True, slots=True)
class Topology:
    """A topology as members sent it: its epoch, and its subtopologies by id, as they are recorded."""

    epoch: int
    subtopologies: Mapping[str, StreamsGroupTopologyValue.Subtopology]
    #: Topic -> id of the first subtopology that reads it.
    _readers: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for subtopology_id, subtopology in self.subtopologies.items():
            for topic in (*subtopology.source_topics, *(info.name for info in subtopology.repartition_source_topics)):
                self._readers.setdefault(topic, subtopology_id)

    @classmethod
    def of(cls, value: StreamsGroupTopologyValue) -> Topology:
        """The topology of a record."""
        return cls(value.epoch, {subtopology.subtopology_id: subtopology for subtopology in value.subtopologies})

    @property
    def entries(self) -> int:
        """Number of subtopologies and of the topics and copartition groups in them."""
        return len(self.subtopologies) + sum(
            len(one.source_topics)
            + len(one.repartition_source_topics)
            + len(one.repartition_sink_topics)
            + len(one.state_changelog_topics)
            + len(one.copartition_groups)
            for one in self.subtopologies.values()
        )

    def required_topics(self) -> frozenset[str]:
        """Names of all topics that the topology reads or keeps its state in, internal ones included."""
        names: set[str] = set()
        for subtopology in self.subtopologies.values():
            names.update(subtopology.source_topics)
            names.update(topic.name for topic in subtopology.repartition_source_topics)
            names.update(topic.name for topic in subtopology.state_changelog_topics)
        return frozenset(names)

    def subtopology_of(self, topic: str) -> str | None:
        """The id of the subtopology that reads a topic; None when none does."""
        return self._readers.get(topic)


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic that exists only for the group: a repartition topic or a changelog. `replication_factor` 0: the broker's default."""

    name: str
    partition_count: int
    replication_factor: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology with all numbers of partitions decided. It has the tasks 0 to `task_count` - 1."""

    task_count: int
    source_topics: frozenset[str]
    repartition_source_topics: Mapping[str, InternalTopic]
    repartition_sink_topics: frozenset[str]
    state_changelog_topics: Mapping[str, InternalTopic]

    @property
    def is_stateful(self) -> bool:
        """Whether the subtopology has state, so that it may have standby tasks."""
        return bool(self.state_changelog_topics)


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology configured for the existing topics, whose hash is `metadata_hash`.

    `subtopologies`: by id, in the order of the ids; None if numbers of partitions could not be decided. `missing_topics`: internal topics
    that do not exist yet, by name. `problem`: why no task can be assigned; None if tasks can be assigned.
    """

    epoch: int
    metadata_hash: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    missing_topics: Mapping[str, InternalTopic]
    problem: tuple[Status, str] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member as an assignor sees it. `tasks`: its current tasks, not its target. The offsets are those that it last reported."""

    process_id: str
    tasks: TasksTuple = field(default_factory=TasksTuple)
    instance_id: str | None = None
    rack_id: str | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    task_offsets: TaskOffsets = field(default_factory=dict)
    task_end_offsets: TaskOffsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group: its members, in an order that affects the result, and the configuration of the assignment.

    `num_standby_replicas`: `streams.num.standby.replicas`. `rack_aware_assignment_tags`: `streams.rack.aware.assignment.tags`.
    """

    members: Mapping[str, MemberSpec]
    num_standby_replicas: int = 0
    rack_aware_assignment_tags: tuple[str, ...] = ()


#: Computes the target of every member: active and standby tasks, no warm-up tasks.
Assignor = Callable[[GroupSpec, ConfiguredTopology], Steps[dict[str, TasksTuple]]]
