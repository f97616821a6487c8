"""Produce requests that arrive while a leadership moves to another broker: held during the move, then handed on to the new leader.

A client that asks the old leader would be refused with NOT_LEADER_OR_FOLLOWER, and most clients then wait for their `retry.backoff.ms`
(100 ms) before they ask the new one. For a short time, the old leader here forwards such a request to the new leader over a connection of
its own, and returns the answer with a hint at the new leader (KIP-951). The new leader sees exactly what the client's own retry would have
been, in the client's version of the API. It does its own checks (sequence numbers, transactions).

Order. Requests for one partition wait in one line and leave it in order of arrival. Until the new leader has accepted the first request of
its epoch, one is in flight at a time, because the new leader may not have learned of its leadership yet; from then on they follow each
other on one connection. An idempotent producer's batch is refused here if an earlier one was written here and perhaps on no other broker
(refusals.py). A client that has learned of the new leader may send to it while earlier requests are still in flight here. Sequence numbers
protect an idempotent client (and librdkafka waits for its requests in flight before it asks another leader). Other clients have no promise
of order with several requests in flight.

The hint. It comes with an answer if no other request of the connection was in the line. With the last of several requests it would come
just after the client has sent what it held back meanwhile. An idempotent librdkafka that learns of a new leader with a request in flight,
and has no connection to it, checks only once a second whether to open one. Under a load that never pauses, the hint is given when the line
is empty after HINT_MS_MAX, and in any case after twice that.

Never twice. A request is taken only if nothing of it was appended here. If the connection to the new leader breaks, requests in flight are
answered REQUEST_TIMED_OUT, because their outcome is unknown. A request that was handed on is never handed on again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Protocol

from minikafka.addresses import host_port
from minikafka.core.partition.handover import Turn, Verdict, Waiting, gives_hint, next_turn, verdict_of
from minikafka.core.timers import TimerQueue
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ErrorCode

#: How long a broker that shuts down lets its followers catch up before it asks for its leaderships to be moved.
CATCH_UP_MS_MAX = 50
#: Pause before a new leader that has not learned of its leadership yet is asked again.
RETRY_MS = 3
#: A broker that shuts down stays until it has received no late request for this long.
QUIET_MS = 30
#: It hands late requests on for at most this long, and then refuses them for at most this long.
DRAIN_MS_MAX = 300
HELD_BYTES_MAX = 64 << 20

#: Topic id and partition.
Key = tuple[bytes, int]


class Held(Protocol):
    """The part of a waiting Produce that the lines use."""

    size: int
    #: The sender, usually a connection: requests of one source are answered in order.
    source: Any


@dataclass(frozen=True, slots=True)
class Target:
    """Another broker that leads the partition and is not fenced."""

    host: str
    port: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The state of a partition on this broker: whether it appends clients' records, or holds them, and which other broker leads.

    `target` is None if no other broker is known to lead, or the leader is fenced."""

    is_appending: bool = False
    is_held: bool = False
    is_internal: bool = False
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Leadership:
    """A leadership of a broker that is about to shut down. `is_behind`: followers lack some of its records."""

    key: Key
    is_internal: bool
    in_sync_count: int
    is_behind: bool


@dataclass(slots=True, eq=False)
class Entry:
    """A waiting request (`Held`) in its line."""

    key: Key
    held: Any
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Accept no more clients' records for the partition; another replica will lead it soon."""

    key: Key


@dataclass(frozen=True, slots=True)
class WaitForFollowers:
    """Call `caught_up` when the followers have all that the partition's log has now, or after `timeout_ms`."""

    key: Key
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The controller may be asked to move the leaderships. `took_ms` is None if there was nothing to prepare."""

    held: int
    took_ms: int | None


@dataclass(frozen=True, slots=True)
class Release:
    """Append clients' records again if the partition is still held, and call `status_changed`."""

    key: Key


@dataclass(frozen=True, slots=True)
class Drained:
    """No more late requests are expected: the broker may stop."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Append the request here."""

    held: Any


@dataclass(frozen=True, slots=True)
class HandOn:
    """Send the request to the new leader, then call `answered`."""

    entry: Entry
    target: Target


@dataclass(frozen=True, slots=True)
class Finish:
    """Give the client the new leader's answer. `hint`: name the new leader."""

    held: Any
    answer: Any
    hint: bool


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with an error."""

    held: Any
    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Notice:
    """A line for the log."""

    text: str
    is_warning: bool = False


Effect = Hold | WaitForFollowers | Prepared | Release | Drained | Serve | HandOn | Finish | Fail | Notice


class _Line:
    """The requests of one partition that wait or are in flight."""

    __slots__ = ("concurrent_sources", "sources", "status", "under_way", "waiting")

    def __init__(self) -> None:
        self.status = PartitionStatus()
        self.waiting: deque[Entry] = deque()
        self.under_way = 0
        self.sources: dict[Any, int] = {}
        #: Sources that have had several requests in this line since they last had none.
        self.concurrent_sources: set[Any] = set()


class _Stage(Enum):
    """The stage of a broker that shuts down."""

    STAYING = "staying"
    #: Its leaderships have moved: late requests are handed on.
    HANDING_ON = "handing on"
    #: Late requests are refused, while this broker can still tell clients which broker leads.
    REFUSING = "refusing"
    GONE = "gone"


class HandoverLines:
    """Lines of produce requests, one per partition.

    Invariants: a clients' partition is either appended to here or has a line, never both. Every request that was taken is served, finished
    or failed exactly once. `_left_timers` has exactly the keys of `_left`. A line has a timer in `_wakes` when only time can move its first
    request.
    """

    def __init__(self, window_ms: int) -> None:
        """`window_ms`: minikafka.handover.ms; 0 = nothing is held or handed on."""
        self.window_ms = window_ms
        self.bytes = 0
        #: Number of requests by outcome: handed_on, served (the leadership stayed), refused (NOT_LEADER_OR_FOLLOWER), unknown.
        self.outcomes = dict.fromkeys(("handed_on", "served", "refused", "unknown"), 0)
        self._lines: dict[Key, _Line] = {}
        self._wakes: TimerQueue[Key] = TimerQueue()
        #: Partition -> when this broker stopped leading it, for as long as late requests are handed on.
        self._left: dict[Key, int] = {}
        self._left_timers: TimerQueue[Key] = TimerQueue()
        #: Partitions whose late requests are no longer handed on although their leadership was lost recently.
        self._given_up: set[Key] = set()
        #: Partition -> the leader epoch in which its new leader has accepted a request.
        self._proven: dict[Key, int] = {}
        self._held: list[Key] = []
        self._release_ms: int | None = None
        self._behind: set[Key] = set()
        #: Whether more leaderships follow, which must be prepared too.
        self._is_preparing = False
        self._prepared_ms = 0
        self._closed = False
        self._stage = _Stage.STAYING
        self._stage_end_ms = 0
        #: When the last late request came.
        self._late_ms = -QUIET_MS

    @property
    def waiting(self) -> int:
        """Number of requests that wait or are in flight."""
        return sum(len(line.waiting) + line.under_way for line in self._lines.values())

    def waiting_keys(self) -> list[Key]:
        """Partitions with a line."""
        return list(self._lines)

    # -- a broker that shuts down ----------------------------------------------------------------------------------

    def prepare(self, leaderships: Iterable[Leadership], now_ms: int, *, is_last: bool = True) -> Sequence[Effect]:
        """Accept no more clients' records for partitions that others can lead, and let the followers catch up. Records that a new leader
        lacks would be truncated here, even if they were acknowledged with acks=1. `Prepared` comes when the followers have caught up, or
        after CATCH_UP_MS_MAX. `is_last`: no other leaderships follow in a later call. Carry the effects out in the turn in which it was
        seen which of the followers are behind."""
        movable = [one for one in leaderships if not one.is_internal and one.in_sync_count > 1]
        if self.window_ms == 0 or self._closed:
            movable = []
        self._is_preparing = not is_last
        if movable:
            if not self._held:
                self._prepared_ms = now_ms
            self._held += [one.key for one in movable]
            self._release_ms = now_ms + self.window_ms
            self._behind |= {one.key for one in movable if one.is_behind}
        effects: list[Effect] = [Hold(one.key) for one in movable]
        effects += [WaitForFollowers(one.key, CATCH_UP_MS_MAX) for one in movable if one.is_behind]
        return [*effects, *self._prepared(now_ms)]

    def _prepared(self, now_ms: int) -> list[Effect]:
        if self._is_preparing or self._behind:
            return []
        return [Prepared(len(self._held), now_ms - self._prepared_ms if self._held else None)]

    def caught_up(self, key: Key, now_ms: int) -> Sequence[Effect]:
        """The partition's followers have everything, or the time is up."""
        if key not in self._behind:
            return ()
        self._behind.remove(key)
        return self._prepared(now_ms)

    def drain(self, now_ms: int) -> Sequence[Effect]:
        """The leaderships have moved: stay until clients have found the new leaders. Clients that read the hint in an answer switch at
        once. The others are refused after DRAIN_MS_MAX, while this broker can still name the new leader. `Drained` comes at the end."""
        if self.window_ms == 0:
            return [Drained()]
        self._stage, self._stage_end_ms = _Stage.HANDING_ON, now_ms + min(self.window_ms, DRAIN_MS_MAX)
        return self._next_stage(now_ms)

    def _next_stage(self, now_ms: int) -> list[Effect]:
        while (due_ms := self._stage_due_ms()) is not None and due_ms <= now_ms:
            if self._stage is _Stage.REFUSING:
                self._stage = _Stage.GONE
                counts = [f"{count} {name.replace('_', ' ')}" for name, count in self.outcomes.items() if count]
                notices: list[Effect] = [Notice(f"late produces: {', '.join(counts)}")] if counts else []
                return [*self._release(), *notices, Drained()]
            self._stage, self._stage_end_ms = _Stage.REFUSING, now_ms + DRAIN_MS_MAX
        return []

    def _stage_due_ms(self) -> int | None:
        if self._stage in (_Stage.STAYING, _Stage.GONE):
            return None
        return self._stage_end_ms if self._lines else min(self._stage_end_ms, self._late_ms + QUIET_MS)

    def _release(self) -> list[Effect]:
        held, self._held, self._release_ms = self._held, [], None
        return [Release(key) for key in held]

    def close(self) -> Sequence[Effect]:
        """Hand on nothing more; refuse all waiting requests."""
        self._closed = True
        self._release_ms, self._stage = None, _Stage.GONE
        self._wakes.clear()
        self._left_timers.clear()
        effects: list[Effect] = []
        for line in self._lines.values():
            while line.waiting:
                effects.append(self._fail(line, line.waiting.popleft(), ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return effects

    # -- produces --------------------------------------------------------------------------------------------------

    def accepts(self, key: Key, status: PartitionStatus, now_ms: int) -> bool:
        """Whether to call `take` for a produce request that was refused because this broker does not lead the partition."""
        if self._closed or self.window_ms == 0 or self.bytes >= HELD_BYTES_MAX:
            return False
        has_line = key in self._lines
        if not has_line and status.is_internal:
            return False
        has_left = key in self._left and key not in self._given_up and now_ms < self._left[key] + self.window_ms
        if not (has_line or status.is_held or has_left):
            return False
        self._late_ms = now_ms
        return has_line or status.is_held or self._stage in (_Stage.STAYING, _Stage.HANDING_ON)

    def take(self, key: Key, held: Held, status: PartitionStatus, now_ms: int) -> Sequence[Effect]:
        """Hold a produce request until this broker or the new leader can serve it."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        line.status = status
        self.bytes += held.size
        before = line.sources.get(held.source, 0)
        line.sources[held.source] = before + 1
        if before:
            line.concurrent_sources.add(held.source)
        line.waiting.append(Entry(key, held, now_ms + self.window_ms))
        return self._move(key, now_ms)

    # -- events ----------------------------------------------------------------------------------------------------

    def leadership_lost(self, key: Key, is_internal: bool, now_ms: int) -> None:
        """This broker no longer leads the partition."""
        if self.window_ms and not is_internal and not self._closed:
            self._left[key] = now_ms
            self._given_up.discard(key)
            self._left_timers.schedule(key, now_ms + self.window_ms)

    def status_changed(self, key: Key, status: PartitionStatus, now_ms: int) -> Sequence[Effect]:
        """The state of a partition with a line has changed: another broker leads it, or it is appended to again."""
        line = self._lines.get(key)
        if line is None:
            return ()
        line.status = status
        return self._move(key, now_ms)

    def answered(
        self, entry: Entry, target: Target, code: int | None, answer: Any, status: PartitionStatus, now_ms: int
    ) -> Sequence[Effect]:
        """The new leader answered. `code` is its error code, None if the connection broke."""
        key, line = entry.key, self._lines[entry.key]
        line.under_way -= 1
        line.status = status
        has_time = now_ms < entry.deadline_ms and not self._closed
        verdict = verdict_of(code, is_proven=self._proven.get(key) == target.leader_epoch, has_time=has_time)
        if verdict is Verdict.ASK_AGAIN:
            line.waiting.appendleft(entry)
            self._wakes.schedule(key, now_ms + RETRY_MS)
            return ()
        effects: list[Effect] = []
        if verdict is Verdict.UNKNOWN:
            effects.append(Notice(f"no answer to a produce request that was handed on to {host_port(target.host, target.port)}: {answer}"))
            effects += self._refuse_all(line, entry, ErrorCode.REQUEST_TIMED_OUT)
        elif verdict is Verdict.NOT_ALLOWED:
            why = "refuses produce requests that this broker hands on: grant Write to its principal, or add it to super.users"
            effects.append(Notice(f"{host_port(target.host, target.port)} {why}", True))
            effects += self._refuse_all(line, entry, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif verdict is Verdict.OUT_OF_ORDER:
            effects += self._refuse_all(line, entry, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            if verdict is Verdict.ACCEPTED and self._is_late(key):
                self._proven[key] = target.leader_epoch
            self.outcomes["handed_on" if verdict is Verdict.ACCEPTED else "refused"] += 1
            effects.append(Finish(entry.held, answer, self._leave_with_hint(line, entry, now_ms)))
        return effects + self._move(key, now_ms)

    def _is_late(self, key: Key) -> bool:
        return key in self._left and key not in self._given_up

    # -- lines -----------------------------------------------------------------------------------------------------

    def _move(self, key: Key, now_ms: int) -> list[Effect]:
        """Process the first requests of the line, as far as it is their turn."""
        line = self._lines[key]
        self._wakes.cancel(key)
        effects: list[Effect] = []
        while line.waiting:
            entry = line.waiting[0]
            turn = next_turn(self._view(line, key), entry.deadline_ms, now_ms)
            if turn is Turn.WAIT_FOR_ANSWER:
                return effects
            if turn is Turn.WAIT_FOR_LEADER:
                self._wakes.schedule(key, entry.deadline_ms)
                return effects
            line.waiting.popleft()
            effects.append(self._let_go(line, entry, turn))
        if not line.under_way:
            del self._lines[key]
        return effects + self._next_stage(now_ms)

    def _view(self, line: _Line, key: Key) -> Waiting:
        status = line.status
        epoch = None if status.target is None else status.target.leader_epoch
        return Waiting(status.is_appending, status.is_held, epoch, self._proven.get(key), line.under_way)

    def _let_go(self, line: _Line, entry: Entry, turn: Turn) -> Effect:
        target = line.status.target
        if turn is Turn.SERVE:
            self.outcomes["served"] += 1
            self._gone(line, entry)
            return Serve(entry.held)
        if turn is Turn.REFUSE or target is None:
            return self._fail(line, entry, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        line.under_way += 1
        return HandOn(entry, target)

    def _refuse_all(self, line: _Line, entry: Entry, code: ErrorCode) -> list[Effect]:
        """Answer `entry` and all requests behind it with `code`. Later requests must not overtake it, and a retry should go to the new
        leader."""
        effects = [self._fail(line, entry, code)]
        if entry.key in self._left:
            self._given_up.add(entry.key)
        while line.waiting:
            effects.append(self._fail(line, line.waiting.popleft(), ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return effects

    def _leave_with_hint(self, line: _Line, entry: Entry, now_ms: int) -> bool:
        """Remove the answered `entry`. Returns whether to name the new leader."""
        source = entry.held.source
        was_alone = source not in line.concurrent_sources
        self._gone(line, entry)
        since_lost_ms = now_ms - self._left[entry.key] if self._is_late(entry.key) else None
        return gives_hint(since_lost_ms, is_last=source not in line.sources, was_alone=was_alone)

    def _gone(self, line: _Line, entry: Entry) -> None:
        held = entry.held
        self.bytes -= held.size
        left = line.sources[held.source] - 1
        if left:
            line.sources[held.source] = left
        else:
            del line.sources[held.source]
            line.concurrent_sources.discard(held.source)

    def _fail(self, line: _Line, entry: Entry, code: ErrorCode) -> Effect:
        self.outcomes["unknown" if code is ErrorCode.REQUEST_TIMED_OUT else "refused"] += 1
        self._gone(line, entry)
        return Fail(entry.held, code)

    # -- time ------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When to call `on_deadline`."""
        due = (self._wakes.next_deadline(), self._left_timers.next_deadline(), self._release_ms, self._stage_due_ms())
        return min((deadline_ms for deadline_ms in due if deadline_ms is not None), default=None)

    def on_deadline(self, now_ms: int) -> Sequence[Effect]:
        """Do what is due."""
        for key in self._left_timers.expired(now_ms):
            del self._left[key]
            self._given_up.discard(key)
            self._proven.pop(key, None)
        if self._release_ms is not None and self._release_ms <= now_ms:
            # Serve requests whose time is up, too: late is better than refused.
            return self._release()
        effects: list[Effect] = []
        for key in self._wakes.expired(now_ms):
            effects += self._move(key, now_ms)
        return effects + self._next_stage(now_ms)
