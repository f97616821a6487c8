"""DescribeGroups (API key 15)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, bytes_, int16, int32, string


class DescribeGroupsRequest(Request, api_key=15, versions="0-6", flexible="5+", listeners=("broker",)):
    """DescribeGroupsRequest, versions 0-6."""

    groups: list[str] = field(array(string), "0+")
    include_authorized_operations: bool = field(boolean, "3+")


class _DescribedGroupMember(Struct):
    member_id: str = field(string, "0+")
    group_instance_id: str | None = field(string, "4+", nullable="4+", default=None, ignorable=True)
    client_id: str = field(string, "0+")
    client_host: str = field(string, "0+")
    member_metadata: bytes = field(bytes_, "0+")
    member_assignment: bytes = field(bytes_, "0+")


class _DescribedGroup(Struct):
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "6+", nullable="6+", default=None)
    group_id: str = field(string, "0+")
    group_state: str = field(string, "0+")
    protocol_type: str = field(string, "0+")
    protocol_data: str = field(string, "0+")
    members: list[_DescribedGroupMember] = field(array(_DescribedGroupMember), "0+")
    authorized_operations: int = field(int32, "3+", default=-2147483648)


class DescribeGroupsResponse(Response, api_key=15, versions="0-6", flexible="5+"):
    """DescribeGroupsResponse, versions 0-6."""

    DescribedGroupMember: TypeAlias = _DescribedGroupMember
    DescribedGroup: TypeAlias = _DescribedGroup

    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    groups: list[_DescribedGroup] = field(array(_DescribedGroup), "0+")
