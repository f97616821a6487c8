"""ControllerRegistration (API key 70)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int16, int32, string, uint16, uuid


class _Listener(Struct):
    name: str = field(string, "0+", map_key=True)
    host: str = field(string, "0+")
    port: int = field(uint16, "0+")
    security_protocol: int = field(int16, "0+")


class _Feature(Struct):
    name: str = field(string, "0+", map_key=True)
    min_supported_version: int = field(int16, "0+")
    max_supported_version: int = field(int16, "0+")


class ControllerRegistrationRequest(Request, api_key=70, versions="0", flexible="0+", listeners=("controller",)):
    """ControllerRegistrationRequest, versions 0."""

    Listener: TypeAlias = _Listener
    Feature: TypeAlias = _Feature

    controller_id: int = field(int32, "0+")
    incarnation_id: bytes = field(uuid, "0+")
    zk_migration_ready: bool = field(boolean, "0+")
    listeners: list[_Listener] = field(array(_Listener), "0+")
    features: list[_Feature] = field(array(_Feature), "0+")


class ControllerRegistrationResponse(Response, api_key=70, versions="0", flexible="0+"):
    """ControllerRegistrationResponse, versions 0."""

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
