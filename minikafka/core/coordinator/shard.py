"""What every coordinator is to the runtime that hosts it: a state machine over one partition of an internal topic.

Rules: org.apache.kafka.coordinator.common.runtime (CoordinatorShard, CoordinatorResult) of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from minikafka.wire.errors import ErrorCode

_UNAVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_NOT_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE})


def append_error(error: ErrorCode) -> ErrorCode:
    """What a failed append to a coordinator's partition means to the client that caused it."""
    if error in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _NOT_LEADER:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else error


@dataclass(slots=True)
class CoordinatorRecord:
    """One record for the coordinator's partition: a declared key, and a declared value with its version, or None for a tombstone."""

    key: Any
    value: Any | None
    version: int = 0


def _nothing(is_written: bool, now_ms: int) -> None:
    """Replay says it all."""


@dataclass(slots=True)
class Append:
    """Write `records` as one batch.

    `on_done(error, now_ms)` is called once, for whoever asked: NONE when the batch is committed and replayed; why it was not written;
    REQUEST_TIMED_OUT when it is in the log and was not committed in time; NOT_LEADER_OR_FOLLOWER when the leadership ends before. After
    a time-out the batch may be committed still: `on_settled(is_written, now_ms)` is called when it is known what came of it, after the
    replay and before `on_done`, and never when the leadership ends, for then the shard ends too.
    `producer`: (id, epoch) of the producer whose transaction the batch belongs to.
    """

    records: list[CoordinatorRecord]
    on_done: Callable[[ErrorCode, int], None]
    producer: tuple[int, int] | None = None
    on_settled: Callable[[bool, int], None] = _nothing


class Effects(Protocol):
    """What a shard asks for; each kind of coordinator adds its own wishes, which are carried out after the appends."""

    appends: list[Append]

    def __bool__(self) -> bool:
        """Whether there is anything to do."""


class Shard(Protocol):
    """The state of one partition.

    Invariant of whoever hosts it: `replay` and `replay_marker` are called for everything that the log holds, in its order, as far as it
    is committed and no further, whether it was read at the start or written since; requests come after `loaded`, and none after `shutdown`.
    Times are in milliseconds of the clock that the shard was made for.
    """

    def replay(self, key: Any, value: Any | None, producer_id: int = -1) -> None:
        """Apply one committed record, of a producer's transaction or of none (-1)."""

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """A marker of the producer is committed in this partition."""

    def loaded(self, now_ms: int) -> None:
        """The log has been replayed up to where it ended when this broker became the leader."""

    def shutdown(self) -> None:
        """This broker does not lead the partition any more: who waits is told NOT_COORDINATOR."""

    def take_effects(self) -> Any:
        """What to do since the last call: some `Effects`."""

    def next_deadline(self) -> int | None:
        """When `on_deadline` is due."""

    def on_deadline(self, now_ms: int) -> None:
        """Do what is due."""
