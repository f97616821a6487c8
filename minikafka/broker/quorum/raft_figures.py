"""Metrics of the metadata quorum (org.apache.kafka.raft.internals.KafkaRaftMetrics)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from minikafka.broker.measures.durations import Window
from minikafka.core.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Role

if TYPE_CHECKING:
    from minikafka.core.raft.quorum import Quorum

UNCOMMITTED_KEPT = 1024


class RaftFigures:
    """Rates and latencies over the last 30 to 60 s; times in ms."""

    def __init__(self) -> None:
        self.appended = Window()
        self.fetched = Window()
        self.commit_latency = Window()
        self.election_latency = Window()
        #: (end offset, time of the append) of this leader's uncommitted batches.
        self._uncommitted: deque[tuple[int, int]] = deque(maxlen=UNCOMMITTED_KEPT)
        self._election_ms: int | None = None
        #: The reason for an election, should one begin next.
        self.why = "there is no leader"

    def note_appended(self, records: int, end_offset: int, now_ms: int) -> None:
        """Record that this leader has appended a batch."""
        self.appended.record(records, now_ms)
        self._uncommitted.append((end_offset, now_ms))

    def note_committed(self, offset: int, now_ms: int) -> None:
        """Record that the high watermark (exclusive) has moved."""
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= offset:
            self.commit_latency.record(now_ms - uncommitted.popleft()[1], now_ms)

    def note_role(self, role: Role, now_ms: int) -> bool:
        """Record a change of role. An election begins when this node becomes a candidate, and ends with a leader. Returns whether one
        began."""
        begins = isinstance(role, (Prospective, Candidate)) and self._election_ms is None
        if begins:
            self._election_ms = now_ms
        elif isinstance(role, (Leader, Follower)) and self._election_ms is not None:
            self.election_latency.record(now_ms - self._election_ms, now_ms)
            self._election_ms = None
        if isinstance(role, Follower):
            self.why = f"leader {role.leader_id} is gone or silent"
        elif not isinstance(role, (Prospective, Candidate)):
            self.why = "there is no leader"
        if not isinstance(role, Leader) and self._uncommitted:
            self._uncommitted.clear()
        return begins


def state_of(quorum: Quorum) -> str:
    """The role's name in Kafka's `current-state` metric."""
    role = quorum.role
    for kind, name in ((Leader, "leader"), (Prospective, "prospective"), (Candidate, "candidate"), (Resigned, "resigned")):
        if isinstance(role, kind):
            return name
    voter = quorum.is_voter
    if isinstance(role, Follower):
        return "follower" if voter else "observer"
    suffix = "" if voter else "-observer"
    return f"unattached-voted{suffix}" if role.voted is not None else f"unattached{suffix}"


def vote_of(quorum: Quorum) -> int:
    """The id of the node that this node voted for in the current epoch, -1 if it has not voted."""
    voted = quorum.role.voted
    if voted is not None:
        return voted.node_id
    return quorum.local.node_id if isinstance(quorum.role, (Candidate, Leader)) else -1
