"""Produces that meet a leadership on its way to another broker: held while it moves, then handed on to the new leader.

A client that asks the old leader is refused with NOT_LEADER_OR_FOLLOWER, and most wait for their `retry.backoff.ms`, 100 ms, before they
ask the new one. Here the old leader takes such a request, for a while, to the new leader over a connection of its own and gives the answer
back, with a hint (KIP-951) at who leads now. What the new leader sees is what the client's own retry would have been, in the client's
version of the API; what is checked there (sequence numbers, transactions) is checked there.

Order. Requests about one partition wait in one line and leave it in the order in which they came. Until the new leader has accepted the
first one of its epoch there is one under way at a time, because it may not know yet that it leads; from then on they follow each other on
one connection. An idempotent producer's batch stays here, refused, when one before it was written here and perhaps nowhere else
(refusals.py). A client that has learned of the new leader may ask it while requests of its own are under way here: an idempotent one is
protected by its sequence numbers (and librdkafka waits for what is under way before it asks another leader), one without is promised no
order with several requests in flight.

The hint. It is given with an answer beside which nothing else of its connection was in the line. With the last of several it would come
when the client has just sent what it had to keep back meanwhile; and an idempotent librdkafka that learns of a new leader with a request
under way, and has no connection to it, looks only once a second whether to open one. Under a load that never pauses the hint is given when
the line is empty after HINT_MS_MAX, and in any case after twice that.

Never twice. A request is taken on only when nothing of it was appended here. What was under way when the connection to the new leader broke
is answered REQUEST_TIMED_OUT, which says what is known. A request that was handed on is never handed on again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from minikafka.core.partition.handover import Turn, Verdict, Waiting, gives_hint, next_turn, verdict_of
from minikafka.core.timers import TimerQueue
from minikafka.wire.errors import ErrorCode

#: How long a broker that leaves lets its followers catch up before it asks for its leaderships to be moved.
CATCH_UP_MS_MAX = 50
#: Pause before a new leader that does not know of its office yet is asked again.
RETRY_MS = 3
#: A broker that leaves stays until no late request has come for so long; it hands on for at most so long, and refuses for at most so long.
QUIET_MS = 30
DRAIN_MS_MAX = 300
HELD_BYTES_MAX = 64 << 20

#: Topic id and partition.
Key = tuple[bytes, int]


class Held(Protocol):
    """What the lines need of the part of a Produce that waits."""

    size: int
    #: Whose request it is: requests of one source are answered in order.
    source: Any


@dataclass(frozen=True, slots=True)
class Target:
    """Another broker that leads the partition and is not fenced."""

    host: str
    port: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Standing:
    """A partition as it stands on this broker: whether records of clients are appended, or held, and who else leads it."""

    is_appending: bool = False
    is_held: bool = False
    is_internal: bool = False
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Leadership:
    """One that a broker has which is about to leave. `is_behind`: followers lack some of its records."""

    key: Key
    is_internal: bool
    in_sync_count: int
    is_behind: bool


@dataclass(slots=True, eq=False)
class Entry:
    """A request (`Held`) in its line."""

    key: Key
    held: Any
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Take no more records of clients for the partition; its other replicas will be asked soon."""

    key: Key


@dataclass(frozen=True, slots=True)
class WaitForFollowers:
    """Call `caught_up` when they have all that the partition's log has now, or when time is up."""

    key: Key
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The controller may be asked to move the leaderships. `took_ms` None: there was nothing to prepare."""

    held: int
    took_ms: int | None


@dataclass(frozen=True, slots=True)
class Release:
    """Append records of clients again if the partition is still held, and tell `standing_changed`."""

    key: Key


@dataclass(frozen=True, slots=True)
class Drained:
    """Nobody is late any more: the broker may go."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Append it here."""

    held: Any


@dataclass(frozen=True, slots=True)
class HandOn:
    """Send it to the new leader; `answered` follows."""

    entry: Entry
    target: Target


@dataclass(frozen=True, slots=True)
class Finish:
    """Give the client the new leader's answer. `hint`: say who leads."""

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
    """What waits for one partition, and what is under way."""

    __slots__ = ("crowds", "sources", "standing", "under_way", "waiting")

    def __init__(self) -> None:
        self.standing = Standing()
        self.waiting: deque[Entry] = deque()
        self.under_way = 0
        self.sources: dict[Any, int] = {}
        #: Sources that have had several requests here since they were last without one.
        self.crowds: set[Any] = set()


class _Stage(Enum):
    """Of a broker that leaves."""

    STAYING = "staying"
    #: Its leaderships have moved: what comes late is handed on.
    HANDING_ON = "handing on"
    #: What comes late is refused, while this broker can still tell who leads.
    REFUSING = "refusing"
    GONE = "gone"


class HandoverLines:
    """Lines of produces by partition.

    Invariants: a partition of clients is appended to here or has a line, never both; every request that was taken is served, finished or
    failed once; `_left_timers` has exactly the keys of `_left`; a line has a timer in `_wakes` when only time can move its first request.
    """

    def __init__(self, window_ms: int) -> None:
        """`window_ms`: minikafka.handover.ms; 0 = nothing is held or handed on."""
        self.window_ms = window_ms
        self.bytes = 0
        #: Requests by what became of them: handed_on, served (the leadership stayed), refused (NOT_LEADER_OR_FOLLOWER), unknown.
        self.outcomes = dict.fromkeys(("handed_on", "served", "refused", "unknown"), 0)
        self._lines: dict[Key, _Line] = {}
        self._wakes: TimerQueue[Key] = TimerQueue()
        #: Partition -> when this broker stopped leading it; for as long as late produces are handed on.
        self._left: dict[Key, int] = {}
        self._left_timers: TimerQueue[Key] = TimerQueue()
        #: Partitions whose late produces are not handed on any more, though their leadership was lost lately.
        self._given_up: set[Key] = set()
        #: Partition -> the leader epoch in which its new leader has answered as one.
        self._proven: dict[Key, int] = {}
        self._held: list[Key] = []
        self._release_ms: int | None = None
        self._behind: set[Key] = set()
        self._prepared_ms = 0
        self._closed = False
        self._stage = _Stage.STAYING
        self._stage_end_ms = 0
        #: When the last late request came.
        self._late_ms = -QUIET_MS

    @property
    def waiting(self) -> int:
        """Requests that wait or are under way."""
        return sum(len(line.waiting) + line.under_way for line in self._lines.values())

    def waiting_keys(self) -> list[Key]:
        """Partitions with a line."""
        return list(self._lines)

    # -- a broker that leaves --------------------------------------------------------------------------------------

    def prepare(self, leaderships: Iterable[Leadership], now_ms: int) -> Sequence[Effect]:
        """Take no more records of clients for what others can lead, and let them have all that was taken: what a new leader does not have
        would be cut off here, acknowledged with acks=1 or not. `Prepared` comes when they have it, or after CATCH_UP_MS_MAX."""
        movable = [one for one in leaderships if not one.is_internal and one.in_sync_count > 1]
        if self.window_ms == 0 or self._closed or not movable:
            return [Prepared(0, None)]
        self._held = [one.key for one in movable]
        self._release_ms = now_ms + self.window_ms
        self._prepared_ms = now_ms
        self._behind = {one.key for one in movable if one.is_behind}
        effects: list[Effect] = [Hold(key) for key in self._held]
        effects += [WaitForFollowers(one.key, CATCH_UP_MS_MAX) for one in movable if one.is_behind]
        return effects if self._behind else [*effects, Prepared(len(self._held), 0)]

    def caught_up(self, key: Key, now_ms: int) -> Sequence[Effect]:
        """The partition's followers have everything, or time is up."""
        if key not in self._behind:
            return ()
        self._behind.remove(key)
        return () if self._behind else [Prepared(len(self._held), now_ms - self._prepared_ms)]

    def drain(self, now_ms: int) -> Sequence[Effect]:
        """The leaderships have moved: stay while clients find their way. Those that read the hint of an answer leave at once; the others
        are refused, after DRAIN_MS_MAX, while this broker can still tell them who leads. `Drained` says when it is over."""
        if self.window_ms == 0:
            return [Drained()]
        self._stage, self._stage_end_ms = _Stage.HANDING_ON, now_ms + min(self.window_ms, DRAIN_MS_MAX)
        return self._next_stage(now_ms)

    def _next_stage(self, now_ms: int) -> list[Effect]:
        while (due_ms := self._stage_due_ms()) is not None and due_ms <= now_ms:
            if self._stage is _Stage.REFUSING:
                self._stage = _Stage.GONE
                counts = [f"{count} {name.replace('_', ' ')}" for name, count in self.outcomes.items() if count]
                said: list[Effect] = [Notice(f"late produces: {', '.join(counts)}")] if counts else []
                return [*self._release(), *said, Drained()]
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
        """Nothing is handed on any more; who waits is refused."""
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

    def accepts(self, key: Key, standing: Standing, now_ms: int) -> bool:
        """Whether a produce that was refused because this broker does not lead the partition should be given to `take`."""
        if self._closed or self.window_ms == 0 or self.bytes >= HELD_BYTES_MAX:
            return False
        has_line = key in self._lines
        if not has_line and standing.is_internal:
            return False
        has_left = key in self._left and key not in self._given_up and now_ms < self._left[key] + self.window_ms
        if not (has_line or standing.is_held or has_left):
            return False
        self._late_ms = now_ms
        return has_line or standing.is_held or self._stage in (_Stage.STAYING, _Stage.HANDING_ON)

    def take(self, key: Key, held: Held, standing: Standing, now_ms: int) -> Sequence[Effect]:
        """Keep a produce until it can be served, here or there."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        line.standing = standing
        self.bytes += held.size
        before = line.sources.get(held.source, 0)
        line.sources[held.source] = before + 1
        if before:
            line.crowds.add(held.source)
        line.waiting.append(Entry(key, held, now_ms + self.window_ms))
        return self._move(key, now_ms)

    # -- what happens ----------------------------------------------------------------------------------------------

    def leadership_lost(self, key: Key, is_internal: bool, now_ms: int) -> None:
        """This broker does not lead the partition any more."""
        if self.window_ms and not is_internal and not self._closed:
            self._left[key] = now_ms
            self._given_up.discard(key)
            self._left_timers.schedule(key, now_ms + self.window_ms)

    def standing_changed(self, key: Key, standing: Standing, now_ms: int) -> Sequence[Effect]:
        """Told of every partition with a line: it is led by another broker, or appended to again."""
        line = self._lines.get(key)
        if line is None:
            return ()
        line.standing = standing
        return self._move(key, now_ms)

    def answered(self, entry: Entry, target: Target, code: int | None, answer: Any, standing: Standing, now_ms: int) -> Sequence[Effect]:
        """The new leader's answer and its error code; None when the connection broke."""
        key, line = entry.key, self._lines[entry.key]
        line.under_way -= 1
        line.standing = standing
        has_time = now_ms < entry.deadline_ms and not self._closed
        verdict = verdict_of(code, is_proven=self._proven.get(key) == target.leader_epoch, has_time=has_time)
        if verdict is Verdict.ASK_AGAIN:
            line.waiting.appendleft(entry)
            self._wakes.schedule(key, now_ms + RETRY_MS)
            return ()
        effects: list[Effect] = []
        if verdict is Verdict.UNKNOWN:
            effects.append(Notice(f"a produce that was handed on to {target.host}:{target.port} has no answer: {answer}"))
            effects += self._refuse_all(line, entry, ErrorCode.REQUEST_TIMED_OUT)
        elif verdict is Verdict.NOT_ALLOWED:
            why = "does not let this broker hand produces on: give its principal Write, or super.users"
            effects.append(Notice(f"{target.host}:{target.port} {why}", True))
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
        """Let go of what has its turn."""
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
        standing = line.standing
        epoch = None if standing.target is None else standing.target.leader_epoch
        return Waiting(standing.is_appending, standing.is_held, epoch, self._proven.get(key), line.under_way)

    def _let_go(self, line: _Line, entry: Entry, turn: Turn) -> Effect:
        target = line.standing.target
        if turn is Turn.SERVE:
            self.outcomes["served"] += 1
            self._gone(line, entry)
            return Serve(entry.held)
        if turn is Turn.REFUSE or target is None:
            return self._fail(line, entry, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        line.under_way += 1
        return HandOn(entry, target)

    def _refuse_all(self, line: _Line, entry: Entry, code: ErrorCode) -> list[Effect]:
        """Answer `entry` with `code`: what came after it must not overtake it, and whoever asks again had better ask the new leader."""
        effects = [self._fail(line, entry, code)]
        if entry.key in self._left:
            self._given_up.add(entry.key)
        while line.waiting:
            effects.append(self._fail(line, line.waiting.popleft(), ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return effects

    def _leave_with_hint(self, line: _Line, entry: Entry, now_ms: int) -> bool:
        """`entry` is answered; whether to say who leads."""
        source = entry.held.source
        was_alone = source not in line.crowds
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
            line.crowds.discard(held.source)

    def _fail(self, line: _Line, entry: Entry, code: ErrorCode) -> Effect:
        self.outcomes["unknown" if code is ErrorCode.REQUEST_TIMED_OUT else "refused"] += 1
        self._gone(line, entry)
        return Fail(entry.held, code)

    # -- time ------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `on_deadline` is to be called."""
        due = (self._wakes.next_deadline(), self._left_timers.next_deadline(), self._release_ms, self._stage_due_ms())
        return min((deadline_ms for deadline_ms in due if deadline_ms is not None), default=None)

    def on_deadline(self, now_ms: int) -> Sequence[Effect]:
        """Do what is due."""
        for key in self._left_timers.expired(now_ms):
            del self._left[key]
            self._given_up.discard(key)
            self._proven.pop(key, None)
        if self._release_ms is not None and self._release_ms <= now_ms:
            # Those whose time is up, too, are served: late is better than refused.
            return self._release()
        effects: list[Effect] = []
        for key in self._wakes.expired(now_ms):
            effects += self._move(key, now_ms)
        return effects + self._next_stage(now_ms)
