"""The interface between a coordinator and the runtime that hosts it: a state machine over one partition of an internal topic.

Rules: org.apache.kafka.coordinator.common.runtime (CoordinatorShard, CoordinatorResult) of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from minikafka.late_dataclass import dataclass
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
    """The error that a client receives when the append that it caused to a coordinator's partition fails."""
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
    """Default of `Append.on_settled`: nothing to do besides the replay."""


def unchecked() -> None:
    """Default of `Append.check`: the batch may be written whenever its turn comes."""


@dataclass(slots=True)
class Append:
    """Write `records` as one batch.

    `on_done(error, now_ms)` is called once, to answer the request: with NONE when the batch is committed and replayed, with the error if it
    was not written, with REQUEST_TIMED_OUT if it is in the log but was not committed in time, and with NOT_LEADER_OR_FOLLOWER if the
    leadership ends before. After a timeout the batch may still be committed. `on_settled(is_written, now_ms)` is called when the outcome
    is known, after the replay and before `on_done`. It is not called if the leadership ends, because the shard ends with it.
    `producer`: (id, epoch) of the producer whose transaction the batch belongs to. `check()` is called directly before the batch is
    written, and raises ApiError if it must not be: a request may have waited since it was decided.
    """

    records: list[CoordinatorRecord]
    on_done: Callable[[ErrorCode, int], None]
    producer: tuple[int, int] | None = None
    on_settled: Callable[[bool, int], None] = _nothing
    check: Callable[[], None] = unchecked


class Effects(Protocol):
    """What a shard asks its host to do. Each kind of coordinator adds effects of its own, which are carried out after the appends."""

    appends: list[Append]

    def __bool__(self) -> bool:
        """Whether there is anything to do."""


class Shard(Protocol):
    """The state of one partition.

    Invariants that the host keeps: it calls `replay` and `replay_marker` for every committed record and marker of the log, in log order,
    and for no others, both while loading and afterwards. Requests come after `loaded`, and none after `shutdown`. Times are in milliseconds
    of the clock that the shard was made for.
    """

    def replay(self, key: Any, value: Any | None, producer_id: int = -1) -> None:
        """Apply one committed record. `producer_id` is -1 for a record outside of transactions."""

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """A transaction marker of the producer is committed in this partition."""

    def loaded(self, now_ms: int) -> None:
        """The log has been replayed up to where it ended when this broker became the leader."""

    def shutdown(self) -> None:
        """This broker no longer leads the partition: waiting requests are answered NOT_COORDINATOR."""

    def take_effects(self) -> Any:
        """The `Effects` that have accumulated since the last call."""

    def next_deadline(self) -> int | None:
        """When to call `on_deadline`, None if nothing is due."""

    def on_deadline(self, now_ms: int) -> None:
        """Do what is due."""
