"""A share partition at its leader: locks, delivery counts, acknowledgements, and what the next leader finds."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from minikafka.core.share.acknowledgements import ACCEPT, GAP, REJECT, RELEASE, RENEW, Acknowledgement, is_valid
from minikafka.core.share.partition import (
    BATCH_OPTIMIZED,
    COMPLETE_MAX,
    RECORD_LIMIT,
    RETRY_MS,
    STALE_LOCKS,
    STALE_LOCKS_PER_RUN,
    DeadLetter,
    Fetched,
    SharePartition,
    ShareRules,
)
from minikafka.core.share.state import ShareState
from minikafka.core.share.state_batches import DELIVERY_COUNT_MAX, DeliveryState, StateBatch, combine, is_sound
from minikafka.wire.errors import ErrorCode

LOCK_MS = 30_000
NEW = ShareState(0, 1, 0, -1, -1)


class World:
    """A log in batches of `batch`, a leader, and the state that the share coordinator has. Writes are done at once, unless `is_held`."""

    def __init__(self, end: int = 100, batch: int = 10, **rules: Any) -> None:
        self.rules = ShareRules(**rules)
        self.end, self.batch, self.log_start = end, batch, 0
        #: The base offsets of batches that compaction has removed.
        self.removed: set[int] = set()
        self.now_ms = 0
        self.state = NEW
        self.is_held = False
        self.start = 0
        self.lead()

    def lead(self) -> None:
        """Another leader reads the state."""
        self.partition = SharePartition(self.state, self.start, lambda: self.rules)

    def fetched(self, offset: int) -> Fetched:
        bases = [base for base in range(offset // self.batch * self.batch, self.end, self.batch) if base not in self.removed]
        return Fetched(offset, [(base, min(base + self.batch, self.end) - 1) for base in bases])

    def compact(self, first: int, end: int) -> None:
        """Remove the batches of a range."""
        self.removed.update(range(first, end, self.batch))

    def fetch(self, member: str = "m", count: int = 500, mode: int = BATCH_OPTIMIZED, batch_size: int = 500) -> list[tuple[int, int, int]]:
        if not self.partition.can_acquire:
            return []
        offset = max(self.partition.fetch_offset, 0)
        acquired = self.partition.acquire(member, mode, batch_size, count, self.fetched(offset), self.now_ms)
        return [tuple(one) for one in acquired]  # type: ignore[misc]

    def acknowledge(self, first: int, last: int, *types: int, member: str = "m") -> list[ErrorCode]:
        codes: list[ErrorCode] = []
        reported = [Acknowledgement(first, last, types)]
        self.partition.acknowledge(member, reported, lambda code, message: codes.append(code), self.now_ms)
        self.pump()
        return codes

    def pump(self) -> None:
        while not self.is_held and (write := self.partition.take_write()) is not None:
            start = self.state.start_offset if write.start_offset == -1 else write.start_offset
            batches = combine(self.state.batches, write.batches, start)
            self.state = ShareState(0, 1, 0, start, write.delivery_complete_count, batches)
            self.partition.written(write.ticket)

    def pass_ms(self, ms: int) -> bool:
        self.now_ms += ms
        returned = self.partition.on_deadline(self.now_ms)
        self.pump()
        return returned


def test_accepted_records_are_removed_and_the_others_return_with_their_delivery_count() -> None:
    world = World()
    assert world.fetch() == [(0, 99, 1)]
    assert world.fetch("other") == []
    assert world.acknowledge(0, 49, ACCEPT) == [ErrorCode.NONE]
    assert world.acknowledge(50, 59, RELEASE) == [ErrorCode.NONE]
    assert world.fetch("other") == [(50, 59, 2)]
    world.lead()
    assert world.partition.start_offset == 50
    assert world.fetch("other") == [(50, 59, 2), (60, 99, 1)], "who held the rest has lost it with the leader"


def test_a_lock_that_is_over_gives_records_back_and_a_renewed_one_holds() -> None:
    world = World(end=20)
    world.fetch()
    world.now_ms += LOCK_MS - 1
    assert world.acknowledge(0, 9, RENEW) == [ErrorCode.NONE]
    assert world.pass_ms(1)
    assert world.acknowledge(10, 19, ACCEPT) == [ErrorCode.INVALID_RECORD_STATE]
    assert world.fetch("other") == [(10, 19, 2)]
    assert world.partition.next_deadline() == 2 * LOCK_MS - 1
    assert world.acknowledge(0, 9, ACCEPT) == [ErrorCode.NONE]
    assert world.partition.start_offset == 10


def test_renewals_leave_no_more_behind_than_there_is_in_flight() -> None:
    world = World(end=400)
    world.fetch()
    reported = [Acknowledgement(offset, offset, (RENEW,)) for offset in range(400)]
    for _ in range(50):
        world.now_ms += 1
        world.partition.acknowledge("m", reported, lambda code, message: None, world.now_ms)
    assert world.partition.lock_count <= STALE_LOCKS_PER_RUN * 400 + STALE_LOCKS
    assert not world.pass_ms(LOCK_MS - 1)
    assert world.pass_ms(1)
    assert world.fetch("other") == [(0, 399, 2)]


def test_a_release_that_cannot_be_written_is_retried_after_a_pause() -> None:
    world = World(end=1, batch=1, delivery_count_limit=1)
    world.fetch()
    world.is_held = True
    for attempt in range(1, 4):
        world.pass_ms(LOCK_MS if attempt == 1 else RETRY_MS)
        write = world.partition.take_write()
        assert write is not None
        world.partition.failed(write.ticket, ErrorCode.UNKNOWN_SERVER_ERROR, None, world.now_ms)
        assert world.partition.next_deadline() == world.now_ms + RETRY_MS
        assert not world.pass_ms(0)
        assert world.partition.take_write() is None


def test_a_count_beyond_the_fields_maximum_is_written_as_the_maximum() -> None:
    world = World(end=10)
    world.state = ShareState(0, 1, 0, 0, 0, [StateBatch(5, 1 << 40, 2, 1)])
    world.lead()
    world.fetch()
    world.is_held = True
    world.partition.release("m", lambda code, message: None)
    write = world.partition.take_write()
    assert write is not None
    assert write.delivery_complete_count == COMPLETE_MAX


@pytest.mark.parametrize("how", [ACCEPT, RELEASE, REJECT])
def test_the_last_delivery_that_can_be_counted_may_be_acknowledged(how: int) -> None:
    """Somebody wrote the state. The leader wrote one that the share coordinator refused, for ever."""
    world = World(end=10)
    world.state = ShareState(0, 1, 0, 0, 0, [StateBatch(0, 9, DeliveryState.AVAILABLE, DELIVERY_COUNT_MAX - 1)])
    assert is_sound(world.state.batches[0])
    world.lead()
    assert world.fetch() == [(0, 0, DELIVERY_COUNT_MAX)]
    world.is_held = True
    world.acknowledge(0, 0, how)
    write = world.partition.take_write()
    assert write is not None
    assert [is_sound(batch) for batch in write.batches] == [True]


def test_a_record_is_delivered_as_often_as_the_limit_says_and_no_more() -> None:
    world = World(end=1, batch=1, delivery_count_limit=3)
    for count in (1, 2, 3):
        assert world.fetch() == [(0, 0, count)]
        world.acknowledge(0, 0, RELEASE)
    assert world.fetch() == []
    assert world.partition.start_offset == 1
    assert world.state.batches[0].delivery_state == 4
    other = World(end=1, batch=1, delivery_count_limit=2)
    for count in (1, 2):
        assert other.fetch() == [(0, 0, count)]
        other.pass_ms(LOCK_MS)
    assert other.fetch() == []


def test_often_delivered_records_come_in_smaller_batches_and_finally_alone() -> None:
    world = World(end=64, batch=64, delivery_count_limit=5)
    for _ in range(3):
        world.fetch()
        world.partition.release("m", lambda code, message: None)
        world.pump()
    assert world.fetch() == [(0, 31, 4)]
    world.partition.release("m", lambda code, message: None)
    world.pump()
    assert world.fetch() == [(0, 0, 5)]


def portions(world: World, deliveries: int) -> list[tuple[int, int, int]]:
    """What comes fetch by fetch, each released at once, until every record has been delivered so often."""
    found: list[tuple[int, int, int]] = []
    while sum(last - first + 1 for first, last, _ in found) < deliveries * world.end:
        found += world.fetch()
        world.partition.release("m", lambda code, message: None)
        world.pump()
    return found


def test_a_portion_is_a_part_of_the_batch_that_was_first_delivered() -> None:
    """As Apache Kafka 4.4 delivers 24 records to a consumer that releases all of them."""
    halves = [(first, first + 11, 4) for first in (0, 12)]
    alone = [[(offset, offset, 5) for offset in range(first, first + 12)] for first in (0, 12)]
    whole = [(0, 23, count) for count in (1, 2, 3)]
    assert portions(World(end=24, batch=24), 5) == [*whole, halves[0], *alone[0], halves[1], *alone[1]]


def test_a_portion_has_as_many_records_whatever_lies_between_them() -> None:
    world = World(end=24, batch=24)
    for count in (1, 2, 3):
        assert world.fetch()[0][2] == count
        world.acknowledge(0, 23, *([RELEASE, RELEASE if count < 3 else ACCEPT] * 12))
    assert world.fetch() == [(offset, offset, 4) for offset in range(0, 24, 2)]


def test_batches_that_are_delivered_often_wait_for_a_fetch_of_their_own() -> None:
    world = World(end=40, batch=10)
    for _ in range(3):
        assert world.fetch(count=10)[0][:2] == (0, 9)
        world.acknowledge(0, 9, RELEASE)
    assert world.fetch() == [(0, 4, 4)], "and nothing new"
    assert world.fetch() == [(5, 9, 4)]
    assert world.fetch() == [(10, 39, 1)]
    world.acknowledge(10, 39, RELEASE)
    world.acknowledge(5, 9, RELEASE)
    assert world.fetch() == [(5, 5, 5)]
    assert world.fetch() == [(6, 6, 5)]


def test_a_strict_limit_holds_for_records_that_come_again() -> None:
    world = World(end=24, batch=24)
    assert world.fetch(count=10, mode=RECORD_LIMIT) == [(0, 9, 1)]
    for count in (2, 3):
        world.acknowledge(0, 9, RELEASE)
        assert world.fetch(count=10, mode=RECORD_LIMIT) == [(0, 9, count)]
    world.acknowledge(0, 9, RELEASE)
    assert world.fetch(count=10, mode=RECORD_LIMIT) == [(0, 9, 4)], "12 of the batch of 24, and 10 at most"


def test_the_number_of_locks_has_an_end() -> None:
    world = World(end=1000, record_locks_max=100)
    assert world.fetch() == [(0, 99, 1)]
    assert not world.partition.can_acquire
    world.acknowledge(50, 99, ACCEPT)
    assert not world.partition.can_acquire, "the first of them is still held"
    world.acknowledge(0, 9, ACCEPT)
    assert world.fetch() == [(100, 109, 1)]
    world.acknowledge(10, 19, RELEASE)
    assert world.fetch() == [(10, 19, 2)]


@pytest.mark.parametrize("mode", [BATCH_OPTIMIZED, RECORD_LIMIT])
def test_a_gap_longer_than_the_limit_of_locks_is_passed(mode: int) -> None:
    world = World(end=1000, record_locks_max=100)
    world.compact(0, 300)
    assert world.fetch(count=50, mode=mode) == [(300, 349, 1)], "nothing is in flight before it"
    assert world.partition.start_offset == 300
    world.compact(350, 700)
    assert world.fetch("other", count=10, mode=mode) == [(700, 709, 1)], "records before it are in flight"
    assert not world.partition.can_acquire, "what is in flight reaches over more than the limit"
    assert world.acknowledge(300, 349, ACCEPT) == [ErrorCode.NONE]
    assert world.partition.start_offset == 700
    assert world.fetch(mode=mode) == [(710, 799, 1)]


def test_a_gap_inside_what_was_read_is_passed_in_portions() -> None:
    world = World(end=1000, record_locks_max=100)
    world.compact(10, 990)
    assert world.fetch() == [(0, 99, 1)], "an answer may reach into a gap"
    assert world.acknowledge(0, 9, ACCEPT) == [ErrorCode.NONE]
    assert world.acknowledge(10, 99, GAP) == [ErrorCode.NONE]
    assert world.fetch() == [(990, 999, 1)]
    assert world.partition.start_offset == 990


def test_limits_are_strict_or_keep_batches_whole() -> None:
    assert World().fetch(count=15) == [(0, 19, 1)]
    strict = World()
    assert strict.fetch(count=15, mode=RECORD_LIMIT) == [(0, 14, 1)]
    assert strict.fetch(count=15, mode=RECORD_LIMIT) == [(15, 29, 1)]
    strict.acknowledge(0, 14, RELEASE)
    assert strict.fetch("other", count=4, mode=RECORD_LIMIT) == [(0, 3, 2)]
    assert World().fetch(batch_size=25) == [(0, 29, 1), (30, 59, 1), (60, 89, 1), (90, 99, 1)]


def test_the_rest_of_a_divided_batch_is_in_flight_but_nobody_holds_it() -> None:
    """As in Apache Kafka 4.4, which keeps the batch of the log."""
    strict = World()
    assert strict.fetch(count=15, mode=RECORD_LIMIT) == [(0, 14, 1)]
    for first, last in ((15, 15), (10, 15), (12, 19), (19, 19)):
        assert strict.acknowledge(first, last, ACCEPT) == [ErrorCode.INVALID_RECORD_STATE], (first, last)
    for first, last in ((20, 20), (12, 22), (35, 35)):
        assert strict.acknowledge(first, last, ACCEPT) == [ErrorCode.INVALID_REQUEST], (first, last)
    assert strict.acknowledge(0, 14, ACCEPT) == [ErrorCode.NONE]


def test_records_of_each_type_are_told_apart() -> None:
    world = World(end=10)
    world.fetch()
    types = [ACCEPT, ACCEPT, RELEASE, REJECT, GAP, ACCEPT, RELEASE, RELEASE, ACCEPT, ACCEPT]
    assert world.acknowledge(0, 9, *types) == [ErrorCode.NONE]
    assert world.fetch() == [(2, 2, 2), (6, 7, 2)]
    assert world.partition.start_offset == 2
    assert world.state.delivery_complete_count == 7


@pytest.mark.parametrize(
    ("first", "last", "member", "code"),
    [
        (0, 9, "other", ErrorCode.INVALID_RECORD_STATE),
        (5, 10, "m", ErrorCode.INVALID_REQUEST),
        (10, 12, "m", ErrorCode.INVALID_REQUEST),
        (0, 9, "m", ErrorCode.NONE),
    ],
)
def test_only_the_holder_of_records_may_acknowledge_them(first: int, last: int, member: str, code: ErrorCode) -> None:
    world = World(end=10)
    world.fetch()
    assert world.acknowledge(first, last, ACCEPT, member=member) == [code]
    again = world.acknowledge(0, 9, ACCEPT)
    assert again == [ErrorCode.NONE], "none of a refused request counts, and what is done is done"


def test_offsets_that_nobody_got_are_refused_as_by_apache_kafka() -> None:
    world = World(end=1000)
    assert world.acknowledge(0, 0, ACCEPT) == [ErrorCode.INVALID_RECORD_STATE], "nothing is in flight"
    world.compact(10, 50)
    assert world.fetch(count=10) == [(0, 9, 1)]
    assert world.fetch(count=10) == [(50, 59, 1)]
    assert world.acknowledge(20, 30, ACCEPT) == [ErrorCode.INVALID_REQUEST], "all of them are in a gap"
    assert world.acknowledge(5, 20, ACCEPT) == [ErrorCode.INVALID_REQUEST], "the last of them is in a gap"
    assert world.acknowledge(5, 54, ACCEPT) == [ErrorCode.NONE], "a gap in the midst of them does no harm"
    assert world.acknowledge(0, 4, ACCEPT) == [ErrorCode.NONE]
    assert world.partition.start_offset == 55
    assert world.acknowledge(20, 59, ACCEPT) == [ErrorCode.NONE]
    assert world.acknowledge(60, 60, ACCEPT) == [ErrorCode.INVALID_RECORD_STATE]


def test_an_offset_whose_lock_was_renewed_may_be_acknowledged_in_the_same_request() -> None:
    world = World(end=10)
    world.fetch()
    codes: list[ErrorCode] = []
    for second in (ACCEPT, RENEW):
        batches = [Acknowledgement(0, 5, [RENEW]), Acknowledgement(5, 5, [second]), Acknowledgement(5, 9, [ACCEPT])]
        world.partition.acknowledge("m", batches, lambda code, message: codes.append(code), world.now_ms)
        world.pump()
    assert codes == [ErrorCode.INVALID_RECORD_STATE, ErrorCode.NONE]


def test_nothing_counts_before_it_is_written() -> None:
    world = World(end=10)
    world.fetch()
    world.is_held = True
    assert world.acknowledge(0, 4, ACCEPT) == []
    assert world.acknowledge(0, 4, RELEASE) == [ErrorCode.INVALID_RECORD_STATE]
    assert world.acknowledge(5, 9, RELEASE) == []
    assert world.fetch("other") == []
    first = world.partition.take_write()
    assert first is not None and world.partition.take_write() is None
    world.now_ms = LOCK_MS
    world.partition.failed(first.ticket, ErrorCode.COORDINATOR_NOT_AVAILABLE, None, world.now_ms)
    world.is_held = False
    assert world.pass_ms(0)
    assert world.fetch("other") == [(0, 9, 2)]


def test_waiting_requests_fail_when_the_leadership_ends() -> None:
    world = World(end=10)
    world.fetch()
    world.is_held = True
    codes = world.acknowledge(0, 9, ACCEPT)
    world.partition.fence(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert world.partition.take_write() is None


def test_aborted_records_are_not_given_out() -> None:
    world = World(end=30)
    fetched = Fetched(0, world.fetched(0).batches, [(10, 19)])
    acquired = world.partition.acquire("m", BATCH_OPTIMIZED, 500, 500, fetched, 0)
    assert [tuple(one) for one in acquired] == [(0, 9, 1), (20, 29, 1)]
    world.acknowledge(0, 9, ACCEPT)
    assert world.partition.start_offset == 20


def test_records_that_the_log_has_no_more_are_not_waited_for() -> None:
    world = World()
    world.fetch()
    world.acknowledge(0, 99, RELEASE)
    missing = Fetched(0, [(40, 49), (60, 69)])
    assert [tuple(one) for one in world.partition.acquire("m", 0, 500, 500, missing, 0)] == [(40, 69, 2)]
    world.partition.log_start_moved(65)
    assert world.partition.start_offset == 65
    assert world.acknowledge(40, 69, ACCEPT) == [ErrorCode.NONE]
    assert world.partition.start_offset == 70
    world.partition.log_start_moved(500)
    assert (world.partition.start_offset, world.partition.next_offset, world.partition.run_count) == (500, 500, 0)


def test_acknowledgements_out_of_order_are_refused() -> None:
    def valid(*reported: Acknowledgement, renew: bool = False) -> bool:
        return is_valid(reported, may_renew=True, is_renewal=renew)

    assert valid(Acknowledgement(0, 4, [ACCEPT]), Acknowledgement(5, 6, [ACCEPT, REJECT]))
    assert not valid(Acknowledgement(5, 6, [ACCEPT]), Acknowledgement(0, 4, [ACCEPT]))
    assert not valid(Acknowledgement(0, 4, [ACCEPT, ACCEPT]))
    assert not valid(Acknowledgement(0, 4, []))
    assert not valid(Acknowledgement(0, 0, [9]))
    assert not valid(Acknowledgement(0, 0, [RENEW]))
    assert valid(Acknowledgement(0, 0, [RENEW]), renew=True)


#: The end of the log that generated members read.
END = 160


class Consumers:
    """Members that acquire, keep, release and forget records, while leaders and writes fail and compaction removes batches, more in a row
    than may be locked. `accepted`: acknowledged acceptances."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.limit = self.draw.choice((2, 3, 5))
        self.world = World(end=END, batch=self.draw.choice((1, 4, 10)), delivery_count_limit=self.limit, record_locks_max=40)
        self.world.is_held = True
        self.accepted: set[int] = set()
        self.deliveries: dict[int, int] = {}
        self.excused: dict[int, int] = {}
        self.held: dict[str, list[tuple[int, int]]] = {"a": [], "b": [], "c": []}

    def step(self) -> None:
        draw, world = self.draw, self.world
        choice = draw.random()
        if choice < 0.35:
            self.fetch(draw.choice("abc"))
        elif choice < 0.7:
            self.acknowledge(draw.choice("abc"))
        elif choice < 0.85:
            self.write(draw.random())
        elif choice < 0.93:
            world.now_ms += draw.choice((1, LOCK_MS // 2, LOCK_MS))
            world.partition.on_deadline(world.now_ms)
        elif choice < 0.96:
            member = draw.choice("abc")
            world.partition.release(member, lambda code, message: None)
            self.held[member].clear()
        elif choice < 0.97:
            first = draw.randrange(0, END, world.batch)
            # As in a log, the last batch stays.
            world.compact(first, min(first + draw.choice((1, 20, 80)), END - world.batch))
        else:
            self.die()

    def die(self) -> None:
        """The leader dies: its last deliveries are not counted."""
        world = self.world
        for one in range(END):
            count_before = next((b.delivery_count for b in world.state.batches if b.first_offset <= one <= b.last_offset), 0)
            counted = self.deliveries.get(one, 0) - self.excused.get(one, 0)
            self.excused[one] = self.excused.get(one, 0) + max(counted - count_before, 0)
        world.partition.fence(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        world.lead()
        for held in self.held.values():
            held.clear()

    def fetch(self, member: str) -> None:
        mode = self.draw.choice((BATCH_OPTIMIZED, RECORD_LIMIT))
        count = self.draw.choice((1, 5, 500))
        acquired = self.world.fetch(member, count, mode)
        assert mode == BATCH_OPTIMIZED or sum(last - first + 1 for first, last, _ in acquired) <= count
        for first, last, reported in acquired:
            assert 1 <= reported <= self.limit
            self.held[member].append((first, last))
            for offset in range(first, last + 1):
                assert offset not in self.accepted, f"{offset} was acknowledged"
                self.deliveries[offset] = self.deliveries.get(offset, 0) + 1
                assert self.deliveries[offset] - self.excused.get(offset, 0) <= self.limit

    def acknowledge(self, member: str) -> None:
        held = self.held[member]
        if not held:
            return
        first, last = held.pop(self.draw.randrange(len(held)))
        middle = self.draw.randint(first, last)
        kind = self.draw.choice((ACCEPT, ACCEPT, RELEASE, REJECT))

        def done(code: ErrorCode, message: str | None) -> None:
            if code is ErrorCode.NONE and kind != RELEASE:
                self.accepted.update(range(first, middle + 1))

        self.world.partition.acknowledge(member, [Acknowledgement(first, middle, [kind])], done, self.world.now_ms)
        if middle < last:
            held.append((middle + 1, last))

    def write(self, chance: float) -> None:
        """The coordinator takes it, or does not, or takes it and its answer is lost."""
        world = self.world
        write = world.partition.take_write()
        if write is None:
            return
        if chance < 0.8:
            start = max(write.start_offset, world.state.start_offset)
            world.state = ShareState(0, 1, 0, start, 0, combine(world.state.batches, write.batches, start))
        if chance < 0.7:
            world.partition.written(write.ticket)
        else:
            world.partition.failed(write.ticket, ErrorCode.REQUEST_TIMED_OUT, None, world.now_ms)

    def settle(self) -> None:
        """Nothing fails any more, members fetch until no lock is left, and accept: every record was delivered or is gone."""
        world = self.world
        for held in self.held.values():
            held.clear()
        for member in "abc":
            world.partition.release(member, lambda code, message: None)
        for _ in range(4 * END):
            self.write(0)
            self.fetch("a")
            while self.held["a"]:
                first, last = self.held["a"].pop()
                world.partition.acknowledge("a", [Acknowledgement(first, last, [ACCEPT])], lambda code, message: None, world.now_ms)
            if world.partition.start_offset == END:
                return
        raise AssertionError(f"no record is delivered any more from {world.partition.start_offset} on")


@pytest.mark.parametrize("seed", range(60))
def test_acknowledged_records_are_never_redelivered_and_none_beyond_the_limit(seed: int) -> None:
    consumers = Consumers(seed)
    for _ in range(300):
        consumers.step()
    runs = consumers.world.partition._flight.runs
    assert all(before.last + 1 == after.first for before, after in pairwise(runs))
    assert not runs or (runs[0].first, runs[-1].last + 1) == (consumers.world.partition.start_offset, consumers.world.partition.next_offset)
    consumers.settle()


def test_records_that_are_given_up_go_to_the_dead_letter_queue_before_they_are_archived() -> None:
    world = World(end=30, has_dead_letter_queue=True, delivery_count_limit=2)
    world.fetch()
    world.acknowledge(0, 4, REJECT)
    assert world.state.batches == [StateBatch(0, 4, DeliveryState.ARCHIVING, 1)]
    world.acknowledge(5, 9, RELEASE)
    world.acknowledge(10, 29, ACCEPT)
    assert world.fetch("other", mode=RECORD_LIMIT, count=1) == [(5, 5, 2)]
    world.acknowledge(5, 5, RELEASE, member="other")
    assert world.fetch("other", mode=RECORD_LIMIT, count=1) == [(6, 6, 2)]
    world.pass_ms(LOCK_MS)
    letters = world.partition.take_dead_letters()
    assert letters == [DeadLetter(0, 4, 1, True), DeadLetter(5, 5, 2, False), DeadLetter(6, 6, 2, False)]
    assert world.partition.start_offset == 0 and not world.partition.is_quiet
    assert world.acknowledge(0, 4, ACCEPT) == [ErrorCode.INVALID_RECORD_STATE]
    for letter in letters:
        world.partition.buried(letter)
    world.pump()
    assert world.partition.start_offset == 7 and world.partition.is_quiet
    assert world.partition.take_dead_letters() == []


def test_the_next_leader_takes_to_the_dead_letter_queue_what_the_last_one_had_given_up() -> None:
    world = World(end=20, has_dead_letter_queue=True, delivery_count_limit=2)
    world.fetch()
    world.acknowledge(0, 4, REJECT)
    world.lead()
    world.rules = ShareRules(has_dead_letter_queue=False, delivery_count_limit=2)
    assert [(a, b) for a, b, _ in world.fetch()] == [(5, 19)], "what is given up is not delivered"
    (letter,) = world.partition.take_dead_letters()
    assert letter == DeadLetter(0, 4, 1, True)
    world.partition.buried(letter)
    world.pump()
    assert world.partition.start_offset == 5 and world.state.start_offset == 5
    world.state = ShareState(0, 1, 0, 0, 0, [StateBatch(0, 1, DeliveryState.ARCHIVING, 2)])
    world.lead()
    assert world.partition.take_dead_letters() == [DeadLetter(0, 1, 2, False)]


def test_a_write_that_fails_gives_nothing_to_the_dead_letter_queue() -> None:
    world = World(end=10, has_dead_letter_queue=True)
    world.fetch()
    world.is_held = True
    codes = world.acknowledge(0, 9, REJECT)
    write = world.partition.take_write()
    assert write is not None
    world.partition.failed(write.ticket, ErrorCode.COORDINATOR_NOT_AVAILABLE, None, world.now_ms)
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] and world.partition.take_dead_letters() == []
    world.is_held = False
    assert world.acknowledge(0, 9, GAP) == [ErrorCode.NONE]
    assert world.partition.take_dead_letters() == [] and world.partition.start_offset == 10


def test_records_are_archived_at_once_where_the_group_has_no_dead_letter_queue() -> None:
    world = World(end=10)
    world.fetch()
    assert world.acknowledge(0, 9, REJECT) == [ErrorCode.NONE]
    assert world.partition.take_dead_letters() == [] and world.partition.start_offset == 10
