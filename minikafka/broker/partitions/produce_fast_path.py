"""The fast path of repeated Produce requests: a producer repeats everything but its records.

A client such as librdkafka sends one batch for one partition in each request, so all bytes from the client id to the length of the
records are the same in every request for that partition. These bytes are the key of a template. The declared message decoded them once and
encoded the response once, with placeholders for the offsets. Any irregular request takes the ordinary path, which finds and reports
errors; a refused batch has changed nothing. Requests for several partitions are served by produce_several.py.

Small batches that arrive together are put off and appended together: one write, one move of the high watermark and one look at waiting
requests for each partition. If that fails, they are appended one by one, and those for which that fails, too, take the ordinary path;
each keeps its reserved place among the responses. If the ordinary path prepares a request on another thread, all later ones go there, too,
and wait behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from minikafka.broker.partitions.fast_path import HEAD, TEMPLATE_BYTES_MAX, Counted, Permits, TemplateFastPath, remember
from minikafka.broker.partitions.produce_answer import ACKS_ALL, TOPIC_ID_VERSION_MIN, PartitionAnswer, ReservedPlace, fail
from minikafka.broker.partitions.produce_layout import ProduceLayout, may_be_transactional
from minikafka.broker.partitions.produce_several import SeveralPartitions
from minikafka.broker.supervise import Ends
from minikafka.core.partition.replication_wait import ReplicationWait
from minikafka.storage.validation import Fitting
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.frame import response_bytes
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse
from minikafka.wire.varint import append_unsigned_varint, unsigned_varint

if TYPE_CHECKING:
    from minikafka.broker.front.fast_path import Refer
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.produce_preparation import Preparation
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.core.partition.leader import PartitionLeader
    from minikafka.net.network import Clock, Connection
    from minikafka.net.turn_share import TurnShares
    from minikafka.storage.log_append import BatchRun

FLEXIBLE_VERSION_MIN = 9
TEMPLATES_MAX = 512
VARINT_BYTES_MAX = 5
LENGTHS_MAX = 4
#: Fewer frames of its size behind a request are not worth a run: each costs more than the system call that it saves.
FRAMES_BEHIND_MIN = 3
#: With followers a run also saves answers to their fetches, and their next fetches.
FRAMES_BEHIND_MIN_REPLICATED = 1
#: Larger batches are appended by themselves: copying them together costs more than a system call.
PUT_OFF_BYTES_MAX = 8 * 1024
#: Bounds of one run: its batches, and its bytes, of which the last batch may exceed the bound.
RUN_BATCHES_MAX, RUN_BYTES_MAX = 64, 56 * 1024
_PLACEHOLDERS = Struct(">qqq")
_OFFSET_PLACEHOLDERS = (0x5EA7_0FF5_E7A1_1001, 0x5EA7_0FF5_E7A1_1002, 0x5EA7_0FF5_E7A1_1003)
#: Empty tagged fields of the partition, the topic and the request; clients never send any.
_NO_TAGS = b"\0\0\0"


@lru_cache(maxsize=1024)
def _length_before(rest: int) -> bytes:
    """How a request writes the length of its records, if both together have `rest` bytes. Empty if that is impossible."""
    for written_bytes in range(1, VARINT_BYTES_MAX + 1):
        written = unsigned_varint(rest - written_bytes + 1) if rest >= written_bytes else b""
        if len(written) == written_bytes:
            return written
    return b""


class _Template:
    """The common part of equal requests and of their responses."""

    __slots__ = (
        "acks", "answer", "by_id", "head", "index", "is_watched", "key", "size", "tail", "timeout_ms", "topic", "topic_id", "version",
    )  # fmt: skip

    def __init__(self, request: ProduceRequest, version: int, *, is_watched: bool) -> None:
        """`is_watched`: transactional batches must take the ordinary path, where the transactional id is checked."""
        topic = request.topic_data[0]
        self.is_watched = is_watched
        self.version = version
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.index = topic.partition_data[0].index
        self.by_id = version >= TOPIC_ID_VERSION_MIN
        self.key = (topic.topic_id if self.by_id else topic.name, self.index)
        self.acks = request.acks
        self.timeout_ms = max(request.timeout_ms, 0)
        base_offset, append_time, log_start = _OFFSET_PLACEHOLDERS
        partition = PartitionAnswer(index=self.index, base_offset=base_offset, log_append_time_ms=append_time, log_start_offset=log_start)
        answers = ProduceResponse.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[partition])
        frame = response_bytes(ProduceResponse(responses=[answers]), version, 0)
        at = frame.index(_PLACEHOLDERS.pack(*_OFFSET_PLACEHOLDERS))
        self.size = len(frame) - 4
        self.head = frame[8:at]
        self.tail = frame[at + _PLACEHOLDERS.size :]
        self.answer = Struct(f">ii{len(self.head)}sqqq{len(self.tail)}s").pack

    def failed(self, correlation_id: int, code: ErrorCode) -> bytes:
        """A response frame with an error."""
        answer = PartitionAnswer(index=self.index)
        fail(answer, code)
        answers = ProduceResponse.TopicProduceResponse(name=self.topic, topic_id=self.topic_id, partition_responses=[answer])
        return response_bytes(ProduceResponse(responses=[answers]), self.version, correlation_id)


class _ParkedAppend(ReplicationWait):
    """One acks=all batch that waits for replication. `answer` is the response frame if it is replicated."""

    __slots__ = ("_answer", "_connection", "_correlation_id", "_template", "_ticket")

    def __init__(
        self,
        connection: Connection,
        ticket: int,
        answer: bytes,
        correlation_id: int,
        template: _Template,
        partition: Partition,
        leader: PartitionLeader,
        required: int,
    ) -> None:
        super().__init__(partition, leader, required)
        self._connection = connection
        self._ticket = ticket
        self._answer = answer
        self._correlation_id = correlation_id
        self._template = template

    def settled(self, code: ErrorCode) -> None:
        """Answer the request."""
        frame = self._answer if code is ErrorCode.NONE else self._template.failed(self._correlation_id, code)
        self._connection.finish(self._ticket, [frame])

    def close(self, reason: str) -> None:
        """Close the client's connection, because the request failed unexpectedly."""
        self._connection.close(reason)


def _has_followers(partition: Partition) -> bool:
    leader = partition.appending
    return leader is not None and bool(leader.followers)


class _Run:
    """Requests about one partition that were put off."""

    __slots__ = ("batches", "requests")

    def __init__(self, batches: BatchRun) -> None:
        self.batches = batches
        #: Of each request: its frame, place among the responses, correlation id, template, and number of records.
        self.requests: list[tuple[memoryview, int, int, _Template, int]] = []


class ProduceFastPath(TemplateFastPath):
    """The templates of one connection, and its requests that were put off."""

    puts_off = True

    __slots__ = (
        "_connection", "_layout", "_lengths", "_now_ms", "_prepared", "_refused", "_runs", "_several", "_templates", "_wall_ms",
    )  # fmt: skip

    def __init__(
        self, replicas: ReplicaManager, clock: Clock, shares: TurnShares, preparation: Preparation, entry: Counted, refer: Refer,
        permits: Permits | None = None,
    ) -> None:  # fmt: skip
        super().__init__(replicas, entry, refer, permits)
        self._now_ms = clock.now_ms
        self._wall_ms = clock.wall_ms
        self._prepared = preparation.under_way
        self._refused = replicas.refusals.entries
        self._templates: dict[bytes, _Template] = {}
        #: Lengths of the frames' common parts, those learned last first, each with what unpacks such a part.
        self._lengths: list[tuple[int, Callable[[memoryview], tuple[int, int, int, bytes]]]] = []
        self._runs: dict[Partition, _Run] = {}
        self._layout = ProduceLayout()
        self._several = SeveralPartitions(replicas, clock, shares, entry, refer, self._layout)
        self._connection: Connection

    def serve(self, connection: Connection, frame: memoryview) -> bool:
        """See FastPath: serve a Produce that matches a template."""
        size = len(frame)
        for length, unpack in self._lengths:
            if size <= length:
                continue
            _, version, correlation_id, key = unpack(frame)
            template = self._templates.get(key)
            if template is not None and template.version == version:
                break
        else:
            return self._serve_several(connection, frame)
        written_length = _length_before(size - length - len(_NO_TAGS))
        start, end = length + len(written_length), size - len(_NO_TAGS)
        if frame[length:start] != written_length or frame[end:] != _NO_TAGS:
            return False
        records = frame[start:end]
        if template.is_watched and may_be_transactional(records):
            return False
        found: Mapping[tuple[Any, int], Partition] = self._replicas.partitions_by_id if template.by_id else self._replicas.partitions
        partition = found.get(template.key)
        if partition is None or partition.is_internal or self._refused or partition.log.flushes_by_count:
            return False
        behind = connection.bytes_behind // size
        if self._runs or behind >= FRAMES_BEHIND_MIN or (behind >= FRAMES_BEHIND_MIN_REPLICATED and _has_followers(partition)):
            if self._put_off(connection, frame, records, correlation_id, template, partition):
                return True
            if self._runs:
                self.complete()
            if connection in self._prepared:
                return False
        return self._append(connection, None, records, correlation_id, template, partition)

    def _serve_several(self, connection: Connection, frame: memoryview) -> bool:
        """Serve a request for several partitions, after those that were put off."""
        if len(frame) < HEAD.size:
            return False
        _, _, correlation_id = HEAD.unpack_from(frame)
        if self._runs:
            self.complete()
            if connection in self._prepared:
                return False
        is_served = self._several.serve(connection, frame, correlation_id)
        if is_served is None:
            self._learn(frame)
        return bool(is_served)

    def _append(
        self, connection: Connection, ticket: int | None, records: memoryview, correlation_id: int, template: _Template,
        partition: Partition,
    ) -> bool:  # fmt: skip
        """Append one batch and answer, at the place `ticket` or else at the next one. False, with nothing changed, if that fails."""
        try:
            info = partition.append(records, template.acks, self._wall_ms(), self._now_ms(), fitting=Fitting.ELSEWHERE)
        except ApiError:
            return False
        self._counts[template.version] += 1
        partition.produced(1, len(records), info.last_offset - info.first_offset + 1)
        answer = template.answer(
            template.size, correlation_id, template.head, info.first_offset, info.log_append_time_ms, info.log_start_offset, template.tail
        )
        if ticket is None:
            ticket = connection.begin()
        if template.acks == ACKS_ALL:
            self._answer_replicated(connection, ticket, answer, correlation_id, template, partition, info.last_offset)
        else:
            connection.finish(ticket, [answer])
        return True

    def _answer_replicated(
        self, connection: Connection, ticket: int, answer: bytes, correlation_id: int, template: _Template, partition: Partition,
        last_offset: int,
    ) -> None:  # fmt: skip
        """Send an answer when everything up to `last_offset` is replicated."""
        leader = partition.leader
        if leader is None or leader.high_watermark > last_offset:
            connection.finish(ticket, [answer])
            return
        parked = _ParkedAppend(connection, ticket, answer, correlation_id, template, partition, leader, last_offset + 1)
        waiting = self._replicas.waiting
        waiting.park(waiting.produces, parked, [partition.key], template.timeout_ms)

    # -- requests that arrive together -----------------------------------------------------------------------------

    def _put_off(
        self, connection: Connection, frame: memoryview, records: memoryview, correlation_id: int, template: _Template, partition: Partition
    ) -> bool:
        """Put a request off until `complete`. False if its batch must be appended by itself."""
        if len(records) > PUT_OFF_BYTES_MAX:
            return False
        run = self._runs.get(partition)
        if run is not None and (len(run.requests) >= RUN_BATCHES_MAX or run.batches.size >= RUN_BYTES_MAX):
            self.complete()
            if connection in self._prepared:
                return False
            run = None
        leader = partition.appending
        if leader is None or (template.acks == ACKS_ALL and not leader.is_writable):
            return False
        if run is not None:
            count = run.batches.add(records)
        else:
            run = _Run(partition.log.begin_run(self._wall_ms()))
            count = run.batches.add(records)
            if count:
                if not self._runs:
                    self._connection = connection
                    connection.after_frames(self.complete)
                self._runs[partition] = run
        if not count:
            return False
        run.requests.append((frame, connection.begin(), correlation_id, template, count))
        return True

    def complete(self) -> None:
        """See FastPath: append what was put off."""
        if not self._runs:
            return
        connection, runs, self._runs = self._connection, self._runs, {}
        try:
            now_ms = self._now_ms()
            for partition, run in runs.items():
                if partition.append_run(run.batches, now_ms):
                    self._answer_run(connection, partition, run)
                else:
                    self._append_each(connection, partition, run)
        except Exception as error:
            self._entry.supervisor.caught(f"requests from {connection}", error, Ends("connection", connection.close))

    def _append_each(self, connection: Connection, partition: Partition, run: _Run) -> None:
        """Append the batches of a run one by one. The ordinary path serves those for which that fails, and all behind one that it
        prepares."""
        for (frame, ticket, correlation_id, template, _), (records, _) in zip(run.requests, run.batches.batches, strict=True):
            is_ordinary = self._refused or connection in self._prepared
            if is_ordinary or not self._append(connection, ticket, records, correlation_id, template, partition):
                self._refer(cast("Connection", ReservedPlace(connection, ticket)), frame)

    def _answer_run(self, connection: Connection, partition: Partition, run: _Run) -> None:
        batches, counts = run.batches, self._counts
        offset, log_start_offset = batches.first_offset, partition.log.watermarks.log_start_offset
        partition.produced(len(run.requests), batches.size, batches.end_offset - offset)
        for _, ticket, correlation_id, template, count in run.requests:
            counts[template.version] += 1
            answer = template.answer(template.size, correlation_id, template.head, offset, -1, log_start_offset, template.tail)
            offset += count
            if template.acks == ACKS_ALL:
                self._answer_replicated(connection, ticket, answer, correlation_id, template, partition, offset - 1)
            else:
                connection.finish(ticket, [answer])

    def forget(self) -> None:
        """Forget every template."""
        super().forget()
        self._templates.clear()
        self._lengths.clear()
        self._layout.forget()

    def _learn(self, frame: memoryview) -> None:
        """Remember the template of a request that may be repeated."""
        decoded = self._decode(frame, ProduceRequest, FLEXIBLE_VERSION_MIN)
        if decoded is None:
            return
        version, _, position, request, end = decoded
        if end != len(frame) or request.acks not in (1, ACKS_ALL):
            return
        if request.transactional_id is None and self._layout.learn(frame, position, version, request):
            self._misses = 0
        if len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) == 1:
            self._learn_single(frame, version, request)

    def _learn_single(self, frame: memoryview, version: int, request: ProduceRequest) -> None:
        topic = request.topic_data[0]
        records = topic.partition_data[0].records
        if not isinstance(records, memoryview) or not records:
            return
        start = len(frame) - len(_NO_TAGS) - len(records)
        written_length = bytearray()
        append_unsigned_varint(written_length, len(records) + 1)
        length = start - len(written_length)
        if length > TEMPLATE_BYTES_MAX or frame[length:start] != written_length or frame[start : start + len(records)] != records:
            return
        is_watched = request.transactional_id is None
        self._keep(length, 1)
        remember(self._templates, bytes(frame[8:length]), _Template(request, version, is_watched=is_watched), TEMPLATES_MAX)
        self._lengths = [other for other in self._lengths if other[0] != length]
        self._lengths.insert(0, (length, Struct(f">hhi{length - HEAD.size}s").unpack_from))
        del self._lengths[LENGTHS_MAX:]
        self._misses = 0
