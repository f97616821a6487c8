"""BrokerRegistration (API key 62)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int16, int32, int64, string, uint16, uuid


class _Listener(Struct):
    name: str = field(string, "0+", map_key=True)
    host: str = field(string, "0+")
    port: int = field(uint16, "0+")
    security_protocol: int = field(int16, "0+")


class _Feature(Struct):
    name: str = field(string, "0+", map_key=True)
    min_supported_version: int = field(int16, "0+")
    max_supported_version: int = field(int16, "0+")


class BrokerRegistrationRequest(Request, api_key=62, versions="0-4", flexible="0+", listeners=("controller",)):
    """BrokerRegistrationRequest, versions 0-4."""

    Listener: TypeAlias = _Listener
    Feature: TypeAlias = _Feature

    broker_id: int = field(int32, "0+")
    cluster_id: str = field(string, "0+")
    incarnation_id: bytes = field(uuid, "0+")
    listeners: list[_Listener] = field(array(_Listener), "0+")
    features: list[_Feature] = field(array(_Feature), "0+")
    rack: str | None = field(string, "0+", nullable="0+")
    is_migrating_zk_broker: bool = field(boolean, "1+", default=False)
    log_dirs: list[bytes] = field(array(uuid), "2+", ignorable=True)
    previous_broker_epoch: int = field(int64, "3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Response, api_key=62, versions="0-4", flexible="0+"):
    """BrokerRegistrationResponse, versions 0-4."""

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    broker_epoch: int = field(int64, "0+", default=-1)
