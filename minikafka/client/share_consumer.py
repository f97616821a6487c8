"""A member of a share group (KIP-932): the members share each partition's records and acknowledge them one by one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

from minikafka.client.cluster import Cluster
from minikafka.client.errors import BrokerError, refusal
from minikafka.client.group import find_coordinator
from minikafka.net.channel import ConnectionLost
from minikafka.wire.batch import iterate_batches
from minikafka.wire.errors import CorruptRecord, ErrorCode, WireError
from minikafka.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from minikafka.wire.messages.share_fetch import ShareFetchRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.record import Header
from minikafka.wire.uuid import uuid_to_text

GAP, ACCEPT, RELEASE, REJECT = 0, 1, 2, 3
REQUEST_TIMEOUT_MS = 30_000
FETCH_BYTES_MAX = 50 << 20
RETRY_MS = 100
_REJOIN_ERRORS = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_RETRIABLE_ERRORS = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_SESSION_ERRORS = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
_CONNECTION_ERRORS = (ConnectionLost, ConnectionError, TimeoutError, BrokerError)
#: (topic id, partition index).
Partition = tuple[bytes, int]


class SharedRecord(NamedTuple):
    """A record that this member has acquired, until it acknowledges it or `share.record.lock.duration.ms` passes."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    leader_epoch: int
    delivery_count: int


@dataclass(slots=True)
class _Session:
    """The share session with one broker. `acknowledged`: (offset, type) pairs that the next request carries."""

    epoch: int = 0
    partitions: set[Partition] = field(default_factory=set)
    acknowledged: dict[Partition, list[tuple[int, int]]] = field(default_factory=dict)


class ShareConsumer:
    """Consumes in a share group. Acknowledgements are sent with the next `poll` or at `close`. Use it as an async context manager."""

    def __init__(self, bootstrap: str, group_id: str, *, client_id: str = "minikafka") -> None:
        self._cluster = Cluster(bootstrap, client_id=client_id)
        self._group_id = group_id
        self._member_id = uuid_to_text(os.urandom(16))
        self._topics: list[str] = []
        self._epoch = 0
        self._is_unanswered = False
        self._interval_ms = RETRY_MS
        self._assigned: set[Partition] = set()
        self._names: dict[bytes, str] = {}
        self._sessions: dict[int, _Session] = {}
        self._heartbeats: asyncio.Task[None] | None = None
        #: A corrupt batch, which the next poll reports.
        self._fault: CorruptRecord | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group. Raises BrokerError if the coordinator refuses."""
        self._topics = list(topics)
        for name in self._topics:
            self._names[(await self._cluster.fresh_topic(name)).topic_id] = name
        await self._heartbeat()
        self._heartbeats = asyncio.create_task(self._heartbeat_regularly())

    async def _heartbeat_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            try:
                await self._heartbeat()
            except _CONNECTION_ERRORS:
                self._interval_ms = RETRY_MS

    async def _heartbeat(self) -> None:
        # Whether the last heartbeat counted may be unknown. A member that repeats its subscription gets the assignment again.
        names, self._is_unanswered = self._topics if self._epoch == 0 or self._is_unanswered else None, True
        request = ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=self._epoch, subscribed_topic_names=names
        )
        coordinator = await find_coordinator(self._cluster, self._group_id, REQUEST_TIMEOUT_MS)
        channel = await self._cluster.channel_to(coordinator.node_id, "group")
        answer: Any = await channel.request(request, None, REQUEST_TIMEOUT_MS)
        code = ErrorCode(answer.error_code)
        self._interval_ms = RETRY_MS
        if code in _REJOIN_ERRORS:
            self._epoch, self._assigned = 0, set()
        elif code in _RETRIABLE_ERRORS:
            return
        elif code is not ErrorCode.NONE:
            raise refusal(code, f"share group {self._group_id}", answer.error_message)
        else:
            self._epoch, self._is_unanswered = answer.member_epoch, False
            if answer.assignment is not None:
                self._assigned = {(topic.topic_id, index) for topic in answer.assignment.topic_partitions for index in topic.partitions}
            # Ask often while nothing is assigned: the group may still be initializing its share states.
            self._interval_ms = answer.heartbeat_interval_ms if self._assigned else 2 * RETRY_MS

    # -- records -------------------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int, records_max: int = 500) -> list[SharedRecord]:
        """Send pending acknowledgements and fetch records, perhaps none. Raises BrokerError for a topic that this user may not read, and
        CorruptRecord for a batch that the previous poll left out: its records are rejected, as by Apache Kafka's clients."""
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
        if self._heartbeats is not None and self._heartbeats.done():
            self._heartbeats.result()
        by_leader: dict[int, set[Partition]] = {}
        for topic_id, index in sorted(self._assigned):
            if topic_id in self._names:
                leader = (await self._cluster.leader(self._names[topic_id], index, timeout_ms=REQUEST_TIMEOUT_MS)).leader
                by_leader.setdefault(leader, set()).add((topic_id, index))
        nodes = sorted({*by_leader, *(node for node, session in self._sessions.items() if session.partitions)})
        if not nodes:
            await asyncio.sleep(min(timeout_ms, RETRY_MS) / 1000)
            return []
        share = max(records_max // len(nodes), 1)
        found = await asyncio.gather(*(self._fetch(node, by_leader.get(node, set()), timeout_ms, share) for node in nodes))
        return [record for records in found for record in records]

    async def _fetch(self, node: int, wanted: set[Partition], timeout_ms: int, records_max: int) -> list[SharedRecord]:
        session = self._sessions.setdefault(node, _Session())
        request = self._request(session, wanted, timeout_ms, records_max)
        try:
            channel = await self._cluster.channel_to(node, "share")
            answer: Any = await channel.request(request, None, REQUEST_TIMEOUT_MS + timeout_ms)
        except _CONNECTION_ERRORS:
            del self._sessions[node]
            await self._cluster.refresh(self._topics)
            await asyncio.sleep(RETRY_MS / 1000)
            return []
        code = ErrorCode(answer.error_code)
        if code in _SESSION_ERRORS:
            del self._sessions[node]
            return []
        if code is not ErrorCode.NONE:
            raise refusal(code, f"fetching for share group {self._group_id}", answer.error_message)
        session.epoch += 1
        session.partitions = wanted
        records: list[SharedRecord] = []
        for topic in answer.responses:
            for data in topic.partitions:
                records += await self._records(session, topic.topic_id, data)
        return records

    def _request(self, session: _Session, wanted: set[Partition], timeout_ms: int, records_max: int) -> ShareFetchRequest:
        kind = ShareFetchRequest
        acknowledged, session.acknowledged = session.acknowledged, {}
        if session.epoch == 0:
            acknowledged = {}
        topics: dict[bytes, list[Any]] = {}
        for topic_id, index in sorted((wanted - session.partitions) | set(acknowledged)):
            batches = _batches(kind, acknowledged.get((topic_id, index), []))
            topics.setdefault(topic_id, []).append(kind.FetchPartition(partition_index=index, acknowledgement_batches=batches))
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, index in sorted(session.partitions - wanted):
            forgotten.setdefault(topic_id, []).append(index)
        return kind(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=timeout_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            max_records=records_max,
            batch_size=records_max,
            share_acquire_mode=1,
            topics=[kind.FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
            forgotten_topics_data=[kind.ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in forgotten.items()],
        )

    async def _records(self, session: _Session, topic_id: bytes, data: Any) -> list[SharedRecord]:
        code, name = ErrorCode(data.error_code), self._names[topic_id]
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise refusal(code, f"fetching {name}-{data.partition_index}", data.error_message)
        if code is not ErrorCode.NONE:
            session.partitions = session.partitions - {(topic_id, data.partition_index)}
            await self._cluster.refresh([name])
            return []
        counts = {o: a.delivery_count for a in data.acquired_records for o in range(a.first_offset, a.last_offset + 1)}
        acknowledged = session.acknowledged.setdefault((topic_id, data.partition_index), [])
        records = []
        for batch in iterate_batches(memoryview(bytes(data.records or b""))):
            try:
                batch.check()
                found = [] if batch.is_control else list(batch.records())
            except WireError as error:
                self._fault = CorruptRecord(f"{name}-{data.partition_index}, offsets {batch.base_offset} to {batch.last_offset}: {error}")
                rejected = [offset for offset in counts if batch.base_offset <= offset <= batch.last_offset]
                acknowledged.extend((offset, REJECT) for offset in rejected)
                for offset in rejected:
                    del counts[offset]
                continue
            for record in found:
                count = counts.pop(record.offset, None)
                if count is not None:
                    place = (name, data.partition_index, record.offset, record.timestamp, record.key, record.value, record.headers)
                    records.append(SharedRecord(*place, batch.partition_leader_epoch, count))
        # Acquired offsets without a record: compacted away, or taken by transaction markers.
        acknowledged.extend((offset, GAP) for offset in counts)
        return records

    def acknowledge(self, record: SharedRecord, how: int = ACCEPT) -> None:
        """Set a record's acknowledgement type: ACCEPT, RELEASE or REJECT."""
        topic_id = next(topic_id for topic_id, name in self._names.items() if name == record.topic)
        key = (topic_id, record.partition)
        for session in self._sessions.values():
            if key in session.partitions:
                session.acknowledged.setdefault(key, []).append((record.offset, how))
                return

    async def close(self) -> None:
        """Send pending acknowledgements, release the other acquired records, and leave the group."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
            await asyncio.gather(*(self._end(node, session) for node, session in self._sessions.items()), return_exceptions=True)
            self._epoch = -1
            await asyncio.gather(self._heartbeat(), return_exceptions=True)
        await self._cluster.close()

    async def _end(self, node: int, session: _Session) -> None:
        kind = ShareAcknowledgeRequest
        topics: dict[bytes, list[Any]] = {}
        for (topic_id, index), acknowledged in session.acknowledged.items():
            partition = kind.AcknowledgePartition(partition_index=index, acknowledgement_batches=_batches(kind, acknowledged))
            topics.setdefault(topic_id, []).append(partition)
        request = kind(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=-1,
            topics=[kind.AcknowledgeTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
        )
        channel = await self._cluster.channel_to(node, "share")
        await channel.request(request, None, REQUEST_TIMEOUT_MS)


def _batches(kind: Any, acknowledged: list[tuple[int, int]]) -> list[Any]:
    """Acknowledgement batches: consecutive offsets of the same type form one."""
    batches: list[Any] = []
    for offset, how in sorted(acknowledged):
        if batches and batches[-1].last_offset + 1 == offset and batches[-1].acknowledge_types == [how]:
            batches[-1].last_offset = offset
        else:
            batches.append(kind.AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[how]))
    return batches
