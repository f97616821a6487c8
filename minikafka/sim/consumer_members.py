"""Members of a group of the consumer protocol (KIP-848): they poll, commit, stall, leave, die, come back, and lie about their epochs.

Every commit carries the member id and the epoch in its metadata, so that the log shows which member it is of (see `memberships`).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from minikafka.client.consumer import Consumer
from minikafka.client.errors import TRANSPORT_ERRORS, BrokerError, ClientError
from minikafka.client.group import find_coordinator
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest

if TYPE_CHECKING:
    from minikafka.sim.client import Client
    from minikafka.sim.parts import Workload, World

TOPIC = "records"
GROUP = "consumers"
#: Prefix of the names of static members (KIP-345); the name is the instance id.
STATIC = "static"
EXPECTED_ERRORS = (ClientError, *TRANSPORT_ERRORS)
REQUEST_TIMEOUT_MS = 3000
COMMIT_INTERVAL_S = 0.4
#: Shares of a member's turns in which it leaves and comes back, stalls beyond its session, or lies in a heartbeat.
LEAVE_SHARE, STALL_SHARE, LIE_SHARE = 0.02, 0.02, 0.06
#: Share of commits in another epoch than the member's, and by how much that differs.
FALSE_COMMIT_SHARE = 0.2
FALSE_BY = (-2, -1, 1, 3)
REFUSALS = frozenset({
    ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.GROUP_ID_NOT_FOUND,
})  # fmt: skip


class ConsumerMembers:
    """The members, and what their group has read and committed."""

    def __init__(self, world: World, workload: Workload) -> None:
        self._world = world
        self._workload = workload
        self.commits = workload.group(GROUP)

    async def run(self, client: Client) -> None:
        """The process of a member."""
        is_static = client.name.startswith(STATIC)
        while True:
            consumer = Consumer(
                self._world.bootstrap, group_id=GROUP, group_protocol="consumer", auto_offset_reset="earliest", enable_auto_commit=False,
                rebalance_timeout_ms=2000, group_instance_id=client.name if is_static else None, client_id=client.name,
                network=client.network, random_bytes=client.random.randbytes,
            )  # fmt: skip
            with contextlib.suppress(*EXPECTED_ERRORS):
                await consumer.start()
                await consumer.subscribe([TOPIC])
                await self._take_part(client, consumer)
            # If this fails, the session ends.
            with contextlib.suppress(*EXPECTED_ERRORS):
                await consumer.close()
            await asyncio.sleep(0.05 + client.random.expovariate(5.0))

    async def _take_part(self, client: Client, consumer: Consumer) -> None:
        """Poll and commit until it is time to leave. Raises BrokerError when the membership has ended."""
        stored: dict[Any, int] = {}
        commit_at = self._world.now + COMMIT_INTERVAL_S
        while True:
            try:
                records = await consumer.poll(timeout_ms=200)
            except BrokerError as error:
                if not error.code.retriable:
                    raise
                await asyncio.sleep(0.05)
                continue
            self._workload.took(client.name, self.commits, records)
            if not self._workload.is_over and await self._misbehave(client, consumer):
                return
            if self._world.now < commit_at:
                continue
            commit_at = self._world.now + COMMIT_INTERVAL_S
            offsets = {key: position for key in consumer.assignment if (position := consumer.position(key)) is not None}
            if offsets and (not self._workload.is_over or offsets != stored):
                false_by = client.random.choice(FALSE_BY) if client.random.random() < FALSE_COMMIT_SHARE else 0
                if await self._commit(consumer, offsets, 0 if self._workload.is_over else false_by):
                    stored = offsets

    async def _misbehave(self, client: Client, consumer: Consumer) -> bool:
        """Now and then stall, or lie in a heartbeat. Returns whether to leave."""
        dice = client.random.random()
        if dice < LEAVE_SHARE:
            return True
        if dice < LEAVE_SHARE + STALL_SHARE:
            assert client.loop is not None
            client.loop.pause(self._world.now + client.random.uniform(0.5, 1.5) * self._world.options.session_timeout_s)
        elif dice < LEAVE_SHARE + STALL_SHARE + LIE_SHARE:
            return await self._lie(client, consumer)
        return False

    async def _lie(self, client: Client, consumer: Consumer) -> bool:
        """A heartbeat in an epoch that the member is not in; every second one also says that it owns nothing. Returns whether it was
        answered with an assignment: the member does not know of it, is not told again, and has to leave."""
        member = consumer.group_metadata
        epoch = max(member.generation + client.random.choice(FALSE_BY), 0)
        if epoch == 0 or not member.member_id:
            return False
        owned: list[Any] | None = [] if client.random.random() < 0.5 else None
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=member.member_id, member_epoch=epoch, instance_id=member.group_instance_id, topic_partitions=owned
        )
        # The log shows what came of it.
        with contextlib.suppress(*EXPECTED_ERRORS):
            answer = await self._ask(consumer, request)
            return answer.assignment is not None
        return True

    async def _commit(self, consumer: Consumer, offsets: dict[Any, int], false_by: int) -> bool:
        """Commit in the member's epoch, or in one that differs by `false_by`. Returns whether that was acknowledged."""
        member = consumer.group_metadata
        epoch = member.generation + false_by
        partition = OffsetCommitRequest.OffsetCommitRequestPartition
        text = f"{member.member_id} {epoch}"
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=epoch,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        partition(partition_index=index, committed_offset=offset, committed_metadata=text)
                        for (_, index), offset in offsets.items()
                    ],
                )
            ],
        )
        attempts = [self.commits.committing(index, offset) for (_, index), offset in offsets.items()]
        try:
            answer = await self._ask(consumer, request, 9)
        except EXPECTED_ERRORS:
            return False
        codes = [ErrorCode(one.error_code) for topic in answer.topics for one in topic.partitions]
        for attempt, code in zip(attempts, codes, strict=True):
            if code is ErrorCode.NONE:
                self.commits.committed(attempt)
            elif code in REFUSALS:
                self.commits.refused(attempt)
        return all(code is ErrorCode.NONE for code in codes)

    async def _ask(self, consumer: Consumer, request: Any, version_max: int | None = None) -> Any:
        cluster = consumer.cluster
        coordinator = await find_coordinator(cluster, GROUP, REQUEST_TIMEOUT_MS)
        channel = await cluster.channel_at(coordinator.host, coordinator.port, "group")
        version = channel.version_for(request) if version_max is None else channel.version_for(request, version_max)
        return await channel.request(request, version, REQUEST_TIMEOUT_MS)
