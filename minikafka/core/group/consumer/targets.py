"""The next target assignment of a group: computed at once for a small group, in steps for a large one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from minikafka.core.coordinator.shard import CoordinatorRecord
from minikafka.core.group.consumer.assignor import Assignor, GroupSpec, MemberSpec, Pace
from minikafka.core.group.consumer.group import ConsumerGroup
from minikafka.core.group.consumer.member import Assignment, ConsumerMember
from minikafka.core.group.consumer.range_assignor import assign_range
from minikafka.core.group.consumer.records import Records, target_epoch_record, target_record
from minikafka.core.group.consumer.settings import GroupIntervals
from minikafka.core.group.consumer.topics import Topics
from minikafka.core.group.consumer.uniform_assignor import assign_uniform
from minikafka.steps import Steps, at_once

#: Assignors by the names that `group.consumer.assignors` and members use.
ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
#: Most members and partitions that are assigned within a heartbeat, which takes a few milliseconds. Apache Kafka 4.3 has no limit.
AT_ONCE_MAX = 600


def is_large(group: ConsumerGroup, updated: ConsumerMember, topics: Topics) -> bool:
    """Whether the group has more members and partitions than one turn of the event loop should assign."""
    names = group.subscribed_topics() | updated.subscribed_topic_names | group.resolved(updated.subscribed_topic_regex)
    partitions = sum(topic.partition_count for name in names if (topic := topics.by_name(name)) is not None)
    return len(group.members) + partitions > AT_ONCE_MAX


class Assigned(Protocol):
    """A group of any protocol with server-side assignment."""

    @property
    def assignment_wall_ms(self) -> int:
        """When the group's targets were computed; 0 if they may be computed again at any time."""


class Paced(Protocol):
    """Intervals of such a group."""

    @property
    def assignment_interval_ms(self) -> int:
        """Shortest time between two assignments."""


def is_early(group: Assigned, intervals: Paced, wall_ms: int) -> bool:
    """Whether the last assignment is too recent for another one. One that is still to come was made by a clock that has been set back, and
    nobody waits for it (Apache Kafka waits)."""
    return group.assignment_wall_ms > 0 and 0 <= wall_ms - group.assignment_wall_ms < intervals.assignment_interval_ms


def assignor_of(group: ConsumerGroup, updated: ConsumerMember | None, configured: Sequence[str]) -> Assignor:
    """The assignor that most members ask for, or else the first configured one."""
    name = group.preferred_assignor(updated) or configured[0]
    return ASSIGNORS.get(name, ASSIGNORS[configured[0]])


def subscribed_ids(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> frozenset[bytes]:
    """Ids of the topics that a member subscribes to and that exist."""
    return _ids(member.subscribed_topic_names | group.resolved(member.subscribed_topic_regex), topics)


def next_targets(group: ConsumerGroup, updated: ConsumerMember, assignor: Assignor, topics: Topics) -> dict[str, Assignment]:
    """The target of every member after one has become `updated`, which also replaces an earlier member with its instance id."""
    return at_once(target_steps(group, updated, assignor, topics))


def target_steps(group: ConsumerGroup, updated: ConsumerMember | None, assignor: Assignor, topics: Topics) -> Steps[dict[str, Assignment]]:
    """Like `next_targets`, but in steps, for the group as it is at the first step. `updated` is None to use only its current members."""
    members = list(group.members.values()) if updated is None else group.members_with(updated)
    targets, resolved, pace = dict(group.targets), {regex: found.topics for regex, found in group.regexes.items()}, Pace()
    if updated is not None:
        targets[updated.member_id] = group.target(updated)
    topic_ids_of: dict[tuple[frozenset[str], str | None], frozenset[bytes]] = {}
    sizes: dict[bytes, int] = {}
    specs: dict[str, MemberSpec] = {}
    for member in members:
        subscription = member.subscribed_topic_names, member.subscribed_topic_regex
        if subscription not in topic_ids_of:
            names = sorted(member.subscribed_topic_names | resolved.get(member.subscribed_topic_regex or "", frozenset()))
            # Read subscriptions and sizes at the same moment, because topics may be deleted between two steps.
            found = {topic.topic_id: topic.partition_count for topic in map(topics.by_name, names) if topic is not None}
            topic_ids_of[subscription] = frozenset(found)
            sizes.update(found)
            if pace.is_due(len(names)):
                yield
        specs[member.member_id] = MemberSpec(topic_ids_of[subscription], targets.get(member.member_id, {}), member.instance_id)
        if pace.is_due():
            yield
    counts = {topic_id: sizes[topic_id] for topic_id in sorted(sizes)}
    return (yield from assignor(GroupSpec(specs, counts, is_homogeneous=len(set(topic_ids_of.values())) == 1)))


def target_changes(group: ConsumerGroup, targets: Mapping[str, Assignment]) -> Records:
    """Records of the members whose targets have changed."""
    return [
        target_record(group.group_id, member_id, target) for member_id, target in targets.items() if group.targets.get(member_id) != target
    ]


def _ids(names: frozenset[str], topics: Topics) -> frozenset[bytes]:
    return frozenset(topic.topic_id for name in names if (topic := topics.by_name(name)) is not None)


class ConsumerTargets:
    """The TargetRule of consumer groups."""

    def __init__(self, configured: Sequence[str], topics: Topics, intervals: Callable[[str], GroupIntervals]) -> None:
        self._configured = configured
        self._topics = topics
        self._intervals = intervals

    def is_early(self, group: ConsumerGroup, wall_ms: int) -> bool:
        """Whether the last assignment is too recent for another one."""
        return is_early(group, self._intervals(group.group_id), wall_ms)

    def steps(self, group: ConsumerGroup) -> Steps[dict[str, Assignment]]:
        """Compute the target of each member."""
        return target_steps(group, None, assignor_of(group, None, self._configured), self._topics)

    target_record: Callable[[str, str, Assignment], CoordinatorRecord] = staticmethod(target_record)
    epoch_record: Callable[[str, int, int], CoordinatorRecord] = staticmethod(target_epoch_record)
