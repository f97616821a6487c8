"""Membership in a group of the consumer protocol (KIP-848): a member only sends heartbeats, and the coordinator assigns partitions.

Rules: org.apache.kafka.clients.consumer.internals.AbstractMembershipManager and ConsumerHeartbeatRequestManager of Apache Kafka 4.3.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from minikafka.client.assignors import Assignment
from minikafka.client.cluster import BrokerInfo, Cluster
from minikafka.client.errors import TRANSPORT_ERRORS, BrokerError, ClientError, refusal
from minikafka.client.group import LOST_COORDINATOR, find_coordinator
from minikafka.net.channel import UnsupportedVersion
from minikafka.net.tasks import within
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from minikafka.wire.uuid import uuid_to_text

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2
#: From this version on members generate their own ids (KIP-1082).
OWN_ID_VERSION = 1
LEAVE_TIMEOUT_S = 2
UUID_BYTES = 16
#: Shortest and longest pause after a failure.
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.02, 1.0
_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_OLD_BROKER = "the broker does not speak the consumer group protocol (KIP-848, its feature group.version): use group.protocol=classic"
Topics = dict[bytes, list[int]]


@dataclass(frozen=True, slots=True)
class Subscription:
    """Names of topics, or a pattern that the broker resolves (RE2); `assignor`: group.remote.assignor, None for the broker's choice."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignor: str | None = None


class ConsumerGroupMember:
    """One member. `on_changed` is awaited with the whole assignment whenever it changes; partitions that are missing from it count as
    revoked when the callback returns. `on_lost` is awaited when all partitions are lost at once. `on_failed` is called when the membership
    ends; `failure` is then the reason. `generation` is the member epoch. `random_bytes(size)` gives the bytes of its id."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        *,
        rebalance_timeout_ms: int,
        group_instance_id: str | None,
        rack: str | None,
        random_bytes: Callable[[int], bytes],
        on_changed: Callable[[Assignment], Awaitable[None]],
        on_lost: Callable[[], Awaitable[None]],
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id = uuid_to_text(random_bytes(UUID_BYTES))
        self.generation = JOIN_EPOCH
        self.joined = asyncio.Event()
        self.failure: ClientError | None = None
        self._cluster = cluster
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._rack = rack or None
        self._on_changed = on_changed
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._subscription = Subscription()
        #: What the coordinator has acknowledged of the subscription and of `_owned`; None: send everything with the next heartbeat.
        self._acknowledged_subscription: Subscription | None = None
        self._acknowledged_owned: Topics | None = None
        self._coordinator: BrokerInfo | None = None
        self._task: asyncio.Task[None] | None = None
        self._reconciliation: asyncio.Task[None] | None = None
        #: The coordinator's target assignment, and the one that `on_changed` has taken over.
        self._target: Topics = {}
        self._owned: Topics = {}
        self._wake = asyncio.Event()
        self._interval_s = BACKOFF_S_MAX

    def start(self, subscription: Subscription) -> None:
        """Join the group, or change the subscription of a member."""
        self._subscription = subscription
        self._wake.set()
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Leave the group; a static member keeps its partitions until it returns or its session times out."""
        tasks, self._task = [task for task in (self._task, self._reconciliation) if task is not None], None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.generation > JOIN_EPOCH and self._coordinator is not None:
            self.generation = LEAVE_EPOCH if self.group_instance_id is None else LEAVE_STATIC_EPOCH
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group_id, member_id=self.member_id, member_epoch=self.generation, instance_id=self.group_instance_id
            )
            with contextlib.suppress(*TRANSPORT_ERRORS, ClientError):
                await within(LEAVE_TIMEOUT_S, self._ask(request))

    # -- heartbeats --------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff_s = BACKOFF_S_MIN
        while True:
            try:
                await self._heartbeat()
            except UnsupportedVersion:
                self._fail(ClientError(f"group {self.group_id}: {_OLD_BROKER}"))
                return
            except TRANSPORT_ERRORS:
                self._coordinator = None
            except BrokerError as error:
                if error.code in _FENCED:
                    await self._leave_fenced()
                elif error.code in LOST_COORDINATOR:
                    self._coordinator = None
                elif not error.code.retriable:
                    await self._leave_fenced()
                    self._fail(error)
                    return
            else:
                backoff_s = BACKOFF_S_MIN
                await self._pause(self._interval_s)
                continue
            # The request may or may not have arrived: send everything again.
            self._acknowledged_subscription = self._acknowledged_owned = None
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)

    async def _heartbeat(self) -> None:
        request, subscription = self._request(), self._subscription
        owned = {topic_id: list(partitions) for topic_id, partitions in self._owned.items()}
        answer = await self._ask(request)
        if answer.error_code:
            raise refusal(answer.error_code, f"heartbeat of group {self.group_id}", answer.error_message)
        self._acknowledged_subscription, self._acknowledged_owned = subscription, owned
        self.member_id, self.generation = answer.member_id or self.member_id, answer.member_epoch
        self._interval_s = answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self._target = {entry.topic_id: sorted(entry.partitions) for entry in answer.assignment.topic_partitions}
        if self._target != self._owned and (self._reconciliation is None or self._reconciliation.done()):
            self._reconciliation = asyncio.ensure_future(self._reconcile())
        elif self._target == self._owned:
            self.joined.set()

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat with the fields that have changed since the last acknowledged one; with all fields when joining."""
        is_joining, chosen = self.generation == JOIN_EPOCH, self._subscription
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.generation, instance_id=self.group_instance_id
        )
        if is_joining or self._acknowledged_subscription != chosen:
            request.rack_id = self._rack
            request.rebalance_timeout_ms = self._rebalance_timeout_ms
            request.subscribed_topic_names = sorted(chosen.topics)
            request.subscribed_topic_regex = chosen.pattern if chosen.pattern is not None or is_joining else ""
            request.server_assignor = chosen.assignor
        if is_joining or self._acknowledged_owned != self._owned or self._acknowledged_subscription != chosen:
            entry = ConsumerGroupHeartbeatRequest.TopicPartitions
            owned = {} if is_joining else self._owned
            request.topic_partitions = [entry(topic_id=topic_id, partitions=partitions) for topic_id, partitions in owned.items()]
        return request

    async def _ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self._cluster, self.group_id)
        channel = await self._cluster.channel_at(self._coordinator.host, self._coordinator.port, "group")
        version = channel.version_for(request)
        if version < OWN_ID_VERSION:
            if request.subscribed_topic_regex:
                raise UnsupportedVersion("patterns need a newer broker")
            request.subscribed_topic_regex = None
            if request.member_epoch == JOIN_EPOCH:
                request.member_id = ""
        return cast(ConsumerGroupHeartbeatResponse, await channel.request(request, version, self._cluster.request_timeout_ms))

    async def _pause(self, seconds: float) -> None:
        """Wait until the next heartbeat is due, or until there is a change to report."""
        with contextlib.suppress(TimeoutError):
            await within(seconds, self._wake.wait())
        self._wake.clear()

    # -- assignment --------------------------------------------------------------------------------------------------------

    async def _reconcile(self) -> None:
        """Take over the target assignment while heartbeats continue, then report it."""
        while self._target != self._owned:
            target = self._target
            try:
                await self._on_changed(await self._by_name(target))
            except (ClientError, TimeoutError, *TRANSPORT_ERRORS):
                await asyncio.sleep(BACKOFF_S_MIN)
                continue
            self._owned = target
        self._wake.set()

    async def _by_name(self, target: Topics) -> Assignment:
        """The same assignment by topic name. Raises ClientError while the metadata lacks one of the topics."""
        names = self._names()
        if not target.keys() <= names.keys():
            await self._cluster.refresh(None)
            names = self._names()
        if not target.keys() <= names.keys():
            raise ClientError("the metadata does not contain an assigned topic yet")
        return {names[topic_id]: partitions for topic_id, partitions in target.items()}

    def _names(self) -> dict[bytes, str]:
        return {info.topic_id: name for name, info in self._cluster.topics.items()}

    async def _leave_fenced(self) -> None:
        """The coordinator has fenced this member, and other members may own its partitions: give up everything and join again."""
        if self._reconciliation is not None:
            self._reconciliation.cancel()
            await asyncio.gather(self._reconciliation, return_exceptions=True)
        self.generation = JOIN_EPOCH
        self._target, self._owned = {}, {}
        self.joined.clear()
        await self._on_lost()

    def _fail(self, error: ClientError) -> None:
        self.failure = error
        self.joined.set()
        self._on_failed()
