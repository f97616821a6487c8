"""ExpireDelegationToken (API key 40)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import bytes_, int16, int32, int64


class ExpireDelegationTokenRequest(Request, api_key=40, versions="1-2", flexible="2+", listeners=("broker", "controller")):
    """ExpireDelegationTokenRequest, versions 1-2."""

    hmac: bytes = field(bytes_, "0+")
    expiry_time_period_ms: int = field(int64, "0+")


class ExpireDelegationTokenResponse(Response, api_key=40, versions="1-2", flexible="2+"):
    """ExpireDelegationTokenResponse, versions 1-2."""

    error_code: int = field(int16, "0+")
    expiry_timestamp_ms: int = field(int64, "0+")
    throttle_time_ms: int = field(int32, "0+")
