"""GetTelemetrySubscriptions (API key 71)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import array, boolean, int8, int16, int32, string, uuid


class GetTelemetrySubscriptionsRequest(Request, api_key=71, versions="0", flexible="0+", listeners=("broker",)):
    """GetTelemetrySubscriptionsRequest, versions 0."""

    client_instance_id: bytes = field(uuid, "0+")


class GetTelemetrySubscriptionsResponse(Response, api_key=71, versions="0", flexible="0+"):
    """GetTelemetrySubscriptionsResponse, versions 0."""

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    client_instance_id: bytes = field(uuid, "0+")
    subscription_id: int = field(int32, "0+")
    accepted_compression_types: list[int] = field(array(int8), "0+")
    push_interval_ms: int = field(int32, "0+")
    telemetry_max_bytes: int = field(int32, "0+")
    delta_temporality: bool = field(boolean, "0+")
    requested_metrics: list[str] = field(array(string), "0+")
