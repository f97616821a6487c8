"""DescribeClientQuotas (API key 48)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, float64, int8, int16, int32, string


class _ComponentData(Struct):
    entity_type: str = field(string, "0+")
    match_type: int = field(int8, "0+")
    match: str | None = field(string, "0+", nullable="0+")


class DescribeClientQuotasRequest(Request, api_key=48, versions="0-1", flexible="1+", listeners=("broker",)):
    """DescribeClientQuotasRequest, versions 0-1."""

    ComponentData: TypeAlias = _ComponentData

    components: list[_ComponentData] = field(array(_ComponentData), "0+")
    strict: bool = field(boolean, "0+")


class _EntityData(Struct):
    entity_type: str = field(string, "0+")
    entity_name: str | None = field(string, "0+", nullable="0+")


class _ValueData(Struct):
    key: str = field(string, "0+")
    value: float = field(float64, "0+")


class _EntryData(Struct):
    entity: list[_EntityData] = field(array(_EntityData), "0+")
    values: list[_ValueData] = field(array(_ValueData), "0+")


class DescribeClientQuotasResponse(Response, api_key=48, versions="0-1", flexible="1+"):
    """DescribeClientQuotasResponse, versions 0-1."""

    EntityData: TypeAlias = _EntityData
    ValueData: TypeAlias = _ValueData
    EntryData: TypeAlias = _EntryData

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
    entries: list[_EntryData] | None = field(array(_EntryData), "0+", nullable="0+")
