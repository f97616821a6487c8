"""Truncation, leader epochs, divergence: T-01 to T-31 of the catalogue in README.md, each as a story of a few lines."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import Any

import pytest
from helpers.replica_world import TOPIC_ID, World

from minikafka.broker.partitions.fetcher import Fetcher
from minikafka.wire.batch import iterate_batches
from minikafka.wire.errors import ErrorCode


def test_t01_kip_101_a_follower_does_not_truncate_to_its_own_high_watermark() -> None:
    """KAFKA-1211: a replica that restarts before it hears of the last high watermark, and is then elected, keeps what was acknowledged."""
    world = World(2).play("""
        lead 2; produce x1; fetch 1; fetch 1
        produce x1; fetch 1
        ask 1                    # 2 learns that 1 has it all: both records are acknowledged; the answer with the new watermark is lost
        kill 1; start 1          # its checkpoint of the watermark is gone as well (KAFKA-1647)
        kill 2; lead 1 isr 1
        start 2; sync
    """)
    assert world.acked == ["m0", "m1"]
    assert world[1].log.high_watermark == 2
    world.agree()


def test_t02_kip_101_replicas_that_both_lost_their_memory_agree_again() -> None:
    """What both replicas had and one lost with its power, the other must give up, however high its watermark was."""
    world = World(2).play("""
        lead 1; produce x1; sync; flush 1; flush 2
        produce x1; sync; flush 1
        kill 1; crash 2          # 2 loses m1
        start 2; lead 2 isr 2; produce x1
        start 1; sync
    """)
    assert world.values(1) == world.values(2) == ["m0", "m2"]
    assert world.epochs(1) == world.epochs(2) == [(0, 0), (1, 1)]


def test_t03_a_leader_that_comes_back_shorter_than_its_follower() -> None:
    """KAFKA-3919, EpochDrivenReplicationProtocolAcceptanceTest.shouldNotAllowDivergentLogs."""
    world = World(2).play("""
        lead 1; produce x5; sync; flush 1
        produce x5; sync
        kill 2; crash 1
        start 1; lead 1 isr 1; produce x10
        start 2; sync
    """)
    assert world.logs(1) == world.logs(2)
    assert world.values(1) == [f"m{n}" for n in (*range(5), *range(10, 20))]


def test_t04_offsets_do_not_go_backwards_in_a_follower_that_a_batch_straddles() -> None:
    """KAFKA-3919: the leader restarts behind its follower and writes batches across the follower's end."""
    world = World(2).play("""
        lead 1; produce x50; sync; flush 1
        produce x50 acks=1; sync
        kill 2; crash 1
        start 1; lead 1 isr 1; produce x77 acks=1; produce x77 acks=1
        start 2; sync
    """)
    offsets = [offset for offset, _, _ in world[2].content()]
    assert offsets == list(range(50 + 77 + 77))
    assert world.logs(1) == world.logs(2)


def test_t05_logs_do_not_diverge_on_unclean_elections() -> None:
    """Now one is alone, now the other; at the end both are up."""
    world = World(2).play("lead 1; produce x1; sync; kill 2; lead 1 isr 1; produce x1 acks=1; kill 1")
    for leader, count in ((2, 1), (1, 3), (2, 1), (1, 2)):
        world.play(f"start {leader}; lead {leader} isr {leader}; produce x{count} acks=1; kill {leader}")
    world.play("start 1; lead 1 isr 1; produce x1 acks=1; start 2; sync")
    assert world.logs(1) == world.logs(2) and world.epochs(1) == world.epochs(2)


@pytest.mark.parametrize("seed", range(40))
def test_t06_t30_whatever_happened_the_logs_become_equal(seed: int) -> None:
    """KAFKA-1211: elections faster than followers can follow, of anybody, with lost notices, kills and power cuts. When it is over, the
    replicas agree after as many rounds as there are epochs, with equal epoch caches."""
    draw = random.Random(seed)
    world = World(3).play("lead 1; produce x3; sync")
    for _ in range(40):
        up = world.running
        pick = str(draw.choice(up))
        step = draw.choice(["lead", "produce", "fetch", "ask", "take", "deaf", "hear", "kill", "crash", "flush", "start"])
        if step == "lead":
            world.play(f"lead {pick} isr {pick}")
        elif step == "produce" and world.leader.is_running and world.leader.partition.leader is not None:
            world.play(f"produce x{draw.randint(1, 4)} acks=1")
        elif step == "start":
            world.play("; ".join(f"start {number}" for number in set(world.replicas) - set(up)))
        else:
            possible = {"kill": len(up) > 1, "crash": len(up) > 1, "produce": False}
            possible |= dict.fromkeys(("fetch", "ask", "take"), world[int(pick)].fetcher is not None)
            world.play(f"{step} {pick}" if possible.get(step, True) else "")
    world.play("; ".join(f"start {number}" for number in set(world.replicas) - set(world.running)))
    world.play("hear 1 2 3; lead 2 isr 2; produce x1 acks=1; sync")
    first, *others = world.logs()
    assert all(other == first for other in others)
    assert world.epochs(1) == world.epochs(2) == world.epochs(3)
    assert [offset for offset, _, _ in first] == list(range(first[0][0], first[0][0] + len(first)))


@pytest.mark.parametrize("written", [5, 10, 15])
def test_t07_kip_279_fast_failover(written: int) -> None:
    """KAFKA-6361: the deposed leader comes back as leader without having seen the epoch between; shorter, equal or longer, its follower
    finds the true end of what they share."""
    world = World(2).play(f"""
        lead 1; produce x10; sync
        produce x10 acks=1       # 1 has 20, 2 has 10
        deaf 1; lead 2 isr 2; produce x{written} acks=1
        lead 1 isr 1; hear 1     # 1 never knew of epoch 1
        sync
    """)
    assert world.logs(1) == world.logs(2)
    assert world.values(2) == [f"m{n}" for n in range(20)]


def test_t08_kafka_7164_a_missed_epoch_of_the_same_leader() -> None:
    """A follower that missed an epoch hears of the leader it knew: it has to look for divergence all the same."""
    world = World(3).play("""
        lead 1; produce x1 acks=1; fetch 3
        deaf 3; lead 2 isr 2; sync 1      # 1 cuts m0 off
        lead 1 isr 1; produce x1 acks=1
        hear 3; sync
    """)
    assert world.values(1) == world.values(2) == world.values(3) == ["m1"]


def test_t09_kafka_6880_a_zombie_does_not_fetch_in_an_old_epoch() -> None:
    """KIP-320: a replica that slept through two elections still takes the leader for its leader, at an offset that fits by chance."""
    world = World(3).play("""
        lead 1; produce x40; sync
        produce x10 acks=1; fetch 2       # 1 and 2 have 50, 3 has 40
        deaf 2; lead 3 isr 3; produce x20 acks=1; sync 1
        lead 1 isr 1 3
    """)
    world.proposals.clear()
    world.play("ask 2")
    answer = world[2].answer
    assert answer is not None and answer.data.error_code == ErrorCode.FENCED_LEADER_EPOCH
    leader = world[1].partition.leading()
    assert leader.followers[2].log_end_offset == -1 and world.proposals == []
    world.play("take 2; hear 2; sync")
    world.agree()


def test_t10_kafka_7415_an_epoch_is_known_as_soon_as_it_begins() -> None:
    """Leaders that write nothing: their epochs are in the checkpoint at once, and a new one takes the place of those at its offset."""
    world = World(3).play("lead 1; produce x3; sync; lead 2; lead 3; lead 1")
    assert world.epochs(1) == [(0, 0), (3, 3)]
    assert world.epochs(2) == [(0, 0), (1, 3)]
    world.play("kill 1; start 1")
    assert world.epochs(1) == [(0, 0), (3, 3)], "and on the disk"


def test_t11_kafka_10706_conflicting_epochs_at_the_end_of_the_log() -> None:
    """A follower whose last epoch has no records: truncating to its own end has to clear the epoch, or it truncates for ever."""
    world = World(3).play("lead 1; produce x3; sync; lead 2; lead 3; lead 1; sync")
    assert world.epochs(2) == world.epochs(3) == [(0, 0)]
    world.play("produce x1; sync")
    assert world.epochs(1) == world.epochs(2) == world.epochs(3) == [(0, 0), (3, 3)]
    world.agree()


def test_t12_kafka_10432_epoch_zero_is_restored() -> None:
    world = World(1).play("lead 1; produce x3; kill 1")
    world[1].disk.unlink("/data/p-0/leader-epoch-checkpoint")
    world.play("deaf 1; start 1")
    assert world.epochs(1) == [(0, 0)]


def test_t13_kafka_12996_below_the_log_start_is_out_of_range_not_divergence() -> None:
    world = World(1).play("lead 1; produce x5; lead 1; produce x5; retain 1 7")
    assert world.consume(1, 3, last_epoch=0).code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.consume(1, 3, last_epoch=1).code is ErrorCode.OFFSET_OUT_OF_RANGE


DIVERGED = """
    lead 2; produce x10; sync
    produce x10 acks=1              # only 2 has 20
    deaf 2; lead 1; produce x5      # 1 goes on from 10 to 15
    hear 2; ask 2
"""


def test_t14_kafka_13141_a_diverging_follower_counts_for_nothing() -> None:
    """KAFKA-13141, and Redpanda's d0e45c0baf (T-28): a fetch that is answered with a diverging epoch proves nothing."""
    world = World(2).play(DIVERGED)
    answer = world[2].answer
    assert answer is not None and (answer.data.diverging_epoch.epoch, answer.data.diverging_epoch.end_offset) == (0, 10)
    leader = world[1].partition.leading()
    assert leader.followers[2].log_end_offset == -1
    assert (leader.high_watermark, world.acked) == (10, [f"m{n}" for n in range(10)])
    world.play("take 2; sync")
    assert world.values(2) == [f"m{n}" for n in (*range(10), *range(20, 25))]
    world.agree()


def test_t15_kafka_13207_a_diverging_answer_that_comes_too_late_is_ignored() -> None:
    world = World(2).play(DIVERGED).play("lead 2 isr 2; take 2")
    assert len(world.values(2)) == 20 and world[2].partition.is_leader


def test_t15_an_answer_of_an_older_epoch_is_ignored() -> None:
    world = World(3).play("lead 1; produce x3; ask 2; lead 3 isr 3; take 2")
    assert world.values(2) == []


def test_t16_kafka_14704_nothing_else_of_a_diverging_answer_is_used() -> None:
    """The leader's watermark beside a diverging epoch is not the follower's: it would show what is about to be cut."""
    world = World(3).play("""
        lead 2; produce x10; sync; produce x10 acks=1
        deaf 2; lead 1 isr 1 3; produce x8; sync 3
        hear 2; ask 2
    """)
    answer = world[2].answer
    assert answer is not None and answer.data.high_watermark == 18
    world.play("take 2")
    assert (world[2].log.high_watermark, world[2].log.log_end_offset) == (10, 10)


def test_t17_kafka_15510_an_empty_answer_leaves_the_last_epoch_alone() -> None:
    world = World(2).play("lead 1; produce x3; sync; fetch 2; fetch 2")
    fetcher = world[2].fetcher
    assert fetcher is not None
    fetcher.follower.disconnected()
    plan = fetcher.follower.next_fetch(world.now_ms)
    assert plan is not None
    [(_, (fetch_offset, _, last_fetched_epoch, _))] = plan.positions
    assert (fetch_offset, last_fetched_epoch) == (3, 0)


def test_t18_kafka_6857_an_epoch_that_the_leader_never_knew_is_undefined() -> None:
    world = World(1).play("lead 1; produce x3")
    assert tuple(world[1].log.end_offset_for_epoch(7)) == (-1, -1)
    assert tuple(world[1].log.end_offset_for_epoch(-1)) == (-1, -1)


def test_t19_kafka_7414_a_longer_follower_truncates_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """KAFKA-3410, KAFKA-3924, KAFKA-2143: early Kafka halted. And T-23, KAFKA-19474: going below one's watermark is said loudly."""
    world = World(3).play("""
        lead 1; produce x10; sync
        deaf 3; produce x10; fetch 2 3; fetch 2 3; fetch 2
        kill 3; lead 1 isr 1 2; produce x5; sync 2
        start 3; hear 3; lead 3 isr 3       # unclean: 3 was out of the set
    """)
    assert world[1].log.high_watermark == 25 > world[3].log.log_end_offset
    world.play("produce x1 acks=1; sync")
    assert world.logs(1) == world.logs(2) == world.logs(3)
    assert "truncating below the high watermark" in caplog.text


def test_t19_kafka_2143_out_of_range_from_a_deposed_leader_is_no_reason_to_truncate() -> None:
    world = World(3).play("""
        lead 1; produce x10; sync
        deaf 2; lead 3 isr 2 3; fetch 1
        retain 1 10; ask 2; take 2; fetch 2
    """)
    assert len(world.values(2)) == 10


def test_t20_kafka_6975_a_follower_may_begin_in_the_middle_of_a_batch() -> None:
    """DeleteRecords moved the log start into a batch; an empty follower gets that batch whole. T-21, KAFKA-9491: so does its watermark."""
    world = World(2).play("lead 1; kill 2; lead 1 isr 1; produce x10; retain 1 5; start 2; fetch 2")
    log = world[2].log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (5, 5, 5)
    world.play("sync")
    assert world.logs(1) == world.logs(2) and log.log_start_offset == 5


def test_t21_kafka_9491_a_follower_that_was_started_anew_can_lead_at_once() -> None:
    world = World(2).play("lead 1; kill 2; lead 1 isr 1; produce x10; retain 1 5; start 2; fetch 2; lead 2 isr 2")
    read = world.consume(2, 5)
    assert (read.code, read.size, read.high_watermark) == (ErrorCode.NONE, 0, 5)


def test_t24_kafka_16541_a_power_cut_leaves_the_epochs_readable() -> None:
    """And whatever is left of the checkpoint, the log is the authority."""
    world = World(1).play("lead 1; produce x3; flush 1; lead 1; produce x2; flush 1; crash 1; deaf 1; start 1")
    assert world.epochs(1) == [(0, 0), (1, 3)]
    world.play("kill 1")
    world[1].disk.write("/data/p-0/leader-epoch-checkpoint", b"\0" * 40)
    world.play("start 1")
    assert world.epochs(1) == [(0, 0), (1, 3)]


def test_t25_kafka_8012_a_partition_that_cannot_go_on_does_not_stop_its_fetcher() -> None:
    """KAFKA-10371: garbage for one partition makes that partition wait, and nothing else."""
    world = World(2).play("lead 1; produce x3; ask 2")
    answer = world[2].answer
    assert answer is not None
    broken = bytearray(answer.data.records or b"")
    broken[-1] ^= 1
    answer.data.records = memoryview(broken)
    world.play("take 2")
    assert world.values(2) == []
    fetcher = world[2].fetcher
    assert fetcher is not None and fetcher.follower.partitions[TOPIC_ID, 0].resume_ms > world.now_ms, "it waits a little"
    world.play("wait 5000; sync")
    world.agree()


@pytest.mark.parametrize("written", [0, 15])
def test_t26_kip_320_consumers_hear_of_divergence_too(written: int) -> None:
    """A consumer at 20, and an unclean leader that ends at 15, or has already passed 20: it must not skip in silence."""
    world = World(2).play("lead 1; produce x15; sync; produce x5 acks=1; lead 2 isr 2")
    if written:
        world.play(f"produce x{written} acks=1")
    read = world.consume(2, 20, last_epoch=0)
    assert read.diverging == (0, 15) and read.size == 0


def test_t29_an_append_of_a_lost_leadership_is_not_acknowledged() -> None:
    """Redpanda c230235cfa: the entry is still in the local log when its leadership ends, and even when it is leader once more."""
    world = World(3).play("lead 1; produce x1; lead 2 isr 1 2 3; lead 1 isr 1 2 3; sync")
    assert world.acked == [] and world.values(1) == ["m0"]


def test_t31_records_that_were_never_committed_do_not_stay_where_the_cleaner_made_a_gap() -> None:
    """Broker 1 becomes the leader and has, of epoch 2, nothing that lies beside what broker 2 wrote alone in epoch 1: it was compacted away
    before broker 1 fetched. Seed 7031018; Apache Kafka lets broker 2 keep those records."""
    world = World(3).play("""
        lead 1; produce x3; sync
        lead 2; produce x1; sync; kill 1; produce x5 acks=1; kill 2
        lead 3 isr 3; produce x5; produce x1
        start 1; ask 1
    """)
    answer = world[1].answer
    assert answer is not None
    first, second = iterate_batches(answer.data.records)
    assert (first.base_offset, second.base_offset) == (4, 9)
    answer.data.records = memoryview(bytearray(answer.data.records[second.position :]))
    world.play("take 1; sync; lead 1 isr 1 3; start 2; sync")
    assert world.values(1) == world.values(2) == ["m0", "m1", "m2", "m3", "m14"]


def test_a_truncation_that_has_not_begun_ends_with_the_epoch_that_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of a leader decides nothing in a later epoch, even if that has the same leader: it fetches anew and is told again."""
    world = World(2).play("lead 1; produce x2; sync; produce x2 acks=1; kill 1; start 1; lead 2 isr 2; produce x1")
    waiting: list[Coroutine[Any, Any, None]] = []
    with monkeypatch.context() as patched:
        patched.setattr(Fetcher, "_start", lambda self, work, name: waiting.append(work))
        world.play("fetch 1")
    (truncation,) = waiting
    end = world[1].log.log_end_offset
    world.play("lead 2 isr 2")
    with pytest.raises(StopIteration):
        truncation.send(None)
    assert world[1].log.log_end_offset == end
    world.play("sync")
    world.agree()
