"""What a leader does: answers fetches, counts who has what, announces itself, gives up when a majority is silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.core.raft import membership
from minikafka.core.raft import messages as m
from minikafka.core.raft.log_state import Validity
from minikafka.core.raft.progress import Parked
from minikafka.core.raft.roles import Leader
from minikafka.core.raft.types import ReplicaKey
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.core.raft.quorum import Quorum


#: Beyond this many replicas those that have not fetched for a fetch timeout are forgotten, so that made-up ids fill no memory.
OBSERVERS_MAX = 1024


def begin(quorum: Quorum, role: Leader, now_ms: int) -> None:
    """The epoch starts: every other voter has to hear of it and to fetch."""
    for node_id in _others(quorum):
        role.begin_deadlines_ms[node_id] = now_ms
    restart_check(quorum, role, now_ms)


def restart_check(quorum: Quorum, role: Leader, now_ms: int) -> None:
    """Another period in which a majority has to fetch (KAFKA-15489); a lone voter needs nobody."""
    is_alone = quorum.voters.is_only_voter(quorum.local) or not quorum.voters.node_ids
    role.check_deadline_ms = None if is_alone else now_ms + quorum.config.fetch_timeout_ms * 3 // 2


def _others(quorum: Quorum) -> list[int]:
    return [node_id for node_id in quorum.voters.node_ids if node_id != quorum.local.node_id]


def deadlines(quorum: Quorum, role: Leader) -> list[int]:
    due = [parked.deadline_ms for parked in role.progress.parked]
    due.extend(at for node_id, at in role.begin_deadlines_ms.items() if not quorum.requests.is_busy(node_id))
    if role.check_deadline_ms is not None:
        due.append(role.check_deadline_ms)
    if quorum.pending_change is not None:
        due.append(quorum.pending_change.deadline_ms)
    return due


def poll(quorum: Quorum, role: Leader, now_ms: int) -> None:
    if role.check_deadline_ms is not None and now_ms >= role.check_deadline_ms:
        quorum.become_resigned(now_ms)
        return
    if role.resign_requested:
        quorum.become_resigned(now_ms)
        return
    membership.poll(quorum, now_ms)
    _announce(quorum, role, now_ms)
    for parked in [parked for parked in role.progress.parked if parked.deadline_ms <= now_ms]:
        role.progress.parked.remove(parked)
        _answer(quorum, parked.token, parked.request)


def _announce(quorum: Quorum, role: Leader, now_ms: int) -> None:
    """BeginQuorumEpoch to voters that have not acknowledged, and again to those that have stopped fetching."""
    half = quorum.config.fetch_timeout_ms // 2
    for node_id, at in role.begin_deadlines_ms.items():
        if at > now_ms:
            continue
        progress = role.progress.of_voter(quorum.voters, node_id)
        if progress is not None and progress.last_fetch_ms + half > now_ms:
            role.begin_deadlines_ms[node_id] = progress.last_fetch_ms + half
            continue
        voter = quorum.voters.get(node_id)
        request = m.BeginQuorumEpochRequest(
            role.epoch, quorum.local.node_id, voter.key if voter is not None else None, quorum.endpoints
        )
        quorum.send(node_id, quorum.voters.endpoint(node_id), request, now_ms)
        pause = half if node_id in role.acknowledged else max(2 * quorum.config.retry_backoff_ms, half // 10)
        role.begin_deadlines_ms[node_id] = now_ms + pause


def on_begin_reply(quorum: Quorum, node_id: int, request: m.BeginQuorumEpochRequest, reply: m.Reply, now_ms: int) -> None:
    if quorum.follow_news(reply.leader_id, reply.epoch, reply.endpoint, now_ms):
        return
    role = quorum.role
    if isinstance(role, Leader) and role.epoch == request.epoch and reply.error is ErrorCode.NONE:
        if node_id not in role.acknowledged:
            role.acknowledged.append(node_id)
        if node_id in role.begin_deadlines_ms:
            role.begin_deadlines_ms[node_id] = now_ms + quorum.config.fetch_timeout_ms // 2


def check_leader(quorum: Quorum, epoch: int) -> ErrorCode:
    """Whether a request of `epoch` found its leader (KafkaRaftClient.validateLeaderOnlyRequest)."""
    if epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > quorum.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if quorum.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER


def on_fetch(quorum: Quorum, token: Any, request: m.FetchRequest, now_ms: int) -> None:
    """Answer at once if there are records, another high watermark, an error, a divergence; otherwise park."""
    if request.offset < 0 or request.last_epoch < 0 or request.epoch < 0 or request.max_wait_ms < 0:
        quorum.respond(token, quorum.reply_to(request, ErrorCode.INVALID_REQUEST))
        return
    error = check_leader(quorum, request.epoch)
    role = quorum.role
    if error is not ErrorCode.NONE or not isinstance(role, Leader):
        quorum.respond(token, quorum.reply_to(request, error))
        return
    validity, position = quorum.log.validate(request.offset, request.last_epoch)
    if validity is not Validity.VALID:
        reply = _reply(quorum, request)
        if validity is Validity.DIVERGING:
            reply.diverging = position
        else:
            reply.snapshot = position
        note_contact(quorum, role, request.replica, now_ms)
        quorum.respond(token, reply)
        return
    if request.replica.node_id >= 0:
        if len(role.progress.replicas) >= OBSERVERS_MAX and role.progress.replica(request.replica) is None:
            role.progress.drop_observers(quorum.voters, now_ms - quorum.config.fetch_timeout_ms)
        role.progress.fetched(request.replica, request.offset, quorum.log.end_offset, now_ms)
        note_contact(quorum, role, request.replica, now_ms)
        update_high_watermark(quorum, role, now_ms)
        membership.on_fetched(quorum, role, request.replica, now_ms)
    if not isinstance(quorum.role, Leader):
        quorum.respond(token, quorum.reply_to(request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    elif request.max_wait_ms == 0 or _is_ready(quorum, request):
        _answer(quorum, token, request)
    else:
        wait_ms = min(request.max_wait_ms, quorum.config.park_ms_max)
        role.progress.parked.append(Parked(token, request, now_ms + wait_ms))


def note_contact(quorum: Quorum, role: Leader, replica: ReplicaKey, now_ms: int) -> None:
    """A replica is there. Voters count for check-quorum."""
    if quorum.voters.is_voter(replica) and replica.node_id != quorum.local.node_id:
        if replica.node_id not in role.acknowledged:
            role.acknowledged.append(replica.node_id)
        if role.progress.note_quorum(quorum.voters, quorum.local, replica.node_id):
            restart_check(quorum, role, now_ms)


def _is_ready(quorum: Quorum, request: m.FetchRequest) -> bool:
    if request.offset < quorum.log.end_offset:
        return True
    return request.high_watermark is not None and request.high_watermark < quorum.high_watermark


def _reply(quorum: Quorum, request: m.FetchRequest) -> m.FetchReply:
    reply = quorum.reply_to(request, ErrorCode.NONE)
    assert isinstance(reply, m.FetchReply)
    reply.high_watermark = quorum.high_watermark
    reply.log_start_offset = quorum.log.start_offset
    return reply


def _answer(quorum: Quorum, token: Any, request: m.FetchRequest) -> None:
    reply = _reply(quorum, request)
    reply.read_from = request.offset
    reply.read_to = quorum.log.end_offset
    reply.bytes_max = request.bytes_max
    quorum.respond(token, reply)


def _wake(quorum: Quorum, role: Leader) -> None:
    parked, waiting = role.progress.parked, []
    for entry in parked:
        if _is_ready(quorum, entry.request):
            _answer(quorum, entry.token, entry.request)
        else:
            waiting.append(entry)
    role.progress.parked = waiting


def on_appended(quorum: Quorum, role: Leader, now_ms: int) -> None:
    """Followers write in parallel with the leader's own disk."""
    if role.progress.parked:
        _wake(quorum, role)


def update_high_watermark(quorum: Quorum, role: Leader, now_ms: int) -> None:
    """The majority's offset, once the LeaderChange record itself is below it (KAFKA-12619)."""
    offset = role.progress.high_watermark(quorum.voters, quorum.local, quorum.log.flushed_offset)
    if offset > role.epoch_start and quorum.raise_high_watermark(offset):
        if role.progress.parked:
            _wake(quorum, role)
        membership.on_committed(quorum, role, now_ms)


def fail_parked(quorum: Quorum, role: Leader) -> None:
    """The leader is none any more: answer what waits."""
    for parked in role.progress.parked:
        quorum.respond(parked.token, quorum.reply_to(parked.request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    role.progress.parked = []


def forget_parked(quorum: Quorum, token: Any) -> None:
    role = quorum.role
    if isinstance(role, Leader):
        role.progress.parked = [parked for parked in role.progress.parked if parked.token is not token]


def on_voters_changed(quorum: Quorum, role: Leader, now_ms: int) -> None:
    others = _others(quorum)
    for node_id in [node_id for node_id in role.begin_deadlines_ms if node_id not in others]:
        del role.begin_deadlines_ms[node_id]
    for node_id in others:
        role.begin_deadlines_ms.setdefault(node_id, now_ms)
    restart_check(quorum, role, now_ms)


def on_fetch_snapshot(quorum: Quorum, token: Any, request: m.FetchSnapshotRequest, now_ms: int) -> None:
    """The host reads the file; here is only whether it may (SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE come from it)."""
    error = check_leader(quorum, request.epoch)
    role = quorum.role
    if error is ErrorCode.NONE and request.snapshot not in quorum.log.snapshots:
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    reply = quorum.reply_to(request, error)
    assert isinstance(reply, m.FetchSnapshotReply)
    reply.snapshot, reply.position, reply.bytes_max = request.snapshot, request.position, request.bytes_max
    if error is ErrorCode.NONE and isinstance(role, Leader):
        note_contact(quorum, role, request.replica, now_ms)
    quorum.respond(token, reply)
