"""UpdateRaftVoter (API key 82)."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Request, Response, Struct, field
from minikafka.wire.types import array, int16, int32, string, uint16, uuid


class _Listener(Struct):
    name: str = field(string, "0+", map_key=True)
    host: str = field(string, "0+")
    port: int = field(uint16, "0+")


class _KRaftVersionFeature(Struct):
    min_supported_version: int = field(int16, "0+")
    max_supported_version: int = field(int16, "0+")


class UpdateRaftVoterRequest(Request, api_key=82, versions="0", flexible="0+", listeners=("controller",)):
    """UpdateRaftVoterRequest, versions 0."""

    Listener: TypeAlias = _Listener
    KRaftVersionFeature: TypeAlias = _KRaftVersionFeature

    cluster_id: str | None = field(string, "0+", nullable="0+")
    current_leader_epoch: int = field(int32, "0+")
    voter_id: int = field(int32, "0+")
    voter_directory_id: bytes = field(uuid, "0+")
    listeners: list[_Listener] = field(array(_Listener), "0+")
    k_raft_version_feature: _KRaftVersionFeature = field(_KRaftVersionFeature, "0+")


class _CurrentLeader(Struct):
    leader_id: int = field(int32, "0+", default=-1)
    leader_epoch: int = field(int32, "0+", default=-1)
    host: str = field(string, "0+")
    port: int = field(int32, "0+")


class UpdateRaftVoterResponse(Response, api_key=82, versions="0", flexible="0+"):
    """UpdateRaftVoterResponse, versions 0."""

    CurrentLeader: TypeAlias = _CurrentLeader

    throttle_time_ms: int = field(int32, "0+")
    error_code: int = field(int16, "0+")
    current_leader: _CurrentLeader = field(_CurrentLeader, "0+", tag=0)
