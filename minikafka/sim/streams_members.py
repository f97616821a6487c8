"""Members of a streams group (KIP-1071): they take the tasks that they are given, stall, leave, die, come back, and lie about their epochs.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from minikafka.client.cluster import Cluster
from minikafka.client.group import find_coordinator
from minikafka.sim.rejoining import EXPECTED_ERRORS, Rejoin, live
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from minikafka.wire.uuid import uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from minikafka.sim.client import Client
    from minikafka.sim.parts import Workload, World

TOPIC = "records"
GROUP = "streamers"
#: The application has one subtopology, with a task for each partition of the topic.
SUBTOPOLOGY = "0"
ROLES = ("active", "standby", "warmup")
REQUEST_TIMEOUT_MS = 3000
REBALANCE_TIMEOUT_MS = 2000
#: Shares of a member's heartbeats after which it leaves and comes back, or stalls beyond its session, or that lie.
LEAVE_SHARE, STALL_SHARE, LIE_SHARE = 0.02, 0.02, 0.06
FALSE_BY = (-2, -1, 1, 3)
ENDED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
_TaskIds = StreamsGroupHeartbeatRequest.TaskIds
#: Subtopology and partition.
Task = tuple[str, int]


class StreamsMembers:
    """The members of the streams group."""

    def __init__(self, world: World, workload: Workload) -> None:
        self._world = world
        self._workload = workload

    async def run(self, client: Client) -> None:
        """The process of a member, through its memberships."""
        await live(client, lambda: _Member(self._world, self._workload, client))


class _Member:
    def __init__(self, world: World, workload: Workload, client: Client) -> None:
        self._world = world
        self._workload = workload
        self._client = client
        self._cluster = Cluster(world.bootstrap, client_id=client.name, network=client.network)
        self._member_id = uuid_to_text(client.random.randbytes(16))
        self._process_id = uuid_to_text(client.random.randbytes(16))
        self._epoch = 0
        self._interval_s = 0.05
        self._tasks: dict[str, set[Task]] = {role: set() for role in ROLES}
        #: Whether the coordinator must be told which tasks the member has.
        self._has_news = True

    async def take_part(self) -> None:
        """Send heartbeats until it is time to leave. Raises Rejoin."""
        chance = self._client.random
        while True:
            try:
                await self._heartbeat()
            except EXPECTED_ERRORS:
                # Whether the heartbeat counted is unknown.
                self._has_news = True
            await asyncio.sleep(self._interval_s)
            if self._workload.is_over:
                continue
            dice = chance.random()
            if dice < LEAVE_SHARE:
                return
            if dice < LEAVE_SHARE + STALL_SHARE:
                assert self._client.loop is not None
                self._client.loop.pause(self._world.now + chance.uniform(0.5, 1.5) * self._world.options.session_timeout_s)
            elif dice < LEAVE_SHARE + STALL_SHARE + LIE_SHARE:
                await self._lie()

    async def leave(self) -> None:
        """Leave the group."""
        try:
            if self._epoch > 0:
                await self._ask(StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=self._member_id, member_epoch=-1))
        finally:
            await self._cluster.close()

    async def _heartbeat(self) -> None:
        is_joining = self._epoch == 0
        request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=self._member_id, member_epoch=self._epoch)
        if is_joining:
            request.topology, request.process_id = _topology(), self._process_id
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
        if is_joining or self._has_news:
            request.active_tasks, request.standby_tasks, request.warmup_tasks = (_wire(self._tasks[role]) for role in ROLES)
        self._has_news = False
        answer = await self._ask(request)
        code = ErrorCode(answer.error_code)
        if code in ENDED:
            raise Rejoin
        if code is not ErrorCode.NONE:
            self._has_news = True
            return
        self._epoch, self._interval_s = answer.member_epoch, answer.heartbeat_interval_ms / 1000
        if answer.active_tasks is not None:
            given = {role: set(tasks_of(getattr(answer, f"{role}_tasks"))) for role in ROLES}
            self._has_news = given != self._tasks
            self._tasks = given

    async def _lie(self) -> None:
        """A heartbeat in an epoch that the member is not in; every second one also says that it has no tasks. Raises Rejoin if it was
        answered with tasks: the member does not know of them, and is not told again."""
        chance = self._client.random
        epoch = max(self._epoch + chance.choice(FALSE_BY), 0)
        if epoch == 0:
            return
        request = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=self._member_id, member_epoch=epoch)
        if chance.random() < 0.5:
            request.active_tasks, request.standby_tasks, request.warmup_tasks = [], [], []
        # The log shows what came of it.
        with contextlib.suppress(*EXPECTED_ERRORS):
            answer = await self._ask(request)
            if answer.active_tasks is None:
                return
        raise Rejoin

    async def _ask(self, request: StreamsGroupHeartbeatRequest) -> Any:
        coordinator = await find_coordinator(self._cluster, GROUP, REQUEST_TIMEOUT_MS)
        channel = await self._cluster.channel_at(coordinator.host, coordinator.port, "group")
        return await channel.request(request, None, REQUEST_TIMEOUT_MS)


def _topology() -> StreamsGroupHeartbeatRequest.Topology:
    subtopology = StreamsGroupHeartbeatRequest.Subtopology(subtopology_id=SUBTOPOLOGY, source_topics=[TOPIC])
    return StreamsGroupHeartbeatRequest.Topology(epoch=0, subtopologies=[subtopology])


def _wire(tasks: set[Task]) -> list[_TaskIds]:
    partitions = sorted(partition for _, partition in tasks)
    return [_TaskIds(subtopology_id=SUBTOPOLOGY, partitions=partitions)] if partitions else []


def tasks_of(listed: Iterable[Any]) -> list[Task]:
    """The tasks in a list of a message or record."""
    return [(one.subtopology_id, partition) for one in listed for partition in one.partitions]
