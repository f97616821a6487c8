"""UnregisterController (API key 94)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import int16, int32, string


class UnregisterControllerRequest(Request, api_key=94, versions="0", flexible="0+", listeners=("broker", "controller")):
    """UnregisterControllerRequest, versions 0."""

    controller_id: int = field(int32, "0+")


class UnregisterControllerResponse(Response, api_key=94, versions="0", flexible="0+"):
    """UnregisterControllerResponse, versions 0."""

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
