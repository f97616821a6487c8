"""Configuring a topology for the existing topics: the numbers of partitions of internal topics, and why no task can be assigned yet.

Rules: org.apache.kafka.coordinator.group.streams.topics of Apache Kafka 4.4. Members receive the problems in its words. Which of several
problems is reported depends there on the order of Java's hash tables, which is reproduced here.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from minikafka.core.group.consumer.assignor import Pace
from minikafka.core.group.consumer.topics import Topics
from minikafka.core.group.streams.model import ConfiguredSubtopology, ConfiguredTopology, InternalTopic, Status, Topology
from minikafka.core.java_hash import by_place, names_in_table_order, string_hash, text_order
from minikafka.core.topic_name import topic_name_fault
from minikafka.steps import Steps, at_once
from minikafka.wire.errors import ErrorCode
from minikafka.wire.records.group_records import StreamsGroupTopologyValue

#: Units of a step for a name to be hashed, and for one to be looked up.
_NAME_UNITS, _LOOK_UNITS = 10, 2
#: Most topic names in a problem's text; it only counts further ones.
NAMES_SHOWN_MAX = 3
Subtopology = StreamsGroupTopologyValue.Subtopology
_LOOP = (
    "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that cannot be resolved."
)  # fmt: skip
_NO_SINK = (
    "Failed to compute number of partitions for all repartition topics, because a repartition source topic is never used as a sink topic."
)  # fmt: skip


class InvalidTopology(Exception):
    """The topology cannot work whatever topics exist. The member that sent it gets `code` and the message."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.STREAMS_INVALID_TOPOLOGY) -> None:
        super().__init__(message)
        self.code = code


class _Problem(Exception):
    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


def configure(topology: Topology, topics: Topics, metadata_hash: int) -> ConfiguredTopology:
    """`configure_steps` in one go."""
    return at_once(configure_steps(topology, topics, metadata_hash))


def configure_steps(topology: Topology, topics: Topics, metadata_hash: int) -> Steps[ConfiguredTopology]:
    """Decide the number of partitions of every internal topic, and find the internal topics that do not exist.

    The indexes in copartition groups must refer to topics of their subtopology. Raises InvalidTopology.
    """
    pace = Pace()
    in_order = names_in_table_order(topology.subtopologies)
    subtopologies = [topology.subtopologies[subtopology_id] for subtopology_id in in_order]
    try:
        _check_sources(subtopologies, topics)
        yield
        counts = _Counts(topics)
        counts.decided.update((yield from _repartition_counts(subtopologies, counts, pace)))
        yield
        yield from _enforce_copartitioning(subtopologies, counts, pace)
        tasks: dict[str, int] = {}
        for subtopology in subtopologies:
            count = tasks[subtopology.subtopology_id] = _task_count(subtopology, counts)
            names = [info.name for info in subtopology.state_changelog_topics]
            counts.decided.update(dict.fromkeys(names, count))
            if pace.is_due(_LOOK_UNITS * len(names)):
                yield
        configured: dict[str, ConfiguredSubtopology] = {}
        for one in sorted(topology.subtopologies, key=text_order):
            configured[one] = yield from _configured(topology.subtopologies[one], tasks[one], counts, pace)
        missing = yield from _missing_topics(configured, topology, counts, pace)
    except _Problem as problem:
        return ConfiguredTopology(topology.epoch, metadata_hash, None, {}, (problem.status, str(problem)))
    status = (Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {_summary(missing)}") if missing else None
    return ConfiguredTopology(topology.epoch, metadata_hash, configured, missing, status)


class _Counts:
    """Numbers of partitions: those of existing topics, and those decided for other topics."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._existing: dict[str, int | None] = {}
        self.decided: dict[str, int] = {}

    def existing(self, name: str) -> int | None:
        if name not in self._existing:
            topic = self._topics.by_name(name)
            self._existing[name] = None if topic is None else topic.partition_count
        return self._existing[name]

    def of(self, name: str) -> int:
        count = self.existing(name)
        return self.decided[name] if count is None else count


def _check_sources(subtopologies: list[Subtopology], topics: Topics) -> None:
    missing = {name for subtopology in subtopologies for name in subtopology.source_topics if topics.by_name(name) is None}
    if missing:
        summary = _summary(sorted(missing, key=text_order))
        raise _Problem(Status.MISSING_SOURCE_TOPICS, f"Source topics {summary} are missing.")


# -- repartition topics --------------------------------------------------------------------------------------------------


def _repartition_counts(subtopologies: list[Subtopology], counts: _Counts, pace: Pace) -> Steps[dict[str, int]]:
    """Numbers of partitions of repartition topics: as the topology sets them, or as many as the largest topic that their writer reads.

    Apache Kafka goes over all subtopologies repeatedly. It ignores topics of a writer that are undecided when it visits the writer. Here
    each subtopology is visited at the same point (round and place), but only if a topic that it reads is decided.
    """
    found = {
        info.name: info.partitions for subtopology in subtopologies for info in subtopology.repartition_source_topics if info.partitions
    }
    readers: dict[str, list[int]] = {}
    for place, subtopology in enumerate(subtopologies):
        for info in subtopology.repartition_source_topics:
            readers.setdefault(info.name, []).append(place)
    turns = [(0, place) for place in range(len(subtopologies))]
    blocked: set[int] = set()
    while turns:
        turn, place = heapq.heappop(turns)
        one = subtopologies[place]
        if pace.is_due(_LOOK_UNITS * (len(one.repartition_sink_topics) + len(one.repartition_source_topics) + len(one.source_topics))):
            yield
        sinks = [name for name in subtopologies[place].repartition_sink_topics if name not in found]
        if not sinks:
            continue
        count = _largest_source(subtopologies[place], counts, found)
        if count is None:
            blocked.add(place)
            continue
        found.update(dict.fromkeys(sinks, count))
        for reader in {reader for name in sinks for reader in readers.get(name, ())} & blocked:
            blocked.discard(reader)
            heapq.heappush(turns, (turn + (reader < place), reader))
    if blocked:
        raise InvalidTopology(_LOOP)
    if any(name not in found for name in readers):
        raise InvalidTopology(_NO_SINK)
    return found


def _largest_source(subtopology: Subtopology, counts: _Counts, found: Mapping[str, int]) -> int | None:
    decided = [found[info.name] for info in subtopology.repartition_source_topics if info.name in found]
    decided += [count for name in subtopology.source_topics if (count := counts.existing(name)) is not None]
    return max(decided, default=None)


# -- copartitioning ------------------------------------------------------------------------------------------------------


def _enforce_copartitioning(subtopologies: list[Subtopology], counts: _Counts, pace: Pace) -> Steps[None]:
    """Joined topics must have the same number of partitions. Internal topics are given that number; other topics must have it already."""
    repartition = [info for subtopology in subtopologies for info in subtopology.repartition_source_topics]
    fixed = {info.name for info in repartition if info.partitions}
    internal_names = {info.name for info in repartition}
    # All topics with fixed numbers must agree across the whole topology, whatever groups they are in.
    agreed = {counts.of(name) for name in fixed}
    for subtopology in subtopologies:
        for group in subtopology.copartition_groups:
            names = [subtopology.source_topics[index] for index in group.source_topics]
            names += [subtopology.repartition_source_topics[index].name for index in group.repartition_source_topics]
            if names:
                _enforce(names_in_table_order(dict.fromkeys(names)), fixed, agreed, internal_names, counts)
            if pace.is_due(_NAME_UNITS * len(names)):
                yield


def _enforce(names: list[str], fixed: set[str], agreed: set[int], internal_names: set[str], counts: _Counts) -> None:
    internal = {name: counts.of(name) for name in names if name in internal_names}
    others = {name: counts.of(name) for name in names if name not in internal_names}
    required = set(others.values()) if others else agreed
    if len(required) > 1:
        shown = ", ".join(f"{name}={count}" for name, count in sorted((others or internal).items(), key=lambda item: text_order(item[0])))
        raise _Problem(
            Status.INCORRECTLY_PARTITIONED_TOPICS, f"Following topics do not have the same number of partitions: [{{{shown}}}]"
        )  # fmt: skip
    count = max(required or internal.values())
    for name, has in internal.items():
        if name in fixed and has != count:
            raise _Problem(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{has}] of repartition topic [{name}] "
                f"doesn't match number of partitions [{count}] of the source topic.",
            )
        counts.decided[name] = count


# -- tasks and topics ----------------------------------------------------------------------------------------------------


def _task_count(subtopology: Subtopology, counts: _Counts) -> int:
    names = [*subtopology.source_topics, *(info.name for info in subtopology.repartition_source_topics)]
    if not names:
        raise InvalidTopology(f"No source topics found for subtopology {subtopology.subtopology_id}")
    return max(counts.of(name) for name in names)


def _configured(subtopology: Subtopology, task_count: int, counts: _Counts, pace: Pace) -> Steps[ConfiguredSubtopology]:
    repartition_sources = yield from _internal_topics(subtopology.repartition_source_topics, counts, pace)
    changelogs = yield from _internal_topics(subtopology.state_changelog_topics, counts, pace)
    return ConfiguredSubtopology(
        task_count,
        frozenset(subtopology.source_topics),
        repartition_sources,
        frozenset(subtopology.repartition_sink_topics),
        changelogs,
    )


def _internal_topics(
    infos: list[StreamsGroupTopologyValue.TopicInfo], counts: _Counts, pace: Pace
) -> Steps[dict[str, InternalTopic]]:
    found: dict[str, InternalTopic] = {}
    for info in infos:
        found[info.name] = _internal_topic(info, counts)
        if pace.is_due(_NAME_UNITS + len(info.topic_configs)):
            yield
    if len(found) < 2:
        return found
    names = yield from _in_table_order(found, pace)
    return {name: found[name] for name in names}


def _in_table_order(names: Iterable[str], pace: Pace) -> Steps[list[str]]:
    """`names_in_table_order` in steps: the hashes take longest."""
    hashed = []
    for name in names:
        hashed.append((string_hash(name), name))
        if pace.is_due(_NAME_UNITS):
            yield
    return by_place(hashed)


def _internal_topic(info: StreamsGroupTopologyValue.TopicInfo, counts: _Counts) -> InternalTopic:
    count = info.partitions or counts.decided[info.name]
    fault = topic_name_fault(info.name)
    if fault is not None:
        raise InvalidTopology(fault, ErrorCode.INVALID_TOPIC_EXCEPTION)
    if count < 1:
        raise InvalidTopology("Number of partitions must be at least 1.", ErrorCode.UNKNOWN_SERVER_ERROR)
    return InternalTopic(info.name, count, info.replication_factor, {config.key: config.value for config in info.topic_configs})


def _missing_topics(
    configured: Mapping[str, ConfiguredSubtopology], topology: Topology, counts: _Counts, pace: Pace
) -> Steps[dict[str, InternalTopic]]:
    internal: dict[str, InternalTopic] = {}
    for subtopology in configured.values():
        internal |= subtopology.repartition_source_topics
        internal |= subtopology.state_changelog_topics
    others: dict[str, int] = {}
    missing: list[str] = []
    for name, topic in internal.items():
        count = counts.existing(name)
        if count is None:
            missing.append(name)
        elif count != topic.partition_count:
            others[name] = count
        if pace.is_due(_LOOK_UNITS):
            yield
    if others:
        in_order = yield from _in_table_order(sorted(topology.required_topics(), key=text_order), pace)
        name = next(name for name in in_order if name in others)
        raise _Problem(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Existing topic {name} has different number of partitions: expected {internal[name].partition_count}, found {others[name]}",
        )
    # The order is that of all of them in one table, which is larger than one of the missing topics.
    absent = frozenset(missing)
    in_order = yield from _in_table_order(internal, pace)
    return {name: internal[name] for name in in_order if name in absent}


def _summary(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - NAMES_SHOWN_MAX
    return ", ".join(listed[:NAMES_SHOWN_MAX]) + (f" and {more} additional topics" if more > 0 else "")
