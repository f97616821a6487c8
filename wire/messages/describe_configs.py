"""DescribeConfigs (API key 32)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int8, int16, int32, string


class _DescribeConfigsResource(Struct):
    resource_type: int = field(int8, "0+")
    resource_name: str = field(string, "0+")
    configuration_keys: list[str] | None = field(array(string), "0+", nullable="0+")


class DescribeConfigsRequest(Request, api_key=32, versions="1-4", flexible="4+", listeners=("broker", "controller")):
    """DescribeConfigsRequest, versions 1-4."""

    DescribeConfigsResource: TypeAlias = _DescribeConfigsResource

    resources: list[_DescribeConfigsResource] = field(array(_DescribeConfigsResource), "0+")
    include_synonyms: bool = field(boolean, "1+", default=False)
    include_documentation: bool = field(boolean, "3+", default=False)


class _DescribeConfigsSynonym(Struct):
    name: str = field(string, "1+")
    value: str | None = field(string, "1+", nullable="0+")
    source: int = field(int8, "1+")


class _DescribeConfigsResourceResult(Struct):
    name: str = field(string, "0+")
    value: str | None = field(string, "0+", nullable="0+")
    read_only: bool = field(boolean, "0+")
    config_source: int = field(int8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = field(boolean, "0+")
    synonyms: list[_DescribeConfigsSynonym] = field(array(_DescribeConfigsSynonym), "1+", ignorable=True)
    config_type: int = field(int8, "3+", ignorable=True)
    documentation: str | None = field(string, "3+", nullable="0+", ignorable=True)


class _DescribeConfigsResult(Struct):
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
    resource_type: int = field(int8, "0+")
    resource_name: str = field(string, "0+")
    configs: list[_DescribeConfigsResourceResult] = field(array(_DescribeConfigsResourceResult), "0+")


class DescribeConfigsResponse(Response, api_key=32, versions="1-4", flexible="4+"):
    """DescribeConfigsResponse, versions 1-4."""

    DescribeConfigsSynonym: TypeAlias = _DescribeConfigsSynonym
    DescribeConfigsResourceResult: TypeAlias = _DescribeConfigsResourceResult
    DescribeConfigsResult: TypeAlias = _DescribeConfigsResult

    throttle_time_ms: int = field(int32, "0+")
    results: list[_DescribeConfigsResult] = field(array(_DescribeConfigsResult), "0+")
