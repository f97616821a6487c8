"""KRaft's RPCs between replicas as flat values, without topics and versions. The host translates them to the wire."""

from __future__ import annotations

from typing import Any

from minikafka.core.raft.types import NO_NODE, NO_SNAPSHOT, Endpoint, OffsetAndEpoch, ReplicaKey
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ErrorCode


@dataclass(slots=True)
class VoteRequest:
    """`candidate` asks `voter` for its vote in `epoch`. `last`: the end offset and the last epoch of the candidate's log."""

    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey | None
    last: OffsetAndEpoch
    pre_vote: bool = False


@dataclass(slots=True)
class BeginQuorumEpochRequest:
    epoch: int
    leader_id: int
    voter: ReplicaKey | None
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(slots=True)
class EndQuorumEpochRequest:
    """`candidates`: preferred successors, best first."""

    epoch: int
    leader_id: int
    candidates: tuple[ReplicaKey, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(slots=True)
class FetchRequest:
    """`high_watermark`: the replica's own (-1: none). It is None before version 18; a new high watermark does not wake such a fetch."""

    epoch: int
    replica: ReplicaKey
    offset: int
    last_epoch: int
    high_watermark: int | None
    max_wait_ms: int
    bytes_max: int


@dataclass(slots=True)
class FetchSnapshotRequest:
    epoch: int
    replica: ReplicaKey
    snapshot: OffsetAndEpoch
    position: int
    bytes_max: int


@dataclass(slots=True)
class AddVoterRequest:
    key: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    timeout_ms: int
    ack_when_committed: bool = True


@dataclass(slots=True)
class VersionsRequest:
    """ApiVersions, sent to a future voter to learn which levels of kraft.version it supports."""

    key: ReplicaKey


@dataclass(slots=True)
class RemoveVoterRequest:
    key: ReplicaKey


@dataclass(slots=True)
class UpdateVoterRequest:
    epoch: int
    key: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    version_min: int
    version_max: int


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | VersionsRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
)


@dataclass(slots=True)
class Reply:
    """Common to all answers: an error, and the answering node's leader and epoch."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: int = NO_NODE
    epoch: int = -1
    endpoint: Endpoint | None = None
    text: str | None = None


@dataclass(slots=True)
class VersionsReply(Reply):
    """Levels of kraft.version; 0 to 0 when the replica names none."""

    version_min: int = 0
    version_max: int = 0


@dataclass(slots=True)
class VoteReply(Reply):
    granted: bool = False


@dataclass(slots=True)
class FetchReply(Reply):
    """When sent, the host reads [`read_from`, `read_to`) of the log, at most `bytes_max`. When received, `records` holds the bytes."""

    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    read_from: int = -1
    read_to: int = -1
    bytes_max: int = 0
    records: Any = None


@dataclass(slots=True)
class FetchSnapshotReply(Reply):
    """When sent, the host reads the file. When received, `data` holds the bytes at `position` of a file of `size` bytes."""

    snapshot: OffsetAndEpoch = NO_SNAPSHOT
    size: int = 0
    position: int = 0
    bytes_max: int = 0
    data: Any = None
    data_size: int = 0
