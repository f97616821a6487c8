"""SaslAuthenticate (API key 36)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import bytes_, int16, int64, string


class SaslAuthenticateRequest(Request, api_key=36, versions="0-2", flexible="2+", listeners=("broker", "controller")):
    """SaslAuthenticateRequest, versions 0-2."""

    auth_bytes: bytes = field(bytes_, "0+")


class SaslAuthenticateResponse(Response, api_key=36, versions="0-2", flexible="2+"):
    """SaslAuthenticateResponse, versions 0-2."""

    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+")
    auth_bytes: bytes = field(bytes_, "0+")
    session_lifetime_ms: int = field(int64, "1+", ignorable=True)
