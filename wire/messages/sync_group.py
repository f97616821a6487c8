"""SyncGroup (API key 14)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, bytes_, int16, int32, string


class _SyncGroupRequestAssignment(Struct):
    member_id: str = field(string, "0+")
    assignment: bytes = field(bytes_, "0+")


class SyncGroupRequest(Request, api_key=14, versions="0-5", flexible="4+", listeners=("broker",)):
    """SyncGroupRequest, versions 0-5."""

    SyncGroupRequestAssignment: TypeAlias = _SyncGroupRequestAssignment

    group_id: str = field(string, "0+")
    generation_id: int = field(int32, "0+")
    member_id: str = field(string, "0+")
    group_instance_id: str | None = field(string, "3+", nullable="3+", default=None)
    protocol_type: str | None = field(string, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = field(string, "5+", nullable="5+", default=None, ignorable=True)
    assignments: list[_SyncGroupRequestAssignment] = field(array(_SyncGroupRequestAssignment), "0+")


class SyncGroupResponse(Response, api_key=14, versions="0-5", flexible="4+"):
    """SyncGroupResponse, versions 0-5."""

    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    error_code: int = field(int16, "0+")
    protocol_type: str | None = field(string, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = field(string, "5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = field(bytes_, "0+")
