"""ListGroups (API key 16)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string


class ListGroupsRequest(Request, api_key=16, versions="0-5", flexible="3+", listeners=("broker",)):
    """ListGroupsRequest, versions 0-5."""

    states_filter: list[str] = field(array(string), "4+")
    types_filter: list[str] = field(array(string), "5+")


class _ListedGroup(Struct):
    group_id: str = field(string, "0+")
    protocol_type: str = field(string, "0+")
    group_state: str = field(string, "4+", ignorable=True)
    group_type: str = field(string, "5+", ignorable=True)


class ListGroupsResponse(Response, api_key=16, versions="0-5", flexible="3+"):
    """ListGroupsResponse, versions 0-5."""

    ListedGroup: TypeAlias = _ListedGroup

    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    error_code: int = field(int16, "0+")
    groups: list[_ListedGroup] = field(array(_ListedGroup), "0+")
