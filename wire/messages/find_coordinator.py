"""FindCoordinator (API key 10)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int8, int16, int32, string


class FindCoordinatorRequest(Request, api_key=10, versions="0-6", flexible="3+", listeners=("broker",)):
    """FindCoordinatorRequest, versions 0-6."""

    key: str = field(string, "0-3")
    key_type: int = field(int8, "1+")
    coordinator_keys: list[str] = field(array(string), "4+")


class _Coordinator(Struct):
    key: str = field(string, "4+")
    node_id: int = field(int32, "4+")
    host: str = field(string, "4+")
    port: int = field(int32, "4+")
    error_code: int = field(int16, "4+")
    error_message: str | None = field(string, "4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Response, api_key=10, versions="0-6", flexible="3+"):
    """FindCoordinatorResponse, versions 0-6."""

    Coordinator: TypeAlias = _Coordinator

    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    error_code: int = field(int16, "0-3")
    error_message: str | None = field(string, "1-3", nullable="1-3", ignorable=True)
    node_id: int = field(int32, "0-3")
    host: str = field(string, "0-3")
    port: int = field(int32, "0-3")
    coordinators: list[_Coordinator] = field(array(_Coordinator), "4+")
