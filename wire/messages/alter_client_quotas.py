"""AlterClientQuotas (API key 49)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, float64, int16, int32, string


class _AlterClientQuotasRequestEntityData(Struct):
    entity_type: str = field(string, "0+")
    entity_name: str | None = field(string, "0+", nullable="0+")


class _OpData(Struct):
    key: str = field(string, "0+")
    value: float = field(float64, "0+")
    remove: bool = field(boolean, "0+")


class _AlterClientQuotasRequestEntryData(Struct):
    entity: list[_AlterClientQuotasRequestEntityData] = field(array(_AlterClientQuotasRequestEntityData), "0+")
    ops: list[_OpData] = field(array(_OpData), "0+")


class AlterClientQuotasRequest(Request, api_key=49, versions="0-1", flexible="1+", listeners=("broker", "controller")):
    """AlterClientQuotasRequest, versions 0-1."""

    EntityData: TypeAlias = _AlterClientQuotasRequestEntityData
    OpData: TypeAlias = _OpData
    EntryData: TypeAlias = _AlterClientQuotasRequestEntryData

    entries: list[_AlterClientQuotasRequestEntryData] = field(array(_AlterClientQuotasRequestEntryData), "0+")
    validate_only: bool = field(boolean, "0+")


class _AlterClientQuotasResponseEntityData(Struct):
    entity_type: str = field(string, "0+")
    entity_name: str | None = field(string, "0+", nullable="0+")


class _AlterClientQuotasResponseEntryData(Struct):
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
    entity: list[_AlterClientQuotasResponseEntityData] = field(array(_AlterClientQuotasResponseEntityData), "0+")


class AlterClientQuotasResponse(Response, api_key=49, versions="0-1", flexible="1+"):
    """AlterClientQuotasResponse, versions 0-1."""

    EntityData: TypeAlias = _AlterClientQuotasResponseEntityData
    EntryData: TypeAlias = _AlterClientQuotasResponseEntryData

    throttle_time_ms: int = field(int32, "0+")
    entries: list[_AlterClientQuotasResponseEntryData] = field(array(_AlterClientQuotasResponseEntryData), "0+")
