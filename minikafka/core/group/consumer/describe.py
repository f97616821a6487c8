"""ConsumerGroupDescribe: the committed state of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikafka.core.group.consumer.group import ConsumerGroup
from minikafka.core.group.consumer.member import ConsumerMember
from minikafka.core.group.consumer.topics import Topics
from minikafka.wire.lazy_list import lazy_list
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse

#: Members that are described in one step, each with its assignment.
MEMBERS_AT_ONCE = 16
MEMBER_TYPE_CLASSIC, MEMBER_TYPE_CONSUMER = 0, 1


def described_group(group: ConsumerGroup, default_assignor: str, topics: Topics) -> ConsumerGroupDescribeResponse.DescribedGroup:
    """The description of a group. Deleted topics are left out."""
    return ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=lazy_list(group.members.values(), lambda member: _member(group, member, topics), MEMBERS_AT_ONCE),
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> ConsumerGroupDescribeResponse.Member:
    owned: dict[bytes, set[int]] = {}
    for held in (member.assigned, member.pending_revocation):
        for topic_id, epochs in held.items():
            owned.setdefault(topic_id, set()).update(epochs)
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(owned, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, {}), topics),
        member_type=MEMBER_TYPE_CLASSIC if member.is_classic else MEMBER_TYPE_CONSUMER,
    )


def _assignment(partitions: Mapping[bytes, Any], topics: Topics) -> ConsumerGroupDescribeResponse.Assignment:
    found = [(topics.by_id(topic_id), topic_id) for topic_id in sorted(partitions)]
    return ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=[
            ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions[topic_id])
            )
            for topic, topic_id in found
            if topic is not None
        ]
    )
