"""A share partition at its leader: which members hold which records, how often they were delivered, and what to write of this.

Rules: kafka.server.share.SharePartition of Apache Kafka 4.4. Acknowledgements take effect when the share coordinator has stored them
(`Write`). Until then their records are neither delivered again nor dropped. Where the group has a dead-letter queue (KIP-1191), records
that are given up go there after that (`DeadLetter`), and are archived when they are there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from minikafka.core.share.acknowledgements import ACCEPT, GAP, REJECT, RELEASE, RENEW, Acknowledgement
from minikafka.core.share.in_flight import TERMINAL, InFlight, Run
from minikafka.core.share.state import ShareState
from minikafka.core.share.state_batches import DeliveryState, StateBatch
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ApiError, ErrorCode

#: Least `ShareRules.throttled_from`.
THROTTLED_FROM_MIN = 2
#: How a fetch counts the records that it may acquire: about, in whole batches, or exactly.
ACQUIRE_MODES = BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
#: Pause before retrying a write that archives records, because a share coordinator may keep refusing it.
RETRY_MS = 1000
#: Superseded entries that the heap of locks may keep: per run, and in addition. Each renewal leaves one.
STALE_LOCKS_PER_RUN, STALE_LOCKS = 2, 100
#: The largest delivery_complete_count of a write (INT32).
COMPLETE_MAX = (1 << 31) - 1
#: (error, message): the result of an acknowledgement.
Done = Callable[[ErrorCode, "str | None"], None]


@dataclass(frozen=True, slots=True)
class ShareRules:
    """The settings of the partition now, from its group or else from the broker."""

    lock_ms: int = 30_000
    delivery_count_limit: int = 5
    record_locks_max: int = 2000
    is_renew_enabled: bool = True
    has_dead_letter_queue: bool = False

    @property
    def throttled_from(self) -> int:
        """From this many deliveries on, records are delivered in smaller portions."""
        return max(THROTTLED_FROM_MIN, -(-self.delivery_count_limit // 2))


class Acquired(NamedTuple):
    """Records that a member has acquired, `last_offset` included."""

    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a read: its offset, (base offset, last offset) of each batch, and the ranges of aborted transactions."""

    offset: int
    batches: Sequence[tuple[int, int]]
    aborted: Sequence[tuple[int, int]] = ()


class DeadLetter(NamedTuple):
    """Records for the group's dead-letter queue, `last_offset` included. `is_rejected`: by a member, and not after too many deliveries."""

    first_offset: int
    last_offset: int
    delivery_count: int
    is_rejected: bool


@dataclass(frozen=True, slots=True)
class Write:
    """State for the share coordinator to store. The host then calls `written` or `failed` with the ticket."""

    ticket: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]

    def parts(self, batches_max: int) -> list[Write]:
        """The write in parts of at most so many batches, to store one after the other. If only some are stored, the write fails, like one
        whose answer is lost."""
        parts, complete = [], self.delivery_complete_count
        for begin in reversed(range(0, max(len(self.batches), 1), batches_max)):
            some = self.batches[begin : begin + batches_max]
            parts.append(Write(self.ticket, self.start_offset, max(complete, 0), some))
            complete -= sum(one.last_offset - max(one.first_offset, self.start_offset) + 1 for one in some if self._is_done(one))
        return parts[::-1]

    def _is_done(self, batch: StateBatch) -> bool:
        return batch.delivery_state in TERMINAL and batch.last_offset >= self.start_offset


class SharePartition:
    """Invariants: runs cover `start_offset` to `next_offset` (exclusive) without gaps. At most one write is in progress, and a run with a
    ticket waits for it or for the next one."""

    def __init__(self, state: ShareState, start_offset: int, rules: Callable[[], ShareRules]) -> None:
        """`start_offset`: where to begin if the state has no start offset."""
        self._rules = rules
        self._flight = InFlight()
        self.state_epoch = state.state_epoch
        self.start_offset = start_offset if state.start_offset == -1 else state.start_offset
        #: The first offset that was never delivered.
        self.next_offset = self.start_offset
        self._ticket = 1
        self._under_way = 0
        self._unwritten: list[StateBatch] = []
        self._waiting: dict[int, list[Done]] = {}
        #: Records that are given up: when the write with this ticket is stored, and since then.
        self._given_up: dict[int, list[DeadLetter]] = {}
        self._dead_letters: list[DeadLetter] = []
        #: Dead letters that are on their way to the queue.
        self._burying = 0
        self._locks: list[tuple[int, int, int]] = []
        self._first_available = self.start_offset
        for batch in sorted(state.batches):
            if batch.last_offset >= self.next_offset:
                self._restore(batch)
        self._advance()

    def _restore(self, batch: StateBatch) -> None:
        first = max(batch.first_offset, self.next_offset)
        if first > self.next_offset:
            # Members held these records when the previous leader failed.
            self._flight.append(Run(self.next_offset, first - 1, DeliveryState.AVAILABLE, 0))
            self._flight.begin_batch(self.next_offset, first - 1)
        run = Run(first, batch.last_offset, DeliveryState(batch.delivery_state), batch.delivery_count)
        self._flight.append(run)
        self._flight.begin_batch(first, batch.last_offset)
        self.next_offset = batch.last_offset + 1
        if run.state is DeliveryState.ARCHIVING:
            # Nobody has stored why: the previous leader failed on the way to the queue.
            is_rejected = run.count < self._rules().delivery_count_limit
            self._dead_letters.append(DeadLetter(run.first, run.last, run.count, is_rejected))

    # -- what to fetch -------------------------------------------------------------------------------------------------

    @property
    def fetch_offset(self) -> int:
        """The offset of the next records to deliver."""
        for run in self._flight.between(self._first_available, self.next_offset):
            if run.is_available:
                self._first_available = run.first
                return run.first
        self._first_available = self.next_offset
        return self.next_offset

    @property
    def can_acquire(self) -> bool:
        """Whether a fetch may deliver records: returned ones, or new ones while there is room for locks."""
        return self.fetch_offset < self.next_offset or self._room > 0

    @property
    def _room(self) -> int:
        return self._rules().record_locks_max - (self.next_offset - self.start_offset)

    @property
    def is_quiet(self) -> bool:
        """Whether no write is pending or in progress, and no record on its way to the dead-letter queue."""
        return not self._under_way and not self._unwritten and not self._dead_letters and not self._burying

    @property
    def run_count(self) -> int:
        """Number of runs."""
        return len(self._flight.runs)

    @property
    def lock_count(self) -> int:
        """Number of entries in the heap of locks."""
        return len(self._locks)

    # -- acquiring -----------------------------------------------------------------------------------------------------

    def acquire(self, member_id: str, mode: int, batch_size: int, records_max: int, fetched: Fetched, now_ms: int) -> list[Acquired]:
        """Deliver about `records_max` of the records that were read: whole batches, or at most exactly that many (RECORD_LIMIT)."""
        batches = fetched.batches
        if records_max <= 0 or not batches or batches[-1][1] < self.start_offset:
            return []
        self._archive_missing(fetched.offset, batches[0][0])
        last = batches[-1][1]
        acquisition = _Acquisition(member_id, mode, batch_size, records_max, batches, now_ms + self._rules().lock_ms)
        self._take_returned(acquisition, max(batches[0][0], self.start_offset), last)
        if acquisition.left > 0 and not acquisition.is_over and last >= self.next_offset:
            self._take_new(acquisition, last)
        for first, end in fetched.aborted:
            for run in self._flight.cut(max(first, self.start_offset), end):
                if run.member_id == member_id and run.deadline_ms == acquisition.deadline_ms and not run.ticket:
                    run.become(DeliveryState.ARCHIVED)
        acquired = acquisition.result(fetched.aborted)
        if fetched.aborted:
            self._flight.merge()
            self._advance()
        return acquired

    def _archive_missing(self, offset: int, base_offset: int) -> None:
        """Archive records that the log no longer has."""
        if offset >= base_offset:
            return
        for run in self._flight.cut(offset, base_offset - 1):
            if run.is_available:
                run.become(DeliveryState.ARCHIVED)
        self._advance()

    def _take_returned(self, acquisition: _Acquisition, first: int, last: int) -> None:
        rules, last = self._rules(), min(last, self.next_offset - 1)
        for batch in self._flight.batches(first, last):
            if acquisition.left <= 0:
                return
            runs = self._flight.between(max(batch[0], first), min(batch[1], last))
            counts = [run.count for run in runs if run.is_available]
            acquisition.is_over = max(counts, default=0) >= rules.throttled_from
            if counts and not (acquisition.is_over and acquisition.count):
                self._take_from_batch(acquisition, batch, first, last)
            if acquisition.is_over:
                return

    def _take_from_batch(self, acquisition: _Acquisition, batch: tuple[int, int], first: int, last: int) -> None:
        """All available records of a batch; fewer if the limit is strict or if they were delivered often: with each further delivery half
        as many, from the first such record on, and the last time one by one."""
        rules, taken, portion = self._rules(), 0, None
        for run in list(self._flight.between(max(batch[0], first), min(batch[1], last))):
            if not run.is_available:
                continue
            begin, end = max(run.first, batch[0], first), min(run.last, batch[1], last)
            size = end - begin + 1
            is_last_try = rules.delivery_count_limit > THROTTLED_FROM_MIN and run.count == rules.delivery_count_limit - 1
            if is_last_try and taken:
                return
            if run.count >= rules.throttled_from and portion is None:
                portion = max(1, (batch[1] - batch[0] + 1) >> (run.count - rules.throttled_from + 1))
            if portion is not None and taken < portion:
                size = min(size, portion - taken)
            size = 1 if is_last_try else acquisition.at_most(size)
            for piece in self._flight.cut(begin, begin + size - 1):
                piece.count += 1
                self._lock(piece, acquisition)
            taken += size
            if is_last_try or taken == portion or acquisition.is_full:
                return

    def _take_new(self, acquisition: _Acquisition, last: int) -> None:
        first = max(self.next_offset, acquisition.batches[0][0])
        # A gap before them takes no room: one that is longer than the limit would never be passed.
        room = min(acquisition.left, self._room)
        if room <= 0:
            return
        if first > self.next_offset:
            self._flight.append(Run(self.next_offset, first - 1, DeliveryState.ARCHIVED, 0))
        acquisition.left = room
        end = acquisition.end_of(first, last)
        run = Run(first, end, DeliveryState.ACQUIRED, 1)
        self._flight.append(run)
        for begin, last_of_batch in acquisition.batches_of(first, end):
            self._flight.begin_batch(begin, last_of_batch)
        self.next_offset = end + 1
        self._lock(run, acquisition)
        self._advance()

    def _lock(self, run: Run, acquisition: _Acquisition) -> None:
        run.state = run.target = DeliveryState.ACQUIRED
        run.member_id = acquisition.member_id
        self._watch(run, acquisition.deadline_ms)
        acquisition.add(run)

    def _watch(self, run: Run, deadline_ms: int) -> None:
        """Schedule the end of the run's lock. Superseded entries are removed when there are too many of them."""
        run.deadline_ms = deadline_ms
        heapq.heappush(self._locks, (deadline_ms, run.first, run.last))
        if len(self._locks) > STALE_LOCKS_PER_RUN * len(self._flight.runs) + STALE_LOCKS:
            held = (run for run in self._flight.runs if run.state is DeliveryState.ACQUIRED)
            self._locks = [(run.deadline_ms, run.first, run.last) for run in held]
            heapq.heapify(self._locks)

    # -- acknowledging -------------------------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement], done: Done, now_ms: int) -> None:
        """Acknowledge records. `done` is called when the share coordinator has stored all of them, or with the reason why none counts."""
        rules = self._rules()
        try:
            self._check(member_id, acknowledgements, rules)
        except ApiError as error:
            done(error.code, error.message)
            return
        is_written = False
        for acknowledgement in acknowledgements:
            for first, last, kind in acknowledgement.stretches():
                for run in self._flight.cut(max(first, self.start_offset), last):
                    if run.is_gap:
                        continue
                    if kind == RENEW:
                        self._watch(run, now_ms + rules.lock_ms)
                    else:
                        self._begin(run, _target(run, kind, rules), is_rejected=kind == REJECT)
                        is_written = True
        if is_written:
            self._waiting.setdefault(self._ticket, []).append(done)
        else:
            done(ErrorCode.NONE, None)

    def _begin(self, run: Run, target: DeliveryState, *, is_rejected: bool = False) -> None:
        run.ticket, run.target = self._ticket, target
        self._unwritten.append(StateBatch(run.first, run.last, int(target), run.count))
        if target is DeliveryState.ARCHIVING:
            self._given_up.setdefault(self._ticket, []).append(DeadLetter(run.first, run.last, run.count, is_rejected))

    def _check(self, member_id: str, acknowledgements: Sequence[Acknowledgement], rules: ShareRules) -> None:
        """Raises INVALID_REQUEST or INVALID_RECORD_STATE."""
        settled = -1
        for one in acknowledgements:
            if one.last_offset < self.start_offset:
                continue
            first = max(one.first_offset, self.start_offset)
            self._check_offsets(first, one.last_offset)
            if first <= settled:
                raise _not_acquired("The offset cannot be acknowledged. The offset is not acquired.")
            if one.types[-1] != RENEW:
                settled = one.last_offset
            if RENEW in one.types and not rules.is_renew_enabled:
                raise _not_acquired("Renewing acquisition locks is not enabled for the group.")
            for run in self._flight.between(first, one.last_offset):
                if run.is_gap:
                    continue
                if run.state is not DeliveryState.ACQUIRED:
                    raise _not_acquired("The batch cannot be acknowledged. The batch is not in the acquired state.")
                if run.ticket:
                    raise _not_acquired("The record state is invalid. The acknowledgement of delivery could not be completed.")
                if run.member_id != member_id:
                    raise _not_acquired("Member is not the owner of batch record")

    def _check_offsets(self, first: int, last: int) -> None:
        """Check that the offsets are in flight. There may be a gap between them, but not at their end.

        The rest of a batch that a strict limit has divided is in flight, too, although nobody holds it.
        """
        if not self._flight.runs:
            raise _not_acquired("Batch record not found. The request batch offsets are not found in the cache.")
        if self.next_offset <= last <= self._flight.last_of_batches:
            raise _not_acquired("The batch cannot be acknowledged. The offset is not acquired.")
        if first >= self.next_offset:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Batch record not found. The first offset in request is past acquired records.")
        if last >= self.next_offset or next(self._flight.between(last, last)).is_gap:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Batch record not found. The last offset in request is past acquired records.")

    def release(self, member_id: str, done: Done) -> None:
        """A member's session has ended: release the records that it holds."""
        held = [run for run in self._flight.runs if run.state is DeliveryState.ACQUIRED and run.member_id == member_id and not run.ticket]
        rules = self._rules()
        for run in held:
            self._begin(run, _target(run, RELEASE, rules))
        if held:
            self._waiting.setdefault(self._ticket, []).append(done)
        else:
            done(ErrorCode.NONE, None)

    # -- writing -------------------------------------------------------------------------------------------------------

    def take_write(self) -> Write | None:
        """The next write; None if there is nothing to write or a write is in progress."""
        if self._under_way or not self._unwritten:
            return None
        self._under_way, self._ticket = self._ticket, self._ticket + 1
        batches, self._unwritten = self._unwritten, []
        complete = min(sum(run.size for run in self._flight.runs if run.will_be_done), COMPLETE_MAX)
        return Write(self._under_way, self.start_offset, complete, _joined(batches))

    def written(self, ticket: int) -> bool:
        """The share coordinator has stored the write. Returns whether there are records to deliver again."""
        is_returned = False
        for run in self._flight.runs:
            if run.ticket == ticket:
                run.become(run.target)
                if run.is_available:
                    is_returned = True
                    self._first_available = min(self._first_available, run.first)
        self._dead_letters += self._given_up.pop(ticket, ())
        self._flight.merge()
        self._advance()
        self._settle(ticket, ErrorCode.NONE, None)
        return is_returned

    def take_dead_letters(self) -> list[DeadLetter]:
        """Records that are to be put into the dead-letter queue now; then call `buried` for each entry."""
        letters, self._dead_letters = self._dead_letters, []
        self._burying += len(letters)
        return letters

    def buried(self, letter: DeadLetter) -> None:
        """The records are in the dead-letter queue, or cannot get there: archive them. If that is not stored before another leader takes
        over, they go into the queue once more."""
        self._burying -= 1
        for run in self._flight.cut(max(letter.first_offset, self.start_offset), letter.last_offset):
            if run.state is DeliveryState.ARCHIVING and not run.ticket:
                run.become(DeliveryState.ARCHIVED)
                self._unwritten.append(StateBatch(run.first, run.last, int(run.state), run.count))
        self._flight.merge()
        self._advance()

    def failed(self, ticket: int, code: ErrorCode, message: str | None, now_ms: int) -> None:
        """The write failed, so the records keep their state. Those whose lock has ended meanwhile are released or archived; that write is
        retried after a pause."""
        rules = self._rules()
        self._given_up.pop(ticket, None)
        for run in self._flight.runs:
            if run.ticket == ticket:
                run.ticket, run.target = 0, run.state
                is_given_up = _target(run, RELEASE, rules) is not DeliveryState.AVAILABLE
                self._watch(run, max(run.deadline_ms, now_ms + RETRY_MS if is_given_up else now_ms))
        self._settle(ticket, code, message)

    def _settle(self, ticket: int, code: ErrorCode, message: str | None) -> None:
        if ticket == self._under_way:
            self._under_way = 0
        for done in self._waiting.pop(ticket, ()):
            done(code, message)

    def fence(self, code: ErrorCode) -> None:
        """This broker no longer leads the partition, or the share coordinator has a newer leader: nothing here counts any more.

        Acknowledgements whose write is under way wait for its result, as in Apache Kafka. If they were refused and yet stored, nobody would
        get those records again, and nobody would know that they are acknowledged.
        """
        waiting, self._waiting = self._waiting, {}
        if self._under_way in waiting:
            self._waiting[self._under_way] = waiting.pop(self._under_way)
        self._unwritten.clear()
        _answer(waiting, code)

    def abandon(self, code: ErrorCode) -> None:
        """Nobody will tell the result of the write under way."""
        waiting, self._waiting = self._waiting, {}
        _answer(waiting, code)

    # -- time and the log ----------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When the next lock ends, unless its records are released before."""
        return self._locks[0][0] if self._locks else None

    def on_deadline(self, now_ms: int) -> bool:
        """Release records whose lock has ended. Returns whether there are records to deliver again."""
        is_returned, rules = False, self._rules()
        while self._locks and self._locks[0][0] <= now_ms:
            _, first, last = heapq.heappop(self._locks)
            for run in self._flight.between(max(first, self.start_offset), last):
                if run.state is not DeliveryState.ACQUIRED or run.ticket or run.deadline_ms > now_ms:
                    continue
                target = _target(run, RELEASE, rules)
                self._begin(run, target)
                if target is DeliveryState.AVAILABLE:
                    # Released records may be delivered before this is written, but archived ones may not be dropped before.
                    run.become(target)
                    is_returned = True
                    self._first_available = min(self._first_available, run.first)
        if is_returned:
            self._flight.merge()
        self._advance()
        return is_returned

    def log_start_moved(self, offset: int) -> None:
        """Records before `offset` were deleted from the log."""
        if offset <= self.start_offset:
            return
        self._flight.drop_before(offset)
        self.start_offset = offset
        self.next_offset = max(self.next_offset, offset)
        self._first_available = self.start_offset
        self._advance()

    def _advance(self) -> None:
        """Move the start to the first record that may still be delivered."""
        runs, done = self._flight.runs, 0
        while done < len(runs) and runs[done].is_done:
            self.start_offset = runs[done].last + 1
            done += 1
        if done:
            del runs[:done]
            self._flight.forget_batches(self.start_offset)
            self._first_available = max(self._first_available, self.start_offset)


def _answer(waiting: dict[int, list[Done]], code: ErrorCode) -> None:
    for some in waiting.values():
        for done in some:
            done(code, code.text)


def _target(run: Run, kind: int, rules: ShareRules) -> DeliveryState:
    """The state of a run after an acknowledgement of this type."""
    if kind == ACCEPT:
        return DeliveryState.ACKNOWLEDGED
    if kind == RELEASE and run.count < rules.delivery_count_limit:
        return DeliveryState.AVAILABLE
    return DeliveryState.ARCHIVING if rules.has_dead_letter_queue and kind != GAP else DeliveryState.ARCHIVED


class _Acquisition:
    """The records that one fetch acquires."""

    def __init__(self, member_id: str, mode: int, batch_size: int, left: int, batches: Sequence[tuple[int, int]], deadline_ms: int) -> None:
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        self.batches = batches
        self.left = left
        self.count = 0
        #: No more records are acquired although there is room, because records with many deliveries go in small portions.
        self.is_over = False
        self._is_strict = mode == RECORD_LIMIT
        self._batch_size = max(batch_size, 1)
        self._taken: list[Acquired] = []

    @property
    def is_full(self) -> bool:
        """Whether a strict limit is reached."""
        return self._is_strict and self.left <= 0

    def at_most(self, size: int) -> int:
        """How many of `size` records a strict limit allows."""
        return min(size, self.left) if self._is_strict else size

    def batches_of(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The batches that new records belong to: as they are answered. With a strict limit it is one, up to the end of one in the log."""
        if self._is_strict:
            yield first, next((end for base, end in self.batches if base <= last <= end), last)
        else:
            for piece in self._pieces(Acquired(first, last, 1)):
                yield piece.first_offset, piece.last_offset

    def end_of(self, first: int, last: int) -> int:
        """The last offset to acquire. Batches are not split unless the limit is strict."""
        last_acquired = first + self.left - 1
        if last <= last_acquired:
            return last
        if not self._is_strict:
            last_acquired = next((end for base, end in self.batches if base <= last_acquired <= end), last_acquired)
        return min(last_acquired, last)

    def add(self, run: Run) -> None:
        """Add an acquired run."""
        self.count += run.size
        self.left -= run.size
        self._taken.append(Acquired(run.first, run.last, run.count))

    def result(self, aborted: Sequence[tuple[int, int]]) -> list[Acquired]:
        """The acquired ranges for the answer: neighbours are joined, then divided at batch starts into ranges of about the batch size.
        Aborted records are left out."""
        joined: list[Acquired] = []
        for one in sorted(self._taken):
            before = joined[-1] if joined else None
            if before is not None and before.last_offset + 1 == one.first_offset and before.delivery_count == one.delivery_count:
                joined[-1] = before._replace(last_offset=one.last_offset)
            else:
                joined.append(one)
        for first, last in aborted:
            joined = [piece for one in joined for piece in _without(one, first, last)]
        return joined if self._is_strict else [piece for one in joined for piece in self._pieces(one)]

    def _pieces(self, one: Acquired) -> list[Acquired]:
        pieces, first = [], one.first_offset
        for base, _ in self.batches:
            if first + self._batch_size <= base <= one.last_offset:
                pieces.append(Acquired(first, base - 1, one.delivery_count))
                first = base
        return [*pieces, Acquired(first, one.last_offset, one.delivery_count)]


def _without(one: Acquired, first: int, last: int) -> list[Acquired]:
    if one.last_offset < first or last < one.first_offset:
        return [one]
    pieces = [one._replace(last_offset=first - 1), one._replace(first_offset=last + 1)]
    return [piece for piece in pieces if piece.first_offset <= piece.last_offset]


def _joined(batches: list[StateBatch]) -> list[StateBatch]:
    """Join neighbours with the same state; the order of the decisions is kept."""
    joined: list[StateBatch] = []
    for batch in batches:
        if joined and joined[-1].last_offset + 1 == batch.first_offset and joined[-1][2:] == batch[2:]:
            joined[-1] = joined[-1]._replace(last_offset=batch.last_offset)
        else:
            joined.append(batch)
    return joined


def _not_acquired(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD_STATE, message)
