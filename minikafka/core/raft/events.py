"""Events that the host reports to the quorum, and effects that the quorum asks the host to carry out."""

from __future__ import annotations

from typing import Any

from minikafka.core.raft.messages import Reply, Request
from minikafka.core.raft.types import ElectionState, Endpoint, OffsetAndEpoch
from minikafka.core.raft.voters import VoterSet
from minikafka.late_dataclass import dataclass

# -- events


@dataclass(slots=True)
class Received:
    """A peer's request; answer it with Respond(token)."""

    token: Any
    request: Request


@dataclass(slots=True)
class Answered:
    """A node answered our request."""

    request_id: int
    reply: Reply


@dataclass(slots=True)
class Failed:
    """Our request got no answer. `is_refused`: the node's process does not listen (connection refused)."""

    request_id: int
    is_refused: bool = False


@dataclass(slots=True)
class BatchAppended:
    """A batch is in the log, not necessarily on disk: fetched by this follower or appended by this leader.

    `voters` and `kraft_versions`: its control records, each with its offset. `end_offset` is exclusive."""

    epoch: int
    base_offset: int
    end_offset: int
    voters: list[tuple[int, VoterSet]]
    kraft_versions: list[tuple[int, int]]


@dataclass(slots=True)
class FetchedAppended:
    """All batches of an AppendFetched are in the log. `is_refused`: what the leader sent is not valid, and no batch was appended."""

    is_refused: bool = False


@dataclass(slots=True)
class Flushed:
    """Everything below `offset` is on disk."""

    offset: int


@dataclass(slots=True)
class SnapshotInstalled:
    """An InstallSnapshot was carried out."""

    snapshot: OffsetAndEpoch
    voters: VoterSet | None
    kraft_version: int


@dataclass(slots=True)
class SnapshotWritten:
    """This node wrote a snapshot of its own state; the log now starts at `start_offset`."""

    snapshot: OffsetAndEpoch
    start_offset: int


@dataclass(slots=True)
class Disconnected:
    """The connection of the request with `token` is closed. If the request is parked, it is dropped, and its voter may have failed."""

    token: Any


Event = Received | Answered | Failed | BatchAppended | FetchedAppended | Flushed | SnapshotInstalled | SnapshotWritten | Disconnected

# -- effects, carried out by rank: persist, change the log, send, respond, notify


@dataclass(slots=True)
class Persist:
    """Write quorum-state and sync it before any later effect."""

    RANK = 0
    state: ElectionState


@dataclass(slots=True)
class PromisesRegained:
    """This voter again has everything that it may have acknowledged, and may vote. Make that durable before any later effect."""

    RANK = 0


@dataclass(slots=True)
class Truncate:
    RANK = 1
    offset: int


@dataclass(slots=True)
class AppendLeaderChange:
    """Append one control batch: LeaderChange, then KRaftVersion and KRaftVoters if they are given."""

    RANK = 1
    epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting: tuple[int, ...]
    kraft_version: int | None
    voter_set: VoterSet | None


@dataclass(slots=True)
class AppendVoters:
    """Append one control batch: a KRaftVersion record if it is given, then a KRaftVoters record."""

    RANK = 1
    epoch: int
    voter_set: VoterSet
    kraft_version: int | None = None


@dataclass(slots=True)
class AppendFetched:
    """Append fetched batches of epochs up to `epoch`."""

    RANK = 1
    epoch: int
    records: Any


@dataclass(slots=True)
class WriteSnapshotChunk:
    RANK = 1
    snapshot: OffsetAndEpoch
    position: int
    data: Any


@dataclass(slots=True)
class InstallSnapshot:
    """The file is complete: sync it, give it its final name, and start the log at its end offset."""

    RANK = 1
    snapshot: OffsetAndEpoch


@dataclass(slots=True)
class Send:
    RANK = 2
    request_id: int
    node_id: int
    endpoint: Endpoint
    request: Request
    timeout_ms: int


@dataclass(slots=True)
class Respond:
    RANK = 3
    token: Any
    reply: Reply


@dataclass(slots=True)
class HighWatermarkMoved:
    RANK = 4
    offset: int


@dataclass(slots=True)
class LeaderChanged:
    """`epoch_start`: for this node as leader, the offset of its LeaderChange record."""

    RANK = 4
    leader_id: int
    epoch: int
    is_self: bool
    epoch_start: int = -1


@dataclass(slots=True)
class DoubtChanged:
    """Whether, as far as this leader can tell, a majority of the voters may have elected another leader.

    While it is in doubt the host must not answer what only the leader may answer. The end of the leadership ends the doubt, too:
    then only LeaderChanged is sent."""

    RANK = 4
    is_in_doubt: bool


Effect = (
    Persist
    | PromisesRegained
    | Truncate
    | AppendLeaderChange
    | AppendVoters
    | AppendFetched
    | WriteSnapshotChunk
    | InstallSnapshot
    | Send
    | Respond
    | HighWatermarkMoved
    | LeaderChanged
    | DoubtChanged
)
