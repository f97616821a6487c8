"""Descriptions of groups of the classic and the consumer protocol, from the responses of their coordinators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from minikafka.client.assignors import decode_assignment
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import WireError

if TYPE_CHECKING:
    from minikafka.client.cluster import BrokerInfo


class MemberDescription(NamedTuple):
    """A member of a group. Assignments are partitions by topic; epoch and target are those of the consumer protocol."""

    member_id: str
    client_id: str
    host: str
    assignment: dict[str, list[int]]
    group_instance_id: str | None = None
    epoch: int | None = None
    target: dict[str, list[int]] | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group of the classic or the consumer protocol. Only the latter has epochs."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: BrokerInfo
    members: list[MemberDescription]
    group_epoch: int | None = None
    assignment_epoch: int | None = None


def classic_group(group: Any, coordinator: BrokerInfo) -> GroupDescription:
    """From DescribeGroups."""
    members = []
    for member in group.members:
        try:
            assignment = decode_assignment(member.member_assignment)
        except WireError:
            assignment = {}
        members.append(MemberDescription(member.member_id, member.client_id, member.client_host, assignment, member.group_instance_id))
    return GroupDescription(group.group_id, group.group_state, group.protocol_type, group.protocol_data, coordinator, members)


def consumer_group(group: Any, coordinator: BrokerInfo) -> GroupDescription:
    """From ConsumerGroupDescribe."""
    members = [
        MemberDescription(
            member.member_id, member.client_id, member.client_host, _by_topic(member.assignment), member.instance_id, member.member_epoch,
            _by_topic(member.target_assignment),
        )
        for member in group.members
    ]  # fmt: skip
    return GroupDescription(
        group.group_id, group.group_state, "consumer", group.assignor_name, coordinator, members, group.group_epoch, group.assignment_epoch
    )


def _by_topic(assignment: Any) -> dict[str, list[int]]:
    return {topic.topic_name: list(topic.partitions) for topic in assignment.topic_partitions}
