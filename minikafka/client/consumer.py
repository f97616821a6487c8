"""A consumer: partitions assigned by hand or by a group, records prefetched from their leaders or from a replica near by."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from minikafka.client.assignors import Assignment
from minikafka.client.cluster import Cluster
from minikafka.client.errors import TRANSPORT_ERRORS, BrokerError, ClientError, NoOffsetForPartition, refusal
from minikafka.client.group import GroupMetadata, committed_offsets, find_coordinator
from minikafka.client.membership import MemberOptions, Membership, RebalanceListener, Subscription
from minikafka.client.records import ConsumedRecord
from minikafka.net.network import Network
from minikafka.net.tasks import within
from minikafka.wire.batch import iterate_batches
from minikafka.wire.control import ControlType, control_type
from minikafka.wire.errors import ErrorCode, WireError
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse
from minikafka.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from minikafka.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from minikafka.security.client import ClientSecurity

LATEST, EARLIEST = -1, -2
FETCH_VERSION_MAX = 12
LAST_FETCHED_EPOCH_VERSION_MIN = 12
OFFSET_COMMIT_VERSION_MAX = 9
PREFETCH_RECORDS_MAX = 20_000
IDLE_S = 0.02
#: Longest time until leaders and partitions are checked again without a wake-up.
LEADER_CHECK_S_MAX = 0.25
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _FetchLimits:
    """Limits of one fetch request to one broker."""

    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    partition_bytes_max: int


def _check(name: str, value: str, *allowed: str) -> None:
    if value not in allowed:
        raise ClientError(f"{name}={value}: must be {', '.join(allowed[:-1])} or {allowed[-1]}")


@dataclass(slots=True)
class _Position:
    """Where one assigned partition is read. `seek`, and losing and regaining the partition, replace the object: a response belongs to the
    current position only if it is for the same object and the same `fetch_offset`."""

    #: Offset of the next record that `poll` returns; None until it has been looked up.
    offset: int | None = None
    #: Offset after the last prefetched batch; -1 until `offset` has been looked up.
    fetch_offset: int = -1
    #: Leader epoch of the last prefetched batch, sent to detect truncation (KIP-320); -1: unknown.
    last_epoch: int = -1
    #: Node id of the replica that the leader told this client to read from (KIP-392); -1: read from the leader.
    preferred: int = -1
    #: Records from `offset` on that `poll` has not returned yet.
    buffered: deque[ConsumedRecord] = field(default_factory=deque)
    high_watermark: int = -1
    #: Time of the event loop before which nothing is fetched.
    paused_until_s: float = 0.0


class Consumer:
    """Reads records. Use as `async with Consumer(...)` or with `start` and `close`."""

    _supervisor: asyncio.Task[None] | None = None
    _committer: asyncio.Task[None] | None = None
    _failure: ClientError | None = None
    _metadata_at_poll: GroupMetadata | None = None

    def __init__(
        self,
        bootstrap: str,
        *,
        group_id: str | None = None,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        isolation_level: str = "read_uncommitted",
        fetch_wait_ms_max: int = 500,
        fetch_bytes_min: int = 1,
        fetch_bytes_max: int = 50 << 20,
        partition_fetch_bytes_max: int = 1 << 20,
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 60_000,
        heartbeat_interval_ms: int = 3000,
        group_instance_id: str | None = None,
        client_rack: str = "",
        partition_assignors: tuple[str, ...] = ("range", "roundrobin"),
        group_protocol: str = "classic",
        group_remote_assignor: str | None = None,
        client_id: str = "minikafka-consumer",
        network: Network | None = None,
        security: Mapping[str, str] | ClientSecurity | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Kafka's settings under Kafka's names, units last. `auto_offset_reset`: earliest, latest or none.
        `group_protocol`: classic, or consumer (KIP-848): then the broker assigns partitions (with `group_remote_assignor`, if given) and
        sets the session timeout and the heartbeat interval. `security`: Kafka's client properties (security.protocol, ssl.*, sasl.*)."""
        _check("auto_offset_reset", auto_offset_reset, "earliest", "latest", "none")
        _check("isolation_level", isolation_level, "read_uncommitted", "read_committed")
        self.cluster = Cluster(bootstrap, client_id=client_id, network=network, security=security)
        self.group_id = group_id
        self._reset = auto_offset_reset
        self._auto_commit_s = auto_commit_interval_ms / 1000 if enable_auto_commit and group_id is not None else None
        self._read_committed = isolation_level == "read_committed"
        self._limits = _FetchLimits(fetch_wait_ms_max, fetch_bytes_min, fetch_bytes_max, partition_fetch_bytes_max)
        self._rack = client_rack
        self._positions: dict[TopicPartition, _Position] = {}
        self._fetchers: dict[int, asyncio.Task[None]] = {}
        #: Set when records arrive, when leaders have to be looked up again, and when there may be something to fetch.
        self._arrived, self._leaders_stale, self._maybe_readable = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._leaders: dict[TopicPartition, int] = {}
        self._generation = 0
        options = MemberOptions(
            session_timeout_ms, rebalance_timeout_ms, heartbeat_interval_ms, group_protocol, group_instance_id, partition_assignors,
            group_remote_assignor, client_rack, random_bytes,
        )  # fmt: skip
        self._member = None if group_id is None else Membership(self.cluster, group_id, options, self._listener)
        self._subscribed = False

    @property
    def _listener(self) -> RebalanceListener:
        return RebalanceListener(self._assigned, self._changed, self._lost, self._arrived.set)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def start(self) -> None:
        """Connect. Raises NoBrokers."""
        await self.cluster.retry(lambda: self.cluster.refresh([]))
        self._supervisor = asyncio.ensure_future(self._supervise())
        if self._auto_commit_s is not None:
            self._committer = asyncio.ensure_future(self._commit_regularly())

    async def close(self) -> None:
        """Commit if auto-commit is enabled, leave the group, and disconnect."""
        for task in (self._supervisor, self._committer, *self._fetchers.values()):
            if task is not None:
                task.cancel()
        if self._auto_commit_s is not None and self._positions:
            with contextlib.suppress(ClientError, *TRANSPORT_ERRORS):
                await within(5, self.commit())
        if self._member is not None and self._subscribed:
            await self._member.stop()
        await self.cluster.close()

    # -- assignment ------------------------------------------------------------------------------------------------

    async def subscribe(self, topics: Iterable[str] = (), *, pattern: str | None = None) -> None:
        """Join the group; the first rebalance assigns partitions. `pattern`: an RE2 pattern of topic names that the broker evaluates, only
        with group_protocol=consumer. Raises ClientError, also without a group id."""
        if self._member is None:
            raise ClientError("subscribe needs a group_id; without a group use assign")
        self._member.start(Subscription(tuple(topics), pattern))
        self._subscribed = True

    async def assign(self, partitions: Iterable[TopicPartition], offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Read these partitions from `offsets`, or else from the committed offsets, or else as auto_offset_reset says."""
        self._generation += 1
        made = {key: _Position() for key in partitions}
        self._positions = dict(made)
        await self._find_offsets(made, dict(offsets or {}))

    async def _find_offsets(self, made: dict[TopicPartition, _Position], offsets: dict[TopicPartition, int]) -> None:
        missing = [key for key in made if key not in offsets]
        if missing and self.group_id is not None:
            offsets |= {key: offset for key, offset in (await self.committed(missing)).items() if offset is not None}
        unknown = [key for key in made if key not in offsets]
        if unknown:
            offsets |= await self._reset_offsets(unknown)
        for key, offset in offsets.items():
            # The application may have called `seek`, or the assignment may have changed, while the request was under way.
            if key in made and self._positions.get(key) is made[key]:
                made[key].offset = made[key].fetch_offset = offset
        self._wake_fetchers()

    async def _assigned(self, assignment: Assignment) -> None:
        self._positions = {}
        await self._changed(assignment)

    async def _changed(self, assignment: Assignment) -> None:
        wanted = [(topic, index) for topic, indexes in assignment.items() for index in indexes]
        gone = {key: position.offset for key, position in self._positions.items() if key not in wanted}
        self._generation += 1
        self._positions = {key: position for key, position in self._positions.items() if key in wanted}
        if gone and self._auto_commit_s is not None:
            with contextlib.suppress(ClientError, *TRANSPORT_ERRORS):
                await self.commit({key: offset for key, offset in gone.items() if offset is not None})
        # Includes partitions whose position could not be found last time.
        made = {key: _Position() for key in wanted if self.position(key) is None}
        self._positions |= made
        try:
            await self._find_offsets(made, {})
        except NoOffsetForPartition as error:
            self._failure = error
            self._arrived.set()

    async def _lost(self) -> None:
        self._generation += 1
        self._positions = {}

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are being read."""
        return list(self._positions)

    @property
    def generation(self) -> int:
        """Rises whenever partitions are assigned or lost, or a position is set: records read before and after it need not be contiguous."""
        return self._generation

    def position(self, partition: TopicPartition) -> int | None:
        """Offset of the next record that `poll` returns; None if the partition is not assigned or its offset is not found yet."""
        found = self._positions.get(partition)
        return None if found is None else found.offset

    def high_watermark(self, partition: TopicPartition) -> int:
        """The high watermark in the last fetch response; -1 before the first."""
        found = self._positions.get(partition)
        return -1 if found is None else found.high_watermark

    @property
    def group_metadata(self) -> GroupMetadata:
        """This member's id and generation at the last `poll`, for `TransactionalProducer.send_offsets_to_transaction`: the broker rejects
        offsets that were polled before a rebalance. Raises ClientError without a group id."""
        return self._metadata_at_poll or self._metadata()

    def _metadata(self) -> GroupMetadata:
        if self.group_id is None:
            raise ClientError("group_metadata needs a group_id")
        if self._member is None or not self._subscribed:
            return GroupMetadata(self.group_id)
        return GroupMetadata(self.group_id, self._member.generation, self._member.member_id, self._member.group_instance_id)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue from `offset`. Raises ClientError if the partition is not assigned."""
        found = self._positions.get(partition)
        if found is None:
            raise ClientError(f"{partition[0]}-{partition[1]} is not assigned")
        self._generation += 1
        self._positions[partition] = _Position(offset=offset, fetch_offset=offset)
        self._wake_fetchers()

    def _wake_fetchers(self) -> None:
        self._leaders_stale.set()
        self._maybe_readable.set()

    # -- offsets ---------------------------------------------------------------------------------------------------

    async def offsets_for(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset at a timestamp, or at LATEST (-1) or EARLIEST (-2), for each partition. Raises BrokerError, TimeoutError."""
        found: dict[TopicPartition, int] = {}
        for (topic, index), timestamp in wanted.items():
            found[(topic, index)] = await self._offset_for(topic, index, timestamp)
        return found

    async def _offset_for(self, topic: str, index: int, timestamp: int) -> int:
        async def ask() -> int | None:
            leader = await self.cluster.leader(topic, index)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=1 if self._read_committed else 0,
                topics=[
                    ListOffsetsRequest.ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsRequest.ListOffsetsPartition(
                                partition_index=index, current_leader_epoch=leader.leader_epoch, timestamp=timestamp
                            )
                        ],
                    )
                ],
            )
            response = cast(ListOffsetsResponse, await self.cluster.request(request, leader.leader))
            answer = response.topics[0].partitions[0]
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                return answer.offset
            if not code.retriable:
                raise refusal(code, f"offsets of {topic}-{index}")
            self.cluster.forget(topic)
            return None

        return cast(int, await self.cluster.retry(ask))

    async def _reset_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        if self._reset == "none":
            names = ", ".join(f"{topic}-{index}" for topic, index in partitions)
            raise NoOffsetForPartition(f"no committed offset for {names}, and auto_offset_reset is none")
        return await self.offsets_for(dict.fromkeys(partitions, EARLIEST if self._reset == "earliest" else LATEST))

    async def _ask_coordinator(self, request: Any, version_max: int) -> Any:
        assert self.group_id is not None
        coordinator = await find_coordinator(self.cluster, self.group_id)
        channel = await self.cluster.channel_at(coordinator.host, coordinator.port, "group")
        return await channel.request(request, channel.version_for(request, version_max))

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The group's committed offsets; None where it has none. Raises ClientError, TimeoutError."""
        if self.group_id is None:
            raise ClientError("committed offsets need a group_id")
        found = await committed_offsets(self.cluster, self.group_id, partitions)
        return {key: offset if offset >= 0 else None for key, offset in found.items()}

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit `offsets`, or the positions of all assigned partitions. Raises BrokerError (also during a rebalance), TimeoutError."""
        if self.group_id is None:
            raise ClientError("commit needs a group_id")
        chosen = dict(offsets) if offsets is not None else {k: p.offset for k, p in self._positions.items() if p.offset is not None}
        if not chosen:
            return
        topics: dict[str, list[OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
        for (topic, index), offset in chosen.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            )
        member = self._member if self._subscribed else None
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=member.generation if member is not None else -1,
            member_id=member.member_id if member is not None else "",
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )

        async def ask() -> bool | None:
            response = cast(OffsetCommitResponse, await self._ask_coordinator(request, OFFSET_COMMIT_VERSION_MAX))
            codes = {ErrorCode(p.error_code) for topic in response.topics for p in topic.partitions} - {ErrorCode.NONE}
            for code in codes:
                newer = -1 if member is None else member.generation
                if code is ErrorCode.STALE_MEMBER_EPOCH and newer > request.generation_id_or_member_epoch:
                    # A heartbeat raised the member epoch while the commit was under way.
                    request.generation_id_or_member_epoch = newer
                    return None
                if code.retriable:
                    return None
                raise refusal(code, f"committing offsets of group {self.group_id}")
            return True

        await self.cluster.retry(ask)

    async def _commit_regularly(self) -> None:
        assert self._auto_commit_s is not None
        while True:
            await asyncio.sleep(self._auto_commit_s)
            try:
                await self.commit()
            except (ClientError, *TRANSPORT_ERRORS):
                continue  # the next round, or the rebalance that made this one fail, commits

    # -- records ---------------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int = 1000, records_max: int = 500) -> list[ConsumedRecord]:
        """Up to `records_max` records; waits at most `timeout_ms` for the first. Raises ClientError for an error that is not retriable."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            self._check()
            records = self._take(records_max)
            left = deadline - loop.time()
            if records or left <= 0:
                self._metadata_at_poll = None if self.group_id is None else self._metadata()
                return records
            self._arrived.clear()
            await self._wait(self._arrived, left)

    def _check(self) -> None:
        failure = self._failure or (self._member.failure if self._member is not None else None)
        if failure is not None:
            self._failure = None
            raise failure

    def _take(self, records_max: int) -> list[ConsumedRecord]:
        records: list[ConsumedRecord] = []
        for position in self._positions.values():
            if len(position.buffered) > PREFETCH_RECORDS_MAX:
                self._maybe_readable.set()
            while position.buffered and len(records) < records_max:
                record = position.buffered.popleft()
                position.offset = record.offset + 1
                records.append(record)
            if not position.buffered and position.offset is not None and len(records) < records_max:
                position.offset = max(position.offset, position.fetch_offset)
        return records

    async def _supervise(self) -> None:
        """Run one fetcher task for every broker from which an assigned partition is read."""
        while True:
            wanted: set[int] = set()
            leaders: dict[TopicPartition, int] = {}
            found_all = True
            for (topic, index), position in list(self._positions.items()):
                try:
                    leader = await self.cluster.leader(topic, index, timeout_ms=5000)
                    source = position.preferred if position.preferred in self.cluster.brokers else leader.leader
                    leaders[(topic, index)] = source
                    wanted.add(source)
                except BrokerError as error:
                    self._failure, found_all = error, False
                    self._arrived.set()
                except (ClientError, *TRANSPORT_ERRORS):
                    found_all = False
            for node_id in wanted:
                task = self._fetchers.get(node_id)
                if task is None or task.done():
                    self._fetchers[node_id] = asyncio.ensure_future(self._fetch_from(node_id))
            if leaders != self._leaders:
                self._leaders = leaders
                self._maybe_readable.set()
            await self._wait(self._leaders_stale, LEADER_CHECK_S_MAX if found_all else IDLE_S)

    @staticmethod
    async def _wait(event: asyncio.Event, seconds: float) -> None:
        """Wait for the event, at most `seconds`, and clear it."""
        alarm = asyncio.get_running_loop().call_later(seconds, event.set)
        try:
            await event.wait()
        finally:
            alarm.cancel()
        event.clear()

    def _readable_at(self, node_id: int) -> list[tuple[TopicPartition, _Position, int]]:
        now = asyncio.get_running_loop().time()
        found = []
        for (topic, index), position in self._positions.items():
            if position.fetch_offset < 0 or len(position.buffered) > PREFETCH_RECORDS_MAX or position.paused_until_s > now:
                continue
            cached = self.cluster.topics.get(topic)
            if cached is None or index >= len(cached.partitions):
                continue
            partition = cached.partitions[index]
            source = position.preferred if position.preferred in self.cluster.brokers else partition.leader
            if source == node_id:
                found.append(((topic, index), position, partition.leader_epoch))
        return found

    async def _fetch_from(self, node_id: int) -> None:
        while True:
            readable = self._readable_at(node_id)
            if not readable:
                now = asyncio.get_running_loop().time()
                is_paused = any(now < position.paused_until_s <= now + IDLE_S for position in self._positions.values())
                await self._wait(self._maybe_readable, IDLE_S if is_paused else LEADER_CHECK_S_MAX)
                continue
            try:
                await self._fetch_once(node_id, readable)
            except (ClientError, *TRANSPORT_ERRORS):
                for (topic, _), position, _ in readable:
                    position.preferred = -1
                    self.cluster.forget(topic)
                self._leaders_stale.set()
                await asyncio.sleep(IDLE_S)

    async def _fetch_once(self, node_id: int, readable: list[tuple[TopicPartition, _Position, int]]) -> None:
        topics: dict[str, list[FetchRequest.FetchPartition]] = {}
        asked: dict[TopicPartition, tuple[_Position, int]] = {}
        for (topic, index), position, leader_epoch in readable:
            asked[(topic, index)] = (position, position.fetch_offset)
            topics.setdefault(topic, []).append(
                FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=position.fetch_offset,
                    partition_max_bytes=self._limits.partition_bytes_max,
                )
            )
        request = FetchRequest(
            max_wait_ms=self._limits.wait_ms_max,
            min_bytes=self._limits.bytes_min,
            max_bytes=self._limits.bytes_max,
            isolation_level=1 if self._read_committed else 0,
            session_id=0,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=name, partitions=parts) for name, parts in topics.items()],
            rack_id=self._rack,
        )
        channel = await self.cluster.channel_to(node_id, "fetch")
        version = channel.version_for(request, FETCH_VERSION_MAX)
        if version >= LAST_FETCHED_EPOCH_VERSION_MIN:
            for wanted in request.topics:
                for part in wanted.partitions:
                    part.last_fetched_epoch = asked[(wanted.topic, part.partition)][0].last_epoch
        asked_for = channel.request(request, version, self._limits.wait_ms_max + 30_000)
        response = cast(FetchResponse, await self.cluster.silence.during(asked_for, more_s=self._limits.wait_ms_max / 1000))
        for answer in response.responses:
            for data in answer.partitions:
                entry = asked.get((answer.topic, data.partition_index))
                if entry is None:
                    continue
                position, offset = entry
                if self._positions.get((answer.topic, data.partition_index)) is position and position.fetch_offset == offset:
                    await self._accept(answer.topic, data, position)

    async def _accept(self, topic: str, data: FetchResponse.PartitionData, position: _Position) -> None:
        code = ErrorCode(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if position.preferred >= 0:
                position.preferred = -1
                self._wake_fetchers()
                return
            await self._out_of_range(topic, data.partition_index, position)
            return
        if code is not ErrorCode.NONE:
            position.preferred = -1
            position.paused_until_s = asyncio.get_running_loop().time() + IDLE_S
            if not code.retriable:
                self._failure = refusal(code, f"fetching {topic}-{data.partition_index}")
                self._arrived.set()
            self.cluster.forget(topic)
            self._leaders_stale.set()
            return
        if data.diverging_epoch.end_offset >= 0:
            self._diverged(topic, data, position)
            return
        position.high_watermark = data.high_watermark
        if data.preferred_read_replica >= 0:
            position.preferred = data.preferred_read_replica
            self._wake_fetchers()
            return
        if data.records:
            try:
                self._decode(topic, data, position)
            except WireError as error:
                self._failure = ClientError(f"{topic}-{data.partition_index} holds records that cannot be read: {error}")
                # Without a pause the fetcher would read the same bytes again at once.
                position.paused_until_s = asyncio.get_running_loop().time() + IDLE_S
            self._arrived.set()

    async def _out_of_range(self, topic: str, index: int, position: _Position) -> None:
        try:
            offsets = await self._reset_offsets([(topic, index)])
        except ClientError:
            self._failure = ClientError(
                f"offset {position.fetch_offset} of {topic}-{index} is no longer in the log, and auto_offset_reset is none"
            )
            position.paused_until_s = float("inf")
            self._arrived.set()
            return
        position.fetch_offset = position.offset = offsets[(topic, index)]
        position.last_epoch = -1

    def _diverged(self, topic: str, data: FetchResponse.PartitionData, position: _Position) -> None:
        """The log was truncated below the records already read (KIP-320): continue where the logs diverge, or fail if there is no reset."""
        end_offset = data.diverging_epoch.end_offset
        if self._reset == "none":
            self._failure = ClientError(
                f"{topic}-{data.partition_index} was truncated: the records read from offset {end_offset} on are no longer in the log"
                " (unclean election?), and auto_offset_reset is none"
            )
            position.paused_until_s = float("inf")
            self._arrived.set()
            return
        while position.buffered and position.buffered[-1].offset >= end_offset:
            position.buffered.pop()
        self._generation += 1
        position.fetch_offset = min(position.fetch_offset, end_offset)
        position.offset = min(position.offset if position.offset is not None else end_offset, end_offset)
        position.last_epoch = data.diverging_epoch.epoch
        self._wake_fetchers()

    def _decode(self, topic: str, data: FetchResponse.PartitionData, position: _Position) -> None:
        aborted = sorted(((a.first_offset, a.producer_id) for a in data.aborted_transactions or []), reverse=True)
        aborting: set[int] = set()
        records = cast(memoryview, data.records)
        for batch in iterate_batches(records):
            batch.check()
            while aborted and aborted[-1][0] <= batch.last_offset:
                aborting.add(aborted.pop()[1])
            if batch.is_control:
                for marker in batch.records():
                    if control_type(marker) is ControlType.ABORT:
                        aborting.discard(batch.producer_id)
            elif not (self._read_committed and batch.is_transactional and batch.producer_id in aborting):
                epoch = batch.partition_leader_epoch
                for record in batch.records():
                    if record.offset >= position.fetch_offset:
                        position.buffered.append(ConsumedRecord(
                            topic, data.partition_index, record.offset, record.timestamp, record.key, record.value, record.headers, epoch
                        ))  # fmt: skip
            position.last_epoch = batch.partition_leader_epoch
            position.fetch_offset = max(position.fetch_offset, batch.next_offset)
