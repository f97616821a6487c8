"""The transaction coordinator's shard, step by step, with no clock and no log: a test commits, loses and answers what it asks for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minikafka.core.coordinator.shard import Append
from minikafka.core.transaction.coordinator import LOOKS_MAX, TransactionShard
from minikafka.core.transaction.effects import Markers, TransactionConfig
from minikafka.core.transaction.records import transaction_key, transaction_value
from minikafka.core.transaction.state import EPOCH_MAX, PREVIOUS_STATES, Transaction, TransactionState
from minikafka.wire.errors import ErrorCode
from minikafka.wire.records.frame import decode_transaction_key, decode_transaction_value, encode_coordinator_key, encode_coordinator_value

E, S = ErrorCode, TransactionState
P0, P1 = frozenset({("t", 0)}), frozenset({("t", 1)})
TIMEOUT_MS = 60_000
Answer = tuple[ErrorCode, int, int]


class World:
    """A shard whose appends, ids and markers wait until the test lets them go; what is committed is kept as bytes."""

    def __init__(self, version: int = 2, log: list[tuple[bytes, bytes | None]] | None = None, epoch: int = 0) -> None:
        self.version = version
        self.now_ms = 1_000
        self.next_id = 7
        self.log = [] if log is None else log
        self.appends: list[Append] = []
        self.markers: list[Markers] = []
        self.ids: list[Callable[[ErrorCode, int, int], None]] = []
        self.later: list[Callable[[int], None]] = []
        self.shard = TransactionShard(TransactionConfig(timeout_ms_max=900_000, expiration_ms=1_000_000), epoch, lambda: self.version)
        for key, value in self.log:
            decoded = decode_transaction_key(key)
            self.shard.replay(decoded, None if value is None else decode_transaction_value(decoded, value))
        if self.log:
            self.shard.loaded(self.now_ms)
            self.collect()

    def collect(self) -> None:
        while effects := self.shard.take_effects():
            self.appends += effects.appends
            self.markers += effects.markers
            self.ids += effects.ids
            self.later += effects.later

    def give_ids(self, code: ErrorCode = E.NONE) -> None:
        waiting, self.ids = self.ids, []
        for callback in waiting:
            self.next_id += 1
            callback(code, self.next_id if code is E.NONE else -1, self.now_ms)
        self.collect()

    def commit(self, code: ErrorCode = E.NONE) -> None:
        """The appends so far are replicated, or fail."""
        waiting, self.appends = self.appends, []
        for append in waiting:
            if code is E.NONE:
                for record in append.records:
                    value = None if record.value is None else encode_coordinator_value(record.value, record.version)
                    self.log.append((encode_coordinator_key(record.key), value))
                    self.shard.replay(record.key, record.value)
            append.on_settled(code is E.NONE, self.now_ms)
            append.on_done(code, self.now_ms)
        self.collect()

    def time_out(self) -> list[Append]:
        """The appends so far are in the log, and whoever waits for them has waited for too long."""
        waiting, self.appends = self.appends, []
        for append in waiting:
            append.on_done(E.REQUEST_TIMED_OUT, self.now_ms)
        self.collect()
        return waiting

    def commit_late(self, waiting: list[Append]) -> None:
        """What timed out is committed after all."""
        for append in waiting:
            for record in append.records:
                self.shard.replay(record.key, record.value)
            append.on_settled(True, self.now_ms)
        self.collect()

    def answer_markers(self, code: ErrorCode = E.NONE) -> list[frozenset[tuple[str, int]]]:
        """Every marker that was asked for is answered so; what is to be tried again."""
        waiting, self.markers = self.markers, []
        left = [self.shard.markers_answered(m, dict.fromkeys(sorted(m.partitions), code), self.now_ms) for m in waiting]
        self.collect()
        return left

    def run(self) -> None:
        """Everything goes well until nothing is left."""
        while self.ids or self.appends or self.markers:
            self.give_ids()
            self.commit()
            self.answer_markers()

    # -- requests: each gives the list into which its answer falls

    def init(self, name: str = "x", expected: tuple[int, int] | None = None, timeout_ms: int = TIMEOUT_MS) -> list[Answer]:
        answers: list[Answer] = []
        self.shard.init_producer_id(name, timeout_ms, expected, lambda *answer: answers.append(answer), self.now_ms)
        self.collect()
        return answers

    def add(self, epoch: int, partitions: frozenset[tuple[str, int]] = P0, version: int = 2, producer_id: int = 8) -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.shard.add_partitions("x", producer_id, epoch, partitions, version, answers.append, self.now_ms)
        self.collect()
        return answers

    def end(self, epoch: int, commit: bool = True, version: int = 2, producer_id: int = 8) -> list[tuple[ErrorCode, int, int]]:
        answers: list[tuple[ErrorCode, int, int]] = []
        self.shard.end_transaction("x", producer_id, epoch, commit, version, lambda *answer: answers.append(answer), self.now_ms)
        self.collect()
        return answers

    @property
    def transaction(self) -> Transaction:
        found = self.shard.find("x")
        assert found is not None
        return found

    def begun(self, version: int = 2) -> World:
        """With a producer (8, 0) and one partition in an open transaction."""
        self.init()
        self.run()
        self.add(0, version=version)
        self.run()
        return self


def test_a_transaction_from_begin_to_end() -> None:
    world = World()
    asked = world.init()
    assert not asked and len(world.ids) == 1
    world.give_ids()
    assert not asked, "answered only when the record is committed"
    world.commit()
    assert asked == [(E.NONE, 8, 0)]
    added = world.add(0)
    world.commit()
    assert added == [E.NONE]
    ended = world.end(0)
    assert not world.markers, "no marker before the decision is committed"
    world.commit()
    assert ended == [(E.NONE, 8, 1)], "version 2: the next transaction has the next epoch"
    (marker,) = world.markers
    assert (marker.producer_epoch, marker.commit, marker.partitions, marker.transaction_version) == (1, True, P0, 2)
    assert world.transaction.state is S.PREPARE_COMMIT
    world.answer_markers()
    assert world.transaction.state is S.PREPARE_COMMIT
    world.commit()
    assert world.transaction.state is S.COMPLETE_COMMIT and not world.transaction.partitions


def test_before_version_2_the_epoch_stays() -> None:
    world = World().begun(version=0)
    assert world.end(0, commit=False, version=0) == []
    world.commit()
    assert world.markers[0].producer_epoch == 0 and not world.markers[0].commit
    world.run()
    assert (world.transaction.state, world.transaction.producer_epoch) == (S.COMPLETE_ABORT, 0)
    assert world.end(0, commit=False, version=0) == [(E.NONE, -1, -1)], "said again"
    assert world.end(0, commit=True, version=0) == [(E.INVALID_TXN_STATE, -1, -1)]
    assert world.end(1, commit=False, version=0) == [(E.PRODUCER_FENCED, -1, -1)]


#: KIP-890: state x (commit, epoch below the current one) -> answer; None = another abort with its own epoch.
RULES = [
    (S.EMPTY, False, True, E.PRODUCER_FENCED), (S.EMPTY, False, False, None),
    (S.EMPTY, True, True, E.PRODUCER_FENCED), (S.EMPTY, True, False, E.INVALID_TXN_STATE),
    (S.COMPLETE_ABORT, False, True, E.NONE), (S.COMPLETE_ABORT, False, False, None),
    (S.COMPLETE_ABORT, True, True, E.INVALID_TXN_STATE), (S.COMPLETE_ABORT, True, False, E.INVALID_TXN_STATE),
    (S.COMPLETE_COMMIT, False, True, E.INVALID_TXN_STATE), (S.COMPLETE_COMMIT, False, False, None),
    (S.COMPLETE_COMMIT, True, True, E.NONE), (S.COMPLETE_COMMIT, True, False, E.INVALID_TXN_STATE),
]  # fmt: skip


@pytest.mark.parametrize(("state", "commit", "is_retry", "answer"), RULES)
def test_end_of_version_2_without_an_open_transaction(state: S, commit: bool, is_retry: bool, answer: ErrorCode | None) -> None:
    world = World()
    world.init()
    world.run()
    if state is not S.EMPTY:
        world.add(0)
        world.run()
        world.end(0, commit=state is S.COMPLETE_COMMIT)
        world.run()
    assert world.transaction.state is state
    epoch = world.transaction.producer_epoch
    got = world.end(epoch - 1 if is_retry else epoch, commit)
    if answer is None:
        world.run()
        assert got == [(E.NONE, 8, epoch + 1)] and world.transaction.state is S.COMPLETE_ABORT
    else:
        reported = (8, epoch) if answer is E.NONE else (-1, -1)
        assert got == [(answer, *reported)] and not world.appends


@pytest.mark.parametrize("commit", [True, False])
def test_while_markers_are_written_every_decision_waits(commit: bool) -> None:
    world = World().begun()
    world.end(0, commit)
    world.commit()
    assert world.end(0, commit) == [(E.CONCURRENT_TRANSACTIONS, -1, -1)]
    assert world.end(0, not commit) == [(E.CONCURRENT_TRANSACTIONS, -1, -1)]
    assert world.end(1, commit) == world.end(1, not commit) == [(E.CONCURRENT_TRANSACTIONS, -1, -1)], "of the next transaction"
    assert world.end(2, commit) == [(E.PRODUCER_FENCED, -1, -1)]
    assert world.init() == [(E.CONCURRENT_TRANSACTIONS, -1, -1)]
    assert world.add(1) == [E.CONCURRENT_TRANSACTIONS]
    assert world.shard.verify_partitions("x", 8, 1, P0) == {("t", 0): E.CONCURRENT_TRANSACTIONS}


def test_a_second_client_fences_the_first_and_its_transaction_is_aborted() -> None:
    world = World().begun()
    second = world.init()
    world.commit()
    assert second == [(E.CONCURRENT_TRANSACTIONS, -1, -1)], "it is to ask again"
    assert (world.markers[0].commit, world.markers[0].producer_epoch) == (False, 1)
    world.run()
    second = world.init()
    world.run()
    assert second == [(E.NONE, 8, 2)], "higher than the epoch of the fence, which nobody has"
    assert world.add(0) == [E.PRODUCER_FENCED]
    assert world.end(0) == [(E.PRODUCER_FENCED, -1, -1)]
    assert world.init(expected=(8, 0)) == [(E.PRODUCER_FENCED, -1, -1)]
    assert world.init(expected=(3, 2)) == [(E.PRODUCER_FENCED, -1, -1)]


def test_a_client_that_goes_on_after_an_error_may_say_so_twice() -> None:
    world = World()
    world.init()
    world.run()
    first = world.init(expected=(8, 0))
    world.run()
    again = world.init(expected=(8, 0))
    world.run()
    assert first == again == [(E.NONE, 8, 1)]


def test_a_fence_that_could_not_be_written_has_not_happened() -> None:
    world = World().begun()
    second = world.init()
    world.commit(E.NOT_ENOUGH_REPLICAS)
    assert second == [(E.COORDINATOR_NOT_AVAILABLE, -1, -1)]
    assert (world.transaction.state, world.transaction.producer_epoch) == (S.ONGOING, 0)
    third = world.init()
    world.run()
    assert third == [(E.CONCURRENT_TRANSACTIONS, -1, -1)] and world.transaction.producer_epoch == 1


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_times_out_is_aborted_with_a_new_epoch(version: int) -> None:
    world = World(version).begun(version)
    world.now_ms += TIMEOUT_MS
    assert world.shard.abort_timed_out(world.now_ms) == []
    assert world.shard.abort_timed_out(world.now_ms + 1) == ["x"]
    world.collect()
    world.run()
    assert (world.transaction.state, world.transaction.producer_epoch) == (S.COMPLETE_ABORT, 1)
    assert world.add(0) == [E.PRODUCER_FENCED]


def test_used_up_epochs_bring_a_new_producer_id() -> None:
    world = World()
    world.init()
    world.run()
    entry = world.shard._entries["x"]
    entry.current = entry.current.with_next_epoch(TIMEOUT_MS, None, 0)
    object.__setattr__(entry.current, "producer_epoch", EPOCH_MAX - 1)
    world.add(EPOCH_MAX - 1)
    world.run()
    ended = world.end(EPOCH_MAX - 1)
    world.give_ids()
    world.commit()
    assert ended == [(E.NONE, 9, 0)]
    assert world.markers[0].producer_id == 8 and world.markers[0].producer_epoch == EPOCH_MAX
    world.run()
    assert (world.transaction.producer_id, world.transaction.producer_epoch) == (9, 0)
    assert world.end(EPOCH_MAX - 1) == [(E.NONE, 9, 0)], "said again, with the id of before"
    object.__setattr__(entry.current, "producer_epoch", EPOCH_MAX - 1)
    fresh = world.init(expected=(9, EPOCH_MAX - 1))
    world.run()
    assert fresh == [(E.NONE, 10, 0)]


def test_the_last_epoch_is_the_one_of_a_fence_and_nobody_gets_it() -> None:
    """With it a transaction could not end: its markers would look like those of the transaction before, written again."""
    world = World()
    world.init()
    world.run()
    entry = world.shard._entries["x"]
    object.__setattr__(entry.current, "producer_epoch", EPOCH_MAX - 1)
    world.add(EPOCH_MAX - 1)
    world.run()
    world.now_ms += TIMEOUT_MS + 1
    assert world.shard.abort_timed_out(world.now_ms) == ["x"]
    world.collect()
    world.run()
    assert (world.transaction.state, world.transaction.producer_epoch) == (S.COMPLETE_ABORT, EPOCH_MAX)
    assert world.end(EPOCH_MAX - 1, commit=False) == [(E.PRODUCER_FENCED, -1, -1)]
    assert world.add(EPOCH_MAX) == [E.PRODUCER_FENCED]
    for _ in range(2):
        fresh = world.init(expected=(8, EPOCH_MAX - 1))
        world.run()
        assert fresh == [(E.NONE, 9, 0)], "the same when it is asked again"


def test_leaders_that_add_at_the_same_time_wait_for_each_other() -> None:
    world = World()
    world.init()
    world.run()
    first, second, third = world.add(0, P0), world.add(0, P1), world.add(0, P0)
    assert len(world.appends) == 1
    assert world.end(0) == [(E.CONCURRENT_TRANSACTIONS, -1, -1)]
    world.commit()
    assert first == [E.NONE] and second == [] and third == [], "one step at a time"
    world.commit()
    assert second == [E.NONE] == third
    assert world.transaction.partitions == P0 | P1
    assert world.shard.verify_partitions("x", 8, 0, [("t", 0), ("u", 0)]) == {("t", 0): E.NONE, ("u", 0): E.TRANSACTION_ABORTABLE}
    assert world.add(0, P1) == [E.NONE] and not world.appends


def test_unknown_ids_epochs_and_bad_words() -> None:
    world = World()
    assert world.add(0) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert world.end(0) == [(E.INVALID_PRODUCER_ID_MAPPING, -1, -1)]
    assert world.init("") == [(E.INVALID_REQUEST, -1, -1)]
    for timeout_ms in (0, -1, 900_001):
        assert world.init(timeout_ms=timeout_ms) == [(E.INVALID_TRANSACTION_TIMEOUT, -1, -1)]
    asked = world.init()
    world.give_ids(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert asked == [(E.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)] and world.shard.find("x") is None


def test_markers_are_sent_until_each_partition_has_one() -> None:
    world = World().begun()
    world.add(0, P1)
    world.run()
    world.end(0)
    world.commit()
    (markers,) = world.markers
    answered = world.shard.markers_answered
    assert answered(markers, {("t", 0): E.NONE, ("t", 1): E.NOT_LEADER_OR_FOLLOWER}, 0) == P1
    assert world.transaction.state is S.PREPARE_COMMIT
    for code in (E.NETWORK_EXCEPTION, E.UNKNOWN_TOPIC_OR_PARTITION):
        assert answered(markers, {("t", 1): code}, 0) == P1
    assert answered(markers, {("t", 1): E.NONE}, 0) == frozenset()
    world.collect()
    world.commit()
    assert world.transaction.state is S.COMPLETE_COMMIT
    assert answered(markers, {("t", 1): E.NONE}, 0) == frozenset(), "an answer that comes late"
    assert not world.shard.take_effects()


def test_a_marker_that_a_later_coordinator_fences_ends_it() -> None:
    world = World().begun()
    world.end(0)
    world.commit()
    assert world.answer_markers(E.TRANSACTION_COORDINATOR_FENCED) == [frozenset()]
    assert world.transaction.state is S.PREPARE_COMMIT and not world.appends


def test_the_end_of_the_end_is_written_until_it_is_committed() -> None:
    world = World().begun()
    world.end(0)
    world.commit()
    world.answer_markers()
    world.commit(E.NOT_ENOUGH_REPLICAS)
    (again,) = world.later
    again(world.now_ms)
    world.collect()
    world.commit()
    assert world.transaction.state is S.COMPLETE_COMMIT


def test_a_decision_that_comes_late_stands() -> None:
    """Its client has been told that nobody knows; its record is in the log, and a successor would go by it."""
    world = World().begun()
    ended = world.end(0, commit=True)
    waiting = world.time_out()
    assert ended == [(E.COORDINATOR_NOT_AVAILABLE, -1, -1)] and world.transaction.state is S.ONGOING
    assert world.end(0, commit=False) == [(E.CONCURRENT_TRANSACTIONS, -1, -1)]
    assert world.shard.abort_timed_out(world.now_ms + 10 * TIMEOUT_MS) == []
    world.commit_late(waiting)
    assert world.transaction.state is S.PREPARE_COMMIT and world.markers[0].commit
    world.run()
    assert world.end(0, commit=True) == [(E.NONE, 8, 1)]


def test_an_end_that_comes_late_is_written_once() -> None:
    world = World().begun()
    world.end(0)
    world.commit()
    world.answer_markers()
    waiting = world.time_out()
    assert not world.later and not world.appends
    assert world.add(1) == [E.CONCURRENT_TRANSACTIONS]
    world.commit_late(waiting)
    assert world.transaction.state is S.COMPLETE_COMMIT


@pytest.mark.parametrize("step", range(6))
@pytest.mark.parametrize("commit", [True, False])
def test_another_coordinator_goes_on_from_wherever_the_first_died(step: int, commit: bool) -> None:
    """Steps: id given, id committed, partition committed, decision committed, markers written, all committed."""
    world = World()
    world.init()
    if step >= 1:
        world.run()
    if step >= 2:
        world.add(0)
        world.run()
    if step >= 3:
        world.end(0, commit)
        world.commit()
    if step >= 4:
        world.answer_markers()
    if step >= 5:
        world.commit()
    successor = World(log=world.log, epoch=1)
    if step >= 3:
        if step < 5:
            assert successor.markers[0].coordinator_epoch == 1
        successor.run()
        assert successor.transaction.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
        assert successor.end(0, commit) == [(E.NONE, 8, 1)], "the client that asks again hears of it"
    elif step == 2:
        assert successor.transaction.state is S.ONGOING and successor.transaction.partitions == P0
        assert successor.end(0, commit) == []
        successor.run()
        assert successor.transaction.producer_epoch == 1
    else:
        successor.next_id = 20
        asked = successor.init()
        successor.run()
        assert asked == [(E.NONE, 21, 0) if step == 0 else (E.NONE, 8, 1)]


def test_waiting_requests_fail_when_the_partition_is_lost() -> None:
    world = World().begun()
    waiting = [world.add(0, P1), world.add(0, frozenset({("t", 2)}))]
    asked: list[tuple[ErrorCode, int, int]] = []
    world.shard.init_producer_id("y", TIMEOUT_MS, None, lambda *answer: asked.append(answer), 0)
    world.collect()
    world.shard.shutdown()
    world.commit(E.NOT_LEADER_OR_FOLLOWER)
    world.give_ids()
    assert waiting == [[E.NOT_COORDINATOR], [E.NOT_COORDINATOR]] and asked == [(E.NOT_COORDINATOR, -1, -1)]
    assert not world.appends


def test_unused_ids_are_removed_with_tombstones() -> None:
    world = World()
    world.init("x")
    world.init("y")
    world.run()
    world.add(0)
    world.run()
    assert world.shard.remove_expired(1_000_999) == []
    assert world.shard.remove_expired(1_001_000) == ["y"], "an open transaction keeps its id"
    world.collect()
    assert world.init("y") == [(E.CONCURRENT_TRANSACTIONS, -1, -1)]
    world.commit()
    assert world.shard.find("y") is None and world.log[-1][1] is None
    assert World(log=world.log).shard.find("y") is None


def stored(shard: TransactionShard, transaction: Transaction) -> None:
    value, _ = transaction_value(transaction, 2)
    shard.replay(transaction_key(transaction.transactional_id), value)


def of_many(count: int, state: S, update_ms: int) -> TransactionShard:
    shard = TransactionShard(TransactionConfig(timeout_ms_max=900_000, expiration_ms=1_000_000), 0, lambda: 2)
    partitions = P0 if state is S.ONGOING else frozenset()
    for number in range(count):
        name = f"id-{number}"
        stored(shard, Transaction(name, number, TIMEOUT_MS, state, 0, partitions=partitions, start_ms=update_ms, update_ms=update_ms))
    return shard


def test_of_many_ids_that_expire_so_many_are_removed_in_one_turn() -> None:
    count = 3 * LOOKS_MAX - 1
    shard, now_ms = of_many(count, S.EMPTY, 0), 1_000_000
    assert not shard.has_expired(now_ms - 1) and shard.remove_expired(now_ms - 1) == []
    removed: list[str] = []
    turns = []
    while shard.has_expired(now_ms):
        removed += shard.remove_expired(now_ms)
        turns.append(sum(len(append.records) for append in shard.take_effects().appends))
    assert turns == [LOOKS_MAX, LOOKS_MAX, LOOKS_MAX - 1] and removed == [f"id-{number}" for number in range(count)]


def test_of_many_transactions_that_take_too_long_so_many_are_aborted_in_one_turn() -> None:
    count = 2 * LOOKS_MAX + 1
    shard, now_ms = of_many(count, S.ONGOING, 0), TIMEOUT_MS + 1
    assert not shard.has_timed_out(now_ms - 1)
    turns = []
    while shard.has_timed_out(now_ms):
        turns.append(len(shard.abort_timed_out(now_ms)))
        assert len(shard.take_effects().appends) == turns[-1]
    assert turns == [LOOKS_MAX, LOOKS_MAX, 1]


def test_ids_that_are_used_are_looked_at_once_in_their_expiration_and_not_at_each_search() -> None:
    shard = of_many(5_000, S.EMPTY, 0)
    for number in range(5_000):
        stored(shard, Transaction(f"id-{number}", number, TIMEOUT_MS, S.EMPTY, 1, update_ms=500_000))
    looks = 0
    while shard.has_expired(1_000_000):
        assert shard.remove_expired(1_000_000) == []
        looks += 1
    assert looks == 5_000 // LOOKS_MAX and not shard.has_expired(1_499_999) and shard.has_expired(1_500_000)


def test_a_removal_and_an_abort_that_are_not_written_are_tried_again() -> None:
    world = World()
    world.init("y")
    world.run()
    assert world.shard.remove_expired(1_001_000) == ["y"]
    world.collect()
    assert world.shard.remove_expired(1_001_500) == [], "its tombstone is being written"
    world.commit(E.NOT_ENOUGH_REPLICAS)
    assert world.shard.remove_expired(1_002_000) == ["y"]
    world = World().begun(2)
    world.now_ms += TIMEOUT_MS + 1
    assert world.shard.abort_timed_out(world.now_ms) == ["x"]
    world.collect()
    world.commit(E.NOT_ENOUGH_REPLICAS)
    assert world.shard.abort_timed_out(world.now_ms + 1) == ["x"]


def test_a_shorter_timeout_of_the_next_transaction_counts() -> None:
    shard = of_many(1, S.ONGOING, 0)
    ongoing = Transaction("id-0", 0, 10, S.ONGOING, 0, partitions=P0, start_ms=1_000, update_ms=1_000)
    stored(shard, ongoing)
    assert shard.abort_timed_out(1_010) == [] and shard.abort_timed_out(1_011) == ["id-0"]


def test_every_state_can_be_reached_and_the_table_is_closed() -> None:
    assert set(PREVIOUS_STATES) == set(TransactionState)
    assert all(sources <= set(TransactionState) for sources in PREVIOUS_STATES.values())
    assert S.PREPARE_EPOCH_FENCE not in {s for t, sources in PREVIOUS_STATES.items() if t is not S.PREPARE_ABORT for s in sources}


def test_there_are_no_more_transactional_ids_than_so_many() -> None:
    world = World()
    world.shard._config = TransactionConfig(ids_max=2)
    answers: list[ErrorCode] = []
    for name in ("a", "b", "c", "a"):
        world.shard.init_producer_id(name, TIMEOUT_MS, None, lambda code, producer_id, epoch: answers.append(code), world.now_ms)
        world.collect()
        world.give_ids()
        world.commit()
    assert answers == [E.NONE, E.NONE, E.POLICY_VIOLATION, E.NONE]
