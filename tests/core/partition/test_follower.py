"""The follower core: what is fetched from where and when, session membership, back-off, throttles, answers that come late."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from minikafka.core.partition.follower import (
    BACKOFF_MS_MIN,
    JOIN_WAIT_MS_MAX,
    JOINING_MAX,
    LOOK_MS,
    NOWHERE,
    FetchPlan,
    FollowedPartition,
    Follower,
    Key,
    Phase,
    Step,
)
from minikafka.core.partition.truncation import OutOfRange, is_beyond_leader, out_of_range
from minikafka.core.replication_quota import ReplicationQuota
from minikafka.wire.errors import ErrorCode

BROKER = 2
BACKOFF_MS_MAX = 1000
SESSION = 77


@dataclass
class Log:
    log_start_offset: int = 0
    log_end_offset: int = 0
    latest_epoch: int = -1
    lost: tuple[int, int] | None = None

    @property
    def watermarks(self) -> Log:
        return self


@dataclass
class Replica:
    index: int = 0
    topic: str = "t"
    topic_id: bytes = bytes(16)
    leader_epoch: int = 5
    log: Log = field(default_factory=Log)
    is_leader: bool = False
    isr: tuple[int, ...] = (1,)

    @property
    def key(self) -> Key:
        return self.topic_id, self.index


class Leader:
    """The other side, by hand: what it was asked last, and answers."""

    def __init__(self, *replicas: Replica) -> None:
        self.quota = ReplicationQuota()
        self.follower = Follower(BROKER, self.quota, BACKOFF_MS_MAX)
        self.now_ms = 10_000
        for replica in replicas:
            self.follower.add(replica)

    def ask(self) -> FetchPlan | None:
        return self.follower.next_fetch(self.now_ms)

    def asked(self) -> FetchPlan:
        plan = self.ask()
        assert plan is not None
        return plan

    def answer(self, plan: FetchPlan, code: ErrorCode = ErrorCode.NONE, session_id: int = SESSION) -> bool:
        is_current = self.follower.is_current(plan) and self.follower.answered(plan, code, session_id)
        if is_current:
            self.follower.finished()
        return is_current

    def say(self, plan: FetchPlan, replica: Replica, code: ErrorCode = ErrorCode.NONE, *, is_diverging: bool = False) -> Step | None:
        """A whole answer that speaks of one partition."""
        assert self.follower.is_current(plan) and self.follower.answered(plan, ErrorCode.NONE, SESSION)
        followed = self.follower.followed(plan, replica.key)
        step = None if followed is None else self.follower.step(followed, code, self.now_ms, is_diverging=is_diverging)
        self.follower.finished()
        return step

    def followed(self, replica: Replica) -> FollowedPartition:
        return self.follower.partitions[replica.key]


def names(plan: FetchPlan) -> tuple[list[int], list[int]]:
    return [key[1] for key, _ in plan.positions], [key[1] for key in plan.forgotten]


def test_the_first_fetch_asks_for_a_session_and_is_not_parked() -> None:
    replica = Replica(log=Log(3, 8, 4))
    leader = Leader(replica)
    first = leader.asked()
    assert (first.session_id, first.session_epoch, first.wait_ms_max) == (0, 0, 0)
    assert first.positions == [(replica.key, (8, 5, 4, 3))]
    assert leader.ask() is None, "one is under way, and there is no session to tell anything"
    assert leader.say(first, replica) is Step.APPEND
    second = leader.asked()
    assert (second.session_id, second.session_epoch, second.wait_ms_max) == (SESSION, 1, None)
    assert names(second) == ([], []), "the session knows where the partition is"


def test_only_what_has_changed_is_named_and_epochs_of_the_session_count() -> None:
    one, other = Replica(0), Replica(1)
    leader = Leader(one, other)
    assert leader.say(leader.asked(), one) is Step.APPEND
    one.log.log_end_offset, one.log.latest_epoch = 2, 5
    plan = leader.asked()
    assert plan.positions == [(one.key, (2, 5, 5, 0))] and plan.session_epoch == 1
    leader.answer(plan)
    leader.follower._session_epoch = 0x7FFFFFFF
    assert leader.asked().session_epoch == 1


def test_partitions_added_while_a_fetch_is_parked_go_into_one_second_fetch() -> None:
    one, other, third = Replica(0), Replica(1), Replica(2)
    leader = Leader(one)
    leader.answer(leader.asked())
    leader.asked()
    assert leader.ask() is None
    leader.follower.add(other)
    assert names(leader.asked()) == ([1], [])
    leader.follower.add(third)
    assert leader.ask() is None


def test_a_leader_without_fetch_sessions_gets_full_fetches() -> None:
    one, other = Replica(0), Replica(1)
    leader = Leader(one, other)
    leader.answer(leader.asked(), session_id=0)
    plan = leader.asked()
    assert names(plan) == ([0, 1], []) and plan.wait_ms_max is None
    leader.answer(plan, session_id=0)
    assert names(leader.asked()) == ([0, 1], [])


def test_a_leader_without_fetch_sessions_does_not_hold_a_fetch_while_a_partition_is_synced() -> None:
    """The partition joins with the next fetch, which would wait for the end of this one."""
    one, other = Replica(0), Replica(1)
    leader = Leader(one, other)
    leader.answer(leader.asked(), session_id=0)
    leader.follower.syncing(leader.followed(other))
    plan = leader.asked()
    assert names(plan) == ([0], []) and plan.wait_ms_max == JOIN_WAIT_MS_MAX
    leader.follower.located(leader.followed(other), leader.now_ms, is_found=True)
    leader.answer(plan, session_id=0)
    plan = leader.asked()
    assert names(plan) == ([0, 1], []) and plan.wait_ms_max is None


def test_of_very_many_partitions_some_join_with_each_fetch() -> None:
    """9,000 took a turn of 26 ms. Those that are in the session are always named when they change: the leader would repeat records."""
    replicas = [Replica(index) for index in range(2 * JOINING_MAX + 5)]
    leader = Leader(*replicas)
    first = leader.asked()
    assert names(first)[0] == list(range(JOINING_MAX)) and leader.follower.wake_ms == leader.now_ms
    leader.answer(first)
    for replica in replicas:
        replica.log.log_end_offset = 1
    leader.now_ms += LOOK_MS
    second = leader.asked()
    assert names(second)[0] == list(range(2 * JOINING_MAX)) and second.wait_ms_max == 0
    third = leader.asked()
    assert names(third)[0] == [2 * JOINING_MAX + number for number in range(5)] and third.wait_ms_max is None
    assert leader.ask() is None and leader.follower.wake_ms is None


def test_only_partitions_that_an_answer_was_about_are_looked_at_but_now_and_then_all() -> None:
    """A look at 9,000 takes 6 ms, for each fetch. Nothing but answers moves a follower's log, apart from retention."""
    one, other, third = Replica(0), Replica(1), Replica(2)
    leader = Leader(one, other)
    leader.say(leader.asked(), one)
    assert names(leader.asked()) == ([], [])
    one.log.log_end_offset = other.log.log_start_offset = 4
    leader.answer(FetchPlan(0, 2, SESSION, 1, [], [], None))
    leader.follower.add(third)
    assert names(leader.asked()) == ([2], []), "what joins is found at once"
    leader.say(FetchPlan(0, 3, SESSION, 2, [], [], None), one)
    assert names(leader.asked()) == ([0], [])
    leader.answer(FetchPlan(0, 4, SESSION, 3, [], [], None))
    leader.now_ms += LOOK_MS
    assert names(leader.asked()) == ([1], [])


def test_very_many_partitions_are_all_named_to_a_leader_without_sessions() -> None:
    replicas = [Replica(index) for index in range(JOINING_MAX + 5)]
    leader = Leader(*replicas)
    leader.answer(leader.asked(), session_id=0)
    for _ in range(2):
        plan = leader.asked()
        assert len(plan.positions) == len(replicas)
        leader.answer(plan, session_id=0)


def test_a_refused_session_and_a_broken_connection_begin_anew_and_late_answers_are_dropped() -> None:
    replica = Replica()
    leader = Leader(replica)
    first = leader.asked()
    leader.answer(first)
    second = leader.asked()
    assert not leader.answer(second, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    third = leader.asked()
    assert third.session_id == 0 and third.wait_ms_max == 0 and names(third) == ([0], [])
    assert not leader.follower.is_current(first)
    leader.follower.disconnected()
    assert not leader.follower.is_current(third)
    assert names(leader.asked()) == ([0], [])


def test_removed_partitions_leave_the_session_unless_they_are_back() -> None:
    one, other = Replica(0), Replica(1)
    leader = Leader(one, other)
    leader.answer(leader.asked())
    leader.follower.remove(one.key)
    leader.follower.remove(other.key)
    leader.follower.add(other)
    assert names(leader.asked()) == ([1], [0])


def test_an_answer_to_a_fetch_before_the_partition_joined_is_not_about_it() -> None:
    one, other = Replica(0), Replica(1)
    leader = Leader(one, other)
    leader.answer(leader.asked())
    parked = leader.asked()
    leader.follower.remove(one.key)
    leader.follower.add(one)
    news = leader.asked()
    assert leader.say(parked, one) is None
    assert leader.say(news, one) is Step.APPEND


def test_a_partition_whose_answer_was_ignored_joins_only_after_the_leader_has_forgotten_it() -> None:
    """The leader would not repeat the high watermark of that answer: the follower's stayed behind until the next record."""
    one, other = Replica(0), Replica(1)
    leader = Leader(one, other)
    leader.answer(leader.asked())
    parked = leader.asked()
    leader.follower.remove(one.key)
    leader.follower.add(one)
    joining = leader.asked()
    assert names(joining) == ([0], [])
    assert leader.say(parked, one) is None
    assert names(leader.asked()) == ([], [0])
    leader.answer(joining)
    news = leader.asked()
    assert names(news) == ([0], [])
    assert leader.say(news, one) is Step.APPEND


def test_an_answer_during_a_back_off_is_ignored_and_the_leader_forgets_the_partition_before_it_joins() -> None:
    one, other, third = Replica(0), Replica(1), Replica(2)
    leader = Leader(one, other)
    leader.answer(leader.asked())
    first = leader.asked()
    leader.follower.add(third)
    second = leader.asked()
    assert leader.say(first, one, ErrorCode.UNKNOWN_LEADER_EPOCH) is Step.WAIT
    leader.now_ms += BACKOFF_MS_MIN
    assert leader.say(second, one) is None
    assert names(leader.asked()) == ([], [0])
    assert names(leader.asked()) == ([0], [])


def test_a_session_that_ends_with_its_last_partition_is_followed_by_a_new_one() -> None:
    replica = Replica()
    leader = Leader(replica)
    leader.answer(leader.asked())
    assert leader.say(leader.asked(), replica, ErrorCode.UNKNOWN_LEADER_EPOCH) is Step.WAIT
    last = leader.asked()
    assert names(last) == ([], [0])
    leader.now_ms += BACKOFF_MS_MIN
    leader.answer(last, session_id=0)
    new = leader.asked()
    assert (new.session_id, new.session_epoch, new.wait_ms_max, names(new)) == (0, 0, 0, ([0], []))


@pytest.mark.parametrize("change", ["epoch", "leader", "removed"])
def test_an_answer_of_an_earlier_role_changes_nothing(change: str) -> None:
    replica = Replica()
    leader = Leader(replica)
    plan = leader.asked()
    if change == "epoch":
        replica.leader_epoch += 1
    elif change == "leader":
        replica.is_leader = True
    else:
        leader.follower.remove(replica.key)
    assert leader.say(plan, replica, ErrorCode.OFFSET_OUT_OF_RANGE) is None


def test_a_partition_in_back_off_leaves_the_session_and_comes_back_in_time() -> None:
    one, other = Replica(0), Replica(1)
    leader = Leader(one, other)
    assert leader.say(leader.asked(), one, ErrorCode.NOT_LEADER_OR_FOLLOWER) is Step.WAIT
    plan = leader.asked()
    assert names(plan) == ([], [0]) and leader.follower.wake_ms == leader.now_ms + BACKOFF_MS_MIN
    leader.now_ms += BACKOFF_MS_MIN - 1
    assert leader.ask() is None
    leader.now_ms += 1
    assert names(leader.asked()) == ([0], []), "the parked fetch is not waited for"


def test_back_off_doubles_up_to_its_bound_and_ends_with_what_is_appended() -> None:
    replica = Replica()
    leader = Leader(replica)
    pauses = []
    for _ in range(9):
        assert leader.say(leader.asked(), replica, ErrorCode.UNKNOWN_LEADER_EPOCH) is Step.WAIT
        assert leader.ask() is not None or leader.follower.wake_ms is not None
        assert leader.follower.wake_ms is not None
        pauses.append(leader.follower.wake_ms - leader.now_ms)
        leader.now_ms = leader.follower.wake_ms
        leader.follower.disconnected()
    assert pauses == [10, 20, 40, 80, 160, 320, 640, 1000, 1000]
    leader.follower.appended(leader.followed(replica))
    leader.follower.refused(leader.followed(replica), leader.now_ms)
    assert leader.followed(replica).backoff_ms == BACKOFF_MS_MIN
    leader.follower.refused(leader.followed(replica), leader.now_ms)
    assert leader.followed(replica).backoff_ms == 2 * BACKOFF_MS_MIN, "what cannot be appended is not asked for at full speed"


def test_a_fenced_epoch_waits_as_long_as_may_be_and_a_leader_that_is_back_is_asked_at_once() -> None:
    replica = Replica()
    leader = Leader(replica)
    assert leader.say(leader.asked(), replica, ErrorCode.FENCED_LEADER_EPOCH) is Step.WAIT
    assert leader.followed(replica).resume_ms == leader.now_ms + BACKOFF_MS_MAX
    leader.follower.leader_changed()
    leader.follower.disconnected()
    assert names(leader.asked()) == ([0], [])


def test_diverging_epochs_are_cut_and_errors_go_first() -> None:
    replica = Replica()
    leader = Leader(replica)
    assert leader.say(leader.asked(), replica, is_diverging=True) is Step.TRUNCATE
    assert leader.say(leader.asked(), replica, ErrorCode.NOT_LEADER_OR_FOLLOWER, is_diverging=True) is Step.WAIT


@pytest.mark.parametrize("is_found", [True, False])
def test_a_partition_out_of_range_is_not_fetched_until_it_is_located(is_found: bool) -> None:
    one, other = Replica(0), Replica(1)
    leader = Leader(one, other)
    assert leader.say(leader.asked(), one, ErrorCode.OFFSET_OUT_OF_RANGE) is Step.LOCATE
    plan = leader.asked()
    assert names(plan) == ([], [0]) and leader.followed(one).phase is Phase.LOCATING
    assert leader.ask() is None
    leader.follower.located(leader.followed(one), leader.now_ms, is_found=is_found)
    if not is_found:
        assert leader.ask() is None and leader.follower.wake_ms == leader.now_ms + BACKOFF_MS_MIN
        leader.now_ms += BACKOFF_MS_MIN
    assert names(leader.asked()) == ([0], [])


def test_a_partition_whose_log_has_failed_is_never_asked_for_again() -> None:
    one, other = Replica(0), Replica(1)
    leader = Leader(one, other)
    leader.answer(leader.asked())
    leader.follower.failed(leader.followed(one))
    assert names(leader.asked()) == ([], [0])
    leader.follower.leader_changed()
    leader.follower.disconnected()
    leader.now_ms += 60_000
    assert names(leader.asked()) == ([1], [])


def test_a_throttled_replica_goes_on_when_the_rate_is_raised() -> None:
    """It stayed out for as long as the old rate had said (`resume_ms` was fixed): a reassignment was stuck after its throttle was raised
    (Apache Kafka: ReassignPartitionsCommandTest)."""
    one, other = Replica(0), Replica(1)
    leader = Leader(one, other)
    leader.quota.configure(1, {"t": frozenset({0})})
    leader.quota.record(1_000_000, leader.now_ms)
    leader.answer(plan := leader.asked())
    assert names(plan) == ([1], [])
    wake_ms = leader.follower.wake_ms
    assert wake_ms is not None and wake_ms > leader.now_ms + 900_000
    parked = leader.asked()
    assert leader.ask() is None
    leader.now_ms += 100
    leader.quota.configure(10_000_000, {"t": frozenset({0})})
    assert names(leader.asked()) == ([0], []), "beside the fetch that is parked"
    assert leader.say(parked, other) is Step.APPEND


def test_a_throttled_replica_leaves_the_session_but_not_one_in_sync() -> None:
    one, other = Replica(0), Replica(1, isr=(1, BROKER))
    leader = Leader(one, other)
    leader.answer(leader.asked())
    leader.quota.configure(1000, {"t": None})
    leader.quota.record(5000, leader.now_ms)
    plan = leader.asked()
    assert names(plan) == ([], [0])
    leader.answer(plan)
    one.isr = (1, BROKER)
    assert names(leader.asked()) == ([0], [])


def test_nothing_is_asked_for_without_partitions_or_when_everything_waits() -> None:
    assert Leader().ask() is None
    replica = Replica()
    leader = Leader(replica)
    leader.say(leader.asked(), replica, ErrorCode.UNKNOWN_TOPIC_ID)
    assert names(leader.asked()) == ([], [0])
    leader.answer(FetchPlan(leader.follower._connection, 2, SESSION, 1, [], [], True))
    assert leader.ask() is None and leader.follower.wake_ms is not None


@pytest.mark.parametrize(
    ("leader_start", "start", "end", "expected"),
    [(10, 0, 9, OutOfRange.START_ANEW), (9, 0, 9, OutOfRange.MOVE_START), (1, 0, 9, OutOfRange.MOVE_START), (0, 0, 9, OutOfRange.GO_ON)],
)
def test_out_of_range(leader_start: int, start: int, end: int, expected: OutOfRange) -> None:
    assert out_of_range(leader_start, log_start_offset=start, log_end_offset=end) is expected
    assert is_beyond_leader(8, log_end_offset=9) and not is_beyond_leader(9, log_end_offset=9)


@pytest.mark.parametrize(
    ("leader_start", "expected"),
    [(0, OutOfRange.START_ANEW), (4, OutOfRange.START_ANEW), (5, OutOfRange.GO_ON), (6, OutOfRange.MOVE_START)],
)
def test_a_log_that_lost_records_gets_them_from_a_leader_that_has_them(leader_start: int, expected: OutOfRange) -> None:
    assert out_of_range(leader_start, log_start_offset=5, log_end_offset=9, lost=(0, 5)) is expected
    within = OutOfRange.START_ANEW if leader_start < 7 else OutOfRange.MOVE_START
    assert out_of_range(leader_start, log_start_offset=2, log_end_offset=9, lost=(4, 7)) is within
    missing_end = out_of_range(leader_start, log_start_offset=6, log_end_offset=9, lost=(9, 12))
    assert missing_end is OutOfRange.GO_ON, "nothing is missing before its end"


def test_a_log_that_lost_records_is_located_before_anybody_counts_on_it() -> None:
    """A fetch from its end would let it join the in-sync replicas."""
    replica = Replica(log=Log(3, 8, 4, lost=(0, 3)))
    leader = Leader(replica)
    first = leader.asked()
    assert first.positions == [(replica.key, (NOWHERE, 5, 4, 3))]
    assert leader.say(first, replica, ErrorCode.OFFSET_OUT_OF_RANGE) is Step.LOCATE
    replica.log = Log(0, 0)
    leader.follower.located(leader.followed(replica), leader.now_ms, is_found=True)
    assert leader.asked().positions == [(replica.key, (0, 5, -1, 0))]
