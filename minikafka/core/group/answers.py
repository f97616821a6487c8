"""Answers to members of classic groups."""

from __future__ import annotations

from minikafka.core.group.classic import ClassicGroup
from minikafka.core.group.member import Member
from minikafka.wire.messages.join_group import JoinGroupResponse
from minikafka.wire.messages.sync_group import SyncGroupResponse


def join_members(group: ClassicGroup) -> list[JoinGroupResponse.JoinGroupResponseMember]:
    """The group's members with their metadata, for the answer to the leader's join."""
    return [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata_for(group.protocol_name),
        )
        for member in group.members.values()
    ]


def assignment(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """The answer with a member's assignment."""
    return SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment)
