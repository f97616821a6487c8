"""AddRaftVoter (API key 80)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, boolean, int16, int32, string, uint16, uuid


class _Listener(Struct):
    name: str = field(string, "0+", map_key=True)
    host: str = field(string, "0+")
    port: int = field(uint16, "0+")


class AddRaftVoterRequest(Request, api_key=80, versions="0-1", flexible="0+", listeners=("controller", "broker")):
    """AddRaftVoterRequest, versions 0-1."""

    Listener: TypeAlias = _Listener

    cluster_id: str | None = field(string, "0+", nullable="0+")
    timeout_ms: int = field(int32, "0+")
    voter_id: int = field(int32, "0+")
    voter_directory_id: bytes = field(uuid, "0+")
    listeners: list[_Listener] = field(array(_Listener), "0+")
    ack_when_committed: bool = field(boolean, "1+", default=True)


class AddRaftVoterResponse(Response, api_key=80, versions="0-1", flexible="0+"):
    """AddRaftVoterResponse, versions 0-1."""

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", ignorable=True)
