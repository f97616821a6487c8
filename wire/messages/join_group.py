"""JoinGroup (API key 11)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, bytes_, int16, int32, string


class _JoinGroupRequestProtocol(Struct):
    name: str = field(string, "0+", map_key=True)
    metadata: bytes = field(bytes_, "0+")


class JoinGroupRequest(Request, api_key=11, versions="0-9", flexible="6+", listeners=("broker",)):
    """JoinGroupRequest, versions 0-9."""

    JoinGroupRequestProtocol: TypeAlias = _JoinGroupRequestProtocol

    group_id: str = field(string, "0+")
    session_timeout_ms: int = field(int32, "0+")
    rebalance_timeout_ms: int = field(int32, "1+", default=-1, ignorable=True)
    member_id: str = field(string, "0+")
    group_instance_id: str | None = field(string, "5+", nullable="5+", default=None)
    protocol_type: str = field(string, "0+")
    protocols: list[_JoinGroupRequestProtocol] = field(array(_JoinGroupRequestProtocol), "0+")
    reason: str | None = field(string, "8+", nullable="8+", default=None, ignorable=True)


class _JoinGroupResponseMember(Struct):
    member_id: str = field(string, "0+")
    group_instance_id: str | None = field(string, "5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = field(bytes_, "0+")


class JoinGroupResponse(Response, api_key=11, versions="0-9", flexible="6+"):
    """JoinGroupResponse, versions 0-9."""

    JoinGroupResponseMember: TypeAlias = _JoinGroupResponseMember

    throttle_time_ms: int = field(int32, "2+", ignorable=True)
    error_code: int = field(int16, "0+")
    generation_id: int = field(int32, "0+", default=-1)
    protocol_type: str | None = field(string, "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = field(string, "0+", nullable="7+")
    leader: str = field(string, "0+")
    skip_assignment: bool = field(boolean, "9+", default=False)
    member_id: str = field(string, "0+")
    members: list[_JoinGroupResponseMember] = field(array(_JoinGroupResponseMember), "0+")
