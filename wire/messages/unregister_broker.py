"""UnregisterBroker (API key 64)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import int16, int32, string


class UnregisterBrokerRequest(Request, api_key=64, versions="0", flexible="0+", listeners=("broker", "controller")):
    """UnregisterBrokerRequest, versions 0."""

    broker_id: int = field(int32, "0+")


class UnregisterBrokerResponse(Response, api_key=64, versions="0", flexible="0+"):
    """UnregisterBrokerResponse, versions 0."""

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
