"""ShareGroupDescribe: the committed state of a group."""

from __future__ import annotations

from minikafka.core.group.consumer.topics import Topics
from minikafka.core.group.share.group import ShareGroup, ShareMember
from minikafka.wire.lazy_list import lazy_list
from minikafka.wire.messages.share_group_describe import ShareGroupDescribeResponse

#: Members that are described in one step, each with its assignment.
MEMBERS_AT_ONCE = 16

def described_group(group: ShareGroup, topics: Topics) -> ShareGroupDescribeResponse.DescribedGroup:
    """The description of a group. Deleted topics are left out."""
    return ShareGroupDescribeResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name="simple",
        members=lazy_list(group.members.values(), lambda member: _member(member, topics), MEMBERS_AT_ONCE),
    )


def _member(member: ShareMember, topics: Topics) -> ShareGroupDescribeResponse.Member:
    found = [(topics.by_id(topic_id), topic_id) for topic_id in sorted(member.assigned)]
    kind = ShareGroupDescribeResponse.TopicPartitions
    partitions = [
        kind(topic_id=topic_id, topic_name=topic.name, partitions=sorted(member.assigned[topic_id]))
        for topic, topic_id in found
        if topic is not None
    ]
    return ShareGroupDescribeResponse.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=ShareGroupDescribeResponse.Assignment(topic_partitions=partitions),
    )
