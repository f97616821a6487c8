"""Basic value types of the quorum."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from minikafka.late_dataclass import dataclass

ZERO_ID = bytes(16)
NO_NODE = -1


class ReplicaKey(NamedTuple):
    """A replica: its node id and the id of its metadata log directory (16 bytes; zeros if unknown)."""

    node_id: int
    directory_id: bytes = ZERO_ID


class Endpoint(NamedTuple):
    """Where a controller listens."""

    listener: str
    host: str
    port: int


class OffsetAndEpoch(NamedTuple):
    """An end offset (exclusive) and the epoch of the record before it. As a pair it also names a snapshot."""

    offset: int
    epoch: int


NO_SNAPSHOT = OffsetAndEpoch(-1, -1)


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The state that must survive a crash (Kafka's quorum-state): the epoch, its leader if known, the vote given in it."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """Times in milliseconds, from Kafka's `controller.quorum.*` properties.

    `unreachable_jitter_ms`: a follower whose leader refuses connections (its process is gone) waits for a random time up to this instead
    of the fetch timeout. `fetch_max_wait_ms`: how long a leader parks a fetch. `auto_join`: a controller that is not a voter asks to
    become one.
    """

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_ms_max: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    retry_backoff_ms_max: int = 1000
    fetch_max_wait_ms: int = 500
    fetch_bytes_max: int = 1 << 20
    fetch_snapshot_bytes_max: int = 1 << 20
    unreachable_jitter_ms: int = 100
    observer_session_ms: int = 300_000
    park_ms_max: int = 60_000
    auto_join: bool = False


class Random(Protocol):
    """The part of random.Random that the quorum uses."""

    def randrange(self, start: int, stop: int, /) -> int: ...


class InvariantViolated(Exception):
    """A bug of this code, or a log that lost acknowledged records. The node must stop."""
