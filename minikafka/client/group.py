"""Membership in a classic consumer group: find the coordinator, join, sync, heartbeat, leave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar, cast

from minikafka.client.assignors import ASSIGNORS, Assignment, decode_assignment, decode_subscription, encode_assignment, encode_subscription
from minikafka.client.cluster import BrokerInfo, Cluster
from minikafka.client.errors import TRANSPORT_ERRORS, BrokerError, ClientError, refusal
from minikafka.net.tasks import within
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Request, Response
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from minikafka.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from minikafka.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from minikafka.wire.messages.leave_group import LeaveGroupRequest
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from minikafka.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

COORDINATOR_VERSION_MAX = 3
OFFSET_FETCH_VERSION_MAX = 7
LOST_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
#: What a coordinator answers that is another broker by now, or is still reading its log.
UNSETTLED_COORDINATOR = LOST_COORDINATOR | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
_REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})
GROUP, TRANSACTION = 0, 1
T = TypeVar("T")


async def find_coordinator(cluster: Cluster, key: str, timeout_ms: int | None = None, kind: int = GROUP) -> BrokerInfo:
    """The broker that coordinates a group or a transactional id. Raises BrokerError, TimeoutError."""

    async def ask() -> BrokerInfo | None:
        channel = await cluster.any_channel()
        request = FindCoordinatorRequest(key=key, key_type=kind)
        version = channel.version_for(request, COORDINATOR_VERSION_MAX)
        response = cast(FindCoordinatorResponse, await channel.request(request, version))
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            return BrokerInfo(response.node_id, response.host, response.port)
        if code.retriable:
            return None
        raise refusal(code, f"the coordinator of {'transactional id' if kind else 'group'} {key}", response.error_message)

    return cast(BrokerInfo, await cluster.retry(ask, timeout_ms))


async def at_coordinator(
    cluster: Cluster, key: str, ask: Callable[[BrokerInfo], Awaitable[T]], timeout_ms: int | None = None, kind: int = GROUP
) -> T:
    """The result of `ask(coordinator)`, which is called again while the coordinator moves or reads its log. Raises BrokerError,
    TimeoutError."""

    async def asked() -> T:
        return await ask(await find_coordinator(cluster, key, timeout_ms, kind))

    return await cluster.retry_refused(asked, UNSETTLED_COORDINATOR.__contains__, timeout_ms)


async def committed_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[tuple[str, int]], timeout_ms: int | None = None
) -> dict[tuple[str, int], int]:
    """A group's committed offsets, -1 where it has none. Waits for pending transactional commits, so that it does not return an offset from
    before a transaction that has been decided but whose marker is not yet written (KIP-447). Raises BrokerError, TimeoutError."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    wanted = [OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    request = OffsetFetchRequest(group_id=group_id, topics=wanted, require_stable=True)

    async def ask() -> dict[tuple[str, int], int] | None:
        coordinator = await find_coordinator(cluster, group_id, timeout_ms)
        channel = await cluster.channel_at(coordinator.host, coordinator.port, "group")
        version = channel.version_for(request, OFFSET_FETCH_VERSION_MAX)
        response = cast(OffsetFetchResponse, await channel.request(request, version, cluster.request_timeout_ms))
        answers = [(topic.name, one) for topic in response.topics for one in topic.partitions]
        for code in {ErrorCode(response.error_code), *(ErrorCode(one.error_code) for _, one in answers)} - {ErrorCode.NONE}:
            if code.retriable:
                return None
            raise refusal(code, f"committed offsets of group {group_id}")
        return {(name, one.partition_index): one.committed_offset for name, one in answers}

    return cast(dict[tuple[str, int], int], await cluster.retry(ask, timeout_ms))


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The member that commits offsets for a group, from `Consumer.group_metadata`. With generation -1 and no member id the coordinator does
    not check the membership (KIP-447)."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemberTimes:
    """session.timeout.ms, max.poll.interval.ms and heartbeat.interval.ms of a member."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int


class GroupMember:
    """One member. `on_assigned` is awaited with each new assignment, `on_lost` before each rebalance. `on_failed` is called when the
    membership ends; `failure` is then the reason."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        times: MemberTimes,
        *,
        group_instance_id: str | None,
        assignors: tuple[str, ...],
        on_assigned: Callable[[Assignment], Awaitable[None]],
        on_lost: Callable[[], Awaitable[None]],
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.group_id = group_id
        self.member_id = ""
        self.generation = -1
        self._cluster = cluster
        self._session_timeout_ms = times.session_timeout_ms
        self._rebalance_timeout_ms = times.rebalance_timeout_ms
        self._heartbeat_interval_s = times.heartbeat_interval_ms / 1000
        self.group_instance_id = group_instance_id
        self._assignors = assignors
        self._on_assigned = on_assigned
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._topics: list[str] = []
        self._coordinator: BrokerInfo | None = None
        self._task: asyncio.Task[None] | None = None
        #: Member id and generation of the last assignment; ("", -1) before the first.
        self._assigned_to = ("", -1)
        self.joined = asyncio.Event()
        self.failure: ClientError | None = None

    def start(self, topics: list[str]) -> None:
        """Join the group, subscribed to these topics."""
        self._topics = topics
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Leave the group."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self.member_id and self._coordinator is not None and self.group_instance_id is None:
            with contextlib.suppress(*TRANSPORT_ERRORS, ClientError):
                await within(2, self._leave())

    async def _leave(self) -> None:
        await self.ask(LeaveGroupRequest(group_id=self.group_id, members=[LeaveGroupRequest.MemberIdentity(member_id=self.member_id)]))

    async def ask(self, request: Request, timeout_ms: int | None = None) -> Response:
        """Send a request to the group's coordinator. `timeout_ms` None: enough for a rebalance. Raises transport errors, BrokerError."""
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self._cluster, self.group_id)
        try:
            channel = await self._cluster.channel_at(self._coordinator.host, self._coordinator.port, "group")
            return await channel.request(request, None, timeout_ms or max(self._rebalance_timeout_ms, 30_000) + 5000)
        except TRANSPORT_ERRORS:
            self._coordinator = None
            raise

    def coordinator_lost(self) -> None:
        """Look up the coordinator again: the broker has answered that it is not."""
        self._coordinator = None

    async def _run(self) -> None:
        backoff = 0.02
        while True:
            try:
                assignment = await self._join()
                self._assigned_to = self.member_id, self.generation
                await self._on_assigned(assignment)
                self.joined.set()
                backoff = 0.02
                await self._heartbeats()
            except BrokerError as error:
                if not error.code.retriable and error.code not in _REJOIN:
                    self._fail(error)
                    return
                if error.code in LOST_COORDINATOR:
                    self._coordinator = None
                if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id, self.generation = "", -1
            except TRANSPORT_ERRORS:
                self._coordinator = None
            except ClientError as error:
                self._fail(error)
                return
            self.joined.clear()
            await self._on_lost()
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, 1.0)

    def _fail(self, error: ClientError) -> None:
        self.failure = error
        self.joined.set()
        self._on_failed()

    async def _join(self) -> Assignment:
        protocols = [
            JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=encode_subscription(self._topics)) for name in self._assignors
        ]
        while True:
            request = JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=self._session_timeout_ms,
                rebalance_timeout_ms=self._rebalance_timeout_ms,
                member_id=self.member_id,
                group_instance_id=self.group_instance_id,
                protocol_type="consumer",
                protocols=protocols,
            )
            response = cast(JoinGroupResponse, await self.ask(request))
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
                continue
            if response.error_code:
                raise refusal(response.error_code, f"joining group {self.group_id}")
            if (response.member_id, response.generation_id) != self._assigned_to:
                break
            # The coordinator put us back into the generation that we have left. Offsets read in it may still be committed, while we would
            # read the same records again from the last commit. So leave, and join as a new member.
            if self.group_instance_id is None:
                await self._leave()
            self.member_id = ""
        self.member_id, self.generation = response.member_id, response.generation_id
        assignments = await self._assign(response) if response.leader == response.member_id else {}
        sync = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type="consumer",
            protocol_name=response.protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(assignment))
                for member, assignment in assignments.items()
            ],
        )
        synced = cast(SyncGroupResponse, await self.ask(sync))
        if synced.error_code:
            raise refusal(synced.error_code, f"syncing group {self.group_id}")
        return decode_assignment(synced.assignment)

    async def _assign(self, joined: JoinGroupResponse) -> dict[str, Assignment]:
        members = {member.member_id: decode_subscription(member.metadata) for member in joined.members}
        counts: dict[str, int] = {}
        for topic in sorted({topic for topics in members.values() for topic in topics}):
            with contextlib.suppress(ClientError, TimeoutError):
                counts[topic] = len((await self._cluster.fresh_topic(topic)).partitions)
        return ASSIGNORS[joined.protocol_name or self._assignors[0]](members, counts)

    async def _heartbeats(self) -> None:
        """Send heartbeats until the group asks this member to rejoin. It keeps its partitions while the coordinator is unavailable."""
        while True:
            await asyncio.sleep(self._heartbeat_interval_s)
            request = HeartbeatRequest(
                group_id=self.group_id, generation_id=self.generation, member_id=self.member_id, group_instance_id=self.group_instance_id
            )
            try:
                response = cast(HeartbeatResponse, await self.ask(request, self._session_timeout_ms))
                if response.error_code:
                    raise refusal(response.error_code, f"heartbeat of group {self.group_id}")
            except BrokerError as error:
                if error.code in _REJOIN or not error.code.retriable:
                    raise
                self._coordinator = None
            except TRANSPORT_ERRORS:
                self._coordinator = None
