"""LeaveGroup (API key 13)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string


class _MemberIdentity(Struct):
    member_id: str = field(string, "3+")
    group_instance_id: str | None = field(string, "3+", nullable="3+", default=None)
    reason: str | None = field(string, "5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupRequest(Request, api_key=13, versions="0-5", flexible="4+", listeners=("broker",)):
    """LeaveGroupRequest, versions 0-5."""

    MemberIdentity: TypeAlias = _MemberIdentity

    group_id: str = field(string, "0+")
    member_id: str = field(string, "0-2")
    members: list[_MemberIdentity] = field(array(_MemberIdentity), "3+")


class _MemberResponse(Struct):
    member_id: str = field(string, "3+")
    group_instance_id: str | None = field(string, "3+", nullable="3+")
    error_code: int = field(int16, "3+")


class LeaveGroupResponse(Response, api_key=13, versions="0-5", flexible="4+"):
    """LeaveGroupResponse, versions 0-5."""

    MemberResponse: TypeAlias = _MemberResponse

    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    error_code: int = field(int16, "0+")
    members: list[_MemberResponse] = field(array(_MemberResponse), "3+")
