"""Transactional Produce requests: finds batches that begin a transaction in their partition, and verifies them (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from minikafka.broker.partitions.produce_answer import TOPIC_ID_VERSION_MIN
from minikafka.broker.supervise import Ends, Supervisor
from minikafka.core.partition.turns import Turn, Turns
from minikafka.core.transaction.verification import Support
from minikafka.storage.producer_state import Verification
from minikafka.wire.batch import HEADER, MAGIC_V2, TRANSACTIONAL_BIT
from minikafka.wire.batch_header import ATTRIBUTES, BASE_SEQUENCE, MAGIC, PRODUCER_EPOCH, PRODUCER_ID, Header
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.message import received

if TYPE_CHECKING:
    from minikafka.broker.front.dispatch import RequestContext
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.core.transaction.state import PartitionKey
    from minikafka.wire.messages.produce import ProduceRequest

#: From this version of Produce on, clients understand TRANSACTION_ABORTABLE; from the next one on, leaders add their partitions.
ABORTABLE_VERSION = 11
#: Partition -> the verification for its append, or the error for which it must not be appended.
Verdicts = dict["PartitionKey", "Verification | ApiError"]
Asked = dict[tuple[int, int], dict["PartitionKey", Verification]]
#: Appends the records, by the coordinators' verdicts; calls the second argument when all are appended, perhaps before it returns.
GoOn = Callable[["Verdicts | None", Callable[[], None]], None]


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
        """Whether its transactional batches are of two producers, for which Kafka refuses the whole request."""
        return len({(header[PRODUCER_ID], header[PRODUCER_EPOCH]) for _, header in self._batches(context, request)}) > 1

    def hold(self, context: RequestContext, request: ProduceRequest, go_on: GoOn) -> bool:
        """Whether the request must wait because the coordinator is asked for it or for an earlier batch. If so, its records are copied, as
        the receive buffer will be reused, and `go_on` is called later, perhaps before this returns."""
        batches = list(self._batches(context, request))
        keys = [(partition.key, header[PRODUCER_ID]) for partition, header in batches]
        if self._turns.are_taken(keys):
            _copy_records(request)
            self._turns.enter(keys, partial(self._begin, context, request, go_on))
            return True
        asked = self._asked(context, request, batches)
        if not asked:
            return False
        if not self._verifier.is_enabled(_support(context)):
            go_on(_verdicts(asked), _nothing)
            return True
        _copy_records(request)
        turn = self._turns.enter(keys)
        if self._ask(turn, context, request, asked, go_on):
            self._turns.leave(turn)
        return True

    def _begin(self, context: RequestContext, request: ProduceRequest, go_on: GoOn, turn: Turn) -> bool:
        """Start a request whose turn has come. Returns whether it is done."""
        asked: Asked | None = None
        with self._watching(context):
            asked = self._asked(context, request, self._batches(context, request))
        if asked is None:
            return True
        if asked and self._verifier.is_enabled(_support(context)):
            return self._ask(turn, context, request, asked, go_on)
        return self._append(turn, context, _verdicts(asked) if asked else None, go_on)

    def _append(self, turn: Turn, context: RequestContext, verdicts: Verdicts | None, go_on: GoOn) -> bool:
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

    def _asked(self, context: RequestContext, request: ProduceRequest, batches: Iterable[tuple[Partition, tuple[int, ...]]]) -> Asked:
        """What to ask the coordinator, by producer id and epoch."""
        asked: Asked = {}
        for partition, header in batches:
            producer_id, epoch, sequence = header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]
            verification = partition.log.producer_state.begin_verification(
                producer_id, epoch, sequence, self._wall_ms(), must_begin_at_zero=_support(context) is Support.ADDS
            )
            if verification is not None:
                asked.setdefault((producer_id, epoch), {})[partition.key] = verification
        return asked

    def _ask(self, turn: Turn, context: RequestContext, request: ProduceRequest, asked: Asked, go_on: GoOn) -> bool:
        """Ask the coordinators. Returns whether they have answered and the records are appended already; if not, the request's turn ends
        when they are."""
        transactional_id = request.transactional_id
        assert transactional_id is not None
        verdicts = self._not_led(context, request) | _verdicts(asked)
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

    def _batches(self, context: RequestContext, request: ProduceRequest) -> Iterator[tuple[Partition, tuple[int, ...]]]:
        """The transactional batches for partitions that this broker leads, with their headers."""
        return (found for found in self._hosted(context, request) if found[0].leader is not None)

    def _not_led(self, context: RequestContext, request: ProduceRequest) -> Verdicts:
        """Errors for partitions that this broker does not lead: it may lead them when the coordinator has answered, but then nobody has
        asked for them, and the log would refuse their batches for good."""
        hosted = self._hosted(context, request)
        return {partition.key: ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER) for partition, _ in hosted if partition.leader is None}

    def _hosted(self, context: RequestContext, request: ProduceRequest) -> Iterator[tuple[Partition, tuple[int, ...]]]:
        """The transactional batches for partitions of this broker, with their headers."""
        for topic in request.topic_data:
            topic_id = topic.topic_id if context.api_version >= TOPIC_ID_VERSION_MIN else None
            for data in topic.partition_data:
                try:
                    partition = self._replicas.require(topic.name, topic_id, data.index)
                except ApiError:
                    continue
                if data.records is None:
                    continue
                header = _transactional_header(received(data.records))
                if header is not None and header[PRODUCER_ID] >= 0:
                    yield partition, header


def lacks_transactional_id(request: ProduceRequest) -> bool:
    """Whether there is a transactional batch in a request without a transactional id, which Kafka refuses as a whole."""
    if request.transactional_id is not None:
        return False
    batches = (received(data.records) for topic in request.topic_data for data in topic.partition_data if data.records is not None)
    return any(_transactional_header(batch) is not None for batch in batches)


def _transactional_header(records: bytes | bytearray | memoryview) -> Header | None:
    """The header of the first batch, if it is transactional. The formats before 2 have no
    transactions, and other fields in these places."""
    if len(records) < HEADER.size:
        return None
    header: Header = HEADER.unpack_from(records)
    return header if header[MAGIC] == MAGIC_V2 and header[ATTRIBUTES] & TRANSACTIONAL_BIT else None


def _support(context: RequestContext) -> Support:
    return Support.of(context.api_version, ABORTABLE_VERSION)


def _verdicts(asked: Asked) -> Verdicts:
    return {key: verification for found in asked.values() for key, verification in found.items()}


def _nothing() -> None:
    """Nobody waits for this request's turn to end."""


def _copy_records(request: ProduceRequest) -> None:
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(received(data.records)))
