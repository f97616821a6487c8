"""The checks and error translations that requests of group members share."""

from __future__ import annotations

from minikafka.core.group.classic import ClassicGroup
from wire.errors import ApiError, ErrorCode

_UNAVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


def check_member(group: ClassicGroup, member_id: str, group_instance_id: str | None) -> None:
    """Raise UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID unless the member is who it says it is."""
    if group_instance_id is not None:
        owner = group.static_members.get(group_instance_id)
        if owner is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if owner != member_id:
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
    if member_id not in group.members:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """What a failed append to the coordinator's partition means to a group's client."""
    if error in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH):
        return ErrorCode.NOT_COORDINATOR
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return error
