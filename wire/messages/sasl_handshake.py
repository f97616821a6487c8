"""SaslHandshake (API key 17)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import array, int16, string


class SaslHandshakeRequest(Request, api_key=17, versions="0-1", listeners=("broker", "controller")):
    """SaslHandshakeRequest, versions 0-1."""

    mechanism: str = field(string, "0+")


class SaslHandshakeResponse(Response, api_key=17, versions="0-1"):
    """SaslHandshakeResponse, versions 0-1."""

    error_code: int = field(int16, "0+")
    mechanisms: list[str] = field(array(string), "0+")
