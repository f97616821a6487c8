"""What the host tells the quorum, and what the quorum asks of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minikafka.core.raft.messages import Reply, Request
from minikafka.core.raft.types import ElectionState, Endpoint, OffsetAndEpoch
from minikafka.core.raft.voters import VoterSet

# -- events


@dataclass(slots=True)
class Received:
    """A peer's request; answer it with Respond(token)."""

    token: Any
    request: Request


@dataclass(slots=True)
class Answered:
    """The answer to a request of ours, from the node that it was sent to."""

    request_id: int
    reply: Reply


@dataclass(slots=True)
class Failed:
    """A request of ours got no answer. `is_refused`: the node's process does not listen (connection refused)."""

    request_id: int
    is_refused: bool = False


@dataclass(slots=True)
class BatchAppended:
    """A batch is in the log (not necessarily on disk), fetched or appended by this leader; control records with it."""

    epoch: int
    base_offset: int
    end_offset: int
    voters: list[tuple[int, VoterSet]]
    kraft_versions: list[tuple[int, int]]


@dataclass(slots=True)
class FetchedAppended:
    """All batches of an AppendFetched are in the log; or, `is_refused`, what the leader sent is not valid and none is."""

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
    """A snapshot of our own state exists; the log was cleaned up to `start_offset`."""

    snapshot: OffsetAndEpoch
    start_offset: int


@dataclass(slots=True)
class Disconnected:
    """The connection over which the request with `token` came is gone: if it is parked it is not answered, and its voter may be, too."""

    token: Any


Event = Received | Answered | Failed | BatchAppended | FetchedAppended | Flushed | SnapshotInstalled | SnapshotWritten | Disconnected

# -- effects, carried out by rank: persist, change the log, send, respond, tell


@dataclass(slots=True)
class Persist:
    """Write quorum-state and sync it, before anything after this."""

    RANK = 0
    state: ElectionState


@dataclass(slots=True)
class PromisesRegained:
    """This voter has everything again that it may have promised, and votes from now on: make that durable, before anything after this."""

    RANK = 0


@dataclass(slots=True)
class Truncate:
    RANK = 1
    offset: int


@dataclass(slots=True)
class AppendLeaderChange:
    """Append one control batch: LeaderChange and, each if given, KRaftVersion and KRaftVoters."""

    RANK = 1
    epoch: int
    leader_id: int
    voters: tuple[int, ...]
    granting: tuple[int, ...]
    kraft_version: int | None
    voter_set: VoterSet | None


@dataclass(slots=True)
class AppendVoters:
    """Append one control batch with, if given, a KRaftVersion record, and a KRaftVoters record."""

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
    """The file is complete: sync it, name it, let the log begin at its end."""

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
    """Whether a majority of the voters may have another leader, for all that this one knows. Until it is over nobody is to be told
    what only the leader may tell. It ends with a leadership, too, and LeaderChanged alone says so."""

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
