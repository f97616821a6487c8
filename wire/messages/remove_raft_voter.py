"""RemoveRaftVoter (API key 81)."""

from __future__ import annotations

from minikafka.wire.message import Request, Response, field
from minikafka.wire.types import int16, int32, string, uuid


class RemoveRaftVoterRequest(Request, api_key=81, versions="0", flexible="0+", listeners=("controller", "broker")):
    """RemoveRaftVoterRequest, versions 0."""

    cluster_id: str | None = field(string, "0+", nullable="0+")
    voter_id: int = field(int32, "0+")
    voter_directory_id: bytes = field(uuid, "0+")


class RemoveRaftVoterResponse(Response, api_key=81, versions="0", flexible="0+"):
    """RemoveRaftVoterResponse, versions 0."""

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    error_message: str | None = field(string, "0+", nullable="0+", ignorable=True)
