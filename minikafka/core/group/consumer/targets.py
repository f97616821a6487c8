"""The next target assignment of a group."""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.core.group.consumer.assignor import Assignor, GroupSpec, MemberSpec
from minikafka.core.group.consumer.group import ConsumerGroup
from minikafka.core.group.consumer.member import Assignment, ConsumerMember
from minikafka.core.group.consumer.range_assignor import assign_range
from minikafka.core.group.consumer.records import Records, target_record
from minikafka.core.group.consumer.topics import Topics
from minikafka.core.group.consumer.uniform_assignor import assign_uniform

#: Assignors by the names that `group.consumer.assignors` and members use.
ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def subscribed_ids(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> frozenset[bytes]:
    """Ids of the topics that a member subscribes to and that exist."""
    return _ids(member.subscribed_topic_names | group.resolved(member.subscribed_topic_regex), topics)


def next_targets(group: ConsumerGroup, updated: ConsumerMember, assignor: Assignor, topics: Topics) -> dict[str, Assignment]:
    """Who is to have what, when one member has become `updated`; it takes the place of who had its instance id."""
    known: dict[tuple[frozenset[str], str | None], frozenset[bytes]] = {}
    specs: dict[str, MemberSpec] = {}
    for member in group.members_with(updated):
        member_id = member.member_id
        subscription = member.subscribed_topic_names, member.subscribed_topic_regex
        if subscription not in known:
            known[subscription] = subscribed_ids(group, member, topics)
        target = group.target(member) if member_id == updated.member_id else group.targets.get(member_id, {})
        specs[member_id] = MemberSpec(known[subscription], target, member.instance_id)
    counts: dict[bytes, int] = {}
    for topic_id in sorted(frozenset[bytes]().union(*known.values())):
        topic = topics.by_id(topic_id)
        if topic is not None:
            counts[topic_id] = topic.partition_count
    return assignor(GroupSpec(specs, counts, is_homogeneous=len(set(known.values())) == 1))


def target_changes(group: ConsumerGroup, targets: Mapping[str, Assignment]) -> Records:
    """Records of the members whose targets are others than they were."""
    return [
        target_record(group.group_id, member_id, target)
        for member_id, target in targets.items()
        if group.targets.get(member_id) != target
    ]


def _ids(names: frozenset[str], topics: Topics) -> frozenset[bytes]:
    found = (topics.by_name(name) for name in names)
    return frozenset(topic.topic_id for topic in found if topic is not None)
