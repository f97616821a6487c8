"""What a follower or observer does: fetches, truncates where its log diverges, takes snapshots, notices that the leader is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.core.raft import membership
from minikafka.core.raft import messages as m
from minikafka.core.raft.events import AppendFetched, InstallSnapshot, SnapshotInstalled, WriteSnapshotChunk
from minikafka.core.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from minikafka.core.raft.types import NO_NODE, OffsetAndEpoch
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.core.raft.replica import Replica


def is_waiting_for_disk(replica: Replica) -> bool:
    """A voter fetches more only when everything that it has is durable."""
    return replica.append_pending or (replica.can_be_voter and replica.log.flushed_offset < replica.log.end_offset)


def poll(replica: Replica, role: Follower, now_ms: int) -> None:
    if now_ms >= role.fetch_deadline_ms:
        if replica.may_stand:
            replica.become_prospective(now_ms)
        else:
            replica.become_unattached(role.epoch, now_ms)
        return
    if is_waiting_for_disk(replica):
        return
    if role.failures and not replica.is_voter and not replica.requests.is_busy(role.leader_id):
        replica.discover(now_ms)
    change = membership.own_change(replica, role, now_ms)
    if change is not None:
        request: m.Request = change
    elif role.snapshot is not None:
        request = m.FetchSnapshotRequest(
            role.epoch, replica.local, role.snapshot, role.snapshot_position, replica.config.fetch_snapshot_bytes_max
        )
    else:
        request = replica.fetch_request()
    is_sent = replica.send(role.leader_id, role.leader_endpoint, request, now_ms)
    if is_sent and change is not None:
        role.membership_at_ms = now_ms + replica.fetch_timeout_ms


def on_fetch_failed(replica: Replica, node_id: int, is_refused: bool, now_ms: int) -> None:
    """No answer. A process that refuses connections is dead: an election need not wait for the fetch timeout."""
    role = replica.role
    if isinstance(role, Follower) and role.leader_id == node_id:
        role.failures += 1
        if is_refused:
            role.has_fetched = False
            if replica.may_stand:
                soon = now_ms + replica.random_ms(0, replica.config.unreachable_jitter_ms)
                role.fetch_deadline_ms = min(role.fetch_deadline_ms, soon)


def on_fetch_reply(replica: Replica, node_id: int, request: m.FetchRequest, reply: m.FetchReply, now_ms: int) -> None:
    if replica.maybe_transition(reply.leader_id, reply.epoch, reply.endpoint, now_ms):
        return
    role = replica.role
    if not isinstance(role, Follower):
        return
    if reply.error is not ErrorCode.NONE or node_id != role.leader_id or reply.epoch != role.epoch or request.epoch != role.epoch:
        return
    if request.offset != replica.log.end_offset:
        return
    role.deadline_before_ms = role.fetch_deadline_ms
    role.fetch_deadline_ms = now_ms + replica.fetch_timeout_ms
    role.has_fetched = True
    role.failures = 0
    if reply.diverging is not None:
        _truncate_diverging(replica, reply.diverging)
    elif reply.snapshot is not None:
        _begin_snapshot(replica, role, reply.snapshot)
    else:
        role.leader_high_watermark = reply.high_watermark
        replica.regain_promises(request.offset, is_end=not reply.records)
        if reply.records:
            replica.append_pending = True
            replica.effect(AppendFetched(role.epoch, reply.records))
        else:
            # The leader has seen this replica at the end of its log.
            role.is_caught_up = True
            replica.raise_high_watermark(reply.high_watermark)


def _truncate_diverging(replica: Replica, diverging: OffsetAndEpoch) -> None:
    offset = replica.log.truncation_offset(diverging)
    if offset < replica.high_watermark:
        # Only a leader that lost committed records asks for this. truncate_to raises: the records stay, and this node stops.
        replica.truncate_to(offset)
    if offset < replica.log.end_offset:
        replica.truncate_to(offset)


def _begin_snapshot(replica: Replica, role: Follower, snapshot: OffsetAndEpoch) -> None:
    if snapshot.offset < 0 or snapshot.epoch < 0 or snapshot.offset <= replica.high_watermark:
        return
    role.snapshot, role.snapshot_position = snapshot, 0


def on_appended(replica: Replica, is_refused: bool, now_ms: int) -> None:
    """Fetched records are in the log; those that the leader has committed are committed here, too.

    If the records were invalid the follower asks again after a pause. They do not count as a sign of life: if this lasts, the fetch
    timeout passes and the voters elect another leader."""
    replica.append_pending = False
    role = replica.role
    if not isinstance(role, Follower):
        return
    if is_refused:
        role.fetch_deadline_ms = role.deadline_before_ms
        role.has_fetched = False
        replica.requests.back_off(role.leader_id, now_ms)
    else:
        replica.raise_high_watermark(role.leader_high_watermark)


def on_snapshot_reply(replica: Replica, node_id: int, request: m.FetchSnapshotRequest, reply: m.FetchSnapshotReply, now_ms: int) -> None:
    if replica.maybe_transition(reply.leader_id, reply.epoch, reply.endpoint, now_ms):
        return
    role = replica.role
    if not isinstance(role, Follower) or node_id != role.leader_id or role.snapshot is None or request.snapshot != role.snapshot:
        return
    if reply.error is not ErrorCode.NONE:
        if reply.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            role.snapshot = None
        return
    if reply.snapshot != role.snapshot or reply.position != role.snapshot_position or reply.size <= 0:
        role.snapshot = None
        return
    role.fetch_deadline_ms = now_ms + replica.fetch_timeout_ms
    role.has_fetched = True
    if reply.data_size <= 0 or reply.position + reply.data_size > reply.size:
        role.snapshot = None
        return
    replica.effect(WriteSnapshotChunk(role.snapshot, reply.position, reply.data))
    role.snapshot_position += reply.data_size
    if role.snapshot_position == reply.size:
        replica.append_pending = True
        replica.effect(InstallSnapshot(role.snapshot))


def on_snapshot_installed(replica: Replica, event: SnapshotInstalled, now_ms: int) -> None:
    replica.append_pending = False
    role = replica.role
    if isinstance(role, Follower):
        role.snapshot = None
    if event.snapshot.offset < 0:
        return
    replica.log.start_at_snapshot(event.snapshot)
    replica.history.install(event.snapshot.offset, event.voters, event.kraft_version)
    # A snapshot holds only what is committed.
    replica.raise_high_watermark(event.snapshot.offset)


def on_begin_quorum_epoch(replica: Replica, token: Any, request: m.BeginQuorumEpochRequest, now_ms: int) -> None:
    role = replica.role
    if request.epoch < role.epoch:
        replica.respond(token, replica.reply_to(request, ErrorCode.FENCED_LEADER_EPOCH))
        return
    endpoint = request.endpoints[0] if request.endpoints else replica.voters.endpoint(request.leader_id)
    if request.leader_id < 0 or request.leader_id == replica.local.node_id or endpoint is None:
        replica.respond(token, replica.reply_to(request, ErrorCode.INVALID_REQUEST))
        return
    if not replica.is_addressed(request.voter):
        replica.respond(token, replica.reply_to(request, ErrorCode.INVALID_VOTER_KEY))
        return
    if request.epoch > role.epoch:
        replica.become_follower(request.epoch, request.leader_id, endpoint, now_ms)
    elif isinstance(role, (Leader, Resigned)) or role.leader_id not in (NO_NODE, request.leader_id):
        replica.respond(token, replica.reply_to(request, ErrorCode.INVALID_REQUEST))
        return
    elif isinstance(role, Follower):
        role.leader_endpoint = endpoint
        role.fetch_deadline_ms = max(role.fetch_deadline_ms, now_ms + replica.fetch_timeout_ms)
    elif isinstance(role, (Unattached, Prospective, Candidate)):
        replica.become_follower(request.epoch, request.leader_id, endpoint, now_ms)
    replica.respond(token, replica.reply_to(request, ErrorCode.NONE))


def on_end_quorum_epoch(replica: Replica, token: Any, request: m.EndQuorumEpochRequest, now_ms: int) -> None:
    """The leader resigned: its preferred successor stands for election at once, the others one after the other."""
    role = replica.role
    if request.epoch < role.epoch:
        replica.respond(token, replica.reply_to(request, ErrorCode.FENCED_LEADER_EPOCH))
        return
    if request.leader_id < 0 or request.leader_id == replica.local.node_id or (isinstance(role, Leader) and request.epoch == role.epoch):
        replica.respond(token, replica.reply_to(request, ErrorCode.INVALID_REQUEST))
        return
    if request.epoch == role.epoch and role.leader_id not in (NO_NODE, request.leader_id):
        replica.respond(token, replica.reply_to(request, ErrorCode.INVALID_REQUEST))
        return
    endpoint = request.endpoints[0] if request.endpoints else replica.voters.endpoint(request.leader_id)
    if request.epoch > role.epoch or isinstance(role, Unattached):
        if endpoint is None:
            replica.become_unattached(request.epoch, now_ms)
        else:
            replica.become_follower(request.epoch, request.leader_id, endpoint, now_ms)
    role = replica.role
    if isinstance(role, Follower) and replica.may_stand:
        role.has_fetched = False
        position = next(
            (index for index, key in enumerate(request.candidates) if key.node_id == replica.local.node_id), len(replica.voters)
        )
        pause = 0
        if position > 0:
            base = replica.config.unreachable_jitter_ms
            pause = base * position + replica.random_ms(0, base)
        role.fetch_deadline_ms = min(role.fetch_deadline_ms, now_ms + pause)
    replica.respond(token, replica.reply_to(request, ErrorCode.NONE))
