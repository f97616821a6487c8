"""The leader of a partition: high watermark, in-sync replicas, acks=all. Time is a number."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from minikafka.core.partition.isr import AlterOutcome, outcome_of
from minikafka.core.partition.leader import ALL_COUNTS, PartitionLeader
from minikafka.wire.errors import ApiError, ErrorCode

LAG_MS = 1000


class World:
    """A leader (broker 1) of replicas 1, 2, 3; brokers in `ineligible` are fenced."""

    def __init__(self, *, isr: tuple[int, ...] = (1, 2, 3), end: int = 10, high_watermark: int = 10, min_isr: int = 1) -> None:
        self.now_ms = 100_000
        self.ineligible: set[int] = set()
        self.leader = PartitionLeader(
            broker_id=1,
            leader_epoch=5,
            partition_epoch=7,
            replicas=(1, 2, 3),
            isr=isr,
            log_end_offset=end,
            high_watermark=high_watermark,
            min_isr=min_isr,
            lag_ms_max=LAG_MS,
            eligible=lambda broker_id, epoch: broker_id not in self.ineligible,
            now_ms=self.now_ms,
        )

    def append(self, count: int = 1) -> bool:
        return self.leader.appended(self.leader.log_end_offset + count, self.now_ms)

    def fetch(self, broker_id: int, offset: int | None = None, epoch: int = 1) -> bool:
        at = self.leader.log_end_offset if offset is None else offset
        return self.leader.fetched(broker_id, at, 0, epoch, self.now_ms)

    def catch_up(self, *brokers: int) -> None:
        for broker_id in brokers:
            self.fetch(broker_id)


def test_high_watermark_is_the_least_end_of_the_in_sync_replicas() -> None:
    world = World()
    world.catch_up(2, 3)
    assert world.append(5) is False
    assert world.leader.high_watermark == 10
    assert world.fetch(2) is False
    assert world.fetch(3, 12) is True
    assert world.leader.high_watermark == 12
    assert world.fetch(3) is True
    assert world.leader.high_watermark == 15


def test_the_high_watermark_waits_for_a_caught_up_replica_that_is_about_to_join() -> None:
    """Else it would run ahead of such a follower under load, and keep it out for ever."""
    world = World(isr=(1, 2))
    world.catch_up(2, 3)
    world.append(5)
    assert world.fetch(2) is False, "3 was at the end a moment ago"
    assert world.fetch(3, 12) is True and world.leader.high_watermark == 12
    world.ineligible.add(3)
    assert world.leader.advance(world.now_ms) is True and world.leader.high_watermark == 15, "who may not join is not waited for"
    world.ineligible.clear()
    world.append(5)
    assert world.fetch(2) is False
    world.now_ms += LAG_MS
    assert world.leader.advance(world.now_ms) is False, "replica.lag.time.max.ms has not passed"
    world.now_ms += 1
    assert world.leader.advance(world.now_ms) is True and world.leader.high_watermark == 20, "nor is who has lagged too long"


def test_a_follower_that_was_proposed_is_waited_for_however_long_it_lags() -> None:
    """The controller may have committed the proposal already."""
    world = World(isr=(1, 2))
    world.catch_up(2, 3)
    assert world.leader.expansion(3) is not None
    world.append(5)
    assert world.fetch(2) is False
    world.now_ms += LAG_MS + 1
    assert world.leader.advance(world.now_ms) is False and world.leader.high_watermark == 10


def test_who_was_taken_out_before_it_fetched_is_not_waited_for() -> None:
    world = World()
    world.append(5)
    assert world.fetch(2) is False
    world.leader.committed((1, 2), 8, world.now_ms)
    assert world.leader.high_watermark == 15


def test_a_replica_that_has_never_fetched_is_not_waited_for() -> None:
    world = World(isr=(1, 2))
    world.append(5)
    assert world.fetch(2) is True and world.leader.high_watermark == 15


def test_a_lone_leader_moves_it_with_every_append() -> None:
    world = World(isr=(1,))
    assert world.append() is True
    assert world.leader.high_watermark == 11


def test_records_that_must_be_synced_first_do_not_count() -> None:
    world = World(isr=(1,))
    world.leader.hold()
    assert world.append(3) is False and world.leader.high_watermark == 10
    world.leader.hold()
    assert world.append(3) is False and world.leader.counted_end == 10
    assert world.leader.counts_to(13, world.now_ms) is True and world.leader.high_watermark == 13
    assert world.leader.counts_to(ALL_COUNTS, world.now_ms) is True and world.leader.high_watermark == 16


def test_no_progress_below_min_insync_replicas() -> None:
    """KIP-966: what min.insync.replicas does not cover is not shown as committed."""
    world = World(isr=(1,), min_isr=2)
    assert world.append() is False
    assert world.leader.high_watermark == 10
    with pytest.raises(ApiError) as refused:
        world.leader.check_writable()
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_acks_all_completes_at_the_high_watermark_and_says_when_the_set_shrank_meanwhile() -> None:
    world = World(min_isr=2)
    world.catch_up(2, 3)
    world.append()
    assert world.leader.is_replicated(11) is None
    world.catch_up(2, 3)
    assert world.leader.is_replicated(11) is ErrorCode.NONE
    world.leader.committed((1,), 8, world.now_ms)
    assert world.leader.is_replicated(11) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_lagging_member_is_proposed_for_removal_and_counts_until_it_is_removed() -> None:
    world = World()
    world.catch_up(2, 3)
    world.append()
    world.now_ms += LAG_MS + 1
    world.catch_up(2)
    proposal = world.leader.shrinkage(world.now_ms)
    assert proposal is not None
    assert (proposal.isr, proposal.is_expansion) == ((1, 2), False)
    assert world.leader.high_watermark == 10, "a pending shrink changes nothing yet"
    assert world.leader.shrinkage(world.now_ms) is None, "one change in flight"
    assert world.leader.committed((1, 2), 8, world.now_ms) is True
    assert world.leader.high_watermark == 11


def test_a_smaller_set_counts_when_the_metadata_bring_it() -> None:
    """And min.insync.replicas, which may have been raised just before: the controller holds those that left for eligible by that one."""
    world = World(min_isr=1)
    world.append()
    world.now_ms += LAG_MS + 1
    proposal = world.leader.shrinkage(world.now_ms)
    assert proposal is not None and proposal.isr == (1,)
    assert world.leader.committed((1,), 8, world.now_ms, is_answer=True) is False
    assert world.leader.isr.pending is proposal and world.leader.isr.maximal == (1, 2, 3) and world.leader.high_watermark == 10
    world.leader.update_replicas((1, 2, 3), 2, world.now_ms)
    assert world.leader.committed((1,), 8, world.now_ms) is False
    assert world.leader.isr.pending is None and world.leader.isr.committed == (1,) and world.leader.high_watermark == 10


def test_the_meaning_of_the_controllers_answer() -> None:
    world = World(isr=(1, 2))
    world.catch_up(2, 3)
    grown = world.leader.expansion(3)
    assert grown is not None
    outcome, has_moved = world.leader.altered(grown, ErrorCode.REQUEST_TIMED_OUT, (), -1, world.now_ms)
    assert (outcome, has_moved, world.leader.isr.pending) == (AlterOutcome.RETRY, False, grown), "perhaps it was carried out"
    assert world.leader.altered(grown, ErrorCode.NEW_LEADER_ELECTED, (), -1, world.now_ms)[0] is AlterOutcome.WAIT_FOR_METADATA
    assert world.leader.isr.maximal == (1, 2, 3), "it may be in sync by now"
    assert world.leader.altered(grown, ErrorCode.NONE, (1, 2, 3), 8, world.now_ms) == (AlterOutcome.COMMITTED, False)
    assert world.leader.isr.committed == (1, 2, 3)
    assert world.leader.altered(grown, ErrorCode.INELIGIBLE_REPLICA, (), -1, world.now_ms) == (AlterOutcome.STALE, False)
    assert world.leader.isr.committed == (1, 2, 3)
    world.append()
    world.now_ms += LAG_MS + 1
    world.catch_up(2)
    shrunk = world.leader.shrinkage(world.now_ms)
    assert shrunk is not None and shrunk.isr == (1, 2)
    assert world.leader.altered(shrunk, ErrorCode.NONE, (1, 2), 9, world.now_ms)[0] is AlterOutcome.WAIT_FOR_METADATA
    assert world.leader.altered(shrunk, ErrorCode.INELIGIBLE_REPLICA, (), -1, world.now_ms)[0] is AlterOutcome.REVERT
    assert world.leader.isr.pending is None and world.leader.isr.committed == (1, 2, 3)


def test_a_follower_without_progress_lets_the_high_watermark_go_on() -> None:
    """What held it back may have gone since: here a replica that was about to join. Nobody else would look before the next record."""
    world = World(isr=(1, 2))
    world.catch_up(2, 3)
    world.append()
    world.fetch(2)
    assert world.leader.high_watermark == 10, "3 was caught up a moment ago"
    world.ineligible.add(3)
    assert world.fetch(2) is True
    assert world.leader.high_watermark == 11


def test_a_replica_that_is_refused_no_longer_holds_the_high_watermark() -> None:
    world = World(isr=(1, 2))
    world.catch_up(2, 3)
    grown = world.leader.expansion(3)
    assert grown is not None
    world.append()
    world.fetch(2)
    assert world.leader.high_watermark == 10
    world.ineligible.add(3)
    assert world.leader.altered(grown, ErrorCode.INELIGIBLE_REPLICA, (), -1, world.now_ms) == (AlterOutcome.REVERT, True)
    assert world.leader.high_watermark == 11


def test_metadata_that_come_late_do_not_take_a_later_proposal_back() -> None:
    """The answer to AlterPartition came first, a follower was proposed on top of it, and only then the metadata of the answered change are
    delivered. The high watermark waits for the proposed follower all the same: the controller may have committed it by now."""
    world = World(isr=(1, 2))
    world.catch_up(2)
    assert world.leader.committed((1,), 8, world.now_ms, is_answer=True) is False
    world.catch_up(2)
    proposal = world.leader.expansion(2)
    assert proposal is not None and proposal.partition_epoch == 8
    world.now_ms += 10 * LAG_MS
    world.leader.committed((1,), 8, world.now_ms)
    assert world.leader.isr.pending is proposal and world.leader.isr.maximal == (1, 2)
    assert world.append() is False
    assert world.leader.high_watermark == 10
    world.leader.committed((1, 2), 9, world.now_ms, is_answer=True)
    assert world.leader.isr.pending is None and world.leader.high_watermark == 10


def test_a_member_at_the_end_is_in_sync_however_long_ago_it_fetched() -> None:
    world = World()
    world.catch_up(2, 3)
    world.now_ms += 10 * LAG_MS
    assert world.leader.shrinkage(world.now_ms) is None


def test_steady_writing_does_not_make_a_follower_that_keeps_up_lag() -> None:
    """lastCaughtUpTimeMs: having read up to the end of the previous fetch counts as caught up then."""
    world = World()
    for _ in range(20):
        world.append(3)
        world.now_ms += LAG_MS // 2
        world.fetch(2, world.leader.log_end_offset - 3)
        world.fetch(3, world.leader.log_end_offset - 3)
        assert world.leader.shrinkage(world.now_ms) is None


def test_a_returning_follower_is_proposed_at_the_high_watermark_and_counts_at_once() -> None:
    world = World(isr=(1, 2))
    world.catch_up(2)
    assert world.leader.expansion(3) is None
    world.fetch(3, 9)
    assert world.leader.expansion(3) is None
    world.fetch(3, 10)
    proposal = world.leader.expansion(3)
    assert proposal is not None
    assert (proposal.isr, proposal.is_expansion) == ((1, 2, 3), True)
    world.append()
    world.fetch(2)
    assert world.leader.high_watermark == 10, "a pending member holds the high watermark back"


def test_kafka_7128_no_replica_rejoins_before_the_start_of_the_leaders_epoch() -> None:
    """KAFKA-7128: a follower at the high watermark of an older epoch may lack records of this one's beginning."""
    world = World(isr=(1,), end=20, high_watermark=10, min_isr=2)
    world.fetch(2, 15)
    assert world.leader.expansion(2) is None
    world.fetch(2, 20)
    assert world.leader.expansion(2) is not None


def test_fenced_and_unknown_followers_do_not_get_in() -> None:
    world = World(isr=(1, 2))
    world.ineligible.add(3)
    world.fetch(3)
    assert world.leader.expansion(3) is None
    with pytest.raises(ApiError) as unknown:
        world.fetch(9)
    assert unknown.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_kip_903_a_fetch_of_an_earlier_incarnation_is_refused() -> None:
    world = World()
    world.fetch(2, epoch=4)
    with pytest.raises(ApiError) as stale:
        world.fetch(2, epoch=3)
    assert stale.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_latest_offset_is_unavailable_until_the_epoch_has_committed_something() -> None:
    """KIP-207: a new leader's high watermark may be behind what the old one has shown."""
    world = World(end=20, high_watermark=10)
    assert not world.leader.is_high_watermark_current
    world.catch_up(2, 3)
    assert world.leader.is_high_watermark_current


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, AlterOutcome.REVERT),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, AlterOutcome.REVERT),
        (ErrorCode.FENCED_LEADER_EPOCH, AlterOutcome.WAIT_FOR_METADATA),
        (ErrorCode.INVALID_UPDATE_VERSION, AlterOutcome.WAIT_FOR_METADATA),
        (ErrorCode.UNKNOWN_SERVER_ERROR, AlterOutcome.RETRY),
    ],
)
def test_refused_proposals(error: ErrorCode, outcome: AlterOutcome) -> None:
    assert outcome_of(error) is outcome
    world = World(isr=(1, 2))
    world.fetch(3)
    proposal = world.leader.expansion(3)
    assert proposal is not None
    assert world.leader.refused(proposal, error) is outcome
    assert (world.leader.isr.pending is None) == (outcome is AlterOutcome.REVERT)


def test_an_older_partition_epoch_does_not_undo_a_newer_set() -> None:
    world = World()
    assert world.leader.isr.commit((1, 2), 9)
    assert not world.leader.isr.commit((1, 2, 3), 8)
    assert world.leader.isr.committed == (1, 2)


def test_a_follower_that_fetches_again_was_caught_up_at_its_previous_fetch() -> None:
    """What a follower asked long ago may be read only now: it says nothing. The next fetch follows our answer."""
    world = World()
    world.now_ms = since_ms = 200_000
    world.catch_up(2, 3)
    assert not world.leader.is_confirmed((), since_ms)
    world.now_ms += 10
    world.catch_up(2)
    assert not world.leader.is_confirmed((), since_ms), "3 may have been elected"
    world.catch_up(3)
    assert world.leader.is_confirmed((), since_ms)
    assert not world.leader.is_confirmed((), since_ms + 1)


def test_an_eligible_replica_has_to_follow() -> None:
    world = World(isr=(1,))
    assert world.leader.is_confirmed((), world.now_ms), "nobody else can lead"
    assert not world.leader.is_confirmed((3,), world.now_ms), "one who is eligible (KIP-966)"
    assert not world.leader.is_confirmed((4,), world.now_ms), "one of whom nothing is known"
    world.catch_up(3)
    world.catch_up(3)
    assert world.leader.is_confirmed((1, 3), world.now_ms)


class LeaderAgainstModel(RuleBasedStateMachine):
    """Random appends, fetches, delays and in-sync changes; the rules that must hold after each."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(min_isr=2)
        self.shown = self.world.leader.high_watermark
        self.partition_epoch = 7

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.world.append(count)

    @rule(broker_id=st.sampled_from([2, 3]), behind=st.integers(0, 6))
    def fetch(self, broker_id: int, behind: int) -> None:
        self.world.fetch(broker_id, max(self.world.leader.log_end_offset - behind, 0))

    @rule(ms=st.integers(1, 2 * LAG_MS))
    def wait(self, ms: int) -> None:
        self.world.now_ms += ms

    @rule(broker_id=st.sampled_from([2, 3]))
    def flip_eligibility(self, broker_id: int) -> None:
        self.world.ineligible ^= {broker_id}

    @rule(broker_id=st.sampled_from([2, 3]), accepted=st.booleans())
    def expand(self, broker_id: int, accepted: bool) -> None:
        proposal = self.world.leader.expansion(broker_id)
        if proposal is not None:
            self._decide(proposal, accepted)

    @rule(accepted=st.booleans())
    def shrink(self, accepted: bool) -> None:
        proposal = self.world.leader.shrinkage(self.world.now_ms)
        if proposal is not None:
            self._decide(proposal, accepted)

    def _decide(self, proposal: object, accepted: bool) -> None:
        leader = self.world.leader
        if accepted:
            self.partition_epoch += 1
            leader.committed(proposal.isr, self.partition_epoch, self.world.now_ms)  # type: ignore[attr-defined]
        else:
            leader.altered(proposal, ErrorCode.INELIGIBLE_REPLICA, (), -1, self.world.now_ms)  # type: ignore[arg-type]

    @rule(broker_id=st.sampled_from([2, 3]))
    def fetch_again(self, broker_id: int) -> None:
        """After the fetch of a member, the high watermark is as far as every replica that may hold it back."""
        leader, world = self.world.leader, self.world
        follower = leader.followers[broker_id]
        if broker_id not in leader.isr.maximal or follower.log_end_offset < 0 or len(leader.isr.committed) < leader.min_isr:
            return
        world.fetch(broker_id, follower.log_end_offset)
        holds = [
            other.log_end_offset
            for other_id, other in leader.followers.items()
            if other_id in leader.isr.maximal
            or (other.log_end_offset >= 0 and other_id not in world.ineligible and world.now_ms - other.last_caught_up_ms <= LAG_MS)
        ]
        assert leader.high_watermark >= min(holds)

    @invariant()
    def high_watermark_never_goes_back_and_is_held_by_every_member(self) -> None:
        leader = self.world.leader
        assert leader.high_watermark >= self.shown
        if leader.high_watermark > self.shown:
            assert len(leader.isr.committed) >= leader.min_isr
            for broker_id in leader.isr.maximal:
                if broker_id != 1:
                    assert leader.followers[broker_id].log_end_offset >= leader.high_watermark
        self.shown = leader.high_watermark
        assert leader.high_watermark <= leader.log_end_offset
        assert 1 in leader.isr.committed
        assert set(leader.isr.committed) <= set(leader.isr.maximal)


TestLeaderAgainstModel = LeaderAgainstModel.TestCase
TestLeaderAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
