"""The roles of a replica. Each holds data and the rule by which it grants votes; `replica.py` changes between them.

A replica that is not a voter (a broker, or a controller that has not joined) is Unattached or Follower too and then
acts as an observer: it never stands for election and its position does not count.
"""

from __future__ import annotations

from dataclasses import field

from minikafka.core.raft.progress import Progress
from minikafka.core.raft.types import NO_NODE, Endpoint, OffsetAndEpoch, ReplicaKey
from minikafka.core.raft.voters import Voter
from minikafka.late_dataclass import dataclass


@dataclass(slots=True)
class Role:
    """`epoch` and `voted` are durable (ElectionState); `leader_id` is NO_NODE if not known."""

    epoch: int
    leader_id: int = NO_NODE
    leader_endpoint: Endpoint | None = None
    voted: ReplicaKey | None = None

    def can_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Whether to vote for the candidate in `epoch`; a pre-vote promises nothing."""
        return is_pre_vote and is_up_to_date

    def _can_grant_once(self, candidate: ReplicaKey, is_up_to_date: bool) -> bool:
        if self.voted is not None:
            same_directory = self.voted.directory_id in (bytes(16), candidate.directory_id)
            return self.voted.node_id == candidate.node_id and same_directory
        return self.leader_id == NO_NODE and is_up_to_date


@dataclass(slots=True)
class Unattached(Role):
    """Has no leader to follow. `election_deadline_ms` is None for observers."""

    election_deadline_ms: int | None = None

    def can_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        if is_pre_vote:
            return is_up_to_date
        return self._can_grant_once(candidate, is_up_to_date)


@dataclass(slots=True)
class Election(Role):
    """Asks for votes. `granted` and `rejected`: node ids of the answers so far. `backoff_deadline_ms` is None until it is lost."""

    voters: tuple[ReplicaKey, ...] = ()
    granted: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    deadline_ms: int = 0
    backoff_deadline_ms: int | None = None
    retries: int = 0

    @property
    def is_granted(self) -> bool:
        return len(self.granted) >= len(self.voters) // 2 + 1

    @property
    def is_rejected(self) -> bool:
        """Whether a majority cannot be reached any more."""
        return len(self.voters) - len(self.rejected) < len(self.voters) // 2 + 1

    def unrecorded(self) -> list[ReplicaKey]:
        """Voters that have not answered."""
        return [key for key in self.voters if key.node_id not in self.granted and key.node_id not in self.rejected]

    def record(self, node_id: int, is_granted: bool) -> None:
        if all(key.node_id != node_id for key in self.voters):
            return
        into, other = (self.granted, self.rejected) if is_granted else (self.rejected, self.granted)
        # An answer never takes back a vote that was granted.
        if node_id not in self.granted and node_id not in into:
            into.append(node_id)
            if node_id in other:
                other.remove(node_id)


@dataclass(slots=True)
class Prospective(Election):
    """Asks whether it could win an election, without a new epoch, so that an isolated node disturbs no leader (KIP-996)."""

    def can_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        if is_pre_vote:
            return is_up_to_date
        return self._can_grant_once(candidate, is_up_to_date)


@dataclass(slots=True)
class Candidate(Election):
    """Has voted for itself in a new epoch and asks the others."""


@dataclass(slots=True)
class Follower(Role):
    """Fetches from `leader_id`. `has_fetched`: the leader answered in this epoch, so pre-votes against it are refused until it is
    lost or resigns. `has_announced`: the leader has this static voter's directory id and endpoints."""

    fetch_deadline_ms: int = 0
    #: The deadline before the last answer, restored if that answer turns out to be invalid.
    deadline_before_ms: int = 0
    has_fetched: bool = False
    snapshot: OffsetAndEpoch | None = None
    snapshot_position: int = 0
    leader_high_watermark: int = -1
    failures: int = 0
    is_caught_up: bool = False
    membership_at_ms: int = 0
    has_announced: bool = False

    def can_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        # This epoch already has its leader, so only a pre-vote for a later one can be granted.
        return is_pre_vote and is_up_to_date and not self.has_fetched


@dataclass(slots=True)
class Resigned(Role):
    """Led this epoch and resigned; notifies the voters until all have acknowledged or a new election is due."""

    unacknowledged: list[int] = field(default_factory=list)
    candidates: tuple[ReplicaKey, ...] = ()
    election_deadline_ms: int = 0


@dataclass(slots=True)
class Leader(Role):
    """Leads `epoch`, which begins with the LeaderChange record at `epoch_start`.

    `announced`: versions and directory ids that static voters have announced. `doubt_deadline_ms`: from when on others may have elected
    another leader; None for a single voter. `is_in_doubt`: whether it has passed, as the host was last notified; initially false."""

    epoch_start: int = 0
    granting: tuple[int, ...] = ()
    progress: Progress = field(default_factory=Progress)
    acknowledged: list[int] = field(default_factory=list)
    begin_deadlines_ms: dict[int, int] = field(default_factory=dict)
    check_deadline_ms: int | None = None
    doubt_deadline_ms: int | None = None
    is_in_doubt: bool = False
    resign_requested: bool = False
    announced: dict[int, Voter] = field(default_factory=dict)

    def can_grant(self, candidate: ReplicaKey, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return False
