"""DeleteAcls (API key 31)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int8, int16, int32, string


class _DeleteAclsFilter(Struct):
    resource_type_filter: int = field(int8, "0+")
    resource_name_filter: str | None = field(string, "0+", nullable="0+")
    pattern_type_filter: int = field(int8, "1+", default=3)
    principal_filter: str | None = field(string, "0+", nullable="0+")
    host_filter: str | None = field(string, "0+", nullable="0+")
    operation: int = field(int8, "0+")
    permission_type: int = field(int8, "0+")


class DeleteAclsRequest(Request, api_key=31, versions="1-3", flexible="2+", listeners=("broker", "controller")):
    """DeleteAclsRequest, versions 1-3."""

    DeleteAclsFilter: TypeAlias = _DeleteAclsFilter

    filters: list[_DeleteAclsFilter] = field(array(_DeleteAclsFilter), "0+")


class _DeleteAclsMatchingAcl(Struct):
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
    resource_type: int = field(int8, "0+")
    resource_name: str = field(string, "0+")
    pattern_type: int = field(int8, "1+", default=3)
    principal: str = field(string, "0+")
    host: str = field(string, "0+")
    operation: int = field(int8, "0+")
    permission_type: int = field(int8, "0+")


class _DeleteAclsFilterResult(Struct):
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
    matching_acls: list[_DeleteAclsMatchingAcl] = field(array(_DeleteAclsMatchingAcl), "0+")


class DeleteAclsResponse(Response, api_key=31, versions="1-3", flexible="2+"):
    """DeleteAclsResponse, versions 1-3."""

    DeleteAclsMatchingAcl: TypeAlias = _DeleteAclsMatchingAcl
    DeleteAclsFilterResult: TypeAlias = _DeleteAclsFilterResult

    throttle_time_ms: int = field(int32, "0+")
    filter_results: list[_DeleteAclsFilterResult] = field(array(_DeleteAclsFilterResult), "0+")
