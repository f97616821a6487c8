"""Single rules of the quorum, by hand."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from minikafka.core.raft import events as ev
from minikafka.core.raft import messages as m
from minikafka.core.raft.leading import OBSERVERS_MAX
from minikafka.core.raft.log_state import LogState, Validity
from minikafka.core.raft.quorum import Quorum
from minikafka.core.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from minikafka.core.raft.types import ElectionState, Endpoint, InvariantViolated, OffsetAndEpoch, QuorumConfig, ReplicaKey
from minikafka.core.raft.voters import Voter, VoterHistory, VoterSet
from minikafka.wire.errors import ErrorCode


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id % 256] * 16))


def voters(*node_ids: int) -> VoterSet:
    return VoterSet(Voter(key(node_id), (Endpoint("C", "h", node_id),)) for node_id in node_ids)


class Replica:
    """A quorum and the effects that it asked for; the disk is instantaneous unless `slow`."""

    def __init__(
        self,
        node_id: int,
        members: VoterSet,
        *,
        log: LogState | None = None,
        state: ElectionState | None = None,
        version: int = 1,
        **options: Any,
    ) -> None:
        self.quorum = Quorum(
            key(node_id), QuorumConfig(), random.Random(1), log or LogState(), VoterHistory(members, version), state or ElectionState(),
            endpoints=[Endpoint("C", "h", node_id)], **options,
        )  # fmt: skip
        self.now = 0
        self.slow = False
        self.effects: list = []

    def run(self, effects: list) -> list:
        done = []
        queue: list = []
        while True:
            for effect in effects:
                done.append(effect)
                end = self.quorum.log.end_offset
                if isinstance(effect, ev.AppendLeaderChange):
                    count = 1 + (effect.kraft_version is not None) + (effect.voter_set is not None)
                    found = [(end + count - 1, effect.voter_set)] if effect.voter_set else []
                    queue.append(ev.BatchAppended(effect.epoch, end, end + count, found, []))
                    if not self.slow:
                        queue.append(ev.Flushed(end + count))
            if not queue:
                self.effects += done
                return done
            effects = self.quorum.step(queue.pop(0), self.now)

    def start(self) -> list:
        return self.run(self.quorum.start(self.now))

    def feed(self, event) -> list:
        return self.run(self.quorum.step(event, self.now))

    def ask(self, request) -> m.Reply | None:
        replies = [e.reply for e in self.feed(ev.Received("t", request)) if isinstance(e, ev.Respond)]
        return replies[0] if replies else None

    def until_deadline(self) -> list:
        self.now = max(self.quorum.next_deadline(), self.now)
        return self.run(self.quorum.on_deadline(self.now))

    def sent(self, kind) -> list:
        return [effect for effect in self.effects if isinstance(effect, ev.Send) and isinstance(effect.request, kind)]


def elected(node_id: int = 1, members: VoterSet | None = None, version: int = 1) -> Replica:
    """The leader of epoch 1 of three."""
    replica = Replica(node_id, members or voters(1, 2, 3), version=version)
    win(replica)
    return replica


def win(replica: Replica) -> None:
    """Elect the replica, with the votes of all."""
    replica.start()
    while not replica.sent(m.VoteRequest):
        replica.until_deadline()
    for is_pre_vote in (True, False):
        for effect in [entry for entry in replica.sent(m.VoteRequest) if entry.request.pre_vote is is_pre_vote]:
            reply = m.VoteReply(ErrorCode.NONE, -1, effect.request.epoch, None, None, True)
            replica.feed(ev.Answered(effect.request_id, reply))


def fetch(node_id: int, epoch: int, offset: int, last_epoch: int, high_watermark: int | None = -1, wait: int = 500) -> m.FetchRequest:
    return m.FetchRequest(epoch, key(node_id), offset, last_epoch, high_watermark, wait, 1000)


def test_a_lone_voter_leads_at_once_with_one_write() -> None:
    replica = Replica(1, voters(1))
    done = replica.start()
    assert [type(effect) for effect in done[:2]] == [ev.Persist, ev.AppendLeaderChange]
    assert done[0].state == ElectionState(1, 1, None)
    assert replica.quorum.high_watermark == 3


def test_pre_vote_then_vote_then_leader() -> None:
    replica = Replica(1, voters(1, 2, 3))
    replica.start()
    while not isinstance(replica.quorum.role, Prospective):
        replica.until_deadline()
    pre = [effect for effect in replica.sent(m.VoteRequest) if effect.request.pre_vote]
    assert {effect.node_id for effect in pre} == {2, 3} and replica.quorum.epoch == 0
    replica.feed(ev.Answered(pre[0].request_id, m.VoteReply(ErrorCode.NONE, -1, 0, None, None, True)))
    assert isinstance(replica.quorum.role, Candidate) and replica.quorum.election == ElectionState(1, -1, key(1))
    real = [effect for effect in replica.sent(m.VoteRequest) if not effect.request.pre_vote]
    # The late answer to the pre-vote is none to the vote.
    replica.feed(ev.Answered(pre[1].request_id, m.VoteReply(ErrorCode.NONE, -1, 0, None, None, True)))
    assert isinstance(replica.quorum.role, Candidate)
    replica.feed(ev.Answered(real[0].request_id, m.VoteReply(ErrorCode.NONE, -1, 1, None, None, True)))
    assert isinstance(replica.quorum.role, Leader)
    # Committed only when a majority has it.
    assert replica.quorum.high_watermark == -1
    replica.ask(fetch(2, 1, 3, 1))
    assert replica.quorum.high_watermark == 3


def test_a_granted_vote_of_a_later_epoch_counts_as_refused() -> None:
    replica = Replica(1, voters(1, 2, 3))
    replica.start()
    while not replica.sent(m.VoteRequest):
        replica.until_deadline()
    first = replica.sent(m.VoteRequest)[0]
    replica.feed(ev.Answered(first.request_id, m.VoteReply(ErrorCode.NONE, -1, 9, None, None, True)))
    assert isinstance(replica.quorum.role, Unattached) and replica.quorum.epoch == 9


def test_one_vote_an_epoch_and_it_is_persisted_before_the_answer() -> None:
    replica = Replica(1, voters(1, 2, 3))
    replica.start()
    request = m.VoteRequest(5, key(2), key(1), OffsetAndEpoch(0, 0))
    done = replica.feed(ev.Received("t", request))
    kinds = [type(effect) for effect in done]
    assert kinds.index(ev.Respond) > max(index for index, kind in enumerate(kinds) if kind is ev.Persist)
    assert replica.quorum.election == ElectionState(5, -1, key(2))
    assert replica.ask(request).granted
    assert not replica.ask(m.VoteRequest(5, key(3), key(1), OffsetAndEpoch(99, 4))).granted
    assert replica.ask(m.VoteRequest(4, key(3), key(1), OffsetAndEpoch(99, 3))).error is ErrorCode.FENCED_LEADER_EPOCH
    wiped = ReplicaKey(1, key(8).directory_id)
    assert replica.ask(m.VoteRequest(6, key(3), wiped, OffsetAndEpoch(0, 0))).error is ErrorCode.INVALID_VOTER_KEY
    again = Replica(1, voters(1, 2, 3), state=ElectionState(5, -1, key(2)))
    again.start()
    assert not again.ask(m.VoteRequest(5, key(3), key(1), OffsetAndEpoch(99, 4))).granted


def test_a_log_that_ends_earlier_gets_no_vote() -> None:
    replica = Replica(1, voters(1, 2, 3), log=LogState(0, 10, [(1, 0), (3, 5)]))
    replica.start()
    assert not replica.ask(m.VoteRequest(7, key(2), key(1), OffsetAndEpoch(50, 2))).granted
    assert not replica.ask(m.VoteRequest(8, key(2), key(1), OffsetAndEpoch(9, 3))).granted
    assert replica.ask(m.VoteRequest(9, key(2), key(1), OffsetAndEpoch(10, 3))).granted


def test_a_follower_that_hears_its_leader_refuses_pre_votes() -> None:
    replica = Replica(1, voters(1, 2, 3))
    replica.start()
    replica.ask(m.BeginQuorumEpochRequest(1, 2, key(1), (Endpoint("C", "h", 2),)))
    pre = m.VoteRequest(1, key(3), key(1), OffsetAndEpoch(0, 0), True)
    assert replica.ask(pre).granted
    sent = replica.sent(m.FetchRequest)[-1]
    replica.feed(ev.Answered(sent.request_id, m.FetchReply(ErrorCode.NONE, 2, 1, high_watermark=-1)))
    assert not replica.ask(pre).granted
    # Its process is gone: the pre-vote is granted and the own timeout is short.
    sent = replica.sent(m.FetchRequest)[-1]
    replica.feed(ev.Failed(sent.request_id, is_refused=True))
    assert replica.ask(pre).granted
    assert replica.quorum.role.fetch_deadline_ms - replica.now <= QuorumConfig().unreachable_jitter_ms


def test_the_high_watermark_needs_the_leaders_own_disk_and_its_own_epoch() -> None:
    leader = elected()
    quorum = leader.quorum
    leader.ask(fetch(2, 1, 3, 1))
    assert quorum.high_watermark == 3
    leader.slow = True
    leader.feed(ev.BatchAppended(1, 3, 5, [], []))
    leader.ask(fetch(2, 1, 5, 1))
    assert quorum.high_watermark == 3
    leader.feed(ev.Flushed(5))
    assert quorum.high_watermark == 5


def test_records_of_an_earlier_epoch_are_not_committed_by_counting() -> None:
    leader = elected()
    quorum = leader.quorum
    assert quorum.role.epoch_start == 0
    late = Replica(1, voters(1, 2, 3), log=LogState(0, 10, [(1, 0)]))
    late.quorum.role = Leader(2, 1, None, None, 10)
    late.quorum.log.appended(2, 10, 11)
    late.quorum.log.flushed_offset = 11
    late.quorum._is_started = True
    late.feed(ev.Received("t", fetch(2, 2, 10, 1)))
    assert late.quorum.high_watermark == -1
    late.feed(ev.Received("t", fetch(2, 2, 11, 2)))
    assert late.quorum.high_watermark == 11


def test_a_new_leader_names_no_high_watermark_before_it_has_committed_a_record_of_its_own() -> None:
    late = Replica(1, voters(1, 2, 3), version=0, log=LogState(0, 10, [(1, 0)]), state=ElectionState(1, 3), high_watermark=8)
    win(late)
    quorum = late.quorum
    assert (quorum.epoch, quorum.role.epoch_start, quorum.log.end_offset) == (2, 10, 11)
    # It knows from the leader before it that 8 are committed, and hands no more on; a voter may know that all 10 are.
    assert late.ask(fetch(2, 2, 10, 1)).high_watermark == -1 and quorum.high_watermark == 8
    assert late.ask(fetch(3, 2, 11, 2, high_watermark=5)).high_watermark == 11


def test_a_new_leader_that_has_committed_nothing_keeps_fetches_waiting() -> None:
    late = Replica(1, voters(1, 2, 3, 4, 5), version=0, log=LogState(0, 10, [(1, 0)]), state=ElectionState(1, 3), high_watermark=8)
    win(late)
    assert late.ask(fetch(2, 2, 11, 2, high_watermark=5)) is None
    done = late.feed(ev.Received("t", fetch(3, 2, 11, 2, high_watermark=-1)))
    assert [effect.reply.high_watermark for effect in done if isinstance(effect, ev.Respond)] == [11, 11]


def test_parked_fetches_wake_for_records_high_watermark_time_and_resignation() -> None:
    leader = elected()
    leader.ask(fetch(2, 1, 3, 1, high_watermark=3))
    assert leader.ask(fetch(3, 1, 3, 1, high_watermark=3)) is None
    done = leader.feed(ev.BatchAppended(1, 3, 4, [], []))
    assert [(e.reply.read_from, e.reply.read_to) for e in done if isinstance(e, ev.Respond)] == [(3, 4), (3, 4)]
    assert leader.ask(fetch(9, 1, 4, 1, high_watermark=3)) is None
    leader.feed(ev.Flushed(4))
    done = leader.feed(ev.Received("t", fetch(2, 1, 4, 1, high_watermark=4)))
    assert [e.reply.high_watermark for e in done if isinstance(e, ev.Respond)] == [4]
    assert leader.ask(fetch(3, 1, 4, 1, high_watermark=None)) is None
    done = leader.run(leader.quorum.resign(1, leader.now))
    errors = [e.reply.error for e in done if isinstance(e, ev.Respond)]
    assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert isinstance(leader.quorum.role, Resigned)


def test_a_leader_that_a_majority_does_not_hear_resigns() -> None:
    leader = elected()
    leader.ask(fetch(2, 1, 3, 1, wait=0))
    while isinstance(leader.quorum.role, Leader):
        leader.until_deadline()
    assert leader.now <= 3 * QuorumConfig().fetch_timeout_ms
    ends = leader.sent(m.EndQuorumEpochRequest)
    assert ends[0].request.candidates == (key(2), key(3))


def sure(members: VoterSet | None = None) -> Replica:
    """A leader that voter 2 has just followed; its fetch waits for news."""
    leader = elected(members=members)
    for _ in range(2):
        leader.ask(fetch(2, 1, 3, 1, high_watermark=3))
    return leader


def doubts(effects: list) -> list[bool]:
    return [effect.is_in_doubt for effect in effects if isinstance(effect, ev.DoubtChanged)]


def test_a_new_leader_is_in_doubt_until_a_majority_has_followed_it() -> None:
    leader = elected()
    assert leader.quorum.is_in_doubt(leader.now)
    leader.ask(fetch(2, 1, 3, 1))
    assert leader.quorum.is_in_doubt(leader.now), "that fetch may have been sent before another leader was elected"
    leader.ask(fetch(2, 1, 3, 1))
    assert not leader.quorum.is_in_doubt(leader.now)
    assert doubts(leader.effects) == [False]
    alone = Replica(1, voters(1))
    alone.start()
    assert alone.quorum.is_leader and not alone.quorum.is_in_doubt(10_000)


def test_two_of_five_are_no_majority() -> None:
    leader = sure(voters(1, 2, 3, 4, 5))
    assert leader.quorum.is_leader and leader.quorum.is_in_doubt(leader.now)


def test_a_leader_is_in_doubt_before_followers_may_elect_another() -> None:
    leader = sure()
    followed_ms = leader.now
    while not doubts(done := leader.until_deadline()):
        assert isinstance(leader.quorum.role, Leader)
    assert doubts(done) == [True]
    assert leader.now == followed_ms + QuorumConfig().fetch_timeout_ms * 3 // 4
    assert [effect.token for effect in leader.effects if isinstance(effect, ev.Respond)][-1] == "t", "whoever waits is asked"
    assert leader.ask(fetch(2, 1, 3, 1, high_watermark=3)) is None
    assert leader.quorum.is_in_doubt(leader.now), "it waited for longer than it takes to elect another leader"
    assert leader.quorum.next_deadline() == leader.now + 20, "it is asked again soon"
    assert doubts(leader.feed(ev.Received("t", fetch(2, 1, 3, 1, high_watermark=3)))) == [False]


def test_a_node_that_wakes_up_is_in_doubt_before_any_timer() -> None:
    leader = sure()
    leader.now += 5000
    assert leader.quorum.is_in_doubt(leader.now)
    leader.feed(ev.Received("t", fetch(2, 1, 3, 1, high_watermark=3)))
    assert leader.quorum.is_in_doubt(leader.now) or not isinstance(leader.quorum.role, Leader)


def test_the_end_of_a_connection_leaves_a_leader_in_doubt_where_no_majority_remains() -> None:
    leader = sure()
    assert doubts(leader.feed(ev.Disconnected("t"))) == [True]
    other = sure()
    for _ in range(2):
        other.feed(ev.Received("u", fetch(3, 1, 3, 1, high_watermark=3)))
    assert doubts(other.feed(ev.Disconnected("t"))) == []
    assert not other.quorum.is_in_doubt(other.now)


def test_two_fetches_fit_into_the_time_that_a_leader_is_sure() -> None:
    leader = sure()
    assert leader.ask(fetch(3, 1, 3, 1, high_watermark=3, wait=30_000)) is None
    parked = leader.quorum.role.progress.parked
    assert [entry.deadline_ms - leader.now for entry in parked][-1] <= QuorumConfig().fetch_timeout_ms // 4
    assert leader.ask(fetch(9, 1, 3, 1, high_watermark=3, wait=30_000)) is None
    assert parked[-1].deadline_ms - leader.now == 30_000, "an observer decides nothing"


def test_made_up_observers_have_a_bound_however_often_they_fetch() -> None:
    leader = elected()
    leader.ask(fetch(9, 1, 3, 1))
    progress = leader.quorum.role.progress
    for number in range(OBSERVERS_MAX + 50):
        leader.now += number % 2
        leader.ask(m.FetchRequest(1, ReplicaKey(1000, number.to_bytes(16)), 3, 1, -1, 0, 1000))
        assert len(progress.replicas) <= OBSERVERS_MAX
        if number % 100 == 0:
            leader.ask(fetch(2, 1, 3, 1))
            leader.ask(fetch(9, 1, 3, 1))
    assert {key(2), key(9)} <= progress.replicas.keys(), "voters and who goes on fetching are known"


def test_errors_of_a_fetch() -> None:
    leader = elected()
    assert leader.ask(fetch(2, 0, 0, 0)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert leader.ask(fetch(2, 7, 0, 0)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert leader.ask(fetch(2, 1, -1, 0)).error is ErrorCode.INVALID_REQUEST
    assert leader.ask(fetch(2, 1, 8, 1)).diverging == OffsetAndEpoch(3, 1)
    follower = Replica(2, voters(1, 2, 3))
    follower.start()
    reply = follower.ask(fetch(3, 0, 0, 0))
    assert reply.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and reply.leader_id == -1


def test_a_follower_cuts_what_diverges_but_never_what_is_committed() -> None:
    replica = Replica(1, voters(1, 2, 3), log=LogState(0, 10, [(1, 0), (2, 6)]))
    replica.start()
    replica.ask(m.BeginQuorumEpochRequest(3, 2, key(1), (Endpoint("C", "h", 2),)))
    sent = replica.sent(m.FetchRequest)[-1]
    assert (sent.request.offset, sent.request.last_epoch) == (10, 2)
    reply = m.FetchReply(ErrorCode.NONE, 2, 3, high_watermark=-1, diverging=OffsetAndEpoch(8, 1))
    done = replica.feed(ev.Answered(sent.request_id, reply))
    assert [effect.offset for effect in done if isinstance(effect, ev.Truncate)] == [6]
    sent = replica.sent(m.FetchRequest)[-1]
    assert (sent.request.offset, sent.request.last_epoch) == (6, 1)
    replica.quorum.high_watermark = 5
    with pytest.raises(InvariantViolated):
        replica.quorum.truncate_to(4)


def test_a_voter_does_not_fetch_on_before_its_disk_is_done() -> None:
    replica = Replica(1, voters(1, 2, 3))
    replica.start()
    replica.ask(m.BeginQuorumEpochRequest(1, 2, key(1), (Endpoint("C", "h", 2),)))
    sent = replica.sent(m.FetchRequest)[-1]
    replica.feed(ev.Answered(sent.request_id, m.FetchReply(ErrorCode.NONE, 2, 1, high_watermark=4, records=b"x")))
    replica.feed(ev.BatchAppended(1, 0, 4, [], []))
    replica.feed(ev.FetchedAppended())
    assert replica.quorum.high_watermark == 4
    assert replica.sent(m.FetchRequest)[-1] is sent
    replica.feed(ev.Flushed(4))
    assert replica.sent(m.FetchRequest)[-1].request.offset == 4


@pytest.mark.parametrize(("promised_before", "regained_at"), [(5, 6), (6, 6), (7, 8), (8, 8), (None, 10)])
def test_a_voter_that_lost_promises_votes_once_it_has_as_much_again(promised_before: int | None, regained_at: int) -> None:
    """Though records keep coming, so that none of its fetches finds nothing more. The leader has to have taken the fetch that says so."""
    replica = Replica(1, voters(1, 2, 3), has_lost_promises=True, promised_before=promised_before)
    replica.start()
    replica.ask(m.BeginQuorumEpochRequest(1, 2, key(1), (Endpoint("C", "h", 2),)))
    assert replica.quorum.has_lost_promises
    for offset in range(0, 12, 2):
        sent = replica.sent(m.FetchRequest)[-1]
        assert sent.request.offset == offset
        is_missing = replica.quorum.has_lost_promises
        assert is_missing == (offset <= regained_at)
        done = replica.feed(
            ev.Answered(sent.request_id, m.FetchReply(ErrorCode.NONE, 2, 1, high_watermark=0, records=b"xx" if offset < 10 else b""))
        )
        assert any(isinstance(effect, ev.PromisesRegained) for effect in done) == (offset == regained_at)
        assert replica.quorum.has_lost_promises == (offset < regained_at) == (not replica.quorum.may_stand)
        if offset < 10:
            replica.feed(ev.BatchAppended(1, offset, offset + 2, [], []))
            replica.feed(ev.FetchedAppended())
            assert replica.sent(m.FetchRequest)[-1] is sent  # nothing is promised before it is synced
            replica.feed(ev.Flushed(offset + 2))


def test_a_refused_fetch_gives_no_promises_back() -> None:
    """Nor does one of another log than the leader's."""
    replica = Replica(1, voters(1, 2, 3), log=LogState(0, 6, [(1, 0)], []), state=ElectionState(2, None, None),
                      has_lost_promises=True, promised_before=4)  # fmt: skip
    replica.start()
    replica.ask(m.BeginQuorumEpochRequest(2, 2, key(1), (Endpoint("C", "h", 2),)))
    sent = replica.sent(m.FetchRequest)[-1]
    assert sent.request.offset == 6
    replica.feed(ev.Answered(sent.request_id, m.FetchReply(ErrorCode.NONE, 2, 2, high_watermark=0, diverging=OffsetAndEpoch(3, 1))))
    assert replica.quorum.log.end_offset == 3 and replica.quorum.has_lost_promises
    sent = replica.sent(m.FetchRequest)[-1]
    replica.feed(ev.Answered(sent.request_id, m.FetchReply(ErrorCode.UNKNOWN_SERVER_ERROR, 2, 2)))
    assert replica.quorum.has_lost_promises


def test_a_restarted_leader_does_not_lead_its_epoch_again() -> None:
    replica = Replica(1, voters(1, 2, 3), state=ElectionState(4, 1, None))
    replica.start()
    assert isinstance(replica.quorum.role, Resigned)
    assert not replica.ask(m.VoteRequest(4, key(2), key(1), OffsetAndEpoch(9, 3))).granted


def test_two_leaders_of_an_epoch_are_refused() -> None:
    replica = Replica(1, voters(1, 2, 3))
    replica.start()
    assert replica.ask(m.BeginQuorumEpochRequest(2, 2, key(1), (Endpoint("C", "h", 2),))).error is ErrorCode.NONE
    assert replica.ask(m.BeginQuorumEpochRequest(2, 3, key(1), (Endpoint("C", "h", 3),))).error is ErrorCode.INVALID_REQUEST
    assert isinstance(replica.quorum.role, Follower) and replica.quorum.leader_id == 2


def test_where_two_logs_part() -> None:
    log = LogState(0, 20, [(1, 0), (3, 8), (5, 15)])
    assert log.validate(20, 5) == (Validity.VALID, OffsetAndEpoch(20, 5))
    assert log.validate(10, 1) == (Validity.DIVERGING, OffsetAndEpoch(8, 1))
    assert log.validate(12, 2) == (Validity.DIVERGING, OffsetAndEpoch(8, 1))
    assert log.validate(18, 4) == (Validity.DIVERGING, OffsetAndEpoch(15, 3))
    assert log.validate(0, 0) == (Validity.VALID, OffsetAndEpoch(0, 0))
    log.add_snapshot(OffsetAndEpoch(10, 3))
    assert log.validate(0, 0) == (Validity.SNAPSHOT, OffsetAndEpoch(10, 3))
    assert log.validate(5, 1) == (Validity.VALID, OffsetAndEpoch(5, 1))
    log.forget_before(10)
    assert log.validate(5, 1) == (Validity.SNAPSHOT, OffsetAndEpoch(10, 3))
    assert log.validate(10, 1) == (Validity.SNAPSHOT, OffsetAndEpoch(10, 3))
    assert log.validate(10, 3) == (Validity.VALID, OffsetAndEpoch(10, 3))


def test_an_epoch_from_before_the_log_start_is_cut_at_its_beginning() -> None:
    leader = LogState(5, 40, [(4, 5), (6, 6)], [OffsetAndEpoch(5, 1)])
    assert leader.validate(30, 2) == (Validity.DIVERGING, OffsetAndEpoch(5, 1))
    follower = LogState(0, 30, [(1, 0), (2, 1)])
    assert follower.truncation_offset(OffsetAndEpoch(5, 1)) == 1
    assert leader.validate(1, 1) == (Validity.SNAPSHOT, OffsetAndEpoch(5, 1))


def test_voter_sets_come_and_go_with_the_log() -> None:
    history = VoterHistory(voters(1), 0)
    history.add_voters(5, voters(1, 2))
    history.add_version(4, 1)
    assert history.latest.node_ids == (1, 2) and history.at(5)[0].node_ids == (1,) and history.at(6) == (voters(1, 2), 1)
    history.truncate_to(5)
    assert history.latest.node_ids == (1,) and history.kraft_version == 1
    history.install(30, voters(3), 1)
    assert history.latest_offset == 29 and history.latest.node_ids == (3,)


def test_a_made_up_epoch_does_not_use_up_the_numbers() -> None:
    replica = Replica(1, voters(1, 2, 3))
    replica.start()
    for request in (
        m.VoteRequest(2**31 - 1, key(2), key(1), OffsetAndEpoch(0, 0)),
        m.BeginQuorumEpochRequest(2**31 - 1, 2, key(1), (Endpoint("C", "h", 2),)),
        m.EndQuorumEpochRequest(2**31 - 1, 2),
    ):
        assert replica.ask(request).error is ErrorCode.INVALID_REQUEST
    assert replica.quorum.epoch == 0


def test_made_up_replicas_fill_no_memory() -> None:
    leader = elected()
    for number in range(3000):
        leader.now += 10
        leader.ask(fetch(2, 1, 3, 1, wait=0))
        leader.ask(fetch(100 + number, 1, 3, 1, wait=0))
    assert len(leader.quorum.role.progress.replicas) < 1500


def test_static_voters_become_dynamic_once_all_have_sent_their_update() -> None:
    """KIP-853: kraft.version 0 to 1. The leader learns directory ids and endpoints by UpdateRaftVoter, and writes them as the first set."""
    static = VoterSet(Voter(ReplicaKey(n), (Endpoint("C", f"h{n}", 9000 + n),)) for n in (1, 2))
    leader = elected(1, static, version=0)
    quorum = leader.quorum
    quorum.endpoints = (Endpoint("C", "h1", 9001),)
    other = key(2)
    leader.ask(fetch(2, quorum.epoch, quorum.log.end_offset, quorum.log.last_epoch, wait=0))
    assert quorum.high_watermark == quorum.log.end_offset
    assert "known for all of the voters, but is missing for 2" in quorum.upgrade_fault(1)
    update = m.UpdateVoterRequest(quorum.epoch, other, (Endpoint("C", "h2", 9002),), 0, 1)
    assert leader.ask(update).error is ErrorCode.NONE
    assert quorum.history.latest_offset == -1 and quorum.voters == static
    assert quorum.upgrade_fault(1) is None and "only supports versions 0-1" in quorum.upgrade_fault(2)
    appended = [effect for effect in quorum.upgrade_kraft_version(1, 0) if isinstance(effect, ev.AppendVoters)]
    assert len(appended) == 1 and appended[0].kraft_version == 1
    assert [voter.key for voter in appended[0].voter_set.voters()] == [quorum.local, other]
    refused = leader.ask(m.UpdateVoterRequest(quorum.epoch, ReplicaKey(3, bytes(16)), (Endpoint("C", "h3", 9003),), 0, 1))
    assert refused.error is ErrorCode.VOTER_NOT_FOUND


def adding(leader: Replica, node_id: int) -> ev.Send:
    """The leader is asked to add a controller that has fetched everything: what it sends to that one."""
    quorum = leader.quorum
    for asking in (2, 3, node_id):
        leader.ask(fetch(asking, quorum.epoch, quorum.log.end_offset, quorum.log.last_epoch, wait=0))
    elsewhere = Endpoint("OTHER", "elsewhere", 1)
    request = m.AddVoterRequest(key(node_id), (elsewhere, Endpoint("C", "h", node_id)), 2000)
    assert leader.ask(request) is None, "answered when it is known what the new voter supports"
    (sent,) = leader.sent(m.VersionsRequest)
    assert (sent.node_id, sent.endpoint) == (node_id, Endpoint("C", "h", node_id))
    return sent


def replies(effects: list) -> list[m.Reply]:
    return [effect.reply for effect in effects if isinstance(effect, ev.Respond)]


def test_a_new_voter_is_asked_which_kraft_version_it_supports() -> None:
    """KIP-853, AddVoterHandler: the voter set names the range that the voter itself has told."""
    leader = elected()
    sent = adding(leader, 4)
    done = leader.feed(ev.Answered(sent.request_id, m.VersionsReply(version_min=1, version_max=3)))
    (appended,) = [effect for effect in done if isinstance(effect, ev.AppendVoters)]
    added = appended.voter_set.get(4)
    assert added is not None and (added.key, added.version_min, added.version_max) == (key(4), 1, 3)


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (m.VersionsReply(version_min=0, version_max=0), ErrorCode.INVALID_REQUEST, "supports kraft.version 0 to 0, the quorum has 1"),
        (m.VersionsReply(version_min=2, version_max=3), ErrorCode.INVALID_REQUEST, "supports kraft.version 2 to 3, the quorum has 1"),
        (m.VersionsReply(ErrorCode.UNSUPPORTED_VERSION), ErrorCode.REQUEST_TIMED_OUT, "it answered UNSUPPORTED_VERSION"),
        (None, ErrorCode.REQUEST_TIMED_OUT, "it does not answer"),
    ],
)
def test_a_controller_that_cannot_be_a_voter_is_not_added(answer: m.Reply | None, error: ErrorCode, says: str) -> None:
    leader = elected()
    sent = adding(leader, 4)
    done = leader.feed(ev.Failed(sent.request_id, True) if answer is None else ev.Answered(sent.request_id, answer))
    (reply,) = replies(done)
    assert reply.error is error and says in str(reply.text)
    assert not leader.sent(ev.AppendVoters) and leader.quorum.pending_change is None
    assert leader.quorum.voters.node_ids == (1, 2, 3)


def test_a_controller_that_stays_silent_is_not_waited_for_longer_than_a_request() -> None:
    leader = elected()
    adding(leader, 4)
    leader.now += leader.quorum.config.request_timeout_ms
    found = replies(leader.run(leader.quorum.on_deadline(leader.now)))
    assert [reply.error for reply in found if reply.text] == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_voter_without_an_address_on_the_controllers_listener_is_refused() -> None:
    leader = elected()
    reply = leader.ask(m.AddVoterRequest(key(4), (Endpoint("OTHER", "h", 4),), 2000))
    assert reply is not None and reply.error is ErrorCode.INVALID_REQUEST and "default listener" in str(reply.text)


def test_a_leader_of_which_nothing_can_be_taken_is_asked_again_after_a_pause_and_given_up() -> None:
    """Its answers come in time, but what is in them is corrupt."""
    replica = Replica(1, voters(1, 2, 3))
    replica.start()
    replica.feed(ev.Received("t", m.BeginQuorumEpochRequest(1, 2, key(1), (Endpoint("C", "h", 2),))))
    asked, given_up_ms = [], replica.quorum.role.fetch_deadline_ms
    while isinstance(replica.quorum.role, Follower):
        fetches = replica.sent(m.FetchRequest)
        if len(fetches) > len(asked):
            asked.append(replica.now)
            reply = m.FetchReply(ErrorCode.NONE, leader_id=2, epoch=1, high_watermark=0, records=b"corrupt")
            done = replica.feed(ev.Answered(fetches[-1].request_id, reply))
            assert any(isinstance(effect, ev.AppendFetched) for effect in done)
            replica.feed(ev.FetchedAppended(is_refused=True))
            assert replica.quorum.log.end_offset == 0 and replica.quorum.high_watermark <= 0
        replica.until_deadline()
    assert replica.now == given_up_ms and len(asked) > 2
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert min(pauses) >= QuorumConfig().retry_backoff_ms
    assert isinstance(replica.quorum.role, Prospective)
