"""Envelope (API key 58)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import bytes_, int16


class EnvelopeRequest(Request, api_key=58, versions="0", flexible="0+", listeners=("controller",)):
    """EnvelopeRequest, versions 0."""

    request_data: bytes = field(bytes_, "0+")
    request_principal: bytes | None = field(bytes_, "0+", nullable="0+")
    client_host_address: bytes = field(bytes_, "0+")


class EnvelopeResponse(Response, api_key=58, versions="0", flexible="0+"):
    """EnvelopeResponse, versions 0."""

    response_data: bytes | None = field(bytes_, "0+", nullable="0+", default=None)
    error_code: int = field(int16, "0+")
