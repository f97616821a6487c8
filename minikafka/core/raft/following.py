"""What a follower or observer does: fetches, cuts what diverges, takes snapshots, notices that the leader is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.core.raft import membership
from minikafka.core.raft import messages as m
from minikafka.core.raft.events import AppendFetched, InstallSnapshot, SnapshotInstalled, WriteSnapshotChunk
from minikafka.core.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from minikafka.core.raft.types import NO_NODE, OffsetAndEpoch
from minikafka.core.raft.voting import is_addressed_to
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.core.raft.quorum import Quorum


def fetch_request(quorum: Quorum) -> m.FetchRequest:
    """A fetch at an offset promises that everything before it is on disk (KAFKA-10533): `is_waiting_for_disk`."""
    log, config = quorum.log, quorum.config
    return m.FetchRequest(
        quorum.epoch,
        quorum.local,
        log.end_offset,
        log.last_epoch,
        quorum.high_watermark,
        config.fetch_max_wait_ms,
        config.fetch_bytes_max,
    )


def is_waiting_for_disk(quorum: Quorum) -> bool:
    """A voter fetches on only when what it has is durable."""
    return quorum.append_pending or (quorum.can_be_voter and quorum.log.flushed_offset < quorum.log.end_offset)


def poll(quorum: Quorum, role: Follower, now_ms: int) -> None:
    if now_ms >= role.fetch_deadline_ms:
        if quorum.may_stand:
            quorum.become_prospective(now_ms)
        else:
            quorum.become_unattached(role.epoch, now_ms)
        return
    if is_waiting_for_disk(quorum):
        return
    if role.failures and not quorum.is_voter and not quorum.requests.is_busy(role.leader_id):
        quorum.discover(now_ms)
    change = membership.own_change(quorum, role, now_ms)
    if change is not None:
        request: m.Request = change
    elif role.snapshot is not None:
        request = m.FetchSnapshotRequest(
            role.epoch, quorum.local, role.snapshot, role.snapshot_position, quorum.config.fetch_snapshot_bytes_max
        )
    else:
        request = fetch_request(quorum)
    is_sent = quorum.send(role.leader_id, role.leader_endpoint, request, now_ms)
    if is_sent and change is not None:
        role.membership_at_ms = now_ms + quorum.config.fetch_timeout_ms


def on_fetch_failed(quorum: Quorum, node_id: int, is_refused: bool, now_ms: int) -> None:
    """No answer. A process that refuses connections is dead: an election need not wait for the fetch timeout."""
    role = quorum.role
    if isinstance(role, Follower) and role.leader_id == node_id:
        role.failures += 1
        if is_refused:
            role.has_fetched = False
            if quorum.may_stand:
                soon = now_ms + quorum.random_ms(0, quorum.config.unreachable_jitter_ms)
                role.fetch_deadline_ms = min(role.fetch_deadline_ms, soon)


def on_fetch_reply(quorum: Quorum, node_id: int, request: m.FetchRequest, reply: m.FetchReply, now_ms: int) -> None:
    if quorum.follow_news(reply.leader_id, reply.epoch, reply.endpoint, now_ms):
        return
    role = quorum.role
    if not isinstance(role, Follower):
        return
    if reply.error is not ErrorCode.NONE or node_id != role.leader_id or reply.epoch != role.epoch or request.epoch != role.epoch:
        return
    if request.offset != quorum.log.end_offset:
        return
    role.deadline_before_ms = role.fetch_deadline_ms
    role.fetch_deadline_ms = now_ms + quorum.config.fetch_timeout_ms
    role.has_fetched = True
    role.failures = 0
    if reply.diverging is not None:
        _cut(quorum, reply.diverging)
    elif reply.snapshot is not None:
        _begin_snapshot(quorum, role, reply.snapshot)
    else:
        role.leader_high_watermark = reply.high_watermark
        quorum.regain_promises(request.offset, is_end=not reply.records)
        if reply.records:
            quorum.append_pending = True
            quorum.effect(AppendFetched(role.epoch, reply.records))
        else:
            # The leader has seen this replica at the end of its log.
            role.is_caught_up = True
            quorum.raise_high_watermark(reply.high_watermark)


def _cut(quorum: Quorum, diverging: OffsetAndEpoch) -> None:
    offset = quorum.log.truncation_offset(diverging)
    if offset < quorum.high_watermark:
        # Only a leader that lost committed records says so; what is committed here stays, and this node stops.
        quorum.truncate_to(offset)
    if offset < quorum.log.end_offset:
        quorum.truncate_to(offset)


def _begin_snapshot(quorum: Quorum, role: Follower, snapshot: OffsetAndEpoch) -> None:
    if snapshot.offset < 0 or snapshot.epoch < 0 or snapshot.offset <= quorum.high_watermark:
        return
    role.snapshot, role.snapshot_position = snapshot, 0


def on_appended(quorum: Quorum, is_refused: bool, now_ms: int) -> None:
    """Fetched records are in the log: everything of them that the leader has committed is committed here. A leader of which nothing can be
    taken is asked again after a pause, and replaced if that lasts: what it sends says nothing for it."""
    quorum.append_pending = False
    role = quorum.role
    if not isinstance(role, Follower):
        return
    if is_refused:
        role.fetch_deadline_ms = role.deadline_before_ms
        role.has_fetched = False
        quorum.requests.back_off(role.leader_id, now_ms)
    else:
        quorum.raise_high_watermark(role.leader_high_watermark)


def on_snapshot_reply(quorum: Quorum, node_id: int, request: m.FetchSnapshotRequest, reply: m.FetchSnapshotReply, now_ms: int) -> None:
    if quorum.follow_news(reply.leader_id, reply.epoch, reply.endpoint, now_ms):
        return
    role = quorum.role
    if not isinstance(role, Follower) or node_id != role.leader_id or role.snapshot is None or request.snapshot != role.snapshot:
        return
    if reply.error is not ErrorCode.NONE:
        if reply.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
            role.snapshot = None
        return
    if reply.snapshot != role.snapshot or reply.position != role.snapshot_position or reply.size <= 0:
        role.snapshot = None
        return
    role.fetch_deadline_ms = now_ms + quorum.config.fetch_timeout_ms
    role.has_fetched = True
    if reply.data_size <= 0 or reply.position + reply.data_size > reply.size:
        role.snapshot = None
        return
    quorum.effect(WriteSnapshotChunk(role.snapshot, reply.position, reply.data))
    role.snapshot_position += reply.data_size
    if role.snapshot_position == reply.size:
        quorum.append_pending = True
        quorum.effect(InstallSnapshot(role.snapshot))


def on_snapshot_installed(quorum: Quorum, event: SnapshotInstalled, now_ms: int) -> None:
    quorum.append_pending = False
    role = quorum.role
    if isinstance(role, Follower):
        role.snapshot = None
    if event.snapshot.offset < 0:
        return
    quorum.log.start_at_snapshot(event.snapshot)
    quorum.history.install(event.snapshot.offset, event.voters, event.kraft_version)
    # A snapshot holds only what is committed.
    quorum.raise_high_watermark(event.snapshot.offset)


def on_begin_quorum_epoch(quorum: Quorum, token: Any, request: m.BeginQuorumEpochRequest, now_ms: int) -> None:
    role = quorum.role
    if request.epoch < role.epoch:
        quorum.respond(token, quorum.reply_to(request, ErrorCode.FENCED_LEADER_EPOCH))
        return
    endpoint = request.endpoints[0] if request.endpoints else quorum.voters.endpoint(request.leader_id)
    if request.leader_id < 0 or request.leader_id == quorum.local.node_id or endpoint is None:
        quorum.respond(token, quorum.reply_to(request, ErrorCode.INVALID_REQUEST))
        return
    if not is_addressed_to(quorum, request.voter):
        quorum.respond(token, quorum.reply_to(request, ErrorCode.INVALID_VOTER_KEY))
        return
    if request.epoch > role.epoch:
        quorum.become_follower(request.epoch, request.leader_id, endpoint, now_ms)
    elif isinstance(role, (Leader, Resigned)) or role.leader_id not in (NO_NODE, request.leader_id):
        quorum.respond(token, quorum.reply_to(request, ErrorCode.INVALID_REQUEST))
        return
    elif isinstance(role, Follower):
        role.leader_endpoint = endpoint
        role.fetch_deadline_ms = max(role.fetch_deadline_ms, now_ms + quorum.config.fetch_timeout_ms)
    elif isinstance(role, (Unattached, Prospective, Candidate)):
        quorum.become_follower(request.epoch, request.leader_id, endpoint, now_ms)
    quorum.respond(token, quorum.reply_to(request, ErrorCode.NONE))


def on_end_quorum_epoch(quorum: Quorum, token: Any, request: m.EndQuorumEpochRequest, now_ms: int) -> None:
    """The leader resigned: its first choice stands at once, the others one after the other."""
    role = quorum.role
    if request.epoch < role.epoch:
        quorum.respond(token, quorum.reply_to(request, ErrorCode.FENCED_LEADER_EPOCH))
        return
    if request.leader_id < 0 or request.leader_id == quorum.local.node_id or (isinstance(role, Leader) and request.epoch == role.epoch):
        quorum.respond(token, quorum.reply_to(request, ErrorCode.INVALID_REQUEST))
        return
    if request.epoch == role.epoch and role.leader_id not in (NO_NODE, request.leader_id):
        quorum.respond(token, quorum.reply_to(request, ErrorCode.INVALID_REQUEST))
        return
    endpoint = request.endpoints[0] if request.endpoints else quorum.voters.endpoint(request.leader_id)
    if request.epoch > role.epoch or isinstance(role, Unattached):
        if endpoint is None:
            quorum.become_unattached(request.epoch, now_ms)
        else:
            quorum.become_follower(request.epoch, request.leader_id, endpoint, now_ms)
    role = quorum.role
    if isinstance(role, Follower) and quorum.may_stand:
        role.has_fetched = False
        position = next(
            (index for index, key in enumerate(request.candidates) if key.node_id == quorum.local.node_id), len(quorum.voters)
        )
        pause = 0
        if position > 0:
            base = quorum.config.unreachable_jitter_ms
            pause = base * position + quorum.random_ms(0, base)
        role.fetch_deadline_ms = min(role.fetch_deadline_ms, now_ms + pause)
    quorum.respond(token, quorum.reply_to(request, ErrorCode.NONE))
