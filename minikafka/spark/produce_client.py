"""A small synchronous, idempotent producer for load tasks: finished batches go to the partitions' leaders over blocking sockets.

Order and exactly-once come from one producer id (KIP-98) with a sequence a partition: batches that were not acknowledged are sent
again in order, and a broker that has them already answers success or DUPLICATE_SEQUENCE_NUMBER. A task that runs again takes the same
producer id, asks the leaders how far it came (DescribeProducers, KIP-664) and goes on from there: sequence = number of the row.
"""

from __future__ import annotations

import random
import select
import ssl
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from minikafka.security.mechanisms import SaslRefused
from minikafka.spark.encode import EncodedBatch, stamp_producer
from minikafka.spark.security import PLAIN_TEXT, Security
from wire.errors import ErrorCode, WireError
from wire.frame import encode_request
from wire.header import decode_response_header
from wire.message import Request, Response
from wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from wire.messages.end_txn import EndTxnRequest
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from wire.messages.metadata import MetadataRequest, MetadataResponse
from wire.messages.offset_fetch import OffsetFetchRequest
from wire.messages.produce import ProduceRequest, ProduceResponse
from wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from wire.registry import api

if TYPE_CHECKING:
    from minikafka.spark.sink_transaction import SinkTransaction

CLIENT_ID = "minikafka-load"
FRAME_BYTES_MAX = 256 << 20
#: The newest versions that speak of topics by name.
VERSIONS_MAX = {ProduceRequest.API_KEY: 12, MetadataRequest.API_KEY: 12, InitProducerIdRequest.API_KEY: 4, CreateTopicsRequest.API_KEY: 7,
                DescribeProducersRequest.API_KEY: 0,
                # Transactions as before KIP-890: partitions are added by a request of their own.
                FindCoordinatorRequest.API_KEY: 3, AddPartitionsToTxnRequest.API_KEY: 3, AddOffsetsToTxnRequest.API_KEY: 3,
                EndTxnRequest.API_KEY: 3, TxnOffsetCommitRequest.API_KEY: 3, OffsetFetchRequest.API_KEY: 7}  # fmt: skip
PRODUCE_VERSION_IN_TRANSACTIONS = 11
#: What fits the cache of a core together with the broker's copy; several requests are on their way at once.
REQUEST_BYTES_MAX = 384 << 10
IN_FLIGHT_MAX = 5
BACKOFF_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
DONE = {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}
TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
#: How long the topic may be unknown to the brokers before it counts as deleted.
UNKNOWN_S_MAX = 10.0
RETRY_ALSO = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}


class ProduceFailed(Exception):
    """Records could not be written; the text names the partition, the broker's error and how long it was tried."""


class Unreachable(ProduceFailed):
    """No broker answers."""


class TopicGone(ProduceFailed):
    """The topic was deleted."""


class Link:
    """One blocking connection with pipelined requests, answered in order."""

    def __init__(self, host: str, port: int, timeout_s: float, security: Security) -> None:
        """Raises OSError, WireError."""
        try:
            self.socket = security.connect(host, port, timeout_s)
        except ValueError as error:
            raise ConnectionError(str(error)) from error
        # A socket under TLS takes one piece at a time.
        self._gathers = not security.tls
        self.pending: deque[tuple[int, Request, int, Any]] = deque()
        self.versions: dict[int, int] = {}
        self.correlation = 0
        self.readable = select.poll()
        self.readable.register(self.socket, select.POLLIN)
        self._negotiate()
        if security.mechanism:
            self._authenticate(security)

    def _authenticate(self, security: Security) -> None:
        agreed = cast(SaslHandshakeResponse, self.exchange(SaslHandshakeRequest(mechanism=security.mechanism), 1))
        if agreed.error_code:
            raise ConnectionError(f"the broker does not take SASL {security.mechanism} ({ErrorCode(agreed.error_code).name})")
        exchange = security.login()
        token: bytes | None = exchange.first()
        while token is not None:
            answer = cast(SaslAuthenticateResponse, self.exchange(SaslAuthenticateRequest(auth_bytes=token), 1))
            if answer.error_code:
                raise ConnectionError(f"the broker refuses user {security.user}: {answer.error_message}")
            try:
                token = exchange.next(bytes(answer.auth_bytes))
            except SaslRefused as error:
                raise ConnectionError(str(error)) from error

    def _negotiate(self) -> None:
        answer = cast(ApiVersionsResponse, self.exchange(ApiVersionsRequest(), 0))
        offered = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        for key, newest in VERSIONS_MAX.items():
            entry = api(key)
            if key in offered and entry is not None:
                version = min(newest, entry.max_version, offered[key][1])
                if version >= max(entry.min_version, offered[key][0]):
                    self.versions[key] = version

    def send(self, request: Request, tag: Any = None, version: int | None = None) -> None:
        if version is None:
            if request.API_KEY not in self.versions:
                raise ConnectionError(f"the broker does not offer {request.NAME}")
            version = self.versions[request.API_KEY]
        self.correlation = (self.correlation + 1) & 0x7FFFFFFF
        self.pending.append((self.correlation, request, version, tag))
        pieces = [memoryview(cast(bytes, piece)) for piece in encode_request(request, version, self.correlation, CLIENT_ID)]
        while pieces:
            sent = self.socket.sendmsg(pieces[:512]) if self._gathers else self.socket.send(pieces[0])
            while pieces and sent >= len(pieces[0]):
                sent -= len(pieces.pop(0))
            if pieces and sent:
                pieces[0] = pieces[0][sent:]

    def receive(self) -> tuple[Response, Any]:
        """The answer to the oldest request, and that request's tag. Raises OSError, WireError."""
        correlation, request, version, tag = self.pending[0]
        size = int.from_bytes(self._exactly(4), "big", signed=True)
        if not 0 < size <= FRAME_BYTES_MAX:
            raise ConnectionError(f"an answer of {size} bytes: not a Kafka broker?")
        frame = memoryview(self._exactly(size))
        found, position = decode_response_header(frame, request.API_KEY, version, 0)
        if found != correlation:
            raise ConnectionError(f"an answer to request {found}, expected {correlation}")
        self.pending.popleft()
        entry = api(request.API_KEY)
        assert entry is not None
        return cast(Response, entry.response.decode(version, frame, position)), tag

    def has_answer(self) -> bool:
        """Whether an answer has begun to arrive (or the connection has ended)."""
        if not self._gathers and cast(ssl.SSLSocket, self.socket).pending():
            return True
        return bool(self.readable.poll(0))

    def exchange(self, request: Request, version: int | None = None) -> Response:
        self.send(request, None, version)
        return self.receive()[0]

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = self.socket.recv_into(view)
            if got == 0:
                raise ConnectionError("the broker closed the connection (wrong security settings?)")
            view = view[got:]
        return bytes(data)

    def close(self) -> None:
        self.socket.close()


@dataclass(slots=True)
class _PartitionState:
    """`waiting`: stamped batches not yet acknowledged, in order; the first `sent` of them are on their way.

    `written`: records that an earlier run of the same task wrote and had acknowledged for certain; they are not sent again.
    """

    next_sequence: int = 0
    waiting: deque[EncodedBatch] = field(default_factory=deque)
    sent: int = 0
    first_offset: int = -1
    next_offset: int = -1
    records: int = 0
    error: str = ""
    trouble_since: float = 0.0
    written: int = 0
    repeated: int = 0
    out_of_order: bool = False


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """`host:port,host:port`. Raises ValueError."""
    result = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{part!r} is not host:port")
        result.append((host.strip("[]"), int(port)))
    if not result:
        raise ValueError("no bootstrap server given")
    return result


class LoadProducer:
    """Writes EncodedBatches to one topic with acks=all. Not for several threads."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        timeout_ms: int = 30_000,
        delivery_ms: int = 120_000,
        in_flight_max: int = IN_FLIGHT_MAX,
        security: Security = PLAIN_TEXT,
        transaction: SinkTransaction | None = None,
    ) -> None:
        """`transaction`: one that has begun, whose producer this is then."""
        self.bootstrap, self.topic, self.security = parse_bootstrap(bootstrap), topic, security
        self.transaction = transaction
        self.timeout_ms, self.delivery_s, self.in_flight_max = timeout_ms, delivery_ms / 1000, in_flight_max
        self.links: dict[int, Link] = {}
        self.addresses: dict[int, tuple[str, int]] = {}
        self.leaders: dict[int, int] = {}
        self.partitions: dict[int, _PartitionState] = {}
        self.producer_id, self.producer_epoch = (transaction.producer_id, transaction.producer_epoch) if transaction else (-1, -1)
        self.queued_bytes = 0
        self.retries = 0
        self._unknown_since = 0.0

    # ---- cluster ----

    def partition_count(self) -> int:
        """Partitions of the topic; 0 when it does not exist."""
        return len(self.leaders) if self.leaders or self._refresh() else 0

    def create_topic(self, partitions: int, replication_factor: int = -1, configs: dict[str, str] | None = None) -> None:
        """Create the topic; fine when it exists. Raises ProduceFailed."""
        settings = [CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()]
        topic = CreateTopicsRequest.CreatableTopic(
            name=self.topic, num_partitions=partitions, replication_factor=replication_factor, configs=settings
        )
        answer = cast(CreateTopicsResponse, self._anyone(CreateTopicsRequest(topics=[topic], timeout_ms=self.timeout_ms)))
        for one in answer.topics:
            if one.error_code not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                raise ProduceFailed(f"topic {self.topic} cannot be created: {_name(one.error_code)} {one.error_message or ''}".rstrip())
        deadline = time.monotonic() + self.timeout_ms / 1000
        while not (self._refresh() and len(self.leaders) >= partitions and all(leader >= 0 for leader in self.leaders.values())):
            if time.monotonic() > deadline:
                raise ProduceFailed(f"topic {self.topic} was created, but its partitions have no leaders after {self.timeout_ms} ms")
            time.sleep(0.05)

    def start(self) -> None:
        """Get a producer id. Raises ProduceFailed."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        deadline = time.monotonic() + self.delivery_s
        while True:
            answer = cast(InitProducerIdResponse, self._anyone(request))
            if answer.error_code == ErrorCode.NONE:
                self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
                return
            if not _retriable(answer.error_code) or time.monotonic() > deadline:
                raise ProduceFailed(f"no producer id: {_name(answer.error_code)}")
            time.sleep(0.1)

    def adopt(self, producer_id: int, producer_epoch: int) -> None:
        """Go on as a producer that may have written before: what the leaders have of it is not sent again, but for the last batch.

        The last batch is sent once more, and answered as a duplicate when it is on all in-sync replicas. Raises ProduceFailed.
        """
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        for partition, sequence in self.last_sequences([producer_id]).get(producer_id, {}).items():
            self.partitions.setdefault(partition, _PartitionState()).written = sequence

    def last_sequences(self, producer_ids: Iterable[int]) -> dict[int, dict[int, int]]:
        """{producer id: {partition: last sequence on the leader}}. Raises ProduceFailed."""
        wanted = set(producer_ids)
        found: dict[int, dict[int, int]] = {}
        open_partitions = set(range(self.partition_count()))
        deadline = time.monotonic() + self.delivery_s
        failure = ""
        while open_partitions:
            by_leader: dict[int, list[int]] = {}
            for partition in open_partitions:
                by_leader.setdefault(self.leaders.get(partition, -1), []).append(partition)
            for leader, partitions in by_leader.items():
                try:
                    answer = self._describe(leader, partitions)
                except (OSError, WireError) as error:
                    failure = f"broker {leader}: {error}"
                    continue
                for one in answer.topics[0].partitions:
                    if one.error_code:
                        failure = _name(one.error_code)
                        continue
                    open_partitions.discard(one.partition_index)
                    for state in one.active_producers:
                        if state.producer_id in wanted and state.last_sequence >= 0:
                            found.setdefault(state.producer_id, {})[one.partition_index] = state.last_sequence
            if open_partitions:
                if time.monotonic() > deadline:
                    raise ProduceFailed(f"{self.topic}: the leaders do not say what was written ({failure})")
                time.sleep(0.2)
                self._refresh()
        return found

    def _describe(self, leader: int, partitions: list[int]) -> DescribeProducersResponse:
        if leader not in self.addresses:
            raise ConnectionError("no leader is known")
        link = Link(*self.addresses[leader], timeout_s=self.timeout_ms / 1000, security=self.security)
        try:
            topic = DescribeProducersRequest.TopicRequest(name=self.topic, partition_indexes=partitions)
            return cast(DescribeProducersResponse, link.exchange(DescribeProducersRequest(topics=[topic])))
        finally:
            link.close()

    def _anyone(self, request: Request) -> Response:
        """Ask any broker that answers. Raises Unreachable when none does."""
        places = list(self.addresses.values())
        random.shuffle(places)
        failure = "no broker"
        for host, port in [*places, *self.bootstrap]:
            try:
                link = Link(host, port, self.timeout_ms / 1000, self.security)
                try:
                    return link.exchange(request)
                finally:
                    link.close()
            except (OSError, WireError) as error:
                failure = f"{host}:{port}: {getattr(error, 'strerror', None) or error}"
        raise Unreachable(f"no broker answers ({failure})")

    def _refresh(self) -> bool:
        """Leaders and addresses of the topic's partitions; False when the topic is not known."""
        wanted = [MetadataRequest.MetadataRequestTopic(name=self.topic)]
        answer = cast(MetadataResponse, self._anyone(MetadataRequest(topics=wanted, allow_auto_topic_creation=False)))
        self.addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        topic = next((one for one in answer.topics if one.name == self.topic), None)
        if topic is None or topic.error_code != ErrorCode.NONE:
            return False
        self.leaders = {one.partition_index: one.leader_id for one in topic.partitions}
        return True

    # ---- produce ----

    def send(self, batches: Iterable[EncodedBatch], queue_bytes_max: int = 64 << 20) -> None:
        """Queue batches and send what fits; blocks while more than `queue_bytes_max` wait for their acknowledgement."""
        for batch in batches:
            state = self.partitions.setdefault(batch.partition, _PartitionState())
            if state.written and self._is_written(batch, state):
                continue
            stamp_producer(batch.data, self.producer_id, self.producer_epoch, state.next_sequence, self.transaction is not None)
            state.next_sequence = (state.next_sequence + batch.records) & 0x7FFFFFFF
            state.waiting.append(batch)
            self.queued_bytes += len(batch.data)
            if self.queued_bytes > queue_bytes_max:
                self._work(queue_bytes_max // 4 * 3)
        self._pump()

    def _pump(self) -> None:
        """Take the answers that are there and send what fits, so that the brokers work while the caller encodes."""
        trouble = False
        for leader, link in list(self.links.items()):
            while link.pending and leader in self.links and link.has_answer():
                trouble |= self._receive_one(leader, link)
        if not trouble:
            trouble = self._send_some()
        if trouble:
            self._drain(True)
            self._recover(0)

    def _is_written(self, batch: EncodedBatch, state: _PartitionState) -> bool:
        """Whether an earlier run wrote this batch and at least one behind it, which a leader takes only in order."""
        end = state.next_sequence + batch.records - 1
        if state.next_sequence <= state.written < end:
            raise ProduceFailed(f"{self.topic}-{batch.partition}: the job was begun with other batch sizes, so it cannot be resumed")
        if end >= state.written:
            return False
        state.next_sequence += batch.records
        state.records += batch.records
        state.repeated += batch.records
        return True

    def _catch_up(self) -> None:
        """After OUT_OF_ORDER: another run of this task may be ahead; batches that the leaders have are done but for the last."""
        known = self.last_sequences([self.producer_id]).get(self.producer_id, {})
        for partition, state in self.partitions.items():
            if not state.out_of_order:
                continue
            state.out_of_order = False
            last = known.get(partition, -1)
            while state.waiting and _sequence(state.waiting[0]) + state.waiting[0].records - 1 < last:
                batch = state.waiting.popleft()
                state.records += batch.records
                state.repeated += batch.records
                self.queued_bytes -= len(batch.data)
            if state.waiting and _sequence(state.waiting[0]) > last + 1:
                raise ProduceFailed(f"{self.topic}-{partition}: a new leader lacks records that were there before; run the job again")

    def flush(self) -> None:
        """Wait until everything is acknowledged. Raises ProduceFailed."""
        self._work(0)

    def close(self) -> None:
        for link in self.links.values():
            link.close()
        self.links.clear()

    def _work(self, until_bytes: int) -> None:
        attempt = 0
        while self.queued_bytes > until_bytes:
            before = self.queued_bytes
            trouble = self._round(until_bytes)
            if not trouble:
                continue
            attempt = 0 if self.queued_bytes < before else attempt + 1
            self._recover(attempt)

    def _recover(self, attempt: int) -> None:
        """After trouble, when nothing is in flight: wait a little, then look where the leaders are and how far they came."""
        self._give_up_if_late()
        self.retries += 1
        time.sleep(BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)])
        try:
            self._unknown_since = 0.0 if self._refresh() else self._unknown_since or time.monotonic()
            if self._unknown_since and time.monotonic() - self._unknown_since > UNKNOWN_S_MAX:
                raise TopicGone(f"topic {self.topic} does not exist any more: it was deleted while rows were being written")
            if any(state.out_of_order for state in self.partitions.values()):
                self._catch_up()
        except TopicGone:
            raise
        except ProduceFailed:
            if attempt > 100:
                raise

    def _round(self, until_bytes: int) -> bool:
        """Send and receive until enough is acknowledged or something fails. True: trouble, nothing is in flight any more."""
        trouble = False
        while self.queued_bytes > until_bytes and not trouble:
            trouble = self._send_some()
            busy = [(leader, link) for leader, link in self.links.items() if link.pending]
            trouble |= not busy
            for leader, link in busy:
                trouble |= self._receive_one(leader, link)
        return self._drain(trouble) if trouble or until_bytes == 0 else False

    def _drain(self, trouble: bool) -> bool:
        """Wait for every answer that is due. With trouble, now or before, what is not acknowledged then will be sent again."""
        for leader, link in list(self.links.items()):
            while link.pending and leader in self.links:
                trouble |= self._receive_one(leader, link)
        if trouble:
            for state in self.partitions.values():
                state.sent = 0
        return trouble

    def _send_some(self) -> bool:
        """One request to every leader that may take one more."""
        by_leader: dict[int, list[int]] = {}
        for partition, state in self.partitions.items():
            if state.sent < len(state.waiting):
                by_leader.setdefault(self.leaders.get(partition, -1), []).append(partition)
        trouble = False
        for leader, partitions in by_leader.items():
            try:
                link = self._link(leader)
                while len(link.pending) < self.in_flight_max:
                    chosen = self._choose(partitions)
                    if not chosen:
                        break
                    if self.transaction is not None:
                        self.transaction.add(partition for partition, _ in chosen)
                    link.send(self._request(chosen), chosen, self._version(link))
            except (OSError, WireError) as error:
                self._lost(leader, partitions, f"broker {leader}: {error}")
                trouble = True
        return trouble

    def _link(self, leader: int) -> Link:
        link = self.links.get(leader)
        if link is None:
            if leader not in self.addresses:
                raise ConnectionError("no leader is known")
            link = self.links[leader] = Link(*self.addresses[leader], timeout_s=self.timeout_ms / 1000 + 5, security=self.security)
        return link

    def _choose(self, partitions: list[int]) -> list[tuple[int, EncodedBatch]]:
        chosen, total = [], 0
        for partition in partitions:
            state = self.partitions[partition]
            if state.sent < min(len(state.waiting), self.in_flight_max) and total < REQUEST_BYTES_MAX:
                batch = state.waiting[state.sent]
                state.sent += 1
                chosen.append((partition, batch))
                total += len(batch.data)
        return chosen

    def _version(self, link: Link) -> int | None:
        newest = link.versions.get(ProduceRequest.API_KEY)
        return None if self.transaction is None or newest is None else min(newest, PRODUCE_VERSION_IN_TRANSACTIONS)

    def _request(self, chosen: list[tuple[int, EncodedBatch]]) -> ProduceRequest:
        data = [ProduceRequest.PartitionProduceData(index=partition, records=batch.data) for partition, batch in chosen]
        topic = ProduceRequest.TopicProduceData(name=self.topic, partition_data=data)
        name = self.transaction.name if self.transaction is not None else None
        return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=self.timeout_ms, topic_data=[topic])

    def _receive_one(self, leader: int, link: Link) -> bool:
        try:
            answer, chosen = link.receive()
        except (OSError, WireError) as error:
            self._lost(
                leader, [partition for partition in self.partitions if self.leaders.get(partition) == leader], f"broker {leader}: {error}"
            )
            return True
        results = {one.index: one for topic in cast(ProduceResponse, answer).responses for one in topic.partition_responses}
        trouble = False
        for partition, batch in chosen:
            state, result = self.partitions[partition], results.get(partition)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if result is None else ErrorCode(result.error_code)
            if code in DONE and state.waiting and state.waiting[0] is batch:
                self._acknowledged(state, batch, result.base_offset if result is not None else -1)
            else:
                trouble = True
                self._failed(partition, state, code)
        return trouble

    def _acknowledged(self, state: _PartitionState, batch: EncodedBatch, base_offset: int) -> None:
        state.waiting.popleft()
        state.sent = max(0, state.sent - 1)
        state.records += batch.records
        self.queued_bytes -= len(batch.data)
        state.error, state.trouble_since = "", 0.0
        if base_offset >= 0:
            state.first_offset = base_offset if state.first_offset < 0 else state.first_offset
            state.next_offset = max(state.next_offset, base_offset + batch.records)

    def _failed(self, partition: int, state: _PartitionState, code: ErrorCode) -> None:
        if code not in DONE and code not in RETRY_ALSO and not _retriable(code):
            hint = "; use a smaller --batch-size" if code in TOO_LARGE else ""
            raise ProduceFailed(f"{self.topic}-{partition}: {code.name} ({code.text}){hint}")
        if code not in DONE:
            state.error = code.name
            state.out_of_order |= code in RETRY_ALSO
        state.trouble_since = state.trouble_since or time.monotonic()

    def _lost(self, leader: int, partitions: list[int], error: str) -> None:
        link = self.links.pop(leader, None)
        if link is not None:
            link.close()
        for partition in partitions:
            state = self.partitions[partition]
            if state.waiting:
                state.error = error
                state.trouble_since = state.trouble_since or time.monotonic()

    def _give_up_if_late(self) -> None:
        for partition, state in self.partitions.items():
            if state.waiting and state.trouble_since and time.monotonic() - state.trouble_since > self.delivery_s:
                raise ProduceFailed(
                    f"{self.topic}-{partition}: not acknowledged within {self.delivery_s:.0f} s, last error {state.error or 'none'}"
                )


def _sequence(batch: EncodedBatch) -> int:
    return int.from_bytes(batch.data[53:57], "big")


def _retriable(code: int) -> bool:
    return ErrorCode(code).retriable


def _name(code: int) -> str:
    return ErrorCode(code).name
