"""Transactional Produce requests: finds batches that begin a transaction in their partition, and verifies them (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from minikafka.broker.partitions.produce_answer import TOPIC_ID_VERSION_MIN, records_bytes
from minikafka.broker.supervise import Ends, Supervisor
from minikafka.core.partition.turns import Turn, Turns
from minikafka.core.transaction.verification import Support
from minikafka.storage.producer_state import Verification
from minikafka.wire.batch import HEADER, TRANSACTIONAL_BIT, leading_attributes
from minikafka.wire.batch_header import BASE_SEQUENCE, PRODUCER_EPOCH, PRODUCER_ID, Header
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.message import RecordsValue, received

if TYPE_CHECKING:
    from minikafka.broker.front.dispatch import RequestContext
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.core.transaction.state import PartitionKey
    from minikafka.wire.messages.produce import ProduceRequest

#: From this version of Produce on, clients understand TRANSACTION_ABORTABLE; from the next one on, leaders add their partitions.
ABORTABLE_VERSION = 11
#: Partition -> the verification for its append, None where the transaction is open already, or the error for which the batch must not be
#: appended.
Verdicts = dict["PartitionKey", "Verification | ApiError | None"]
Asked = dict[tuple[int, int], dict["PartitionKey", Verification]]
#: The topic as the request names it; its name and its id, None if the request has no ids; the partition's index; the batch's header.
Batch = tuple[str | bytes, tuple[str, bytes | None], int, Header]
#: Appends the records, by the coordinators' verdicts; calls the second argument when all are appended, perhaps before it returns.
GoOn = Callable[[Verdicts, Callable[[], None]], None]


class TransactionVerifier(Protocol):
    """Asks the coordinators of transactions."""

    def is_enabled(self, support: Support) -> bool:
        """Whether clients with this support are verified."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[PartitionKey],
        support: Support,
        done: Callable[[dict[PartitionKey, ErrorCode]], None],
    ) -> None:
        """Calls `done(partition -> error)`, perhaps before it returns. The errors are those for the client."""


class TransactionalProduce:
    """Holds a request until the coordinator has verified the transactions that it begins.

    Invariant: batches of one producer for one partition are appended in order. A request that comes while another is held waits behind it
    if they share a producer and partition; later requests then wait for it in all its partitions.
    """

    def __init__(self, replicas: ReplicaManager, verifier: TransactionVerifier, wall_ms: Callable[[], int], supervisor: Supervisor) -> None:
        self._replicas = replicas
        self._verifier = verifier
        self._wall_ms = wall_ms
        self._supervisor = supervisor
        #: Requests in order, by (partition, producer id).
        self._turns = Turns()

    def has_two_producers(self, context: RequestContext, request: ProduceRequest) -> bool:
        """Whether its transactional batches are of two producers, for which Kafka refuses the whole request. Those for partitions that do
        not exist do not count."""
        batches = list(_batches(context, request))
        if len({(header[PRODUCER_ID], header[PRODUCER_EPOCH]) for *_, header in batches}) <= 1:
            return False
        there = (header for _, of, index, header in batches if self._exists(*of, index))
        return len({(header[PRODUCER_ID], header[PRODUCER_EPOCH]) for header in there}) > 1

    def _exists(self, topic: str, topic_id: bytes | None, index: int) -> bool:
        try:
            self._replicas.require(topic, topic_id, index)
        except ApiError as error:
            return error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        return True

    def hold(self, context: RequestContext, request: ProduceRequest, go_on: GoOn) -> Verdicts | None:
        """The verdicts with which to append the records now. None if the request must wait because the coordinator is asked for it or for
        an earlier batch. Its records are then copied, as the receive buffer will be reused, and `go_on` is called later, perhaps before
        this returns."""
        batches = list(_batches(context, request))
        lines = [(topic, index, header[PRODUCER_ID]) for topic, _, index, header in batches]
        if self._turns.are_taken(lines):
            _copy_records(context, request)
            self._turns.enter(lines, partial(self._begin, context, request, go_on))
            return None
        verdicts, asked = self._examine(context, batches)
        if not asked or not self._verifier.is_enabled(_support(context)):
            return verdicts
        _copy_records(context, request)
        turn = self._turns.enter(lines)
        if self._ask(turn, context, request, verdicts, asked, go_on):
            self._turns.leave(turn)
        return None

    def _begin(self, context: RequestContext, request: ProduceRequest, go_on: GoOn, turn: Turn) -> bool:
        """Start a request whose turn has come. Returns whether it is done."""
        examined = None
        with self._watching(context):
            examined = self._examine(context, _batches(context, request))
        if examined is None:
            return True
        verdicts, asked = examined
        if asked and self._verifier.is_enabled(_support(context)):
            return self._ask(turn, context, request, verdicts, asked, go_on)
        return self._append(turn, context, verdicts, go_on)

    def _append(self, turn: Turn, context: RequestContext, verdicts: Verdicts, go_on: GoOn) -> bool:
        """Append the records. Returns whether all are appended; if not, the request's turn ends when they are."""
        is_over, is_first_part = False, True

        def over() -> None:
            nonlocal is_over
            is_over = True
            if not is_first_part:
                self._turns.leave(turn)

        has_failed = True
        with self._watching(context):
            go_on(verdicts, over)
            has_failed = False
        is_first_part = False
        return is_over or has_failed

    def _examine(self, context: RequestContext, batches: Iterable[Batch]) -> tuple[Verdicts, Asked]:
        """The verdicts as long as no coordinator is asked, and what to ask them, by producer id and epoch."""
        verdicts: Verdicts = {}
        asked: Asked = {}
        for _, of, index, header in batches:
            try:
                partition = self._replicas.require(*of, index)
            except ApiError:
                continue  # see `verdict_of`
            if partition.leader is None:
                verdicts[partition.key] = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            producer_id, epoch, sequence = header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
            try:
                verification = partition.log.producer_state.begin_verification(
                    producer_id, epoch, sequence, self._wall_ms(), must_begin_at_zero=_support(context) is Support.ADDS
                )
            except ApiError as error:
                verdicts[partition.key] = error
                continue
            verdicts[partition.key] = verification
            if verification is not None:
                asked.setdefault((producer_id, epoch), {})[partition.key] = verification
        return verdicts, asked

    def _ask(self, turn: Turn, context: RequestContext, request: ProduceRequest, verdicts: Verdicts, asked: Asked, go_on: GoOn) -> bool:
        """Ask the coordinators. Returns whether they have answered and the records are appended already; if not, the request's turn ends
        when they are."""
        transactional_id = request.transactional_id
        assert transactional_id is not None
        left, is_asking, is_appended = len(asked), True, False

        def verified(results: dict[PartitionKey, ErrorCode]) -> None:
            nonlocal left, is_appended
            for key, code in results.items():
                if code is not ErrorCode.NONE:
                    verdicts[key] = ApiError(code)
            left -= 1
            if left == 0:
                is_appended = self._append(turn, context, verdicts, go_on)
                if is_appended and not is_asking:
                    self._turns.leave(turn)

        for (producer_id, epoch), partitions in asked.items():
            self._verifier.verify(transactional_id, producer_id, epoch, frozenset(partitions), _support(context), verified)
        is_asking = False
        return is_appended

    def _watching(self, context: RequestContext) -> AbstractContextManager[None]:
        """Give the next request its turn even if this one fails unexpectedly."""
        return self._supervisor.watching("a transactional produce", ends=Ends("connection", context.close))


def verdict_of(verdicts: Verdicts, key: PartitionKey, records: RecordsValue | None) -> Verification | None:
    """What lets the partition's batch begin a transaction, None if it need not begin one. Raises ApiError if it must not be appended.

    A partition that this broker did not lead when the verdicts were begun may be led by now. The batch is then refused in a way that makes
    the producer send it again: nobody has asked the coordinator for it, and the log would refuse it for good."""
    if key not in verdicts:
        if _header_with_producer(records) is None:
            return None
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    verdict = verdicts[key]
    if isinstance(verdict, ApiError):
        raise verdict
    return verdict


def _batches(context: RequestContext, request: ProduceRequest) -> Iterator[Batch]:
    """The transactional batches of a request."""
    by_id = context.api_version >= TOPIC_ID_VERSION_MIN
    for topic in request.topic_data:
        name, of = (topic.topic_id, (topic.name, topic.topic_id)) if by_id else (topic.name, (topic.name, None))
        for data in topic.partition_data:
            header = _header_with_producer(data.records)
            if header is not None:
                yield name, of, data.index, header


def lacks_transactional_id(request: ProduceRequest) -> bool:
    """Whether there is a transactional batch in a request without a transactional id, which Kafka refuses as a whole."""
    if request.transactional_id is not None:
        return False
    for topic in request.topic_data:
        for data in topic.partition_data:
            if _is_transactional(data.records):
                return True
    return False


def _is_transactional(records: RecordsValue | None) -> bool:
    """Whether the first batch is transactional."""
    return records is not None and bool(leading_attributes(received(records)) & TRANSACTIONAL_BIT)


def _transactional_header(records: RecordsValue | None) -> Header | None:
    """The header of the first batch, if it is transactional."""
    if records is None or not _is_transactional(records):
        return None
    header: Header = HEADER.unpack_from(received(records))
    return header


def _header_with_producer(records: RecordsValue | None) -> Header | None:
    header = _transactional_header(records)
    return header if header is not None and header[PRODUCER_ID] >= 0 else None


def _support(context: RequestContext) -> Support:
    return Support.of(context.api_version, ABORTABLE_VERSION)


def _copy_records(context: RequestContext, request: ProduceRequest) -> None:
    context.keep(records_bytes(request))
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(received(data.records)))
