"""DescribeAcls (API key 29)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int8, int16, int32, string


class DescribeAclsRequest(Request, api_key=29, versions="1-3", flexible="2+", listeners=("broker", "controller")):
    """DescribeAclsRequest, versions 1-3."""

    resource_type_filter: int = field(int8, "0+")
    resource_name_filter: str | None = field(string, "0+", nullable="0+")
    pattern_type_filter: int = field(int8, "1+", default=3)
    principal_filter: str | None = field(string, "0+", nullable="0+")
    host_filter: str | None = field(string, "0+", nullable="0+")
    operation: int = field(int8, "0+")
    permission_type: int = field(int8, "0+")


class _AclDescription(Struct):
    principal: str = field(string, "0+")
    host: str = field(string, "0+")
    operation: int = field(int8, "0+")
    permission_type: int = field(int8, "0+")


class _DescribeAclsResource(Struct):
    resource_type: int = field(int8, "0+")
    resource_name: str = field(string, "0+")
    pattern_type: int = field(int8, "1+", default=3)
    acls: list[_AclDescription] = field(array(_AclDescription), "0+")


class DescribeAclsResponse(Response, api_key=29, versions="1-3", flexible="2+"):
    """DescribeAclsResponse, versions 1-3."""

    AclDescription: TypeAlias = _AclDescription
    DescribeAclsResource: TypeAlias = _DescribeAclsResource

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
    resources: list[_DescribeAclsResource] = field(array(_DescribeAclsResource), "0+")
