"""CreateAcls (API key 30)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int8, int16, int32, string


class _AclCreation(Struct):
    resource_type: int = field(int8, "0+")
    resource_name: str = field(string, "0+")
    resource_pattern_type: int = field(int8, "1+", default=3)
    principal: str = field(string, "0+")
    host: str = field(string, "0+")
    operation: int = field(int8, "0+")
    permission_type: int = field(int8, "0+")


class CreateAclsRequest(Request, api_key=30, versions="1-3", flexible="2+", listeners=("broker", "controller")):
    """CreateAclsRequest, versions 1-3."""

    AclCreation: TypeAlias = _AclCreation

    creations: list[_AclCreation] = field(array(_AclCreation), "0+")


class _AclCreationResult(Struct):
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")


class CreateAclsResponse(Response, api_key=30, versions="1-3", flexible="2+"):
    """CreateAclsResponse, versions 1-3."""

    AclCreationResult: TypeAlias = _AclCreationResult

    throttle_time_ms: int = field(int32, "0+")
    results: list[_AclCreationResult] = field(array(_AclCreationResult), "0+")
