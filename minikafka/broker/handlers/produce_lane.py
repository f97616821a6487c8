"""The short way of a Produce whose like came before: a producer repeats everything but its records.

A client such as librdkafka sends one batch of one partition in each request, so that all bytes from the client id to the length of the
records are the same for every request about that partition. Those bytes are the key of a shape: what they mean was decoded once, by the
declared message, and so was the answer encoded, with marks where the offsets stand. Whatever is odd in any way takes the ordinary way, and
an error is found and worded there: a batch that is refused has changed nothing.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from minikafka.broker.handlers.lane import HEAD, Counted, Lane, remember
from minikafka.broker.handlers.produce_answer import ACKS_ALL, TOPIC_ID_VERSION_MIN, PartitionAnswer, fail
from wire.batch import TRANSACTIONAL_BIT
from wire.errors import ApiError, ErrorCode
from wire.frame import encode_response
from wire.messages.produce import ProduceRequest, ProduceResponse
from wire.varint import append_unsigned_varint, read_unsigned_varint

if TYPE_CHECKING:
    from minikafka.broker.hosts.partition import Partition
    from minikafka.broker.hosts.replicas import ReplicaManager
    from minikafka.core.partition.leader import PartitionLeader
    from minikafka.net.network import Clock, Connection
    from storage.types import AppendInfo

FLEXIBLE_VERSION_MIN = 9
#: Where a batch says of itself that it is part of a transaction.
ATTRIBUTES_BYTE = 22
SHAPES_MAX = 512
LENGTHS_MAX = 4
_MARKS = Struct(">qqq")
_OFFSET_MARKS = (0x5EA7_0FF5_E7A1_1001, 0x5EA7_0FF5_E7A1_1002, 0x5EA7_0FF5_E7A1_1003)
#: Tagged fields of the partition, the topic and the request: none of them is ever sent.
_NO_TAGS = b"\0\0\0"


class _Shape:
    """What a request and its answer have in common with the others of their kind."""

    __slots__ = (
        "acks", "answer", "by_id", "head", "index", "is_watched", "key", "size", "tail", "timeout_ms", "topic", "topic_id", "version",
    )  # fmt: skip

    def __init__(self, request: ProduceRequest, version: int, *, is_watched: bool) -> None:
        """`is_watched`: batches of transactions must not go this way, because nobody has said whose transaction it is."""
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
        base_offset, append_time, log_start = _OFFSET_MARKS
        partition = PartitionAnswer(
            index=self.index, base_offset=base_offset, log_append_time_ms=append_time, log_start_offset=log_start
        )
        answers = ProduceResponse.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[partition])
        frame = b"".join(encode_response(ProduceResponse(responses=[answers]), version, 0))
        at = frame.index(_MARKS.pack(*_OFFSET_MARKS))
        self.size = len(frame) - 4
        self.head = frame[8:at]
        self.tail = frame[at + _MARKS.size :]
        self.answer = Struct(f">ii{len(self.head)}sqqq{len(self.tail)}s").pack

    def failed(self, correlation_id: int, code: ErrorCode) -> bytes:
        """The frame that answers with an error."""
        answer = PartitionAnswer(index=self.index)
        fail(answer, code)
        answers = ProduceResponse.TopicProduceResponse(name=self.topic, topic_id=self.topic_id, partition_responses=[answer])
        return b"".join(encode_response(ProduceResponse(responses=[answers]), self.version, correlation_id))


class _ParkedAppend:
    """One acks=all batch that waits for its replicas (DelayedProduce)."""

    __slots__ = ("_connection", "_correlation_id", "_info", "_leader", "_partition", "_shape", "_ticket", "is_done")

    def __init__(
        self, connection: Connection, correlation_id: int, shape: _Shape, partition: Partition, leader: PartitionLeader, info: AppendInfo
    ) -> None:
        self._connection = connection
        self._ticket = connection.begin()
        self._correlation_id = correlation_id
        self._shape = shape
        self._partition = partition
        self._leader = leader
        self._info = info
        self.is_done = False

    def try_complete(self) -> bool:
        """Answer once everything up to the batch is replicated, or never will be in this epoch."""
        if self._partition.leader is not self._leader:
            # A new epoch, even of ours, says nothing about records of the old one; the client finds out by trying again.
            self._fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        info = self._info
        code = self._leader.is_replicated(info.last_offset + 1)
        if code is None:
            return False
        if code is ErrorCode.NONE:
            shape = self._shape
            frame = shape.answer(
                shape.size, self._correlation_id, shape.head, info.first_offset, info.log_append_time_ms, info.log_start_offset, shape.tail
            )
            self.is_done = True
            self._connection.finish(self._ticket, [frame])
        else:
            self._fail(code)
        return True

    def expire(self) -> None:
        """The request's timeout has passed: REQUEST_TIMED_OUT, though the batch may yet be replicated."""
        self._fail(ErrorCode.REQUEST_TIMED_OUT)

    def _fail(self, code: ErrorCode) -> None:
        self.is_done = True
        self._connection.finish(self._ticket, [self._shape.failed(self._correlation_id, code)])


class ProduceLane(Lane):
    """The shapes of one connection."""

    __slots__ = ("_lengths", "_now_ms", "_refused", "_shapes", "_wall_ms")

    def __init__(self, replicas: ReplicaManager, clock: Clock, entry: Counted) -> None:
        """`entry` counts the requests that are served."""
        super().__init__(replicas, entry)
        self._now_ms = clock.now_ms
        self._wall_ms = clock.wall_ms
        self._refused = replicas.refusals.entries
        self._shapes: dict[bytes, _Shape] = {}
        self._lengths: list[int] = []

    def serve(self, connection: Connection, frame: memoryview) -> bool:
        """Serve a Produce of a known shape; False leaves everything as it was."""
        if len(frame) < HEAD.size:
            return False
        _, version, correlation_id = HEAD.unpack_from(frame)
        shapes = self._shapes
        for length in self._lengths:
            shape = shapes.get(bytes(frame[8:length]))
            if shape is not None and shape.version == version:
                break
        else:
            self._learn(frame)
            return False
        size, start = read_unsigned_varint(frame, length)
        size -= 1
        end = start + size
        if end + 3 != len(frame) or frame[end:] != _NO_TAGS:
            return False
        if shape.is_watched and (size <= ATTRIBUTES_BYTE or frame[start + ATTRIBUTES_BYTE] & TRANSACTIONAL_BIT):
            return False
        replicas = self._replicas
        partition = replicas.partitions_by_id.get(shape.key) if shape.by_id else replicas.partitions.get(shape.key)
        if partition is None or partition.is_internal or self._refused:
            return False
        try:
            info = partition.append(frame[start:end], shape.acks, self._wall_ms(), self._now_ms())
        except ApiError:
            return False
        self._counts[version] += 1
        partition.produces += 1
        partition.bytes_in += size
        partition.messages_in += info.last_offset - info.first_offset + 1
        if shape.acks == ACKS_ALL:
            leader = partition.leader
            if leader is not None and leader.high_watermark <= info.last_offset:
                parked = _ParkedAppend(connection, correlation_id, shape, partition, leader, info)
                replicas.park(replicas.produces, parked, [partition.key], shape.timeout_ms)
                return True
        answer = shape.answer(
            shape.size, correlation_id, shape.head, info.first_offset, info.log_append_time_ms, info.log_start_offset, shape.tail
        )
        connection.finish(connection.begin(), [answer])
        return True

    def forget(self) -> None:
        """Forget every shape."""
        self._shapes.clear()
        self._lengths.clear()
        self._misses = 0

    def _learn(self, frame: memoryview) -> None:
        """Remember the shape of a request that may come again."""
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
        if frame[length:start] != written_length or frame[start : start + len(records)] != records:
            return
        is_watched = self.permits is not None and request.transactional_id is None
        remember(self._shapes, bytes(frame[8:length]), _Shape(request, version, is_watched=is_watched), SHAPES_MAX)
        if length in self._lengths:
            self._lengths.remove(length)
        self._lengths.insert(0, length)
        del self._lengths[LENGTHS_MAX:]
        self._misses = 0
