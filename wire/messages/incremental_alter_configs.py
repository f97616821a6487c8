"""IncrementalAlterConfigs (API key 44)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int8, int16, int32, string


class _AlterableConfig(Struct):
    name: str = field(string, "0+", map_key=True)
    config_operation: int = field(int8, "0+", map_key=True)
    value: str | None = field(string, "0+", nullable="0+")


class _AlterConfigsResource(Struct):
    resource_type: int = field(int8, "0+", map_key=True)
    resource_name: str = field(string, "0+", map_key=True)
    configs: list[_AlterableConfig] = field(array(_AlterableConfig), "0+")


class IncrementalAlterConfigsRequest(Request, api_key=44, versions="0-1", flexible="1+", listeners=("broker", "controller")):
    """IncrementalAlterConfigsRequest, versions 0-1."""

    AlterableConfig: TypeAlias = _AlterableConfig
    AlterConfigsResource: TypeAlias = _AlterConfigsResource

    resources: list[_AlterConfigsResource] = field(array(_AlterConfigsResource), "0+")
    validate_only: bool = field(boolean, "0+")


class _AlterConfigsResourceResponse(Struct):
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
    resource_type: int = field(int8, "0+")
    resource_name: str = field(string, "0+")


class IncrementalAlterConfigsResponse(Response, api_key=44, versions="0-1", flexible="1+"):
    """IncrementalAlterConfigsResponse, versions 0-1."""

    AlterConfigsResourceResponse: TypeAlias = _AlterConfigsResourceResponse

    throttle_time_ms: int = field(int32, "0+")
    responses: list[_AlterConfigsResourceResponse] = field(array(_AlterConfigsResourceResponse), "0+")
