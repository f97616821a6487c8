"""The check that all requests of group members share."""

from __future__ import annotations

from minikafka.core.group.classic import ClassicGroup
from minikafka.wire.errors import ApiError, ErrorCode


def check_member(group: ClassicGroup, member_id: str, group_instance_id: str | None) -> None:
    """Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID unless the group has this member with this instance id."""
    if group_instance_id is not None:
        owner = group.static_members.get(group_instance_id)
        if owner is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if owner != member_id:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
    if member_id not in group.members:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
