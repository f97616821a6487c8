"""ListConfigResources (API key 74)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int8, int16, int32, string


class ListConfigResourcesRequest(Request, api_key=74, versions="0-1", flexible="0+", listeners=("broker",)):
    """ListConfigResourcesRequest, versions 0-1."""

    resource_types: list[int] = field(array(int8), "1+")


class _ConfigResource(Struct):
    resource_name: str = field(string, "0+")
    resource_type: int = field(int8, "1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Response, api_key=74, versions="0-1", flexible="0+"):
    """ListConfigResourcesResponse, versions 0-1."""

    ConfigResource: TypeAlias = _ConfigResource

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    config_resources: list[_ConfigResource] = field(array(_ConfigResource), "0+")
