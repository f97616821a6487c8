"""Heartbeat (API key 12)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import int16, int32, string


class HeartbeatRequest(Request, api_key=12, versions="0-4", flexible="4+", listeners=("broker",)):
    """HeartbeatRequest, versions 0-4."""

    group_id: str = field(string, "0+")
    generation_id: int = field(int32, "0+")
    member_id: str = field(string, "0+")
    group_instance_id: str | None = field(string, "3+", nullable="3+", default=None)


class HeartbeatResponse(Response, api_key=12, versions="0-4", flexible="4+"):
    """HeartbeatResponse, versions 0-4."""

    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    error_code: int = field(int16, "0+")
