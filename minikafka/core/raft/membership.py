"""Changes of the voter set, one at a time (KIP-853): AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, and making static voters dynamic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.core.raft import messages as m
from minikafka.core.raft.events import AppendVoters
from minikafka.core.raft.progress import PendingChange
from minikafka.core.raft.roles import Follower, Leader
from minikafka.core.raft.types import Endpoint, ReplicaKey
from minikafka.core.raft.voters import Voter, VoterSet
from minikafka.wire.errors import ErrorCode
from minikafka.wire.uuid import uuid_to_text

if TYPE_CHECKING:
    from minikafka.core.raft.replica import Replica

#: How long a removed leader may take to commit its own removal, and an updated voter set to be committed.
CHANGE_MS_MAX = 60_000
#: A joining replica counts as caught up if it fetched this recently.
CAUGHT_UP_MS = 3_600_000
#: Levels of kraft.version that this implementation supports.
KRAFT_VERSION_MIN, KRAFT_VERSION_MAX = 0, 1


def key_text(key: ReplicaKey) -> str:
    """As Kafka prints it."""
    return f"ReplicaKey(id={key.node_id}, directoryId={uuid_to_text(key.directory_id)})"


def voters_text(voters: VoterSet) -> str:
    return "[" + ", ".join(key_text(voter.key) for voter in voters.voters()) + "]"


def own_change(replica: Replica, role: Follower, now_ms: int) -> m.Request | None:
    """The change that a follower asks the leader to make for it, or None.

    A voter reports new endpoints. With controller.replica.auto.join.enable a controller that is not a voter asks to become one, after it
    has removed a voter with its node id and another directory id."""
    if not replica.can_be_voter or not replica.endpoints or now_ms < role.membership_at_ms:
        return None
    voter = replica.voters.get(replica.local.node_id)
    if replica.history.kraft_version < 1:
        # The leader needs the directory ids of static voters before it can make them dynamic.
        if voter is None or role.has_announced or not role.has_fetched or replica.high_watermark < 0:
            return None
        return m.UpdateVoterRequest(role.epoch, replica.local, replica.endpoints, KRAFT_VERSION_MIN, KRAFT_VERSION_MAX)
    if voter is not None and voter.key == replica.local:
        if voter.endpoints == replica.endpoints or replica.high_watermark < 0:
            return None
        return m.UpdateVoterRequest(role.epoch, replica.local, replica.endpoints, voter.version_min, voter.version_max)
    if not replica.config.auto_join or not role.is_caught_up:
        return None
    if voter is not None:
        return m.RemoveVoterRequest(voter.key)
    return m.AddVoterRequest(replica.local, replica.endpoints, replica.config.request_timeout_ms, False)


def on_request(replica: Replica, token: Any, request: m.AddVoterRequest | m.RemoveVoterRequest | m.UpdateVoterRequest, now_ms: int) -> None:
    role = replica.role
    if isinstance(request, m.UpdateVoterRequest) and request.epoch != replica.epoch:
        is_old = request.epoch < replica.epoch
        replica.respond(token, replica.reply_to(request, ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH))
        return
    if not isinstance(role, Leader):
        replica.respond(token, replica.reply_to(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node is not the leader of the quorum."))
        return
    refusal = _refusal(replica, role, request)
    if refusal is not None:
        replica.respond(token, replica.reply_to(request, *refusal))
        return
    if isinstance(request, m.UpdateVoterRequest) and replica.history.kraft_version < 1:
        role.announced[request.key.node_id] = Voter(request.key, request.endpoints, request.version_min, request.version_max)
        replica.respond(token, replica.reply_to(request, ErrorCode.NONE))
        return
    timeout = min(request.timeout_ms, CHANGE_MS_MAX) if isinstance(request, m.AddVoterRequest) else CHANGE_MS_MAX
    change = replica.pending_change = PendingChange(token, request, now_ms + max(timeout, 0))
    if isinstance(request, m.AddVoterRequest):
        if not replica.send(request.key.node_id, _default_endpoint(replica, request), m.VersionsRequest(request.key), now_ms):
            _refuse(replica, ErrorCode.REQUEST_TIMED_OUT, f"New voter {key_text(request.key)} is not ready to receive requests")
    elif isinstance(request, m.RemoveVoterRequest):
        _append(replica, role, change, replica.voters.without(request.key.node_id))
    else:
        version = (request.version_min, request.version_max)
        _append(replica, role, change, replica.voters.with_voter(Voter(request.key, request.endpoints, *version)))
        # The voter's next fetch may be needed to commit the change, so the answer must not wait for the commit.
        _answer_early(replica, change)


def _refusal(replica: Replica, role: Leader, request: m.Request) -> tuple[ErrorCode, str] | None:
    """Why the change cannot be made now, or None. The previous set must be committed first, or two majorities might not overlap."""
    assert isinstance(request, (m.AddVoterRequest, m.RemoveVoterRequest, m.UpdateVoterRequest))
    key, voters = request.key, replica.voters
    if key.node_id < 0:
        return ErrorCode.INVALID_REQUEST, "The request didn't include a valid voter"
    if isinstance(request, m.AddVoterRequest) and _default_endpoint(replica, request) is None:
        return ErrorCode.INVALID_REQUEST, "Add voter request didn't include the default listener"
    if replica.history.kraft_version < 1 and not isinstance(request, m.UpdateVoterRequest):
        return ErrorCode.UNSUPPORTED_VERSION, "Cluster doesn't support adding or removing voters because kraft.version is 0"
    if isinstance(request, m.AddVoterRequest) and key.node_id in voters.node_ids:
        text = f"The voter id for {key_text(key)} is already part of the set of voters {voters_text(voters)}."
        return ErrorCode.DUPLICATE_VOTER, text
    if isinstance(request, m.RemoveVoterRequest):
        voter = voters.get(key.node_id)
        if voter is None or voter.key != key:
            text = f"Cannot remove voter {key_text(key)} from the set of voters {voters_text(voters)}"
            return ErrorCode.VOTER_NOT_FOUND, text
        if len(voters) == 1:
            text = f"Cannot remove voter {key_text(key)} from the set of voters {voters_text(voters)}"
            return ErrorCode.INVALID_REQUEST, text + ": it is the last voter."
    if isinstance(request, m.UpdateVoterRequest):
        voter = voters.get(key.node_id)
        if voter is None or (voter.key != key and replica.history.kraft_version > 0):
            return ErrorCode.VOTER_NOT_FOUND, f"{key_text(key)} is not a voter."
        if not request.endpoints:
            return ErrorCode.INVALID_REQUEST, "An endpoint of the default listener is needed."
        if not request.version_min <= replica.history.kraft_version <= request.version_max:
            return ErrorCode.INVALID_REQUEST, "The voter does not support the kraft.version of the quorum."
    if replica.pending_change is not None:
        return ErrorCode.REQUEST_TIMED_OUT, "Request timed out waiting for leader to handle previous voter change request."
    if replica.high_watermark <= role.epoch_start:
        return ErrorCode.REQUEST_TIMED_OUT, "Request timed out waiting for leader to establish HWM and fence previous voter changes."
    if replica.history.latest_offset >= replica.high_watermark:
        return ErrorCode.REQUEST_TIMED_OUT, "Request timed out waiting for the set of voters at the end of the log to be committed."
    return None


def _default_endpoint(replica: Replica, request: m.AddVoterRequest) -> Endpoint | None:
    """The new voter's endpoint for this leader: the listener with the name of this leader's own first listener."""
    names = [endpoint.listener for endpoint in replica.endpoints[:1]]
    return next((endpoint for endpoint in request.endpoints if not names or endpoint.listener in names), None)


def on_versions(replica: Replica, asked: m.VersionsRequest, reply: m.Reply | None, now_ms: int) -> None:
    """The future voter has reported the levels of kraft.version that it supports. Without an answer (None) it cannot become a voter
    (KIP-853, AddVoterHandler)."""
    role, change = replica.role, replica.pending_change
    if not isinstance(role, Leader) or change is None or not isinstance(change.request, m.AddVoterRequest):
        return
    if change.request.key != asked.key or change.versions is not None:
        return
    text = key_text(asked.key)
    if not isinstance(reply, m.VersionsReply) or reply.error is not ErrorCode.NONE:
        why = "it does not answer" if reply is None else f"it answered {reply.error.name}"
        _refuse(replica, ErrorCode.REQUEST_TIMED_OUT, f"{text} was not added: asked for its versions, {why}")
        return
    level = replica.history.kraft_version
    if not reply.version_min <= level <= reply.version_max:
        range_text = f"{reply.version_min} to {reply.version_max}"
        _refuse(replica, ErrorCode.INVALID_REQUEST, f"{text} was not added: it supports kraft.version {range_text}, the quorum has {level}")
        return
    change.versions = (reply.version_min, reply.version_max)
    _try_add(replica, role, change, now_ms)


def _refuse(replica: Replica, error: ErrorCode, text: str) -> None:
    change, replica.pending_change = replica.pending_change, None
    if change is not None and not change.is_answered:
        replica.respond(change.token, replica.reply_to(change.request, error, text))


def on_update_reply(replica: Replica, node_id: int, request: m.UpdateVoterRequest, reply: m.Reply) -> None:
    """The leader has registered this static voter, or is too old to do so."""
    role = replica.role
    if isinstance(role, Follower) and role.epoch == request.epoch and role.leader_id == node_id:
        role.has_announced = reply.error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION)


def upgrade_fault(replica: Replica, level: int) -> str | None:
    """Why the static voters cannot become dynamic now, or None. Each must have announced its directory id and support `level`."""
    role, version = replica.role, replica.history.kraft_version
    if not isinstance(role, Leader):
        return "This node is not the leader of the quorum."
    if not KRAFT_VERSION_MIN <= level <= KRAFT_VERSION_MAX:
        return f"The quorum only supports versions {KRAFT_VERSION_MIN}-{KRAFT_VERSION_MAX}"
    if level == version:
        return None
    if level < version:
        return "Can't downgrade the version of this feature."
    silent = [node_id for node_id in replica.voters.node_ids if node_id != replica.local.node_id and node_id not in role.announced]
    if silent:
        return f"Directory id must be known for all of the voters, but is missing for {', '.join(map(str, silent))}"
    if not all(role.announced[node_id].version_max >= level for node_id in replica.voters.node_ids if node_id != replica.local.node_id):
        return f"Invalid upgrade of kraft.version to version {level} because not all of the voters support it"
    if replica.high_watermark <= role.epoch_start or not replica.endpoints:
        return "The leader has not committed a record of its epoch yet."
    return None


def upgrade(replica: Replica, level: int) -> None:
    """Append the first voter set of the log, together with the kraft.version that puts it in force."""
    role = replica.role
    if not isinstance(role, Leader) or level == replica.history.kraft_version:
        return
    own = Voter(replica.local, replica.endpoints, KRAFT_VERSION_MIN, KRAFT_VERSION_MAX)
    voters = VoterSet(own if node_id == replica.local.node_id else role.announced[node_id] for node_id in replica.voters.node_ids)
    replica.effect(AppendVoters(role.epoch, voters, level))


def _try_add(replica: Replica, role: Leader, change: PendingChange, now_ms: int) -> None:
    """Append the new set once the observer has reported its versions and has fetched up to the end of the log."""
    request = change.request
    assert isinstance(request, m.AddVoterRequest)
    if change.offset >= 0 or change.versions is None:
        return
    progress = role.progress.replica(request.key)
    if progress is None or progress.last_caught_up_ms < 0 or progress.last_caught_up_ms + CAUGHT_UP_MS < now_ms:
        return
    _append(replica, role, change, replica.voters.with_voter(Voter(request.key, request.endpoints, *change.versions)))
    if not request.ack_when_committed:
        _answer_early(replica, change)


def _answer_early(replica: Replica, change: PendingChange) -> None:
    if replica.pending_change is change:
        change.is_answered = True
        replica.respond(change.token, replica.reply_to(change.request, ErrorCode.NONE))


def _append(replica: Replica, role: Leader, change: PendingChange, voters: VoterSet) -> None:
    if voters == replica.voters:
        replica.pending_change = None
        replica.respond(change.token, replica.reply_to(change.request, ErrorCode.NONE))
        return
    change.offset = replica.log.end_offset
    replica.effect(AppendVoters(role.epoch, voters))


def on_fetched(replica: Replica, role: Leader, key: ReplicaKey, now_ms: int) -> None:
    change = replica.pending_change
    if change is not None and isinstance(change.request, m.AddVoterRequest) and change.request.key == key:
        _try_add(replica, role, change, now_ms)


def on_committed(replica: Replica, role: Leader, now_ms: int) -> None:
    """The high watermark moved: answer the change that it covers. A leader that removed itself resigns now, not earlier."""
    change = replica.pending_change
    if change is not None and 0 <= change.offset < replica.high_watermark:
        replica.pending_change = None
        if not change.is_answered:
            replica.respond(change.token, replica.reply_to(change.request, ErrorCode.NONE))
    is_committed = replica.history.latest_offset < replica.high_watermark
    if is_committed and not replica.voters.is_voter(replica.local) and len(replica.voters) > 0:
        role.resign_requested = True


def poll(replica: Replica, now_ms: int) -> None:
    change = replica.pending_change
    if change is not None and now_ms >= change.deadline_ms:
        text = "Request timed out waiting for voter to catch up." if change.offset < 0 else "Request timed out."
        _refuse(replica, ErrorCode.REQUEST_TIMED_OUT, text)
