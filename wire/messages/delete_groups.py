"""DeleteGroups (API key 42)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string


class DeleteGroupsRequest(Request, api_key=42, versions="0-3", flexible="2+", listeners=("broker",)):
    """DeleteGroupsRequest, versions 0-3."""

    groups_names: list[str] = field(array(string), "0+")


class _DeletableGroupResult(Struct):
    group_id: str = field(string, "0+", map_key=True)
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "3+", nullable="3+", default=None, ignorable=True)


class DeleteGroupsResponse(Response, api_key=42, versions="0-3", flexible="2+"):
    """DeleteGroupsResponse, versions 0-3."""

    DeletableGroupResult: TypeAlias = _DeletableGroupResult

    throttle_time_ms: int = field(int32, "0+")
    results: list[_DeletableGroupResult] = field(array(_DeletableGroupResult), "0+")
