"""Elections: requesting and granting votes (KIP-595, pre-vote KIP-996), and a leader's resignation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.core.raft import messages as m
from minikafka.core.raft.roles import Candidate, Election, Prospective, Resigned, Unattached
from minikafka.core.raft.types import NO_NODE
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.core.raft.replica import Replica

#: First step of the exponential, randomized back-off after a lost election.
BACKOFF_BASE_MS = 50


def poll_unattached(replica: Replica, role: Unattached, now_ms: int) -> None:
    if replica.may_stand:
        if replica.voters.is_only_voter(replica.local):
            replica.become_candidate(now_ms)
            return
        if role.election_deadline_ms is not None and now_ms >= role.election_deadline_ms:
            replica.become_prospective(now_ms)
            return
    else:
        role.election_deadline_ms = None
    replica.discover(now_ms)


def poll_election(replica: Replica, role: Election, now_ms: int) -> None:
    if not replica.may_stand:
        replica.become_unattached(role.epoch, now_ms)
        return
    if role.backoff_deadline_ms is not None:
        if now_ms >= role.backoff_deadline_ms:
            _after_loss(replica, role, now_ms)
        return
    if role.is_granted:
        if isinstance(role, Candidate):
            replica.become_leader(now_ms)
        else:
            replica.become_candidate(now_ms)
        return
    if role.is_rejected:
        step = min(BACKOFF_BASE_MS << min(role.retries, 8), max(replica.config.election_backoff_ms_max, 1))
        role.backoff_deadline_ms = now_ms + replica.random_ms(0, step)
        return
    if now_ms >= role.deadline_ms:
        _after_loss(replica, role, now_ms)
        return
    for key in role.unrecorded():
        endpoint = replica.voters.endpoint(key.node_id)
        request = m.VoteRequest(role.epoch, replica.local, key, replica.end, isinstance(role, Prospective))
        replica.send(key.node_id, endpoint, request, now_ms)


def _after_loss(replica: Replica, role: Election, now_ms: int) -> None:
    if isinstance(role, Candidate):
        replica.become_prospective(now_ms, role.retries + 1)
    elif role.leader_id != NO_NODE and role.leader_endpoint is not None:
        # The other voters still hear the leader: wait for it for another fetch timeout.
        replica.become_follower(role.epoch, role.leader_id, role.leader_endpoint, now_ms)
    else:
        replica.become_unattached(role.epoch, now_ms)


def poll_resigned(replica: Replica, role: Resigned, now_ms: int) -> None:
    if now_ms >= role.election_deadline_ms:
        replica.become_unattached(role.epoch + 1, now_ms)
        return
    if not replica.may_stand and not role.unacknowledged:
        # Removed from the voters, and all voters have acknowledged the resignation: look for the next leader.
        replica.become_unattached(role.epoch, now_ms)
        return
    send_end_quorum_epoch(replica, role, now_ms)


def send_end_quorum_epoch(replica: Replica, role: Resigned, now_ms: int) -> None:
    for node_id in role.unacknowledged:
        request = m.EndQuorumEpochRequest(role.epoch, replica.local.node_id, role.candidates, replica.endpoints)
        replica.send(node_id, replica.voters.endpoint(node_id), request, now_ms)


def on_vote(replica: Replica, token: Any, request: m.VoteRequest, now_ms: int) -> None:
    """A vote is durable before it is answered (Persist ranks before Respond)."""
    if request.epoch < replica.epoch:
        replica.respond(token, replica.reply_to(request, ErrorCode.FENCED_LEADER_EPOCH))
        return
    last_epoch_max = request.epoch if request.pre_vote else request.epoch - 1
    if request.candidate.node_id < 0 or request.last.offset < 0 or not 0 <= request.last.epoch <= last_epoch_max:
        replica.respond(token, replica.reply_to(request, ErrorCode.INVALID_REQUEST))
        return
    if request.epoch > replica.epoch:
        replica.become_unattached(request.epoch, now_ms)
    if not replica.is_addressed(request.voter):
        replica.respond(token, replica.reply_to(request, ErrorCode.INVALID_VOTER_KEY))
        return
    is_up_to_date = (request.last.epoch, request.last.offset) >= (replica.end.epoch, replica.end.offset)
    is_granted = not replica.has_lost_promises and replica.role.can_grant(request.candidate, is_up_to_date, request.pre_vote)
    if is_granted and not request.pre_vote:
        replica.become_voted(request.candidate, now_ms)
    reply = replica.reply_to(request, ErrorCode.NONE)
    assert isinstance(reply, m.VoteReply)
    reply.granted = is_granted
    replica.respond(token, reply)


def on_vote_reply(replica: Replica, node_id: int, request: m.VoteRequest, reply: m.VoteReply, now_ms: int) -> None:
    # A vote that was granted in a later epoch does not count in this one, either.
    if replica.maybe_transition(reply.leader_id, reply.epoch, reply.endpoint, now_ms):
        return
    role = replica.role
    if not isinstance(role, Election) or request.epoch != role.epoch or request.pre_vote is not isinstance(role, Prospective):
        return
    if reply.error is not ErrorCode.NONE or reply.epoch > role.epoch:
        return
    role.record(node_id, reply.granted)


def on_end_failed(replica: Replica, node_id: int) -> None:
    """A voter whose process is gone need not be notified."""
    role = replica.role
    if isinstance(role, Resigned) and node_id in role.unacknowledged:
        role.unacknowledged.remove(node_id)


def on_end_reply(replica: Replica, node_id: int, request: m.EndQuorumEpochRequest, reply: m.Reply, now_ms: int) -> None:
    role = replica.role
    if isinstance(role, Resigned) and role.epoch == request.epoch and node_id in role.unacknowledged:
        # Whatever the error, the voter has learned of the end of this epoch or of a later epoch.
        role.unacknowledged.remove(node_id)
    if not replica.is_shut_down:
        replica.maybe_transition(reply.leader_id, reply.epoch, reply.endpoint, now_ms)
