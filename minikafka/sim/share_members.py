"""Members of a share group (KIP-932): they fetch, accept, release, reject or keep records, stall, die and come back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minikafka.client.cluster import Cluster
from minikafka.client.errors import ClientError
from minikafka.client.group import find_coordinator
from minikafka.sim.attempts import Attempt, Place
from minikafka.sim.rejoining import EXPECTED_ERRORS, Rejoin, live
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from minikafka.wire.messages.share_fetch import ShareFetchRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.uuid import uuid_to_text

if TYPE_CHECKING:
    from minikafka.net.channel import Channel
    from minikafka.sim.client import Client
    from minikafka.sim.parts import Shares, Workload, World

TOPIC = "records"
GROUP = "sharers"
ACCEPT, RELEASE, REJECT = 1, 2, 3
#: What a member does with a record (0: nothing, until its lock ends) -> weight.
DEEDS = {ACCEPT: 10, RELEASE: 4, REJECT: 1, 0: 1}
REQUEST_TIMEOUT_MS = 3000
RECORDS_MAX, BYTES_MAX = 20, 1 << 20
#: Shares of a member's turns in which it leaves, or stalls beyond the locks of its records.
LEAVE_SHARE, STALL_SHARE = 0.02, 0.03
#: Share of acknowledgements that go with the next fetch, not in a request of their own.
WITH_FETCH_SHARE = 0.5


@dataclass(slots=True)
class _Session:
    """A share session with one broker: its next epoch, its partitions, and the acknowledgements that go with the next fetch."""

    epoch: int = 0
    partitions: set[int] = field(default_factory=set)
    waiting: list[Attempt] = field(default_factory=list)


class ShareMembers:
    """The members of the share group."""

    def __init__(self, world: World, workload: Workload, shares: Shares) -> None:
        self._world = world
        self._workload = workload
        self._shares = shares

    async def run(self, client: Client) -> None:
        """The process of a member, through its memberships."""
        await live(client, lambda: _Member(self._world, self._workload, self._shares, client))


class _Member:
    def __init__(self, world: World, workload: Workload, shares: Shares, client: Client) -> None:
        self._world = world
        self._workload = workload
        self._shares = shares
        self._client = client
        self._cluster = Cluster(world.bootstrap, client_id=client.name, network=client.network)
        self._member_id = uuid_to_text(client.random.randbytes(16))
        self._epoch = 0
        self._is_unanswered = False
        self._beat_at = 0.0
        self._topic_id = b""
        self._assigned: set[int] = set()
        self._sessions: dict[int, _Session] = {}

    async def take_part(self) -> None:
        """Fetch and acknowledge until it is time to leave. Raises Rejoin and EXPECTED_ERRORS."""
        self._topic_id = (await self._cluster.fresh_topic(TOPIC)).topic_id
        world, chance = self._world, self._client.random
        while True:
            if world.now >= self._beat_at:
                await self._heartbeat()
            await self._fetch_everywhere()
            if self._workload.is_over:
                continue
            dice = chance.random()
            if dice < LEAVE_SHARE:
                return
            if dice < LEAVE_SHARE + STALL_SHARE:
                assert self._client.loop is not None
                self._client.loop.pause(world.now + chance.uniform(0.3, 2.5))

    async def leave(self) -> None:
        """Leave the group; the connections end in any case, and with them the sessions."""
        try:
            if self._epoch > 0:
                self._epoch = -1
                await self._heartbeat()
        finally:
            await self._cluster.close()

    async def _heartbeat(self) -> None:
        # Whether the last heartbeat counted may be unknown. A member that repeats its subscription gets the assignment again.
        names, self._is_unanswered = [TOPIC] if self._epoch == 0 or self._is_unanswered else None, True
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=self._member_id, member_epoch=self._epoch, subscribed_topic_names=names
        )
        coordinator = await find_coordinator(self._cluster, GROUP, REQUEST_TIMEOUT_MS)
        channel = await self._cluster.channel_at(coordinator.host, coordinator.port, "group")
        answer: Any = await channel.request(request, None, REQUEST_TIMEOUT_MS)
        self._beat_at = self._world.now + 0.1
        if self._epoch < 0:
            return
        if answer.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            raise Rejoin
        if answer.error_code:
            return
        self._epoch, self._is_unanswered = answer.member_epoch, False
        if answer.assignment is not None:
            self._assigned = {index for topic in answer.assignment.topic_partitions for index in topic.partitions}
        if self._assigned:
            self._beat_at = self._world.now + answer.heartbeat_interval_ms / 1000

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def _fetch_everywhere(self) -> None:
        by_leader: dict[int, set[int]] = {}
        for index in sorted(self._assigned):
            leader = (await self._cluster.leader(TOPIC, index, timeout_ms=REQUEST_TIMEOUT_MS)).leader
            by_leader.setdefault(leader, set()).add(index)
        nodes = sorted({*by_leader, *self._sessions})
        if not nodes:
            await asyncio.sleep(0.05)
        for node_id in nodes:
            await self._fetch(node_id, by_leader.get(node_id, set()), 100 if len(nodes) == 1 else 0)

    async def _fetch(self, node_id: int, wanted: set[int], wait_ms: int) -> None:
        session = self._sessions.setdefault(node_id, _Session())
        request, attempts = self._fetch_request(session, wanted, wait_ms)
        try:
            channel = await self._cluster.channel_to(node_id, "share")
            answer: Any = await channel.request(request, None, REQUEST_TIMEOUT_MS)
            if answer.error_code:
                raise ClientError(ErrorCode(answer.error_code).name)
        except EXPECTED_ERRORS:
            # The session is lost, and what it holds is released; whether the acknowledgements count is unknown.
            del self._sessions[node_id]
            await self._cluster.refresh([TOPIC])
            await asyncio.sleep(0.05)
            return
        session.epoch, session.partitions = session.epoch + 1, wanted
        acquired: list[tuple[Place, int]] = []
        for topic in answer.responses:
            for data in topic.partitions:
                self._shares.answered([one for one in attempts if one.place[0] == data.partition_index], data.acknowledge_error_code)
                if data.error_code:
                    session.partitions = session.partitions - {data.partition_index}
                    await self._cluster.refresh([TOPIC])
                for run in data.acquired_records:
                    places = range(run.first_offset, run.last_offset + 1)
                    acquired += [((data.partition_index, offset), run.delivery_count) for offset in places]
        self._workload.consumed += len(acquired)
        await self._treat(channel, session, acquired)

    def _fetch_request(self, session: _Session, wanted: set[int], wait_ms: int) -> tuple[ShareFetchRequest, list[Attempt]]:
        kind = ShareFetchRequest
        attempts, session.waiting = session.waiting if session.epoch else [], []
        for attempt in attempts:
            self._shares.trying(attempt)
        acknowledged = {attempt.place[0] for attempt in attempts}
        partitions = [
            kind.FetchPartition(partition_index=index, acknowledgement_batches=_batches(kind, attempts, index))
            for index in sorted((wanted - session.partitions) | acknowledged)
        ]
        forgotten = sorted(session.partitions - wanted - acknowledged)
        request = kind(
            group_id=GROUP, member_id=self._member_id, share_session_epoch=session.epoch, max_wait_ms=wait_ms, min_bytes=1,
            max_bytes=BYTES_MAX, max_records=RECORDS_MAX, batch_size=RECORDS_MAX, share_acquire_mode=1,
            topics=[kind.FetchTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[kind.ForgottenTopic(topic_id=self._topic_id, partitions=forgotten)] if forgotten else [],
        )  # fmt: skip
        return request, attempts

    async def _treat(self, channel: Channel, session: _Session, acquired: list[tuple[Place, int]]) -> None:
        """Decide about the records, and acknowledge them at once or with the next fetch."""
        chance = self._client.random
        attempts = []
        for place, count in acquired:
            deed = ACCEPT if self._workload.is_over else chance.choices(list(DEEDS), list(DEEDS.values()))[0]
            if deed:
                attempts.append(Attempt(place, count, is_final=deed != RELEASE, kind=deed))
        if not attempts or chance.random() < WITH_FETCH_SHARE:
            session.waiting = attempts
            return
        for attempt in attempts:
            self._shares.trying(attempt)
        kind = ShareAcknowledgeRequest
        indexes = sorted({attempt.place[0] for attempt in attempts})
        partitions = [
            kind.AcknowledgePartition(partition_index=index, acknowledgement_batches=_batches(kind, attempts, index)) for index in indexes
        ]
        request = kind(
            group_id=GROUP, member_id=self._member_id, share_session_epoch=session.epoch,
            topics=[kind.AcknowledgeTopic(topic_id=self._topic_id, partitions=partitions)],
        )  # fmt: skip
        answer: Any = await channel.request(request, None, REQUEST_TIMEOUT_MS)
        if answer.error_code:
            raise Rejoin
        session.epoch += 1
        for topic in answer.responses:
            for data in topic.partitions:
                self._shares.answered([one for one in attempts if one.place[0] == data.partition_index], data.error_code)


def _batches(kind: Any, attempts: list[Attempt], index: int) -> list[Any]:
    chosen = sorted((attempt.place[1], attempt.kind) for attempt in attempts if attempt.place[0] == index)
    return [kind.AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[how]) for offset, how in chosen]
