"""KIP-853: when a change of the voters counts, and when the next one may begin."""

from __future__ import annotations

import random

import pytest

from minikafka.core.raft import events as ev
from minikafka.core.raft import messages as m
from minikafka.core.raft.log_state import LogState
from minikafka.core.raft.quorum import Quorum
from minikafka.core.raft.types import ElectionState, Endpoint, QuorumConfig, ReplicaKey
from minikafka.core.raft.voters import Voter, VoterHistory, VoterSet
from minikafka.wire.errors import ErrorCode


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id] * 16))


class Leader:
    """Node 1 of so many voters leads epoch 1; its disk takes no time. `ask` and `feed` return the effects."""

    def __init__(self, count: int, version: int = 1) -> None:
        members = VoterSet(Voter(key(node_id), (Endpoint("C", "h", node_id),)) for node_id in range(1, count + 1))
        endpoints = [Endpoint("C", "h", 1)]
        history = VoterHistory(members, version)
        self.quorum = Quorum(key(1), QuorumConfig(), random.Random(1), LogState(), history, ElectionState(), endpoints=endpoints)
        self.now = 0
        effects = self.carry_out(self.quorum.start(0))
        while not self.quorum.is_leader:
            asked = [effect for effect in effects if isinstance(effect, ev.Send) and isinstance(effect.request, m.VoteRequest)]
            effects = []
            for effect in asked:
                reply = m.VoteReply(ErrorCode.NONE, -1, effect.request.epoch, None, None, True)
                effects += self.feed(ev.Answered(effect.request_id, reply))
            if not effects:
                self.now = max(self.quorum.next_deadline() or 0, self.now)
                effects = self.carry_out(self.quorum.on_deadline(self.now))
        for node_id in range(2, count + 1):
            self.fetch(node_id)
        assert self.quorum.high_watermark == self.quorum.log.end_offset

    def carry_out(self, effects: list[ev.Effect]) -> list[ev.Effect]:
        done = list(effects)
        for effect in effects:
            end = self.quorum.log.end_offset
            found: list[tuple[int, VoterSet]] = []
            if isinstance(effect, ev.AppendVoters):
                found = [(end, effect.voter_set)]
            elif not isinstance(effect, ev.AppendLeaderChange):
                continue
            done += self.feed(ev.BatchAppended(effect.epoch, end, end + 1, found, []))
            done += self.feed(ev.Flushed(end + 1))
        return done

    def feed(self, event: ev.Event) -> list[ev.Effect]:
        return self.carry_out(self.quorum.step(event, self.now))

    def ask(self, request: m.Request) -> list[ErrorCode]:
        return [effect.reply.error for effect in self.feed(ev.Received(request, request)) if isinstance(effect, ev.Respond)]

    def fetch(self, node_id: int) -> None:
        """A node says that it has everything."""
        log = self.quorum.log
        self.ask(m.FetchRequest(self.quorum.epoch, key(node_id), log.end_offset, log.last_epoch, self.quorum.high_watermark, 0, 1000))

    @property
    def is_committed(self) -> bool:
        return self.quorum.high_watermark == self.quorum.log.end_offset


def test_a_removed_voter_does_not_count_from_the_moment_that_its_removal_is_in_the_log() -> None:
    """Of four voters three are a majority, of the three that are left two: the removed one is neither needed nor counted."""
    leader = Leader(4)
    assert leader.ask(m.RemoveVoterRequest(key(4))) == []
    assert leader.quorum.voters.node_ids == (1, 2, 3)
    leader.fetch(4)
    assert not leader.is_committed, "the removed voter has it and the leader: one of three"
    leader.fetch(2)
    assert leader.is_committed


def test_a_removed_voter_is_not_asked_for_its_vote() -> None:
    leader = Leader(3)
    leader.ask(m.RemoveVoterRequest(key(3)))
    assert [effect.request.voter for effect in _election_of(leader)] == [key(2)]


def _election_of(leader: Leader) -> list[ev.Send]:
    """The first requests for votes of a node that starts with the leader's log."""
    log, history = leader.quorum.log, leader.quorum.history
    again = Quorum(key(1), QuorumConfig(), random.Random(2), log, history, ElectionState(), endpoints=[Endpoint("C", "h", 1)])
    now, effects = 0, again.start(0)
    while True:
        asked = [effect for effect in effects if isinstance(effect, ev.Send) and isinstance(effect.request, m.VoteRequest)]
        if asked:
            return asked
        now = max(again.next_deadline() or 0, now)
        effects = again.on_deadline(now)


def test_an_added_voter_counts_before_it_is_committed() -> None:
    """Of two voters the new set of three needs two on disk as well, and the new one may be the second."""
    leader = Leader(2)
    leader.fetch(3)
    request = m.AddVoterRequest(key(3), (Endpoint("C", "h", 3),), 2000)
    sent = [effect for effect in leader.feed(ev.Received("t", request)) if isinstance(effect, ev.Send)]
    (asked,) = [effect for effect in sent if isinstance(effect.request, m.VersionsRequest)]
    leader.feed(ev.Answered(asked.request_id, m.VersionsReply(version_min=0, version_max=1)))
    assert leader.quorum.voters.node_ids == (1, 2, 3) and not leader.is_committed
    leader.fetch(3)
    assert leader.is_committed


@pytest.mark.parametrize("node_id", [2, 3])
def test_the_next_change_waits_for_the_one_before(node_id: int) -> None:
    """Majorities of sets that are two voters apart need not meet (the bug of Raft's single-server changes)."""
    leader = Leader(5)
    leader.ask(m.RemoveVoterRequest(key(5)))
    assert leader.ask(m.RemoveVoterRequest(key(node_id))) == [ErrorCode.REQUEST_TIMED_OUT]
    leader.fetch(2)
    leader.fetch(3)
    assert leader.is_committed
    assert leader.ask(m.RemoveVoterRequest(key(node_id))) == [] and node_id not in leader.quorum.voters.node_ids


def test_static_voters_are_not_changed_and_faults_have_kafkas_order() -> None:
    """Apache Kafka 4.4 was asked: a request that names no voter or no address is wrong first; then the voters are static."""
    here, elsewhere = (Endpoint("C", "h", 7),), (Endpoint("OTHER", "h", 7),)
    asked = [
        m.AddVoterRequest(ReplicaKey(-1, bytes(16)), here, 1000), m.RemoveVoterRequest(ReplicaKey(-1, bytes(16))),
        m.AddVoterRequest(key(7), elsewhere, 1000), m.AddVoterRequest(key(7), here, 1000), m.AddVoterRequest(key(2), here, 1000),
        m.RemoveVoterRequest(key(7)),
    ]  # fmt: skip
    leader, wrong, static = Leader(2, 0), ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION
    assert [leader.ask(request) for request in asked] == [[wrong], [wrong], [wrong], [static], [static], [static]]
