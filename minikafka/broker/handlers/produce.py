"""Produce (API key 0): append, then answer at once (acks=1), never (acks=0), or when every in-sync replica has it (acks=all)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.broker.handlers.produce_answer import ACKS_ALL, TOPIC_ID_VERSION_MIN, fail
from minikafka.broker.handlers.produce_handover import HeldPart, HeldRequest, ServedHere
from minikafka.broker.handlers.produce_lane import ProduceLane
from minikafka.broker.handlers.produce_order import check_order, gap_at_new_leader, is_behind_lost, note_refused
from minikafka.broker.hosts.handover import is_handed_on
from minikafka.core.partition.leader import PartitionLeader
from wire.batch import CODEC_MASK
from wire.compression import CompressionType
from wire.errors import ApiError, ErrorCode
from wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from minikafka.broker.dispatch import Dispatcher, RequestContext
    from minikafka.broker.environment import Environment
    from minikafka.broker.handlers.produce_transactional import TransactionalProduce, Verdicts
    from minikafka.broker.hosts.handover import Handover
    from minikafka.broker.hosts.metadata import MetadataHost
    from minikafka.broker.hosts.partition import Partition
    from minikafka.broker.hosts.replicas import ReplicaManager

ACKS = (ACKS_ALL, 0, 1)
LEADER_HINT_VERSION_MIN = 10
_PartitionResponse = ProduceResponse.PartitionProduceResponse
_TopicResponse = ProduceResponse.TopicProduceResponse
_EMPTY = memoryview(b"")
#: The client id with which Kafka's own tools may write to internal topics.
ADMIN_CLIENT_ID = "__admin_client"
EXPECTED_FAILURES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR,
    }
)  # fmt: skip
ZSTD_VERSION_MIN = 7
CODEC_BYTE = 22


class _DelayedProduce:
    """An acks=all request whose records wait for their replicas; each partition is settled once (DelayedProduce)."""

    __slots__ = ("_context", "_response", "_waiting", "is_done")

    def __init__(self, context: RequestContext | HeldRequest, response: ProduceResponse) -> None:
        self._context = context
        self._response = response
        self._waiting: list[tuple[Partition, PartitionLeader, int, _PartitionResponse]] = []
        self.is_done = False

    def wait_for(self, partition: Partition, leader: PartitionLeader, required: int, answer: _PartitionResponse) -> None:
        """The partition's answer stands once everything before `required` is replicated."""
        self._waiting.append((partition, leader, required, answer))

    @property
    def keys(self) -> list[tuple[str, int]]:
        """The partitions that it waits for."""
        return [entry[0].key for entry in self._waiting]

    def answer_through(self, held: HeldRequest) -> None:
        """Other partitions of the request are answered elsewhere: tell `held` in the place of the client."""
        self._context = held

    def try_complete(self) -> bool:
        """Settle the partitions that can be; answer when all are."""
        left = []
        for entry in self._waiting:
            partition, leader, required, answer = entry
            if partition.leader is not leader:
                # A new epoch, even of ours, says nothing about records of the old one; the client finds out by trying again.
                code: ErrorCode | None = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                code = leader.is_replicated(required)
            if code is None:
                left.append(entry)
            elif code is not ErrorCode.NONE:
                fail(answer, code)
        self._waiting = left
        if left:
            return False
        self.is_done = True
        self._context.respond(self._response)
        return True

    def expire(self) -> None:
        """The request's timeout has passed: what is not replicated is answered REQUEST_TIMED_OUT, though it may yet be."""
        for _, _, _, answer in self._waiting:
            fail(answer, ErrorCode.REQUEST_TIMED_OUT)
        self._waiting = []
        self.is_done = True
        self._context.respond(self._response)


class ProduceHandlers:
    """Serves Produce."""

    def __init__(self, replicas: ReplicaManager, metadata: MetadataHost, environment: Environment) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._clock = environment.clock
        self._now_ms = environment.clock.now_ms
        self._wall_ms = environment.clock.wall_ms
        self.entry: Any = None
        #: What asks coordinators of transactions, if there is one.
        self.transactional: TransactionalProduce | None = None
        #: What hands late requests on to new leaders, if there is something that does.
        self.handover: Handover | None = None

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve Produce on a broker listener."""
        entry = self.entry = dispatcher.register(ProduceRequest, self.produce)
        dispatcher.lanes[ProduceRequest.API_KEY] = lambda: ProduceLane(self._replicas, self._clock, entry)

    def produce(self, context: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
        """Append the records of every partition. What begins a transaction waits for the coordinator's word."""
        if request.transactional_id is not None and self.transactional is not None:

            def go_on(verdicts: Verdicts | None) -> None:
                response = self._append(context, request, verdicts)
                if response is not None:
                    context.respond(response)

            if self.transactional.hold(context, request, go_on):
                return None
        return self._append(context, request, None)

    def _append(self, context: RequestContext, request: ProduceRequest, verdicts: Verdicts | None) -> ProduceResponse | None:
        """The records are views of the receive buffer, or copies: offsets are patched there in place."""
        acks = request.acks
        by_id = context.api_version >= TOPIC_ID_VERSION_MIN
        now_ms, wall_ms = self._now_ms(), self._wall_ms()
        refusals = self._replicas.refusals
        delayed: _DelayedProduce | None = None
        held: HeldRequest | None = None
        response = ProduceResponse()
        failed = False
        for topic in request.topic_data if len(request.topic_data) == 1 else _merged(request.topic_data):
            answers: list[_PartitionResponse] = []
            response.responses.append(_TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
            for data in topic.partition_data if len(topic.partition_data) == 1 else _last_of_each(topic.partition_data):
                answer = _PartitionResponse(index=data.index)
                answers.append(answer)
                partition = None
                try:
                    partition = self._replicas.require(topic.name, topic.topic_id if by_id else None, data.index)
                    if acks not in ACKS:
                        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
                    records = data.records
                    if context.api_version < ZSTD_VERSION_MIN or partition.is_internal:
                        self._check(context, partition, records)
                    view = _EMPTY if records is None else records
                    if refusals and partition.appending is not None:
                        check_order(refusals, topic, data, partition, now_ms)
                    if verdicts is None:
                        info = partition.append(view, acks, wall_ms, now_ms)  # type: ignore[arg-type]
                    else:
                        verdict = verdicts.get(partition.key)
                        if isinstance(verdict, ApiError):
                            raise verdict
                        info = partition.append(view, acks, wall_ms, now_ms, verification=verdict)  # type: ignore[arg-type]
                except ApiError as error:
                    if (
                        error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
                        and acks in ACKS
                        and not is_behind_lost(refusals, topic, data, now_ms)
                    ):
                        now_held = self._hold(held, context, request, response, topic, data, answer)
                        if now_held is not None:
                            note_refused(refusals, topic, data, error.code, now_ms)
                            held = now_held
                            continue
                    failed = True
                    if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and partition is not None:
                        error = gap_at_new_leader(refusals, topic, data, partition, now_ms) or error
                    if error.code is ErrorCode.INVALID_TXN_STATE and request.transactional_id is None:
                        error = ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                    self._count_failure(partition, error.code, data.records)
                    note_refused(refusals, topic, data, error.code, now_ms)
                    fail(answer, error.code, error.message if error.message != error.code.text else None)
                    self._hint(context, response, answer, topic, error.code)
                    continue
                partition.produces += 1
                partition.bytes_in += len(view)  # type: ignore[arg-type]
                partition.messages_in += info.last_offset - info.first_offset + 1
                answer.base_offset = info.first_offset
                answer.log_append_time_ms = info.log_append_time_ms
                answer.log_start_offset = info.log_start_offset
                if acks < 0:
                    leader = partition.leader
                    if leader is not None and leader.high_watermark <= info.last_offset:
                        if delayed is None:
                            delayed = _DelayedProduce(context, response)
                        delayed.wait_for(partition, leader, info.last_offset + 1, answer)
        if held is not None:
            if delayed is not None:
                delayed.answer_through(held)
            held.start(delayed is not None)
        elif acks == 0:
            self._end_unanswered(context, failed)
            return None
        if delayed is not None and not delayed.try_complete():
            self._replicas.park(self._replicas.produces, delayed, list(delayed.keys), max(request.timeout_ms, 0))
        return response if delayed is None and held is None else None

    def _hold(
        self,
        held: HeldRequest | None,
        context: RequestContext,
        request: ProduceRequest,
        response: ProduceResponse,
        topic: ProduceRequest.TopicProduceData,
        data: ProduceRequest.PartitionProduceData,
        answer: _PartitionResponse,
    ) -> HeldRequest | None:
        """The leadership is moving, or has moved a moment ago: keep the records for the next leader. None when it is not so."""
        handover = self.handover
        if handover is None or is_handed_on(context.client_id):
            return None
        by_id = context.api_version >= TOPIC_ID_VERSION_MIN
        key = handover.key_of(topic.name, topic.topic_id if by_id else None, data.index)
        if key is None:
            return None

        def answered() -> None:
            if request.acks == 0:
                failed = any(a.error_code for t in response.responses for a in t.partition_responses)
                self._end_unanswered(context, failed)
            else:
                context.respond(response)

        if held is None:
            held = HeldRequest(context, request, handover, answered)
        held.add(key, topic, data, answer, lambda of: self._hint(context, response, of, topic, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return held

    def serve_held(self, part: HeldPart) -> None:
        """This broker leads the partition after all."""
        context = ServedHere(part)
        response = self.produce(context, part.request)  # type: ignore[arg-type]
        if response is not None:
            context.respond(response)

    def _count_failure(self, partition: Partition | None, code: ErrorCode, records: object) -> None:
        """As ReplicaManager.appendRecordsToLeader: what a client can cause by asking the wrong broker is no failure of this one."""
        self.entry.count_error(code)
        if partition is None:
            return
        partition.produces += 1
        if code not in EXPECTED_FAILURES:
            partition.produces_failed += 1
        if code is ErrorCode.MESSAGE_TOO_LARGE and records is not None:
            partition.bytes_rejected += len(records)  # type: ignore[arg-type]

    @staticmethod
    def _check(context: RequestContext, partition: Partition, records: object) -> None:
        """Refuse what this version of the API, or any client, must not send."""
        if partition.is_internal and context.client_id != ADMIN_CLIENT_ID:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic}")
        if (
            context.api_version < ZSTD_VERSION_MIN
            and isinstance(records, memoryview)
            and len(records) > CODEC_BYTE
            and records[CODEC_BYTE] & CODEC_MASK == CompressionType.ZSTD
        ):
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version 7 of Produce")

    @staticmethod
    def _end_unanswered(context: RequestContext, failed: bool) -> None:
        if failed:
            # There is no other way to tell the client that its view of the leaders is old.
            context.close("closed after a failed produce with acks=0")
        else:
            context.no_response()

    def _hint(
        self,
        context: RequestContext,
        response: ProduceResponse,
        answer: _PartitionResponse,
        topic: ProduceRequest.TopicProduceData,
        code: ErrorCode,
    ) -> None:
        """Tell who leads, so that the client need not ask for metadata (KIP-951)."""
        if context.api_version < LEADER_HINT_VERSION_MIN or code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            return
        image = self._metadata.image
        by_id = context.api_version >= TOPIC_ID_VERSION_MIN
        known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics_by_name.get(topic.name)
        registration = None if known is None else known.partitions.get(answer.index)
        if registration is None or registration.leader < 0:
            return
        answer.current_leader = ProduceResponse.LeaderIdAndEpoch(leader_id=registration.leader, leader_epoch=registration.leader_epoch)
        broker = image.brokers.get(registration.leader)
        endpoint = None if broker is None else broker.listeners.get(context.listener)
        if broker is not None and endpoint is not None and all(n.node_id != broker.broker_id for n in response.node_endpoints):
            response.node_endpoints.append(
                ProduceResponse.NodeEndpoint(node_id=broker.broker_id, host=endpoint[0], port=endpoint[1], rack=broker.rack)
            )


def _merged(topics: list[ProduceRequest.TopicProduceData]) -> list[ProduceRequest.TopicProduceData]:
    """A topic that is named twice counts once."""
    found: dict[object, ProduceRequest.TopicProduceData] = {}
    for topic in topics:
        known = found.setdefault((topic.name, topic.topic_id), topic)
        if known is not topic:
            known.partition_data = known.partition_data + topic.partition_data
    return list(found.values())


def _last_of_each(partitions: list[ProduceRequest.PartitionProduceData]) -> list[ProduceRequest.PartitionProduceData]:
    """Of a partition that is named twice only the last is appended, as Kafka does."""
    return list({data.index: data for data in partitions}.values())
