"""What a leader does: answers fetches, tracks how far replicas are, announces itself, resigns when a majority is silent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.core.raft import membership
from minikafka.core.raft import messages as m
from minikafka.core.raft.events import DoubtChanged
from minikafka.core.raft.log_state import Validity
from minikafka.core.raft.progress import Parked
from minikafka.core.raft.roles import Leader
from minikafka.core.raft.types import ReplicaKey
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.core.raft.replica import Replica


#: Most replicas of which the leader knows how far they are. For another one it forgets the observer that has not fetched for the longest
#: time, so that made-up ids cannot fill the memory.
OBSERVERS_MAX = 1024
#: How long a voter's fetch waits at a leader in doubt.
DOUBT_WAIT_MS = 20


def deadlines(replica: Replica, role: Leader) -> list[int]:
    due = [parked.deadline_ms for parked in role.progress.parked]
    due.extend(at for node_id, at in role.begin_deadlines_ms.items() if not replica.requests.is_busy(node_id))
    if role.check_deadline_ms is not None:
        due.append(role.check_deadline_ms)
    if role.doubt_deadline_ms is not None and not role.is_in_doubt:
        due.append(role.doubt_deadline_ms)
    if replica.pending_change is not None:
        due.append(replica.pending_change.deadline_ms)
    return due


def poll(replica: Replica, role: Leader, now_ms: int) -> None:
    if role.check_deadline_ms is not None and now_ms >= role.check_deadline_ms:
        replica.become_resigned(now_ms)
        return
    if role.resign_requested:
        replica.become_resigned(now_ms)
        return
    _look_for_doubt(replica, role, now_ms)
    membership.poll(replica, now_ms)
    _announce(replica, role, now_ms)
    for parked in [parked for parked in role.progress.parked if parked.deadline_ms <= now_ms]:
        role.progress.parked.remove(parked)
        _answer(replica, parked.token, parked.request)


def is_in_doubt(role: Leader, now_ms: int) -> bool:
    """Whether a majority of the voters may have another leader by now. After a suspended process resumes this is true at once, before any
    timer fires."""
    return role.doubt_deadline_ms is not None and now_ms >= role.doubt_deadline_ms


def _look_for_doubt(replica: Replica, role: Leader, now_ms: int) -> None:
    if is_in_doubt(role, now_ms) is role.is_in_doubt:
        return
    role.is_in_doubt = not role.is_in_doubt
    replica.effect(DoubtChanged(role.is_in_doubt))
    if role.is_in_doubt:
        # A voter that still follows fetches again as soon as it is answered.
        for parked in role.progress.parked:
            parked.deadline_ms = now_ms


def update_doubt(replica: Replica, role: Leader, now_ms: int) -> None:
    """A voter that follows waits for controller.quorum.fetch.timeout.ms before it stands for election. The leader assumes three quarters
    of that, because clocks run at different speeds."""
    if replica.is_alone:
        role.doubt_deadline_ms = None
        return
    followed_ms = role.progress.followed_ms(replica.voters, replica.local, now_ms)
    role.doubt_deadline_ms = now_ms if followed_ms < 0 else followed_ms + replica.config.fetch_timeout_ms * 3 // 4


def _announce(replica: Replica, role: Leader, now_ms: int) -> None:
    """Send BeginQuorumEpoch to voters that have not acknowledged this epoch, and again to voters that have stopped fetching."""
    half = replica.fetch_timeout_ms // 2
    for node_id, at in role.begin_deadlines_ms.items():
        if at > now_ms:
            continue
        progress = role.progress.of_voter(replica.voters, node_id)
        if progress is not None and progress.last_fetch_ms + half > now_ms:
            role.begin_deadlines_ms[node_id] = progress.last_fetch_ms + half
            continue
        voter = replica.voters.get(node_id)
        request = m.BeginQuorumEpochRequest(role.epoch, replica.local.node_id, voter.key if voter is not None else None, replica.endpoints)
        replica.send(node_id, replica.voters.endpoint(node_id), request, now_ms)
        pause = half if node_id in role.acknowledged else max(2 * replica.config.retry_backoff_ms, half // 10)
        role.begin_deadlines_ms[node_id] = now_ms + pause


def on_begin_reply(replica: Replica, node_id: int, request: m.BeginQuorumEpochRequest, reply: m.Reply, now_ms: int) -> None:
    if replica.maybe_transition(reply.leader_id, reply.epoch, reply.endpoint, now_ms):
        return
    role = replica.role
    if isinstance(role, Leader) and role.epoch == request.epoch and reply.error is ErrorCode.NONE:
        if node_id not in role.acknowledged:
            role.acknowledged.append(node_id)
        if node_id in role.begin_deadlines_ms:
            role.begin_deadlines_ms[node_id] = now_ms + replica.fetch_timeout_ms // 2


def check_leader(replica: Replica, epoch: int) -> ErrorCode:
    """NONE if this node leads `epoch`, or else the error to answer (KafkaRaftClient.validateLeaderOnlyRequest)."""
    if epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > replica.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if replica.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER


def on_fetch(replica: Replica, token: Any, request: m.FetchRequest, now_ms: int) -> None:
    """Answer at once if there are records, a new high watermark, an error or a divergence; park the fetch otherwise."""
    if request.offset < 0 or request.last_epoch < 0 or request.epoch < 0 or request.max_wait_ms < 0:
        replica.respond(token, replica.reply_to(request, ErrorCode.INVALID_REQUEST))
        return
    error = check_leader(replica, request.epoch)
    role = replica.role
    if error is not ErrorCode.NONE or not isinstance(role, Leader):
        replica.respond(token, replica.reply_to(request, error))
        return
    validity, position = replica.log.validate(request.offset, request.last_epoch)
    if validity is not Validity.VALID:
        reply = _reply(replica, request)
        if validity is Validity.DIVERGING:
            reply.diverging = position
        else:
            reply.snapshot = position
        note_contact(replica, role, request.replica, now_ms)
        replica.respond(token, reply)
        return
    if request.replica.node_id >= 0:
        if role.progress.replica(request.replica) is None:
            role.progress.limit_observers(replica.voters, OBSERVERS_MAX - 1)
        role.progress.fetched(request.replica, request.offset, replica.log.end_offset, now_ms)
        note_contact(replica, role, request.replica, now_ms)
        update_high_watermark(replica, role, now_ms)
        membership.on_fetched(replica, role, request.replica, now_ms)
    if not isinstance(replica.role, Leader):
        replica.respond(token, replica.reply_to(request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    elif request.max_wait_ms == 0 or _is_ready(replica, request):
        _answer(replica, token, request)
    else:
        wait_ms = min(request.max_wait_ms, replica.config.park_ms_max, _wait_ms_max(replica, role, request.replica))
        role.progress.parked.append(Parked(token, request, now_ms + wait_ms))


def _wait_ms_max(replica: Replica, role: Leader, peer: ReplicaKey) -> int:
    """How long a fetch may wait. Only a voter's next fetch shows that it still follows, so two fetches must fit into the time after
    which the leader is in doubt. A leader in doubt answers sooner still."""
    if not replica.voters.is_voter(peer):
        return replica.config.park_ms_max
    return DOUBT_WAIT_MS if role.is_in_doubt else replica.config.fetch_timeout_ms // 4


def note_contact(replica: Replica, role: Leader, peer: ReplicaKey, now_ms: int) -> None:
    """Another replica sent a request. Voters count for check-quorum."""
    if replica.voters.is_voter(peer) and peer.node_id != replica.local.node_id:
        if peer.node_id not in role.acknowledged:
            role.acknowledged.append(peer.node_id)
        role.progress.note_contact(peer.node_id, now_ms)
        update_doubt(replica, role, now_ms)
        if role.progress.note_quorum(replica.voters, replica.local, peer.node_id):
            role.check_deadline_ms = replica.check_deadline(now_ms)


def named_high_watermark(replica: Replica) -> int:
    """The high watermark that others are told: -1 until this leader has committed a record of its own epoch.

    Until then it has only what it learned as a follower. Others may know a higher one, and an Apache Kafka voter ends when the leader's
    high watermark is below its own."""
    role = replica.role
    return replica.high_watermark if isinstance(role, Leader) and replica.high_watermark > role.epoch_start else -1


def _is_ready(replica: Replica, request: m.FetchRequest) -> bool:
    if request.offset < replica.log.end_offset:
        return True
    return request.high_watermark is not None and request.high_watermark < named_high_watermark(replica)


def _reply(replica: Replica, request: m.FetchRequest) -> m.FetchReply:
    reply = replica.reply_to(request, ErrorCode.NONE)
    assert isinstance(reply, m.FetchReply)
    reply.high_watermark = named_high_watermark(replica)
    reply.log_start_offset = replica.log.start_offset
    return reply


def _answer(replica: Replica, token: Any, request: m.FetchRequest) -> None:
    reply = _reply(replica, request)
    reply.read_from = request.offset
    reply.read_to = replica.log.end_offset
    reply.bytes_max = request.bytes_max
    replica.respond(token, reply)


def _wake(replica: Replica, role: Leader) -> None:
    parked, waiting = role.progress.parked, []
    for entry in parked:
        if _is_ready(replica, entry.request):
            _answer(replica, entry.token, entry.request)
        else:
            waiting.append(entry)
    role.progress.parked = waiting


def on_appended(replica: Replica, role: Leader, now_ms: int) -> None:
    """Wake the parked fetches: followers write in parallel with the leader's own disk."""
    if role.progress.parked:
        _wake(replica, role)


def update_high_watermark(replica: Replica, role: Leader, now_ms: int) -> None:
    """Raise the high watermark to the majority's offset, once the LeaderChange record itself is below it (KAFKA-12619)."""
    offset = role.progress.high_watermark(replica.voters, replica.local, replica.log.flushed_offset)
    if offset > role.epoch_start and replica.raise_high_watermark(offset):
        if role.progress.parked:
            _wake(replica, role)
        membership.on_committed(replica, role, now_ms)


def on_disconnected(replica: Replica, token: Any, now_ms: int) -> None:
    """Without a majority that surely follows, the leader is in doubt at once: voters whose leader refuses connections elect another one
    long before their fetch timeout."""
    role = replica.role
    if not isinstance(role, Leader):
        return
    for parked in [parked for parked in role.progress.parked if parked.token is token]:
        role.progress.parked.remove(parked)
        role.progress.forget_contact(parked.request.replica.node_id)
    update_doubt(replica, role, now_ms)


def on_voters_changed(replica: Replica, role: Leader, now_ms: int) -> None:
    others = replica.other_voters
    for node_id in [node_id for node_id in role.begin_deadlines_ms if node_id not in others]:
        del role.begin_deadlines_ms[node_id]
    for node_id in others:
        role.begin_deadlines_ms.setdefault(node_id, now_ms)
    role.check_deadline_ms = replica.check_deadline(now_ms)
    update_doubt(replica, role, now_ms)


def on_fetch_snapshot(replica: Replica, token: Any, request: m.FetchSnapshotRequest, now_ms: int) -> None:
    """Check whether the snapshot may be read. The host reads the file, and answers SNAPSHOT_NOT_FOUND and POSITION_OUT_OF_RANGE."""
    error = check_leader(replica, request.epoch)
    role = replica.role
    if error is ErrorCode.NONE and request.snapshot not in replica.log.snapshots:
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    reply = replica.reply_to(request, error)
    assert isinstance(reply, m.FetchSnapshotReply)
    reply.snapshot, reply.position, reply.bytes_max = request.snapshot, request.position, request.bytes_max
    if error is ErrorCode.NONE and isinstance(role, Leader):
        note_contact(replica, role, request.replica, now_ms)
    replica.respond(token, reply)
