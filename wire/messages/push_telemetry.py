"""PushTelemetry (API key 72)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import boolean, bytes_, int8, int16, int32, uuid


class PushTelemetryRequest(Request, api_key=72, versions="0", flexible="0+", listeners=("broker",)):
    """PushTelemetryRequest, versions 0."""

    client_instance_id: bytes = field(uuid, "0+")
    subscription_id: int = field(int32, "0+")
    terminating: bool = field(boolean, "0+")
    compression_type: int = field(int8, "0+")
    metrics: bytes = field(bytes_, "0+")


class PushTelemetryResponse(Response, api_key=72, versions="0", flexible="0+"):
    """PushTelemetryResponse, versions 0."""

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
