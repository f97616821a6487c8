"""The fast path of repeated Produce requests: a producer repeats everything but its records.

A client such as librdkafka sends one batch for one partition in each request, so all bytes from the client id to the length of the
records are the same in every request for that partition. These bytes are the key of a template. The declared message decoded them once and
encoded the response once, with placeholders for the offsets. Any irregular request takes the ordinary path, which finds and reports
errors; a refused batch has changed nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any

from minikafka.broker.partitions.fast_path import HEAD, TEMPLATE_BYTES_MAX, Counted, Permits, TemplateFastPath, remember
from minikafka.broker.partitions.produce_answer import ACKS_ALL, TOPIC_ID_VERSION_MIN, PartitionAnswer, fail
from minikafka.core.partition.replication_wait import ReplicationWait
from minikafka.storage.validation import Fitting
from minikafka.wire.batch import TRANSACTIONAL_BIT
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.frame import response_bytes
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse
from minikafka.wire.varint import append_unsigned_varint, read_unsigned_varint

if TYPE_CHECKING:
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.core.partition.leader import PartitionLeader
    from minikafka.net.network import Clock, Connection
    from minikafka.storage.types import AppendInfo

FLEXIBLE_VERSION_MIN = 9
#: Position of the attributes byte in a batch that says whether it is transactional.
ATTRIBUTES_BYTE = 22
TEMPLATES_MAX = 512
VARINT_BYTES_MAX = 5
LENGTHS_MAX = 4
_PLACEHOLDERS = Struct(">qqq")
_OFFSET_PLACEHOLDERS = (0x5EA7_0FF5_E7A1_1001, 0x5EA7_0FF5_E7A1_1002, 0x5EA7_0FF5_E7A1_1003)
#: Empty tagged fields of the partition, the topic and the request; clients never send any.
_NO_TAGS = b"\0\0\0"


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
    """One acks=all batch that waits for replication."""

    __slots__ = ("_connection", "_correlation_id", "_info", "_template", "_ticket")

    def __init__(
        self,
        connection: Connection,
        correlation_id: int,
        template: _Template,
        partition: Partition,
        leader: PartitionLeader,
        info: AppendInfo,
    ) -> None:
        super().__init__(partition, leader, info.last_offset + 1)
        self._connection = connection
        self._ticket = connection.begin()
        self._correlation_id = correlation_id
        self._template = template
        self._info = info

    def settled(self, code: ErrorCode) -> None:
        """Answer the request."""
        template, info = self._template, self._info
        if code is ErrorCode.NONE:
            frame = template.answer(
                template.size, self._correlation_id, template.head, info.first_offset, info.log_append_time_ms, info.log_start_offset,
                template.tail,
            )  # fmt: skip
        else:
            frame = template.failed(self._correlation_id, code)
        self._connection.finish(self._ticket, [frame])

    def close(self, reason: str) -> None:
        """Close the client's connection, because the request failed unexpectedly."""
        self._connection.close(reason)


class ProduceFastPath(TemplateFastPath):
    """The templates of one connection."""

    __slots__ = ("_lengths", "_now_ms", "_refused", "_templates", "_wall_ms")

    def __init__(self, replicas: ReplicaManager, clock: Clock, entry: Counted, permits: Permits | None = None) -> None:
        """`entry` counts the served requests."""
        super().__init__(replicas, entry, permits)
        self._now_ms = clock.now_ms
        self._wall_ms = clock.wall_ms
        self._refused = replicas.refusals.entries
        self._templates: dict[bytes, _Template] = {}
        self._lengths: list[int] = []

    def serve(self, connection: Connection, frame: memoryview) -> bool:
        """Serve a Produce that matches a template. Returns False, with nothing changed, otherwise."""
        if len(frame) < HEAD.size:
            return False
        _, version, correlation_id = HEAD.unpack_from(frame)
        templates = self._templates
        for length in self._lengths:
            template = templates.get(bytes(frame[8:length]))
            if template is not None and template.version == version:
                break
        else:
            self._learn(frame)
            return False
        if length + VARINT_BYTES_MAX > len(frame):
            return False
        size, start = read_unsigned_varint(frame, length)
        size -= 1
        end = start + size
        if end + 3 != len(frame) or frame[end:] != _NO_TAGS:
            return False
        if template.is_watched and (size <= ATTRIBUTES_BYTE or frame[start + ATTRIBUTES_BYTE] & TRANSACTIONAL_BIT):
            return False
        replicas = self._replicas
        found: Mapping[tuple[Any, int], Partition] = replicas.partitions_by_id if template.by_id else replicas.partitions
        partition = found.get(template.key)
        if partition is None or partition.is_internal or self._refused:
            return False
        try:
            info = partition.append(frame[start:end], template.acks, self._wall_ms(), self._now_ms(), fitting=Fitting.ELSEWHERE)
        except ApiError:
            return False
        self._counts[version] += 1
        partition.produces += 1
        partition.bytes_in += size
        partition.messages_in += info.last_offset - info.first_offset + 1
        if template.acks == ACKS_ALL:
            leader = partition.leader
            if leader is not None and leader.high_watermark <= info.last_offset:
                parked = _ParkedAppend(connection, correlation_id, template, partition, leader, info)
                replicas.waiting.park(replicas.waiting.produces, parked, [partition.key], template.timeout_ms)
                return True
        answer = template.answer(
            template.size, correlation_id, template.head, info.first_offset, info.log_append_time_ms, info.log_start_offset, template.tail
        )
        connection.finish(connection.begin(), [answer])
        return True

    def forget(self) -> None:
        """Forget every template."""
        self._templates.clear()
        self._lengths.clear()
        self._misses = 0

    def _learn(self, frame: memoryview) -> None:
        """Remember the template of a request that may be repeated."""
        decoded = self._decode(frame, ProduceRequest, FLEXIBLE_VERSION_MIN)
        if decoded is None:
            return
        version, _, request, end = decoded
        if end != len(frame) or len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return
        topic = request.topic_data[0]
        records = topic.partition_data[0].records
        if not records or request.acks not in (1, ACKS_ALL):
            return
        start = len(frame) - len(_NO_TAGS) - len(records)
        written_length = bytearray()
        append_unsigned_varint(written_length, len(records) + 1)
        length = start - len(written_length)
        if length > TEMPLATE_BYTES_MAX or frame[length:start] != written_length or frame[start : start + len(records)] != records:
            return
        is_watched = self._permits is not None and request.transactional_id is None
        remember(self._templates, bytes(frame[8:length]), _Template(request, version, is_watched=is_watched), TEMPLATES_MAX)
        if length in self._lengths:
            self._lengths.remove(length)
        self._lengths.insert(0, length)
        del self._lengths[LENGTHS_MAX:]
        self._misses = 0
