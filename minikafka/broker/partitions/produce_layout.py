"""What the Produce requests of one connection repeat, and where the records lie in them.

A client such as the Java producer sends the batches of several partitions in each request, of other ones each time and in another
order. Only the beginning of the request (client id, acks, timeout) and the names or ids of topics are the same bytes. Flexible versions
(9 and later, KIP-482) of kafka/clients/src/main/resources/common/message/ProduceRequest.json; all counts and lengths are varints plus one.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from struct import error as StructError
from typing import Any

from minikafka.broker.partitions.fast_path import TEMPLATE_BYTES_MAX, remember
from minikafka.broker.partitions.produce_answer import TOPIC_ID_VERSION_MIN
from minikafka.late_dataclass import dataclass
from minikafka.wire.batch import ATTRIBUTES_LOW_BYTE, TRANSACTIONAL_BIT
from minikafka.wire.errors import WireError
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.varint import read_unsigned_varint

#: Requests for more partitions take the ordinary path.
PARTITIONS_MAX = 32
TOPICS_KEPT, BEGINNINGS_KEPT = 512, 8
ONE_BYTE_MAX = 0x7F
TOPIC_ID_BYTES = 16
_INDEX = Struct(">i")
#: Examples of an index and of records.
_INDEX_MARK, _RECORDS_MARK = 0x5EA7_0FF5, b"\x5e\xa7\x0f\xf5"


@dataclass(frozen=True, slots=True)
class Beginning:
    """Everything before the topics."""

    version: int
    acks: int
    timeout_ms: int
    #: Length of the frame up to the topics.
    length: int
    #: Whether topics have ids instead of names.
    by_id: bool


@dataclass(frozen=True, slots=True, eq=False)
class KnownTopic:
    """A topic: its name or id, and the bytes that say it in requests and in responses. A layout has one object for each."""

    key: Any
    encoded: bytes


#: A partition's records in a request.
Part = tuple[KnownTopic, int, memoryview]


class ProduceLayout:
    """The beginnings and topics that the requests of one connection have had."""

    __slots__ = ("_beginnings", "_by_id", "_by_name", "_lengths")

    def __init__(self) -> None:
        self._beginnings: dict[tuple[int, bytes], Beginning] = {}
        self._lengths: list[int] = []
        self._by_id: dict[bytes, KnownTopic] = {}
        self._by_name: dict[bytes, KnownTopic] = {}

    def forget(self) -> None:
        """Forget everything."""
        self._beginnings.clear()
        self._lengths.clear()
        self._by_id.clear()
        self._by_name.clear()

    def learn(self, frame: memoryview, position: int, version: int, request: ProduceRequest) -> bool:
        """Remember what this request may share with others. `position`: where its header ends. Returns whether something was new."""
        length = position + _between_bytes(version)
        if length > TEMPLATE_BYTES_MAX:
            return False
        beginning = Beginning(version, request.acks, max(request.timeout_ms, 0), length, version >= TOPIC_ID_VERSION_MIN)
        key = (version, bytes(frame[8:length]))
        is_new = key not in self._beginnings
        if is_new:
            remember(self._beginnings, key, beginning, BEGINNINGS_KEPT)
            self._lengths = list({known.length for known in self._beginnings.values()})
        for topic in request.topic_data:
            is_new |= self._learn_id(topic.topic_id) if beginning.by_id else self._learn_name(topic.name)
        return is_new

    def _learn_id(self, topic_id: bytes) -> bool:
        if topic_id in self._by_id:
            return False
        remember(self._by_id, bytes(topic_id), KnownTopic(topic_id, bytes(topic_id)), TOPICS_KEPT)
        return True

    def _learn_name(self, name: str) -> bool:
        text = name.encode()
        encoded = bytes((len(text) + 1,)) + text if len(text) < ONE_BYTE_MAX else b""
        if not encoded or encoded in self._by_name:
            return False
        remember(self._by_name, encoded, KnownTopic(name, encoded), TOPICS_KEPT)
        return True

    def beginning(self, frame: memoryview) -> Beginning | None:
        """The known beginning of a request."""
        version = frame[2] << 8 | frame[3]
        for length in self._lengths:
            found = self._beginnings.get((version, bytes(frame[8:length])))
            if found is not None:
                return found
        return None

    def read(self, frame: memoryview, beginning: Beginning) -> list[Part] | None:
        """The records of each partition, in the order of the request. None if a topic is unknown. An empty list for a request that is
        malformed or out of the ordinary: there is nothing to be learned from it."""
        topics, by_id, position = (self._by_id if beginning.by_id else self._by_name), beginning.by_id, beginning.length
        parts: list[Part] = []
        seen: set[KnownTopic] = set()
        try:
            ends, count, position = _ends(), frame[position], position + 1
            for _ in range(count - 1):
                size = TOPIC_ID_BYTES if by_id else frame[position]
                end = position + size
                topic = topics.get(bytes(frame[position:end]))
                if topic is None:  # long names are not kept
                    return None if count <= ONE_BYTE_MAX and size <= ONE_BYTE_MAX and end < len(frame) else []
                if topic in seen:
                    return []
                seen.add(topic)
                position = _read_partitions(frame, end, topic, parts, ends)
                if position < 0:
                    return []
            is_whole = frame[position] == ends[2] and position + 1 == len(frame)
        except (IndexError, StructError, WireError):
            return []
        return parts if is_whole and count <= ONE_BYTE_MAX else []


@cache
def _between_bytes(version: int) -> int:
    """What lies between the header and the topics of a request without a transactional id."""
    # The number of topics, which is one byte, and what is behind the last are no part of it.
    return len(ProduceRequest(transactional_id=None, topic_data=[]).encode(version)) - 2


@cache
def _ends() -> tuple[int, int, int]:
    """The byte behind a partition, a topic and the last topic (no tagged fields), cut out of a request that the declared messages encode,
    of two topics with two partitions and one. Raises ValueError if it is not one byte, or something else is between an index and its
    records."""
    kind, first, second = ProduceRequest, b"1" * TOPIC_ID_BYTES, b"2" * TOPIC_ID_BYTES
    data = kind.PartitionProduceData(index=_INDEX_MARK, records=_RECORDS_MARK)
    topics = [kind.TopicProduceData(topic_id=name, partition_data=some) for name, some in ((first, [data, data]), (second, [data]))]
    partition = _INDEX.pack(_INDEX_MARK) + bytes((len(_RECORDS_MARK) + 1,)) + _RECORDS_MARK
    rest = kind(topic_data=topics).encode(kind.MAX_VERSION).partition(b"\3" + first + b"\3" + partition)[2]
    behind_partition, _, rest = rest.partition(partition)
    behind, _, rest = rest.partition(second + b"\2" + partition)
    (partition_end,), (_, topic_end), (_, _, end) = behind_partition, behind, rest
    return partition_end, topic_end, end


def _read_partitions(frame: memoryview, position: int, topic: KnownTopic, parts: list[Part], ends: tuple[int, int, int]) -> int:
    """Add the partitions of one topic. Returns the position after it, -1 if it is out of the ordinary."""
    partition_end, topic_end, _ = ends
    count, position = frame[position], position + 1
    if not 1 < count <= PARTITIONS_MAX + 1:
        return -1  # null, empty or long
    for _ in range(count - 1):
        (index,) = _INDEX.unpack_from(frame, position)
        size, start = read_unsigned_varint(frame, position + 4)
        position = start + size - 1
        if size < 2 or frame[position] != partition_end:
            return -1  # null or empty, or with tagged fields
        parts.append((topic, index, frame[start:position]))
        position += 1
    return position + 1 if len(parts) <= PARTITIONS_MAX and frame[position] == topic_end else -1


def may_be_transactional(records: memoryview) -> bool:
    """Whether the first batch belongs to a transaction, or is too short to tell."""
    return len(records) <= ATTRIBUTES_LOW_BYTE or bool(records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT)
