"""A member of a share group (KIP-932): the members share each partition's records and acknowledge them one by one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
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

GAP, ACCEPT, RELEASE, REJECT, RENEW = 0, 1, 2, 3, 4
REQUEST_TIMEOUT_MS = 30_000
#: The session epoch of a session's last request.
FINAL_EPOCH = -1
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


class Acknowledged(NamedTuple):
    """What a broker has answered to acknowledgements of a partition's records. `code` is NETWORK_EXCEPTION if it has not answered, so that
    nobody knows."""

    topic: str
    partition: int
    offsets: list[int]
    code: ErrorCode


#: Acknowledgements: (offset, type) pairs by partition.
Acknowledgements = dict[Partition, list[tuple[int, int]]]


@dataclass(slots=True)
class _Session:
    """The share session with one broker. `acknowledged`: acknowledgements that the next request carries."""

    epoch: int = 0
    partitions: set[Partition] = field(default_factory=set)
    acknowledged: Acknowledgements = field(default_factory=dict)


class ShareConsumer:
    """Consumes in a share group. Acknowledgements are sent by `commit`, or with the next `poll` or at `close`. Use it as an async context
    manager."""

    def __init__(
        self,
        bootstrap: str,
        group_id: str,
        *,
        client_id: str = "minikafka",
        fetch_bytes_max: int = FETCH_BYTES_MAX,
        on_acknowledged: Callable[[list[Acknowledged]], None] | None = None,
    ) -> None:
        """`on_acknowledged` gets the result of all acknowledgements of one request."""
        self._on_acknowledged = on_acknowledged
        self._fetch_bytes_max = fetch_bytes_max
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
        #: Records with the acknowledgement type RENEW: not yet sent, and renewed, which the next poll returns.
        self._renewing: dict[tuple[Partition, int], SharedRecord] = {}
        self._renewed: list[SharedRecord] = []
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
        """Send pending acknowledgements and fetch records, perhaps none, or return those that were renewed. Raises BrokerError for a topic
        that this user may not read, and CorruptRecord for a batch that the previous poll left out: its records are rejected, as by Apache
        Kafka's clients."""
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
        if self._heartbeats is not None and self._heartbeats.done():
            self._heartbeats.result()
        if self._renewing:
            # A request that renews fetches nothing.
            await self.commit()
        if self._renewed:
            renewed, self._renewed = self._renewed, []
            return renewed
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
        sent = _taken(session)
        request = self._fetch_request(session, sent, wanted, timeout_ms, records_max)
        answer, code = await self._answer(node, request, REQUEST_TIMEOUT_MS + timeout_ms)
        if code is not ErrorCode.NONE:
            await self._refused(node, sent, answer, code, "fetching")
            return []
        session.epoch += 1
        session.partitions = wanted
        self._settle(sent, _results(answer, "acknowledge_error_code"), ErrorCode.NONE)
        records: list[SharedRecord] = []
        for topic in answer.responses:
            for data in topic.partitions:
                records += await self._records(session, topic.topic_id, data)
        return records

    async def _answer(self, node: int, request: Any, timeout_ms: int) -> tuple[Any, ErrorCode]:
        """The answer to a request of a share session, and its error; None and NETWORK_EXCEPTION if there is none."""
        try:
            channel = await self._cluster.channel_to(node, "share")
            answer: Any = await channel.request(request, None, timeout_ms)
        except _CONNECTION_ERRORS:
            return None, ErrorCode.NETWORK_EXCEPTION
        return answer, ErrorCode(answer.error_code)

    async def _refused(self, node: int, sent: Acknowledgements, answer: Any, code: ErrorCode, what: str) -> None:
        """A request of a share session was refused or lost: begin another session. Raises BrokerError if that would not help."""
        self._settle(sent, {}, code)
        if answer is None:
            self._sessions.pop(node, None)
            await self._cluster.refresh(self._topics)
            await asyncio.sleep(RETRY_MS / 1000)
        elif code in _SESSION_ERRORS:
            self._sessions.pop(node, None)
        else:
            raise refusal(code, f"{what} for share group {self._group_id}", answer.error_message)

    def _fetch_request(
        self, session: _Session, acknowledged: Acknowledgements, wanted: set[Partition], timeout_ms: int, records_max: int
    ) -> ShareFetchRequest:
        kind = ShareFetchRequest
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
            max_bytes=self._fetch_bytes_max,
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
        """Set a record's acknowledgement type: ACCEPT, RELEASE, REJECT, or RENEW, which starts its lock again."""
        topic_id = next(topic_id for topic_id, name in self._names.items() if name == record.topic)
        key = (topic_id, record.partition)
        for session in self._sessions.values():
            if key in session.partitions:
                session.acknowledged.setdefault(key, []).append((record.offset, how))
                if how == RENEW:
                    self._renewing[key, record.offset] = record
                return

    async def commit(self) -> None:
        """Send pending acknowledgements now, and wait for the result. Raises BrokerError if a broker refuses all of them."""
        pending = [(node, session) for node, session in self._sessions.items() if any(session.acknowledged.values())]
        await asyncio.gather(*(self._commit(node, session) for node, session in pending))

    async def _commit(self, node: int, session: _Session) -> None:
        sent = _taken(session)
        answer, code = await self._answer(node, self._acknowledge_request(session.epoch, sent), REQUEST_TIMEOUT_MS)
        if code is not ErrorCode.NONE:
            await self._refused(node, sent, answer, code, "acknowledging")
            return
        session.epoch += 1
        self._settle(sent, _results(answer, "error_code"), code)

    def _settle(self, sent: Acknowledgements, codes: dict[Partition, ErrorCode], code: ErrorCode) -> None:
        """Acknowledgements have an answer: `codes`, and `code` where it says nothing."""
        found = []
        for (topic_id, index), acknowledged in sent.items():
            result = codes.get((topic_id, index), code)
            for offset, how in acknowledged:
                renewed = self._renewing.pop(((topic_id, index), offset), None) if how == RENEW else None
                if renewed is not None and result is ErrorCode.NONE:
                    self._renewed.append(renewed)
            offsets = [offset for offset, how in acknowledged if how != GAP]
            if offsets:
                found.append(Acknowledged(self._names[topic_id], index, offsets, result))
        if found and self._on_acknowledged is not None:
            self._on_acknowledged(found)

    def _acknowledge_request(self, epoch: int, acknowledged: Acknowledgements) -> ShareAcknowledgeRequest:
        kind = ShareAcknowledgeRequest
        topics: dict[bytes, list[Any]] = {}
        for (topic_id, index), one in acknowledged.items():
            partition = kind.AcknowledgePartition(partition_index=index, acknowledgement_batches=_batches(kind, one))
            topics.setdefault(topic_id, []).append(partition)
        return kind(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=epoch,
            is_renew_ack=any(how == RENEW for one in acknowledged.values() for _, how in one),
            topics=[kind.AcknowledgeTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
        )

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
        # The end of the session releases what would be renewed.
        sent = {key: [one for one in acknowledged if one[1] != RENEW] for key, acknowledged in _taken(session).items()}
        answer, code = await self._answer(node, self._acknowledge_request(FINAL_EPOCH, sent), REQUEST_TIMEOUT_MS)
        self._settle(sent, _results(answer, "error_code") if code is ErrorCode.NONE else {}, code)


def _taken(session: _Session) -> Acknowledgements:
    """The pending acknowledgements, which are no longer pending."""
    taken, session.acknowledged = session.acknowledged, {}
    return {key: acknowledged for key, acknowledged in taken.items() if acknowledged}


def _results(answer: Any, name: str) -> dict[Partition, ErrorCode]:
    """The field `name` of each partition."""
    partitions = [(topic.topic_id, data) for topic in answer.responses for data in topic.partitions]
    return {(topic_id, data.partition_index): ErrorCode(getattr(data, name)) for topic_id, data in partitions}


def _batches(kind: Any, acknowledged: list[tuple[int, int]]) -> list[Any]:
    """Acknowledgement batches: consecutive offsets of the same type form one."""
    batches: list[Any] = []
    for offset, how in sorted(acknowledged):
        if batches and batches[-1].last_offset + 1 == offset and batches[-1].acknowledge_types == [how]:
            batches[-1].last_offset = offset
        else:
            batches.append(kind.AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[how]))
    return batches
