"""High watermark, in-sync replicas, elections: H-01 to H-23 of the catalogue in README.md."""

from __future__ import annotations

import pytest
from helpers.replica_world import LAG_MS, World

from minikafka.wire.errors import ApiError, ErrorCode


def test_h01_kafka_7128_joining_needs_the_start_of_the_leaders_epoch() -> None:
    """A leader that was elected again restarts with a low watermark: being at it is not being in sync."""
    world = World(3).play("""
        lead 1 isr 1 2; produce x2; fetch 2
        produce x3; ask 2              # 2 is at 2: two are committed, and 1 has 5
        deaf 2; lead 2 isr 1 2; lead 1 isr 1 2; hear 2
        produce x1 acks=1
        fetch 3
    """)
    leader = world[1].partition.leading()
    assert (leader.epoch_start_offset, leader.high_watermark) == (5, 2)
    world[3].log.truncate_to(2)
    world.play("ask 3")
    assert leader.followers[3].log_end_offset == 2 and world.proposals == []
    world.play("take 3; fetch 3")
    assert [proposal.isr for _, proposal in world.proposals] == [(1, 2, 3)]


def test_h02_kip_497_a_proposed_member_counts_from_the_moment_it_is_proposed() -> None:
    world = World(3).play("""
        lead 1 isr 1 2; produce x5; sync 2
        fetch 3; fetch 3               # in sync: proposed, and the answer takes its time
        produce x5; fetch 2; fetch 2
    """)
    assert world.acked == [f"m{n}" for n in range(5)], "3 has not got the last five"
    world.play("decide; kill 1; lead 3 isr 2 3; sync")
    world.agree(2, 3)


def test_h03_kafka_13091_a_granted_shrink_moves_the_watermark_at_once() -> None:
    world = World(3).play(f"lead 1; produce x1; sync; produce x1; wait {LAG_MS + 1}; fetch 2; fetch 2")
    assert world.acked == ["m0"]
    world.play("shrink; decide")
    assert world.acked == ["m0", "m1"], "nobody has fetched in between"


def test_h04_kafka_14139_the_epoch_of_the_incarnation_that_fetched_is_in_the_proposal() -> None:
    """KIP-903: the proposal was made for the broker's former life; the controller compares."""
    world = World(2).play("lead 1 isr 1; produce x3; sync 2; fetch 2; kill 2; start 2")
    _, proposal = world.proposals[0]
    assert (proposal.isr, proposal.broker_epochs) == ((1, 2), (-1, 1)) and world[2].broker_epoch == 2
    world.play("refuse INELIGIBLE_REPLICA")
    assert world[1].partition.leading().isr.maximal == (1,)
    world.play("fetch 2; fetch 2; decide")
    assert world[1].partition.isr == (1, 2)


def test_h05_kafka_15221_a_rebooted_follower_takes_its_former_lifes_place_at_once() -> None:
    """Its epoch, its offset and its being caught up are of one and the same fetch."""
    world = World(2).play("lead 1 isr 1; produce x3; sync 2; lose; kill 2")
    world[2].disk = type(world[2].disk)()
    world.play("lead 1 isr 1; start 2; ask 2")
    follower = world[1].partition.leading().followers[2]
    assert (follower.broker_epoch, follower.log_end_offset) == (2, 0) and world.proposals == []


def test_h07_kafka_15021_a_replica_that_may_not_join_does_not_hold_the_watermark() -> None:
    world = World(3).play("lead 1 isr 1 2")
    world.fenced.add(3)
    world.play("produce x1; sync; produce x1; fetch 2; fetch 2")
    assert world.acked == ["m0", "m1"] and world.proposals == []


@pytest.mark.parametrize("code", ["UNKNOWN_SERVER_ERROR", "NOT_CONTROLLER", "INELIGIBLE_REPLICA", "OPERATION_NOT_ATTEMPTED"])
def test_h08_kafka_12686_a_refused_change_is_asked_for_again(code: str) -> None:
    """KAFKA-12686, KAFKA-14144, KAFKA-15353: whatever the answer was, the set becomes what it should be."""
    world = World(3).play(f"lead 1 isr 1 2; produce x1; sync; refuse {code}")
    assert len(world.proposals) <= 1
    world.play("produce x1; sync; decide")
    assert world[1].partition.isr == (1, 2, 3)
    assert world[1].partition.leading().isr.pending is None


def test_h08_kafka_14154_a_change_that_the_metadata_overtook() -> None:
    """The answer is lost or says FENCED, and the metadata brings the truth: the proposal is over."""
    world = World(3).play("lead 1 isr 1 2; produce x1; sync")
    replica, proposal = world.proposals[0]
    world.play("decide")
    replica.partition.leading().refused(proposal, ErrorCode.FENCED_LEADER_EPOCH)
    assert world[1].partition.isr == (1, 2, 3) and world[1].partition.leading().isr.pending is None


def test_h10_kafka_9196_nothing_uncommitted_is_read_across_rolls() -> None:
    """The watermark is at a segment's end when the next one begins; KAFKA-3978: it never points outside."""
    world = World(2, log_config={"segment_bytes": 400, "index_interval_bytes": 100}).play("lead 1")
    for _ in range(30):
        world.play("produce x2; fetch 2")
        high = world[1].log.high_watermark
        for offset in range(0, high + 1, 3):
            read = world.consume(1, offset)
            assert read.code is ErrorCode.NONE and read.high_watermark == high
            if read.slice is not None:
                last = int.from_bytes(read.slice.read()[:8], "big")
                assert last < high
        assert world.consume(1, high).size == 0
    assert len(world[1].log.segments) > 5


def test_h13_kip_966_the_last_replica_standing_commits_nothing() -> None:
    """Below min.insync.replicas the watermark stands still: what the last one took alone may be lost with it."""
    world = World(3, min_isr=2).play("lead 1; produce x2; sync; lead 1 isr 1; produce x1 acks=1")
    assert world[1].log.high_watermark == 2
    with pytest.raises(ApiError) as refused:
        world.play("produce x1")
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    world.play("kill 1; lead 2 isr 2 3; start 1; sync")
    world.agree()
    assert "m2" not in world.values(1)


def test_h17_kip_207_a_new_leader_does_not_know_the_end_yet() -> None:
    world = World(3).play("lead 1; produce x5; fetch 2 3; lead 2")
    leader = world[2].partition.leading()
    assert leader.high_watermark == 0 and not leader.is_high_watermark_current
    world.play("fetch 1 3")
    assert leader.high_watermark == 5 and leader.is_high_watermark_current


def test_h18_mixed_acks_show_nothing_that_is_not_replicated() -> None:
    """Redpanda 09917c7102: an acks=1 batch behind a committed acks=all batch."""
    world = World(3).play("lead 1; produce x1; sync; produce x1 acks=1; fetch 2")
    assert world.acked == ["m0"]
    assert world.consume(1, 1).size == 0 and world.consume(1, 0).high_watermark == 1


def test_h19_kafka_1647_a_lost_watermark_checkpoint_truncates_nothing() -> None:
    world = World(2).play("lead 1; produce x5; sync; kill 2; start 2")
    assert world[2].log.high_watermark == 0 and len(world.values(2)) == 5
    world.play("kill 1; lead 2 isr 2; start 1; sync")
    world.agree()


def test_h22_a_write_that_only_its_leader_had_was_never_committed() -> None:
    """The trap: with min.insync.replicas=2 an acks=1 write to the last member may go in an election that is clean."""
    world = World(3, min_isr=2).play("lead 1; produce x1; sync; lead 1 isr 1; produce x1 acks=1; kill 1; lead 3 isr 3; sync 2")
    assert world.acked == ["m0"]
    assert world.values(2) == world.values(3) == ["m0"]
    world.play("start 1; sync")
    world.agree()


def test_a_follower_that_still_has_deleted_records_is_not_in_sync() -> None:
    """It was killed after the deletion and came back with an older log start. Were it elected, the records would be there again."""
    world = World(2).play("lead 1 isr 1; produce x5; fetch 2; fetch 2")
    world.play("decide; fetch 2")
    assert world[1].partition.isr == (1, 2) and world[1].log.high_watermark == 5
    world.play("kill 2; lead 1 isr 1")
    world[1].log.increment_log_start_offset(3)
    world.play("start 2; ask 2")
    assert world[1].partition.leading().followers[2].log_end_offset == 5 and world.proposals == []
    world.play("take 2; fetch 2")
    assert world[2].log.log_start_offset == 3
    assert [proposal.isr for _, proposal in world.proposals] == [(1, 2)]
