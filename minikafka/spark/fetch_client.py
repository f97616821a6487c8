"""The audit's own minimal Kafka client: metadata, log bounds, configuration, and raw batches from any replica.

It uses request versions without tagged fields (Metadata 7, ListOffsets 1 and 2, DescribeConfigs 1, DescribeLogDirs 1, Fetch 11), which
Apache Kafka serves up to 4.3. Only topic ids need a flexible version (Metadata 12). Since Fetch 11 a consumer may fetch from followers
(KIP-392); every replica answers up to its own high watermark.
This module shares no code with the broker or the client.
"""

from __future__ import annotations

import base64
import contextlib
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from minikafka.addresses import host_port, split_addresses
from minikafka.security.mechanisms import SaslRefused
from minikafka.spark.security import PLAIN_TEXT, Security

FETCH, LIST_OFFSETS, METADATA, DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 1, 2, 3, 32, 35, 17, 36
EARLIEST, LATEST = -2, -1
ANSWER_BYTES_MAX = 256 << 20
#: How often partitions that an answer leaves out are asked for, and how long to wait before, whatever the broker says.
FETCHES_MAX, PAUSE_MS_MIN, PAUSE_MS_MAX = 40, 50, 10_000
CONSUMER, DEBUGGING_CONSUMER = -1, -2
NOT_LEADER, OUT_OF_RANGE, UNKNOWN_PARTITION, STORAGE, OFFSET_NOT_AVAILABLE = 6, 1, 3, 56, 78
#: What ListOffsets of a version before 5 says instead of OFFSET_NOT_AVAILABLE.
LEADER_NOT_AVAILABLE = 5
ERRORS = {
    1: "OFFSET_OUT_OF_RANGE", 3: "UNKNOWN_TOPIC_OR_PARTITION", 5: "LEADER_NOT_AVAILABLE", 6: "NOT_LEADER_OR_FOLLOWER",
    9: "REPLICA_NOT_AVAILABLE", 29: "TOPIC_AUTHORIZATION_FAILED", 31: "CLUSTER_AUTHORIZATION_FAILED", 33: "UNSUPPORTED_SASL_MECHANISM",
    34: "ILLEGAL_SASL_STATE", 35: "UNSUPPORTED_VERSION", 56: "KAFKA_STORAGE_ERROR", 58: "SASL_AUTHENTICATION_FAILED",
    74: "FENCED_LEADER_EPOCH", 76: "UNSUPPORTED_COMPRESSION_TYPE", 78: "OFFSET_NOT_AVAILABLE", 100: "UNKNOWN_TOPIC_ID",
}  # fmt: skip


class BrokerError(OSError):
    """A broker did not answer a request as expected; `strerror` is a one-line message. `is_away`: the broker could not be reached or closed
    the connection, and may come back."""

    def __init__(self, text: str, is_away: bool = False) -> None:
        super().__init__(None, text)
        self.text, self.is_away = text, is_away

    def __reduce__(self) -> Any:
        return BrokerError, (self.text, self.is_away)

    def __str__(self) -> str:
        return self.text


def name_of(code: int) -> str:
    return ERRORS.get(code, f"error {code}")


class _Reader:
    """Reads the values of a response in order."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.position = data, 0

    def raw(self, size: int) -> memoryview:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise BrokerError("a response ends too early: is this a Kafka broker?")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def integer(self, size: int) -> int:
        return int.from_bytes(self.raw(size), "big", signed=True)

    def string(self) -> str:
        length = self.integer(2)
        return "" if length < 0 else bytes(self.raw(length)).decode("utf-8", "replace")

    def count(self) -> int:
        number = self.integer(4)
        if number > len(self.data):
            raise BrokerError("a response claims more elements than it has bytes")
        return max(0, number)

    def integers(self) -> list[int]:
        return [self.integer(4) for _ in range(self.count())]

    def varint(self) -> int:
        value = shift = 0
        while shift < 35:
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise BrokerError("a response contains a number that does not end: is this a Kafka broker?")

    def compact_count(self) -> int:
        number = self.varint() - 1
        if number > len(self.data):
            raise BrokerError("a response claims more elements than it has bytes")
        return max(0, number)

    def compact(self) -> str:
        """A compact string; "" for null."""
        return bytes(self.raw(self.compact_count())).decode("utf-8", "replace")

    def tags(self) -> None:
        """Skip tagged fields."""
        for _ in range(self.varint()):
            self.varint()
            self.raw(self.varint())


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(data) + bytes([value])


def _compact(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data) + 1) + data


@dataclass(slots=True)
class PartitionState:
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]


@dataclass(slots=True)
class ClusterState:
    """The content of a Metadata response."""

    cluster_id: str
    brokers: dict[int, tuple[str, int]]
    partitions: dict[tuple[str, int], PartitionState]
    unknown: list[str]


@dataclass(slots=True)
class Fetched:
    """One partition of a Fetch response."""

    error: int
    high_watermark: int
    log_start: int
    records: memoryview
    last_stable: int = -1
    #: (producer id, first offset) of the aborted transactions in `records`, if they were requested.
    aborted: tuple[tuple[int, int], ...] = ()


class Connection:
    """A connection to one broker, for one request at a time. Every failure is a BrokerError."""

    def __init__(self, host: str, port: int, security: Security | None = None, timeout_s: float = 30.0) -> None:
        self.place = host_port(host, port)
        security = security or Security()
        try:
            self.socket = security.connect(host, port, timeout_s)
        except (OSError, ValueError) as error:
            text = f"broker {self.place} cannot be reached: {getattr(error, 'strerror', None) or error}"
            raise BrokerError(text, is_away=True) from error
        self.correlation = 0
        if security.mechanism:
            self._authenticate(security)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()

    def ask(self, key: int, version: int, body: bytes) -> _Reader:
        self.correlation += 1
        frame = struct.pack(">hhi", key, version, self.correlation) + _string("minikafka-audit") + body
        try:
            self.socket.sendall(struct.pack(">i", len(frame)) + frame)
            size = int.from_bytes(self._exactly(4), "big", signed=True)
            if not 4 <= size <= ANSWER_BYTES_MAX:
                raise BrokerError(f"broker {self.place} sent a frame of {size} bytes: it is not a Kafka broker, or it expects TLS")
            answer = _Reader(memoryview(self._exactly(size)))
        except BrokerError:
            raise
        except OSError as error:
            raise BrokerError(f"broker {self.place} does not answer: {error.strerror or error}", is_away=True) from error
        if answer.integer(4) != self.correlation:
            raise BrokerError(f"broker {self.place} answered with the wrong correlation id")
        return answer

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = self.socket.recv_into(view)
            if got == 0:
                text = f"broker {self.place} closed the connection (wrong security settings or an unsupported request)"
                raise BrokerError(text, is_away=True)
            view = view[got:]
        return data

    def _authenticate(self, security: Security) -> None:
        answer = self.ask(SASL_HANDSHAKE, 1, _string(security.mechanism))
        error = answer.integer(2)
        if error:
            raise BrokerError(f"broker {self.place} does not accept SASL {security.mechanism} here: {name_of(error)}")
        exchange = security.login()
        token: bytes | None = exchange.first()
        while token is not None:
            answer = self.ask(SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
            error, message = answer.integer(2), answer.string()
            if error:
                raise BrokerError(f"broker {self.place} refuses user {security.user}: {message or name_of(error)}")
            try:
                token = exchange.next(bytes(answer.raw(answer.integer(4))))
            except SaslRefused as refused:
                raise BrokerError(f"broker {self.place}: {refused}") from refused

    def metadata(self, topics: Iterable[str] = ()) -> ClusterState:
        names = list(topics)
        listed = struct.pack(">i", len(names)) + b"".join(map(_string, names)) if names else struct.pack(">i", -1)
        answer = self.ask(METADATA, 7, listed + b"\0")
        answer.integer(4)
        brokers = {}
        for _ in range(answer.count()):
            node, host, port = answer.integer(4), answer.string(), answer.integer(4)
            answer.string()
            brokers[node] = host, port
        cluster_id = answer.string()
        answer.integer(4)
        partitions, unknown = {}, []
        for _ in range(answer.count()):
            error, name, _ = answer.integer(2), answer.string(), answer.integer(1)
            if error:
                unknown.append(name)
            for _ in range(answer.count()):
                answer.integer(2)
                number, leader, epoch = answer.integer(4), answer.integer(4), answer.integer(4)
                replicas, isr, _ = answer.integers(), answer.integers(), answer.integers()
                partitions[name, number] = PartitionState(leader, epoch, replicas, isr)
        return ClusterState(cluster_id, brokers, partitions, unknown)

    def earliest(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """{(topic, partition): (error, log start)} of this replica, follower or leader."""
        body = _by_topic(partitions, lambda _: struct.pack(">q", EARLIEST))
        answer = self.ask(LIST_OFFSETS, 1, struct.pack(">i", DEBUGGING_CONSUMER) + body)
        found = {}
        for _ in range(answer.count()):
            name = answer.string()
            for _ in range(answer.count()):
                number, error, _, offset = answer.integer(4), answer.integer(2), answer.integer(8), answer.integer(8)
                found[name, number] = error, offset
        return found

    def offsets_at(self, timestamps: dict[tuple[str, int], int]) -> dict[tuple[str, int], tuple[int, int]]:
        """{(topic, partition): (error, first offset with a timestamp of at least the given milliseconds, or -1)}, from the leader."""
        body = _by_topic(timestamps, lambda key: struct.pack(">q", timestamps[key]))
        answer = self.ask(LIST_OFFSETS, 1, struct.pack(">i", CONSUMER) + body)
        found = {}
        for _ in range(answer.count()):
            name = answer.string()
            for _ in range(answer.count()):
                number, error, _, offset = answer.integer(4), answer.integer(2), answer.integer(8), answer.integer(8)
                found[name, number] = error, offset
        return found

    def latest(self, partitions: Iterable[tuple[str, int]], committed: bool = False) -> dict[tuple[str, int], tuple[int, int]]:
        """{(topic, partition): (error, high watermark or, when `committed`, last stable offset)}, from the leader."""
        body = _by_topic(partitions, lambda _: struct.pack(">q", LATEST))
        answer = self.ask(LIST_OFFSETS, 2, struct.pack(">ib", CONSUMER, committed) + body)
        answer.integer(4)
        found = {}
        for _ in range(answer.count()):
            name = answer.string()
            for _ in range(answer.count()):
                number, error, _, offset = answer.integer(4), answer.integer(2), answer.integer(8), answer.integer(8)
                found[name, number] = error, offset
        return found

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """{topic: id, 22 characters base64url} of the topics that exist. Raises BrokerError, also if the broker is older than Kafka 2.8."""
        names = list(topics)
        listed = _varint(len(names) + 1) + b"".join(bytes(16) + _compact(name) + b"\0" for name in names)
        answer = self.ask(METADATA, 12, b"\0" + listed + bytes(3))
        answer.tags()
        answer.integer(4)
        for _ in range(answer.compact_count()):
            answer.integer(4), answer.compact(), answer.integer(4), answer.compact()
            answer.tags()
        answer.compact(), answer.integer(4)
        found = {}
        for _ in range(answer.compact_count()):
            error, name, topic_id = answer.integer(2), answer.compact(), bytes(answer.raw(16))
            answer.integer(1)
            for _ in range(answer.compact_count()):
                answer.raw(14)
                for _ in range(3):
                    answer.raw(4 * answer.compact_count())
                answer.tags()
            answer.integer(4)
            answer.tags()
            if not error and any(topic_id):
                found[name] = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
        return found

    def compacted(self, topics: Iterable[str]) -> set[str]:
        """The topics whose cleanup.policy contains `compact`."""
        names = list(topics)
        config_names = struct.pack(">i", 1) + _string("cleanup.policy")
        body = struct.pack(">i", len(names)) + b"".join(b"\x02" + _string(name) + config_names for name in names) + b"\0"
        answer = self.ask(DESCRIBE_CONFIGS, 1, body)
        answer.integer(4)
        found = set()
        for _ in range(answer.count()):
            answer.integer(2), answer.string(), answer.integer(1)
            name = answer.string()
            for _ in range(answer.count()):
                option, value = answer.string(), answer.string()
                answer.integer(1), answer.integer(1), answer.integer(1)
                for _ in range(answer.count()):
                    answer.string(), answer.string(), answer.integer(1)
                if option == "cleanup.policy" and "compact" in value:
                    found.add(name)
        return found

    def sizes(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """{(topic, partition): bytes of its log on this broker}, for those that it reports. Needs DESCRIBE on the cluster."""
        body = _by_topic(partitions, lambda _: b"")
        answer = self.ask(DESCRIBE_LOG_DIRS, 1, body)
        answer.integer(4)
        found: dict[tuple[str, int], int] = {}
        for _ in range(answer.count()):
            answer.integer(2), answer.string()
            for _ in range(answer.count()):
                name = answer.string()
                for _ in range(answer.count()):
                    number, size, _, is_future = answer.integer(4), answer.integer(8), answer.integer(8), answer.integer(1)
                    if not is_future:
                        found[name, number] = size
        return found

    def fetch(
        self, offsets: dict[tuple[str, int], int], bytes_max: int, wait_ms: int = 0, partition_bytes_max: int = 0, committed: bool = False
    ) -> dict[tuple[str, int], Fetched]:
        """Raw batches from the given offsets, from any replica, as a consumer reads them. `committed`: only up to the last stable offset,
        with the list of aborted transactions. All of them are in the result: what an answer leaves out is asked for again. Raises
        BrokerError."""
        each, found = partition_bytes_max or bytes_max, dict[tuple[str, int], Fetched]()
        head = struct.pack(">iiiibii", CONSUMER, wait_ms, 1, bytes_max, committed, 0, -1)
        for _ in range(FETCHES_MAX):
            left = [key for key in offsets if key not in found]
            if not left:
                return found
            body = _by_topic(left, lambda key: struct.pack(">iqqi", -1, offsets[key], -1, each))
            pause_ms, answered = self._fetched(head + body + struct.pack(">i", 0) + _string(""))
            found |= answered
            if not answered:
                time.sleep(min(max(pause_ms, PAUSE_MS_MIN), PAUSE_MS_MAX) / 1000)
        topic, partition = left[0]
        raise BrokerError(f"broker {self.place} answers fetches without {topic}-{partition}: it may hold this client to a quota")

    def _fetched(self, body: bytes) -> tuple[int, dict[tuple[str, int], Fetched]]:
        """The pause that the broker asks for, in milliseconds, and the partitions that it answered for: none of a client that is above its
        quota (KIP-219)."""
        answer = self.ask(FETCH, 11, body)
        pause_ms, error = answer.integer(4), answer.integer(2)
        if error:
            raise BrokerError(f"broker {self.place} refuses the fetch: {name_of(error)}")
        answer.integer(4)
        found = {}
        for _ in range(answer.count()):
            name = answer.string()
            for _ in range(answer.count()):
                number, error, high_watermark, stable, start = (answer.integer(size) for size in (4, 2, 8, 8, 8))
                aborted = tuple((answer.integer(8), answer.integer(8)) for _ in range(answer.count()))
                answer.integer(4)
                found[name, number] = Fetched(error, high_watermark, start, answer.raw(max(0, answer.integer(4))), stable, aborted)
        return pause_ms, found


def _by_topic(partitions: Iterable[tuple[str, int]], fields: Any) -> bytes:
    topics: dict[str, list[int]] = {}
    for name, number in partitions:
        topics.setdefault(name, []).append(number)
    pieces = [struct.pack(">i", len(topics))]
    for name, numbers in topics.items():
        pieces += [_string(name), struct.pack(">i", len(numbers))]
        pieces += [struct.pack(">i", number) + fields((name, number)) for number in numbers]
    return b"".join(pieces)


def first_answer(bootstrap: str, security: Security, topics: Iterable[str] = ()) -> ClusterState:
    """Metadata from the first bootstrap server that answers. Raises BrokerError, ValueError for text that is no bootstrap list."""
    failure = BrokerError("no bootstrap server was given")
    for host, port in split_addresses(bootstrap):
        try:
            with Connection(host, port, security) as connection:
                return connection.metadata(topics)
        except BrokerError as error:
            failure = error
    raise failure


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a broker that serves a replica."""

    host: str
    port: int
    security: Security = PLAIN_TEXT
