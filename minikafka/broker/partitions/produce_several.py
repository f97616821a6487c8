"""The fast path of Produce requests for several partitions: their batches are appended and answered without decoding the request.

The partitions are appended one after the other. If a batch is refused, or this turn's share of the event loop is used up, the ordinary
path serves the request at the place that it has among the responses. It is told what has been appended, so that nothing is appended twice,
and finds the error again.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from minikafka.broker.partitions.produce_answer import ACKS_ALL, Appended, ReservedPlace
from minikafka.broker.partitions.produce_layout import TOPIC_ID_BYTES, Beginning, KnownTopic, Part, ProduceLayout, may_be_transactional
from minikafka.core.partition.replication_wait import replication_result
from minikafka.storage.validation import Fitting
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.frame import encode_response
from minikafka.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from minikafka.broker.front.fast_path import Refer
    from minikafka.broker.partitions.fast_path import Counted
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.net.network import Clock, Connection
    from minikafka.net.turn_share import TurnShares

#: Size, correlation id.
_HEAD = Struct(">ii")
#: Index, error code, base offset, time of the append, log start offset of a partition, and examples of them.
_PARTITION = Struct(">ihqqq")
_MARKS = 0x5EA7_0FF5, 0x5EA7, 0x5EA7_0FF5_0000_0001, 0x5EA7_0FF5_0000_0002, 0x5EA7_0FF5_0000_0003
#: Topic, index of the partition, and what has been appended.
Entry = tuple[KnownTopic, int, Appended]


class _Shape(NamedTuple):
    """How responses are written (Produce 9 and later)."""

    #: Size, correlation id, rest of the header, number of topics.
    head: Struct
    rest_of_header: bytes
    #: The fields of a partition, and what is behind them.
    partition: Struct
    behind_partition: bytes
    behind_topic: bytes
    behind_topics: bytes


@cache
def _shape() -> _Shape:
    """Cut out of a response that the declared messages encode, of two topics with two partitions and one."""
    kind, partition = ProduceResponse.TopicProduceResponse, _PARTITION.pack(*_MARKS)
    index, code, base_offset, append_time_ms, start_offset = _MARKS
    answer = ProduceResponse.PartitionProduceResponse(
        index=index, error_code=code, base_offset=base_offset, log_append_time_ms=append_time_ms, log_start_offset=start_offset
    )
    first, second = b"1" * TOPIC_ID_BYTES, b"2" * TOPIC_ID_BYTES
    answered = ProduceResponse(
        responses=[kind(topic_id=first, partition_responses=[answer, answer]), kind(topic_id=second, partition_responses=[answer])]
    )
    frame = b"".join(bytes(piece) for piece in encode_response(answered, ProduceResponse.MAX_VERSION, 0))  # type: ignore[arg-type]
    header, _, rest = frame[_HEAD.size :].partition(b"\3" + first + b"\3" + partition)
    behind_partition, _, rest = rest.partition(partition)
    behind, _, rest = rest.partition(second + b"\2" + partition)
    size = len(behind_partition)
    behind_topic = behind[size:]
    head, fields = Struct(f"{_HEAD.format}{len(header)}sB"), Struct(f"{_PARTITION.format}{size}s")
    return _Shape(head, header, fields, behind_partition, behind_topic, rest[size + len(behind_topic) :])


def response(correlation_id: int, entries: list[Entry], errors: Mapping[int, ErrorCode]) -> bytes:
    """The response frame (Produce 9 and later). `errors`: position among the entries -> why it failed after all."""
    head, rest_of_header, fields, behind_partition, behind_topic, behind_topics = _shape()
    pack = fields.pack
    pieces: list[bytes] = []
    topics, first, topic = 0, 0, None
    for number, (named, index, appended) in enumerate(entries):
        if named is not topic:
            if topic is not None:
                pieces[first] = topic.encoded + bytes((len(pieces) - first,))
                pieces.append(behind_topic)
            topic, first = named, len(pieces)
            topics += 1
            pieces.append(b"")
        info = appended.info
        if number in errors:
            pieces.append(pack(index, errors[number], -1, -1, -1, behind_partition))
        else:
            offsets = info.first_offset, info.log_append_time_ms, info.log_start_offset
            pieces.append(pack(index, 0, *offsets, behind_partition))
    assert topic is not None
    pieces[first] = topic.encoded + bytes((len(pieces) - first,))
    pieces += (behind_topic, behind_topics)
    body = b"".join(pieces)
    return head.pack(len(body) + head.size - 4, correlation_id, rest_of_header, topics + 1) + body


class _Replicating:
    """An acks=all request some of whose partitions wait for replication: a DelayedOperation that is answered when all are settled."""

    __slots__ = ("_connection", "_correlation_id", "_entries", "_errors", "_left", "_ticket", "is_done")

    def __init__(self, connection: Connection, correlation_id: int, entries: list[Entry]) -> None:
        self._connection = connection
        self._correlation_id = correlation_id
        self._entries = entries
        self._errors: dict[int, ErrorCode] = {}
        self._ticket = connection.begin()
        #: Positions of the entries that are not settled.
        self._left = list(range(len(entries)))
        self.is_done = False

    def wait(self, replicas: ReplicaManager, timeout_ms: int) -> None:
        """Answer when all partitions are settled. Some may be already."""
        if not self.try_complete():
            keys: list[Hashable] = [self._entries[number][2].partition.key for number in self._left]
            replicas.waiting.park(replicas.waiting.produces, self, keys, timeout_ms)

    def try_complete(self, key: Hashable = None) -> bool:
        """Settle what is replicated, or can no longer be replicated in this epoch. Answers, and returns True, if that was the last."""
        left = []
        for number in self._left:
            appended = self._entries[number][2]
            if key is not None and appended.partition.key != key:
                left.append(number)
                continue
            code = replication_result(appended.partition, appended.leader, appended.info.last_offset + 1)
            if code is None:
                left.append(number)
            elif code is not ErrorCode.NONE:
                self._errors[number] = code
        self._left = left
        if not left:
            self._answer()
        return self.is_done

    def expire(self) -> None:
        """The time is up: REQUEST_TIMED_OUT for what is not settled, although it may still be replicated."""
        for number in self._left:
            self._errors[number] = ErrorCode.REQUEST_TIMED_OUT
        self._answer()

    def close(self, reason: str) -> None:
        """Close the client's connection, because the request failed unexpectedly."""
        self._connection.close(reason)

    def _answer(self) -> None:
        self.is_done = True
        self._connection.finish(self._ticket, [response(self._correlation_id, self._entries, self._errors)])


class SeveralPartitions:
    """Serves requests whose beginning and topics `layout` knows."""

    __slots__ = ("_counts", "_layout", "_now_ms", "_refer", "_refused", "_replicas", "_shares", "_wall_ms")

    def __init__(
        self, replicas: ReplicaManager, clock: Clock, shares: TurnShares, entry: Counted, refer: Refer, layout: ProduceLayout
    ) -> None:
        """`refer` serves a request in the ordinary way."""
        self._replicas = replicas
        self._shares = shares
        self._counts = entry.counts
        self._refused = replicas.refusals.entries
        self._now_ms, self._wall_ms = clock.now_ms, clock.wall_ms
        self._refer = refer
        self._layout = layout

    def serve(self, connection: Connection, frame: memoryview, correlation_id: int) -> bool | None:
        """Serve a request. False, with nothing done, if the ordinary path has to; None if it has something unknown, so that it may be
        worth learning."""
        beginning = self._layout.beginning(frame)
        parts = None if beginning is None else self._layout.read(frame, beginning)
        if parts is None or beginning is None:
            return None
        if len(parts) < 2:
            return None if parts else False  # single ones have templates
        partitions = self._partitions(parts, beginning)
        if partitions is None:
            return False
        entries: list[Entry] = []
        wall_ms, now_ms, acks, is_over = self._wall_ms(), self._now_ms(), beginning.acks, self._shares.begin()
        for (topic, index, records), partition in zip(parts, partitions, strict=True):
            leader = partition.appending
            try:
                info = partition.append(records, acks, wall_ms, now_ms, fitting=Fitting.ELSEWHERE)
            except ApiError:
                return self._refer_rest(connection, frame, entries)
            entries.append((topic, index, Appended(partition, leader, info)))
            if len(entries) < len(parts) and is_over():
                return self._refer_rest(connection, frame, entries)
        for (_, _, records), (_, _, appended) in zip(parts, entries, strict=True):
            appended.count(len(records))
        self._answer(connection, correlation_id, beginning, entries)
        return True

    def _partitions(self, parts: list[Part], beginning: Beginning) -> list[Partition] | None:
        """The partition of each part. None if one of them is not served fast."""
        if self._refused:
            return None
        replicas = self._replicas
        found_by: Mapping[tuple[Any, int], Partition] = replicas.partitions_by_id if beginning.by_id else replicas.partitions
        found: dict[Partition, None] = {}
        for topic, index, records in parts:
            partition = found_by.get((topic.key, index))
            if (
                partition is None or partition.appending is None or partition.is_internal or partition.log.flushes_by_count
                or may_be_transactional(records)
            ):  # fmt: skip
                return None
            found[partition] = None
        return list(found) if len(found) == len(parts) else None

    def _refer_rest(self, connection: Connection, frame: memoryview, entries: list[Entry]) -> bool:
        """Let the ordinary path serve the request, of which `entries` have been appended."""
        if not entries:
            return False
        appended: dict[tuple[Hashable, int], Appended] = {(topic.key, index): done for topic, index, done in entries}
        self._refer(cast("Connection", ReservedPlace(connection, connection.begin(), appended)), frame)
        return True

    def _answer(self, connection: Connection, correlation_id: int, beginning: Beginning, entries: list[Entry]) -> None:
        self._counts[beginning.version] += 1
        if beginning.acks == ACKS_ALL:
            _Replicating(connection, correlation_id, entries).wait(self._replicas, beginning.timeout_ms)
        else:
            connection.finish(connection.begin(), [response(correlation_id, entries, {})])
