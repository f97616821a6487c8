"""One Produce request from its records to its response.

Each partition is handled separately: its records are appended (and with acks=all wait for replication), held for the partition's next
leader, or refused. The request is answered when every partition is done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from minikafka.broker.partitions.counted_flushes import SyncWait
from minikafka.broker.partitions.handover import is_handed_on
from minikafka.broker.partitions.leader_hint import name_leader
from minikafka.broker.partitions.produce_answer import (
    ACKS_ALL,
    TOPIC_ID_VERSION_MIN,
    Appended,
    appended_before,
    fail,
    records_bytes,
    refuse,
)
from minikafka.broker.partitions.produce_handover import HeldRequest
from minikafka.broker.partitions.produce_order import check_order, gap_at_new_leader, is_behind_lost, note_refused
from minikafka.broker.partitions.produce_transactional import Verdicts, verdict_of
from minikafka.broker.supervise import Ends
from minikafka.core.partition.leader import PartitionLeader
from minikafka.core.partition.replication_wait import ReplicationWait
from minikafka.late_dataclass import dataclass
from minikafka.storage.validation import Fitting
from minikafka.wire.batch import CODEC_MASK, leading_attributes
from minikafka.wire.compression import CompressionType
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.message import received
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import RequestContext
    from minikafka.broker.partitions.handover import HandoverHost, Held
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.produce_preparation import Prepared
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.storage.producer_state import Verification
    from minikafka.storage.types import AppendInfo

ACKS = (ACKS_ALL, 0, 1)
LEADER_HINT_VERSION_MIN = 10
ZSTD_VERSION_MIN = 7
#: Kafka's own tools use this client id to write to internal topics.
ADMIN_CLIENT_ID = "__admin_client"
EXPECTED_FAILURES = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR,
    }
)  # fmt: skip
#: Errors that the leader derives from its log's producer state. On these, many clients give the producer up or send batches again.
OF_PRODUCERS = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE, ErrorCode.UNKNOWN_PRODUCER_ID}
)
_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_Topic = ProduceRequest.TopicProduceData
_Data = ProduceRequest.PartitionProduceData
_Answer = ProduceResponse.PartitionProduceResponse
_TopicAnswer = ProduceResponse.TopicProduceResponse
_EMPTY = memoryview(b"")


@dataclass(frozen=True, slots=True)
class ProduceParts:
    """What every Produce needs from the broker. `serve_held` appends records here that were held for the next leader; `count_error` counts
    errors of the API."""

    replicas: ReplicaManager
    metadata: MetadataHost
    environment: Environment
    handover: HandoverHost
    serve_held: Callable[[Held], None]
    count_error: Callable[[ErrorCode], None]


class _AppendWait(ReplicationWait):
    """One partition of an acks=all request that waits for replication."""

    __slots__ = ("_answer", "_run", "key")

    def __init__(self, run: ProduceRun, partition: Partition, leader: PartitionLeader, required: int, answer: _Answer) -> None:
        super().__init__(partition, leader, required)
        self._run = run
        self._answer = answer
        self.key = partition.key

    def settled(self, code: ErrorCode) -> None:
        """The partition's answer is final."""
        if code is not ErrorCode.NONE:
            fail(self._answer, code)
        self._run.wait_settled()

    def close(self, reason: str) -> None:
        """Close the client's connection, because the request failed unexpectedly."""
        self._run.close(reason)


class _SyncedAppend(SyncWait):
    """One partition of a request that waits for a sync, and with acks=all then for replication."""

    __slots__ = ("_answer", "_run", "key")

    def __init__(self, run: ProduceRun, appended: Appended, answer: _Answer) -> None:
        super().__init__(appended.partition, appended.leader, appended.info.last_offset + 1)
        self._run = run
        self._answer = answer
        self.key = appended.partition.key

    def settled(self, code: ErrorCode) -> None:
        """It is synced, or the partition's answer is final."""
        if code is not ErrorCode.NONE:
            fail(self._answer, code)
        self._run.synced(self._partition, self._leader, self._required, self._answer)

    def close(self, reason: str) -> None:
        """Close the client's connection, because the request failed unexpectedly."""
        self._run.close(reason)


class ProduceRun:
    """One request. Its records are views of the receive buffer, or copies; offsets are written into them in place. The request's
    partitions are handled in several turns of the loop if they take long; meanwhile its connection accepts no further request.

    Invariant: a partition's answer is complete when its records were appended and replicated as far as `acks` asks, or were refused;
    `_held` completes the answers of partitions whose records it holds.
    """

    __slots__ = (
        "_appended", "_by_id", "_context", "_has_failed", "_held", "_is_odd", "_left", "_now_ms", "_on_appended", "_parts", "_prepared",
        "_refusals", "_request", "_response", "_verdicts", "_waits", "_waits_left", "_wall_ms",
    )  # fmt: skip

    def __init__(
        self, parts: ProduceParts, context: RequestContext, request: ProduceRequest, verdicts: Verdicts | None, prepared: Prepared,
        on_appended: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """`verdicts`: what a transactional request may append, None for others; `prepared`: batches inspected in advance. `on_appended` is
        called when every partition is handled."""
        self._parts = parts
        self._context = context
        self._request = request
        self._verdicts = verdicts
        self._prepared = prepared
        self._by_id = context.api_version >= TOPIC_ID_VERSION_MIN
        #: What the fast path has appended before.
        self._appended = appended_before(context.connection)
        #: Whether each partition has to be looked at before its log is asked.
        self._is_odd = verdicts is not None or request.acks not in ACKS or context.api_version < ZSTD_VERSION_MIN
        self._refusals = parts.replicas.refusals
        clock = parts.environment.clock
        self._now_ms, self._wall_ms = clock.now_ms(), clock.wall_ms()
        self._response = ProduceResponse()
        #: The partitions that have not been handled yet.
        self._left: deque[tuple[_Topic, _Data, _Answer]] = deque()
        self._waits: list[_AppendWait | _SyncedAppend] = []
        self._waits_left = 0
        self._held: HeldRequest | None = None
        self._has_failed = False
        self._on_appended = on_appended

    def run(self) -> ProduceResponse | None:
        """Handle every partition. Returns the response, or None if it follows later or never (acks=0)."""
        left = self._left
        for topic in self._request.topic_data:
            answers: list[_Answer] = []
            self._response.responses.append(_TopicAnswer(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
            for data in topic.partition_data:
                answer = _Answer(index=data.index)
                answers.append(answer)
                left.append((topic, data, answer))
        self._produce_some()
        if not left:
            return self._end()
        context = self._context
        context.keep(records_bytes(self._request))
        context.connection.keep_frame()
        context.connection.hold()
        self._parts.environment.supervisor.start(self._produce_rest(), "a produce", ends=Ends("connection", context.close))
        return None

    def _produce_some(self) -> None:
        """Handle partitions until this turn's share is used up: each of them may begin a segment."""
        left = self._left
        if len(left) == 1:
            self._produce(*left.popleft())
        else:
            is_over = self._parts.environment.shares.begin()
            while left:
                self._produce(*left.popleft())
                if left and is_over():
                    break
        if not left and self._on_appended is not None:
            self._on_appended()

    async def _produce_rest(self) -> None:
        try:
            while self._left:
                await asyncio.sleep(0)
                self._produce_some()
        except BaseException:
            if self._on_appended is not None:
                self._on_appended()
            raise
        finally:
            self._context.connection.go_on()
        response = self._end()
        if response is not None:
            self._context.respond(response)

    # -- one partition ---------------------------------------------------------------------------------------------

    def _produce(self, topic: _Topic, data: _Data, answer: _Answer) -> None:
        if self._appended:
            before = self._appended.get((topic.topic_id if self._by_id else topic.name, data.index))
            if before is not None:
                self._accept(before, data, answer)
                return
        partition, has_reached_log = None, False
        try:
            partition = self._parts.replicas.require(topic.name, topic.topic_id if self._by_id else None, data.index)
            verdict = self._admit(partition, topic, data) if self._is_odd or partition.is_internal or self._refusals.entries else None
            has_reached_log = True
            info = self._append(partition, data, verdict)
        except ApiError as error:
            if not self._keep(topic, data, answer, error.code):
                self._refuse(partition, topic, data, answer, error)
                if has_reached_log and answer.error_code not in EXPECTED_FAILURES and partition is not None:
                    answer.log_start_offset = partition.log.log_start_offset
            return
        self._accept(Appended(partition, partition.leader, info), data, answer)

    def _accept(self, appended: Appended, data: _Data, answer: _Answer) -> None:
        """The records are in the log: complete the answer, and with acks=all let it wait until they are replicated."""
        appended.count(len(cast("memoryview", data.records)))
        info = appended.info
        answer.base_offset = info.first_offset
        answer.log_append_time_ms = info.log_append_time_ms
        answer.log_start_offset = info.log_start_offset
        leader = appended.leader
        if info.last_offset >= appended.partition.log.counted_end and self._request.acks:
            self._waits.append(_SyncedAppend(self, appended, answer))
        elif self._request.acks < 0 and leader is not None and not appended.is_replicated:
            self._waits.append(_AppendWait(self, appended.partition, leader, info.last_offset + 1, answer))

    def _admit(self, partition: Partition, topic: _Topic, data: _Data) -> Verification | None:
        """What is checked before the log is asked. Returns what lets a transaction begin; raises ApiError."""
        verdict = None if self._verdicts is None else verdict_of(self._verdicts, partition.key, data.records)
        if self._request.acks not in ACKS:
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
        if self._context.api_version < ZSTD_VERSION_MIN or partition.is_internal:
            self._check(partition, data.records)
        if self._refusals and partition.appending is not None:
            check_order(self._refusals, topic, data, partition, self._now_ms)
        return verdict

    def _append(self, partition: Partition, data: _Data, verification: Verification | None) -> AppendInfo:
        """Append the records. Raises ApiError, with nothing appended."""
        fitting = Fitting.HERE
        if self._prepared:
            prepared = self._prepared.get(partition.key)
            if isinstance(prepared, ApiError):
                raise prepared
            if prepared is not None:
                fitting = prepared.fitting(partition)
        view: Any = _EMPTY if data.records is None else data.records
        return partition.append(view, self._request.acks, self._wall_ms, self._now_ms, verification=verification, fitting=fitting)

    def _check(self, partition: Partition, records: object) -> None:
        """Refuse records that this version of the API, or any client, must not send."""
        if partition.is_internal and self._context.client_id != ADMIN_CLIENT_ID:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic}")
        if (
            self._context.api_version < ZSTD_VERSION_MIN
            and isinstance(records, memoryview)
            and leading_attributes(records) & CODEC_MASK == CompressionType.ZSTD
        ):
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version 7 of Produce")

    def _keep(self, topic: _Topic, data: _Data, answer: _Answer, code: ErrorCode) -> bool:
        """Hold the records for the next leader, if the leadership is moving or has just moved."""
        if code is not ErrorCode.NOT_LEADER_OR_FOLLOWER or self._request.acks not in ACKS or is_handed_on(self._context.client_id):
            return False
        if is_behind_lost(self._refusals, topic, data, self._now_ms):
            return False
        key = self._parts.handover.key_of(topic.name, topic.topic_id if self._by_id else None, data.index)
        if key is None:
            return False
        if self._held is None:
            self._held = HeldRequest(self._context, self._request, self._parts.handover, self._parts.serve_held, self._answer_late)
        self._held.add(key, topic, data, answer, lambda of: self._hint(topic, of, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        note_refused(self._refusals, topic, data, code, self._now_ms)
        return True

    def _refuse(self, partition: Partition | None, topic: _Topic, data: _Data, answer: _Answer, error: ApiError) -> None:
        self._has_failed = True
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and partition is not None:
            error = gap_at_new_leader(self._refusals, topic, data, partition, self._now_ms) or error
        if error.code in OF_PRODUCERS and partition is not None and self._parts.replicas.is_in_doubt(partition):
            error = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._count_failure(partition, error.code, data)
        note_refused(self._refusals, topic, data, error.code, self._now_ms)
        refuse(answer, error)
        self._hint(topic, answer, error.code)

    def _count_failure(self, partition: Partition | None, code: ErrorCode, data: _Data) -> None:
        """Count a failure as ReplicaManager.appendRecordsToLeader does: errors that a client causes by asking the wrong broker do not
        count."""
        self._parts.count_error(code)
        if partition is None:
            return
        partition.produces += 1
        if code not in EXPECTED_FAILURES:
            partition.produces_failed += 1
        if code is ErrorCode.MESSAGE_TOO_LARGE and data.records is not None:
            partition.bytes_rejected += len(received(data.records))

    def _hint(self, topic: _Topic, answer: _Answer, code: ErrorCode) -> None:
        if self._context.api_version >= LEADER_HINT_VERSION_MIN and code in _HINTED:
            image = self._parts.metadata.image
            found = image.topics_by_id.get(topic.topic_id) if self._by_id else image.topics_by_name.get(topic.name)
            name_leader(image, found, answer.index, self._context.listener, answer, self._response)

    # -- the response ----------------------------------------------------------------------------------------------

    def _end(self) -> ProduceResponse | None:
        waits = self._waits
        if self._held is not None:
            self._held.start(bool(waits))
        elif self._request.acks == 0:
            self._end_unanswered(self._has_failed)
            return None
        elif not waits:
            return self._response
        self._waits_left = len(waits)
        for wait in waits:
            self._wait(wait)
        return None

    def _wait(self, wait: _AppendWait | _SyncedAppend) -> None:
        waiting = self._parts.replicas.waiting
        if not wait.try_complete():
            waiting.park(waiting.produces, wait, [wait.key], max(self._request.timeout_ms, 0))

    def synced(self, partition: Partition, leader: PartitionLeader | None, required: int, answer: _Answer) -> None:
        """Records are synced, or their partition's answer says why they are not."""
        if self._request.acks < 0 and leader is not None and not answer.error_code:
            self._wait(_AppendWait(self, partition, leader, required, answer))
        else:
            self.wait_settled()

    def wait_settled(self) -> None:
        """One more partition is settled: its records are replicated, or never will be."""
        self._waits_left -= 1
        if self._waits_left == 0:
            (self._context if self._held is None else self._held).respond(self._response)

    def close(self, reason: str) -> None:
        """Close the client's connection."""
        self._context.close(reason)

    def _answer_late(self) -> None:
        """The held partitions have their answers, and the records appended here are replicated."""
        if self._request.acks == 0:
            self._end_unanswered(any(answer.error_code for topic in self._response.responses for answer in topic.partition_responses))
        else:
            self._context.respond(self._response)

    def _end_unanswered(self, has_failed: bool) -> None:
        if has_failed:
            # Closing the connection is the only way to tell the client that its metadata are outdated.
            self._context.close("closed after a failed produce with acks=0")
        else:
            self._context.no_response()
