"""State and control data of the metadata quorum."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Data, Struct, field
from minikafka.wire.types import array, int32, int64, string, uuid


class _Voter(Struct):
    voter_id: int = field(int32, "0")


class QuorumStateData(Data, versions="0-1", flexible="0+"):
    """QuorumStateData, versions 0-1."""

    Voter: TypeAlias = _Voter

    cluster_id: str = field(string, "0")
    leader_id: int = field(int32, "0+", default=-1)
    leader_epoch: int = field(int32, "0+", default=-1)
    voted_id: int = field(int32, "0+", default=-1)
    voted_directory_id: bytes = field(uuid, "1+")
    applied_offset: int = field(int64, "0")
    current_voters: list[_Voter] | None = field(array(_Voter), "0", nullable="0")
