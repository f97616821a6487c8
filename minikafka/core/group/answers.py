"""Answers to members of classic groups."""

from __future__ import annotations

from minikafka.core.group.classic import ClassicGroup
from minikafka.core.group.member import Member
from minikafka.wire.messages.join_group import JoinGroupResponse
from minikafka.wire.messages.sync_group import SyncGroupResponse


def join_members(group: ClassicGroup) -> list[JoinGroupResponse.JoinGroupResponseMember]:
    """What a leader is told of its group."""
    return [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata_for(group.protocol_name),
        )
        for member in group.members.values()
    ]


def assignment(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """What a member is to read."""
    return SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment)
