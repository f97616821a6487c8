"""The classic rebalance protocol: join, sync, heartbeat, leave, and the timers between them.

Rules: org.apache.kafka.coordinator.group.GroupMetadataManager (classicGroup*), KIP-62 (rebalance timeout), KIP-134 (initial delay),
KIP-345 (static members), KIP-394 (member id required), KIP-559 (protocol in SyncGroup), KIP-814 (skip assignment).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from minikafka.core.coordinator.shard import Append, CoordinatorRecord, append_error
from minikafka.core.group.answers import assignment, join_members
from minikafka.core.group.classic import GROUP_METADATA_VALUE_VERSION, ClassicGroup, GroupState
from minikafka.core.group.config import Client, GroupConfig
from minikafka.core.group.effects import Effects, Reply
from minikafka.core.group.errors import check_member
from minikafka.core.group.member import Member
from minikafka.core.timers import TimerQueue
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from minikafka.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from minikafka.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from minikafka.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

#: How long a member whose client cannot send heartbeats yet may wait for the end of the join phase.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
#: Shortest wait for absent static members, because a member may ask for a rebalance timeout of 0.
ABSENT_MEMBERS_WAIT_MS_MIN = 1000

Timer = tuple[str, str, str]  # (kind, group id, member id or "")


class Rebalancer:
    """Drives the classic groups of one shard. Callers take `effects` after every call.

    Invariant: a parked join or sync is answered exactly once: at the end of the phase, when its member is removed, or by `shutdown`.
    """

    def __init__(self, config: GroupConfig, new_uuid: Callable[[], str], wall_ms: Callable[[int], int]) -> None:
        """`new_uuid` returns the random part of member ids; `wall_ms(now_ms)` converts the caller's clock to wall time."""
        self._config = config
        self._new_uuid = new_uuid
        self._wall_ms = wall_ms
        self.groups: dict[str, ClassicGroup] = {}
        self.timers: TimerQueue[Timer] = TimerQueue()
        self.effects = Effects()

    def take_effects(self) -> Effects:
        """The effects that have accumulated since the last call."""
        effects, self.effects = self.effects, Effects()
        return effects

    # -- join ------------------------------------------------------------------------------------------------------

    def join(self, reply: Reply, request: JoinGroupRequest, client: Client, now_ms: int) -> None:
        """Answer now with an error, or park the join until its phase ends."""
        try:
            self._join(reply, request, client, now_ms)
        except ApiError as error:
            self._answer_join_error(reply, client.version, error.code, request.member_id)

    def refuse_join(self, reply: Reply, client: Client, code: ErrorCode, member_id: str) -> None:
        """Answer with an error."""
        self._answer_join_error(reply, client.version, code, member_id)

    def _join(self, reply: Reply, request: JoinGroupRequest, client: Client, now_ms: int) -> None:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        config = self._config
        if not config.allows_session(request.session_timeout_ms):
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self.groups.get(request.group_id)
        names = [protocol.name for protocol in request.protocols]
        if group is None:
            if request.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if len(self.groups) >= config.groups_max:
                raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
            # As in Kafka, the group stays, empty, even if it is refused what it asks for next.
            group = self._create(request.group_id, now_ms)
        if not self._has_room(group, request.member_id):
            if request.member_id:
                group.forget_announced(request.member_id)
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not group.supports(request.protocol_type, names):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id:
            self._rejoin(group, reply, request, client, now_ms)
        else:
            self._join_new(group, reply, request, client, now_ms)

    def _create(self, group_id: str, now_ms: int) -> ClassicGroup:
        group = ClassicGroup(group_id, self._wall_ms(now_ms))
        self.groups[group.group_id] = group

        def created(error: ErrorCode, done_ms: int) -> None:
            if error is ErrorCode.NONE:
                return
            if self.groups.get(group.group_id) is group and not group.members:
                del self.groups[group.group_id]

        self.effects.appends.append(Append([self._record(group)], created))
        return group

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        size_max = self._config.group_size_max
        if member_id and member_id in group.members:
            if group.state is not GroupState.PREPARING_REBALANCE:
                return True
            member = group.members[member_id]
            joined = sum(1 for other in group.members.values() if other.awaiting_join is not None)
            return member.awaiting_join is not None or joined < size_max
        return len(group.members) < size_max

    def _join_new(self, group: ClassicGroup, reply: Reply, request: JoinGroupRequest, client: Client, now_ms: int) -> None:
        instance_id = request.group_instance_id
        member_id = f"{instance_id if instance_id is not None else client.client_id}-{self._new_uuid()}"
        if instance_id is not None:
            if instance_id in group.static_members:
                self._rejoin_static(group, reply, request, client, member_id, now_ms)
            else:
                self._add_and_rebalance(group, reply, request, client, member_id, now_ms)
        elif client.version >= 4:
            for forgotten in group.announce(member_id):
                self.timers.cancel(("session", group.group_id, forgotten))
            self.timers.schedule(("session", group.group_id, member_id), now_ms + request.session_timeout_ms)
            self._answer_join_error(reply, client.version, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add_and_rebalance(group, reply, request, client, member_id, now_ms)

    def _rejoin(self, group: ClassicGroup, reply: Reply, request: JoinGroupRequest, client: Client, now_ms: int) -> None:
        member_id = request.member_id
        if member_id in group.pending_members:
            if request.group_instance_id is not None:
                # The id was announced to a dynamic member, which may still come.
                self._answer_join_error(reply, client.version, ErrorCode.INVALID_REQUEST, "")
                return
            self._add_and_rebalance(group, reply, request, client, member_id, now_ms)
            return
        check_member(group, member_id, request.group_instance_id)
        member = group.members[member_id]
        same = member.protocols == [(p.name, p.metadata) for p in request.protocols]
        if group.state is GroupState.PREPARING_REBALANCE:
            self._update_and_rebalance(group, member, reply, request, client, now_ms)
        elif group.state is GroupState.COMPLETING_REBALANCE:
            if same:
                self._answer_join(group, member, reply, client.version, now_ms)
            else:
                self._update_and_rebalance(group, member, reply, request, client, now_ms)
        elif group.state is GroupState.STABLE:
            # A leader that joins again wants a new assignment (its metadata may have changed outside the protocol).
            if member_id == group.leader_id or not same:
                self._update_and_rebalance(group, member, reply, request, client, now_ms)
            else:
                self._answer_join(group, member, reply, client.version, now_ms)
        else:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)

    def _add_and_rebalance(
        self,
        group: ClassicGroup,
        reply: Reply,
        request: JoinGroupRequest,
        client: Client,
        member_id: str,
        now_ms: int,
    ) -> None:
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.host,
            rebalance_timeout_ms=_rebalance_timeout(request),
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=[(p.name, p.metadata) for p in request.protocols],
            is_new=True,
            awaiting_join=reply,
            awaiting_join_version=client.version,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.generation_id == 0:
            group.new_member_added = True
        group.add(member)
        self.timers.schedule(("session", group.group_id, member_id), now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._maybe_prepare(group, now_ms)

    def _update_and_rebalance(
        self,
        group: ClassicGroup,
        member: Member,
        reply: Reply,
        request: JoinGroupRequest,
        client: Client,
        now_ms: int,
    ) -> None:
        member.protocols = [(p.name, p.metadata) for p in request.protocols]
        member.rebalance_timeout_ms = _rebalance_timeout(request)
        member.session_timeout_ms = request.session_timeout_ms
        self._park_join(member, reply, client.version)
        self._maybe_prepare(group, now_ms)

    def _rejoin_static(
        self,
        group: ClassicGroup,
        reply: Reply,
        request: JoinGroupRequest,
        client: Client,
        member_id: str,
        now_ms: int,
    ) -> None:
        instance_id = request.group_instance_id or ""
        old_id = group.static_members[instance_id]
        before = copy(group.members[old_id])
        member = group.replace_static(instance_id, member_id)
        self.timers.cancel(("session", group.group_id, old_id))
        if member.awaiting_join is not None:
            waiting, version = member.awaiting_join, member.awaiting_join_version
            member.awaiting_join = None
            self._answer_join_error(waiting, version, ErrorCode.FENCED_INSTANCE_ID, old_id)
        if member.awaiting_sync is not None:
            waiting, member.awaiting_sync = member.awaiting_sync, None
            self._answer_sync(waiting, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        member.protocols = [(p.name, p.metadata) for p in request.protocols]
        member.rebalance_timeout_ms = _rebalance_timeout(request)
        member.session_timeout_ms = request.session_timeout_ms
        self._schedule_session(group, member, now_ms)
        unchanged = member.metadata_for(group.select_protocol()) == before.metadata_for(group.protocol_name)
        if group.state is GroupState.STABLE and unchanged and group.select_protocol() == group.protocol_name:
            self._persist_static_rejoin(group, member, reply, client, before)
            return
        self._park_join(member, reply, client.version)
        self._maybe_prepare(group, now_ms)

    def _persist_static_rejoin(self, group: ClassicGroup, member: Member, reply: Reply, client: Client, before: Member) -> None:
        """`before`: the member before the rejoin. It is restored if the record cannot be stored, because the log then has its old id."""
        new_id, old_id = member.member_id, before.member_id

        def stored(error: ErrorCode, done_ms: int) -> None:
            if error is not ErrorCode.NONE:
                if group.members.get(new_id) is member:
                    self._revert_static_rejoin(group, member, before, done_ms)
                self._answer_join_error(reply, client.version, append_error(error), "")
                return
            is_leader = group.leader_id == member.member_id
            # Before v9, a returning static leader gets another leader id, so that it does not assign again.
            leader = group.leader_id if client.version >= 9 or not is_leader else old_id
            members = join_members(group) if is_leader and client.version >= 9 else []
            self.effects.answers.append(
                (
                    reply,
                    JoinGroupResponse(
                        generation_id=group.generation_id,
                        protocol_type=group.protocol_type,
                        protocol_name=group.protocol_name or "",
                        leader=leader or "",
                        skip_assignment=is_leader and client.version >= 9,
                        member_id=member.member_id,
                        members=members,
                    ),
                )
            )

        self.effects.appends.append(Append([self._record(group)], stored))

    def _revert_static_rejoin(self, group: ClassicGroup, member: Member, before: Member, now_ms: int) -> None:
        self.timers.cancel(("session", group.group_id, member.member_id))
        group.replace_static(before.group_instance_id or "", before.member_id)
        member.protocols = before.protocols
        member.rebalance_timeout_ms = before.rebalance_timeout_ms
        member.session_timeout_ms = before.session_timeout_ms
        self._schedule_session(group, member, now_ms)

    def _park_join(self, member: Member, reply: Reply, version: int) -> None:
        if member.awaiting_join is not None:
            # The client has given up its earlier request; only the latest is of use to it.
            self._answer_join_error(member.awaiting_join, member.awaiting_join_version, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        member.awaiting_join = reply
        member.awaiting_join_version = version

    # -- phases ----------------------------------------------------------------------------------------------------

    def _maybe_prepare(self, group: ClassicGroup, now_ms: int) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(group, now_ms)
        else:
            self._prepare(group, now_ms)

    def _prepare(self, group: ClassicGroup, now_ms: int) -> None:
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self.timers.cancel(("sync", group.group_id, ""))
        group.pending_sync_members.clear()
        from_empty = group.state is GroupState.EMPTY
        group.transition(GroupState.PREPARING_REBALANCE, self._wall_ms(now_ms))
        if from_empty:
            delay = min(self._config.initial_rebalance_delay_ms, group.rebalance_timeout_ms)
            group.rebalance_remaining_ms = max(group.rebalance_timeout_ms - delay, 0)
            group.new_member_added = False
            if delay > 0:
                self.timers.schedule(("join", group.group_id, ""), now_ms + delay)
                return
        group.rebalance_remaining_ms = -1
        self.timers.schedule(("join", group.group_id, ""), now_ms + group.rebalance_timeout_ms)
        self._maybe_complete_join(group, now_ms)

    def _maybe_complete_join(self, group: ClassicGroup, now_ms: int) -> None:
        if group.rebalance_remaining_ms < 0 and group.all_joined():
            self._complete_join(group, now_ms)

    def _join_deadline(self, group: ClassicGroup, now_ms: int) -> None:
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.rebalance_remaining_ms > 0 and group.new_member_added:
            delay = min(self._config.initial_rebalance_delay_ms, group.rebalance_remaining_ms)
            group.rebalance_remaining_ms = max(group.rebalance_remaining_ms - delay, 0)
            group.new_member_added = False
            self.timers.schedule(("join", group.group_id, ""), now_ms + delay)
            return
        self._complete_join(group, now_ms)

    def _complete_join(self, group: ClassicGroup, now_ms: int) -> None:
        self.timers.cancel(("join", group.group_id, ""))
        group.rebalance_remaining_ms = -1
        for member in [m for m in group.members.values() if m.awaiting_join is None and not m.is_static]:
            group.remove(member.member_id)
            self.timers.cancel(("session", group.group_id, member.member_id))
        if group.members and not group.elect_joined_leader():
            # Only absent static members are left: keep waiting until they join or their sessions end.
            self.timers.schedule(("join", group.group_id, ""), now_ms + max(group.rebalance_timeout_ms, ABSENT_MEMBERS_WAIT_MS_MIN))
            return
        group.next_generation(self._wall_ms(now_ms))
        if not group.members:
            self.effects.appends.append(Append([self._record(group)], _ignore))
            return
        group.pending_sync_members = dict.fromkeys(group.members)
        self.timers.schedule(("sync", group.group_id, ""), now_ms + group.rebalance_timeout_ms)
        for member in group.members.values():
            reply, version = member.awaiting_join, member.awaiting_join_version
            member.awaiting_join = None
            member.is_new = False
            if reply is not None:
                self._answer_join(group, member, reply, version, now_ms)
            else:
                self._schedule_session(group, member, now_ms)

    # -- sync ------------------------------------------------------------------------------------------------------

    def sync(self, reply: Reply, request: SyncGroupRequest, client: Client, now_ms: int) -> None:
        """Answer with the member's assignment, now or when the leader has sent it and it is committed."""
        try:
            self._sync(reply, request, client, now_ms)
        except ApiError as error:
            self._answer_sync(reply, SyncGroupResponse(error_code=error.code))

    def _sync(self, reply: Reply, request: SyncGroupRequest, client: Client, now_ms: int) -> None:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        if client.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group = self._group(request.group_id)
        check_member(group, request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.protocol_name is not None and request.protocol_name != group.protocol_name:
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member = group.members[request.member_id]
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        if group.state is GroupState.STABLE:
            self._synced(group, member)
            self._schedule_session(group, member, now_ms)
            self._answer_sync(reply, assignment(group, member))
            return
        if group.state is not GroupState.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member.awaiting_sync is not None:
            self._answer_sync(member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = reply
        self._synced(group, member)
        if member.member_id == group.leader_id:
            self._store_assignment(group, {a.member_id: bytes(a.assignment) for a in request.assignments})

    def _synced(self, group: ClassicGroup, member: Member) -> None:
        group.pending_sync_members.pop(member.member_id, None)
        if not group.pending_sync_members:
            self.timers.cancel(("sync", group.group_id, ""))

    def _store_assignment(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        generation = group.generation_id
        record = CoordinatorRecord(group.key(), group.value(assignments), GROUP_METADATA_VALUE_VERSION)

        def stored(error: ErrorCode, done_ms: int) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != generation:
                return
            if error is not ErrorCode.NONE:
                self._fail_syncs(group, append_error(error))
                self._prepare(group, done_ms)
                return
            group.transition(GroupState.STABLE, self._wall_ms(done_ms))
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
                if member.awaiting_sync is not None:
                    waiting, member.awaiting_sync = member.awaiting_sync, None
                    self._schedule_session(group, member, done_ms)
                    self._answer_sync(waiting, assignment(group, member))

        self.effects.appends.append(Append([record], stored))

    def _sync_deadline(self, group: ClassicGroup, now_ms: int) -> None:
        """Remove members that joined this generation and have sent no SyncGroup: they are gone or will never consume. Their partitions
        go to other members, even if the group is stable without them (expirePendingSync)."""
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_sync_members:
            return
        for member_id in list(group.pending_sync_members):
            group.remove(member_id)
            self.timers.cancel(("session", group.group_id, member_id))
        self._prepare(group, now_ms)

    # -- heartbeat and leave ---------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        """Extend a member's session. The answer says whether the member must join again."""
        try:
            if not request.group_id:
                raise ApiError(ErrorCode.INVALID_GROUP_ID)
            group = self._group(request.group_id)
            check_member(group, request.member_id, request.group_instance_id)
            if request.generation_id != group.generation_id:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
            if group.state in (GroupState.EMPTY, GroupState.DEAD):
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            self._schedule_session(group, group.members[request.member_id], now_ms)
            if group.state is GroupState.PREPARING_REBALANCE:
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
            return HeartbeatResponse()
        except ApiError as error:
            return HeartbeatResponse(error_code=error.code)

    def answer_leave(self, reply: Reply, request: LeaveGroupRequest, version: int, now_ms: int) -> None:
        """Remove one member (v0-2) or several (v3+, KIP-345)."""
        group = self.groups.get(request.group_id)
        single = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        results = []
        for identity in single if version < 3 else request.members:
            code = ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave_one(group, identity, now_ms)
            results.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        answer = LeaveGroupResponse(error_code=results[0].error_code) if version < 3 else LeaveGroupResponse(members=results)
        self.effects.answers.append((reply, answer))

    def _leave_one(self, group: ClassicGroup, identity: LeaveGroupRequest.MemberIdentity, now_ms: int) -> ErrorCode:
        member_id = identity.member_id
        if member_id in group.pending_members:
            group.forget_announced(member_id)
            self.timers.cancel(("session", group.group_id, member_id))
            if group.state is GroupState.PREPARING_REBALANCE:
                self._maybe_complete_join(group, now_ms)
            return ErrorCode.NONE
        if identity.group_instance_id is not None:
            owner = group.static_members.get(identity.group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if member_id and member_id != owner:
                return ErrorCode.FENCED_INSTANCE_ID
            member_id = owner
        if member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove_member(group, member_id, now_ms)
        return ErrorCode.NONE

    def _remove_member(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        self.timers.cancel(("session", group.group_id, member_id))
        member = group.remove(member_id)
        if member is not None and member.awaiting_join is not None:
            self._answer_join_error(member.awaiting_join, member.awaiting_join_version, ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        if member is not None and member.awaiting_sync is not None:
            self._answer_sync(member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare(group, now_ms)
        elif group.state is GroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(group, now_ms)

    # -- time ------------------------------------------------------------------------------------------------------

    def on_deadline(self, now_ms: int) -> None:
        """Carry out every deadline that is due."""
        for kind, group_id, member_id in self.timers.expired(now_ms):
            group = self.groups.get(group_id)
            if group is None or group.is_frozen:
                continue
            if kind == "session":
                self._session_deadline(group, member_id, now_ms)
            elif kind == "join":
                self._join_deadline(group, now_ms)
            else:
                self._sync_deadline(group, now_ms)

    def _session_deadline(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        if member_id in group.pending_members:
            group.forget_announced(member_id)
            if group.state is GroupState.PREPARING_REBALANCE:
                self._maybe_complete_join(group, now_ms)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        parked = member.awaiting_join is not None or member.awaiting_sync is not None
        if parked and not member.is_new:
            self._schedule_session(group, member, now_ms)
            return
        self._remove_member(group, member_id, now_ms)

    def shutdown(self, code: ErrorCode) -> None:
        """Answer every parked request with `code` and forget the groups: the shard is shut down."""
        for group in self.groups.values():
            for member in group.members.values():
                if member.awaiting_join is not None:
                    self._answer_join_error(member.awaiting_join, member.awaiting_join_version, code, member.member_id)
                    member.awaiting_join = None
            self._fail_syncs(group, code)
            group.state = GroupState.DEAD
        self.groups.clear()
        self.timers.clear()

    def restore(self, group: ClassicGroup, now_ms: int) -> None:
        """Take over a group from the log. Each member has a full session timeout to send a request."""
        self.groups[group.group_id] = group
        for member in group.members.values():
            self._schedule_session(group, member, now_ms)

    def touch(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        """Count an offset commit as a sign of life."""
        member = group.members.get(member_id)
        if member is not None:
            self._schedule_session(group, member, now_ms)

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def _schedule_session(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        self.timers.schedule(("session", group.group_id, member.member_id), now_ms + member.session_timeout_ms)

    def _record(self, group: ClassicGroup) -> CoordinatorRecord:
        return CoordinatorRecord(group.key(), group.value(), GROUP_METADATA_VALUE_VERSION)

    def _answer_join(self, group: ClassicGroup, member: Member, reply: Reply, version: int, now_ms: int) -> None:
        self._schedule_session(group, member, now_ms)
        is_leader = member.member_id == group.leader_id
        response = JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name or "",
            leader=group.leader_id or "",
            member_id=member.member_id,
            members=join_members(group) if is_leader else [],
        )
        self.effects.answers.append((reply, response))

    def _answer_join_error(self, reply: Reply, version: int, code: ErrorCode, member_id: str) -> None:
        protocol_name = None if version >= 7 else ""
        response = JoinGroupResponse(error_code=code, protocol_name=protocol_name, member_id=member_id)
        self.effects.answers.append((reply, response))

    def _answer_sync(self, reply: Reply, response: SyncGroupResponse) -> None:
        self.effects.answers.append((reply, response))

    def _fail_syncs(self, group: ClassicGroup, code: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
            if member.awaiting_sync is not None:
                waiting, member.awaiting_sync = member.awaiting_sync, None
                self._answer_sync(waiting, SyncGroupResponse(error_code=code))


def _rebalance_timeout(request: JoinGroupRequest) -> int:
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


def _ignore(error: ErrorCode, now_ms: int) -> None:
    """Ignores the error: without its record, an empty group is absent after the next load, which is the same to clients."""
