"""A transactional producer: it commits records and consumed offsets atomically (KIP-98, KIP-360, KIP-447, KIP-890)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from enum import Enum
from typing import Any, Self, cast

from minikafka.client.cluster import BrokerInfo
from minikafka.client.errors import TRANSPORT_ERRORS, BrokerError, ClientError, ProducerFenced, TransactionFailed, refusal
from minikafka.client.group import GROUP, TRANSACTION, GroupMetadata, find_coordinator
from minikafka.client.produce_queue import Batch, PartitionQueue, RecordMetadata
from minikafka.client.producer import Producer
from minikafka.net.tasks import within
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Request
from minikafka.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from minikafka.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from minikafka.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from minikafka.wire.record import Header

FEATURE = "transaction.version"
#: From this level on every transaction has its own epoch, and leaders add partitions to it (KIP-890). Below it, the producer adds
#: partitions and groups at the coordinator first, with the OLD_ request versions (Kafka 2.5 and later).
FEATURE_LEVEL = 2
INIT_VERSION_MAX, END_VERSION, COMMIT_VERSION = 5, 5, 5
OLD_PRODUCE, OLD_END, OLD_COMMIT, OLD_ADD = 11, 3, 3, 3
#: Time-out of one attempt at a coordinator. It is short because coordinators recognize repeated requests.
TRY_TIMEOUT_MS = 5000
TopicPartition = tuple[str, int]
_Offset = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_LOST_COORDINATOR = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class _State(Enum):
    NEW = "init_transactions comes first"
    READY = "no transaction has begun"
    OPEN = "a transaction is open"
    ENDING = "a transaction is being ended: repeat commit or abort"
    FENCED = "another producer has this transactional id now"


class TransactionalProducer(Producer):
    """Sends records in transactions.

        async with TransactionalProducer("localhost:9092", "orders-1") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("out", b"...")
                await producer.send_offsets_to_transaction({("in", 0): 17}, consumer.group_metadata)

    Of all producers with one transactional id, only the last to call `init_transactions` may write; the others are fenced. Only one
    coroutine at a time may begin, commit or abort.
    """

    def __init__(self, bootstrap: str, transactional_id: str, *, transaction_timeout_ms: int = 60_000, **options: Any) -> None:
        """`transaction_timeout_ms`: the coordinator aborts a transaction that stays open longer. `options`: those of Producer, except that
        acks is always "all" and idempotence always enabled. Raises ClientError."""
        if not transactional_id:
            raise ClientError("the transactional id is empty")
        if options.setdefault("acks", "all") not in ("all", -1, "-1") or not options.setdefault("enable_idempotence", True):
            raise ClientError("a transactional producer needs acks=all and enable_idempotence")
        super().__init__(bootstrap, **options)
        self.transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._state = _State.NEW
        #: Why the open transaction can only be aborted; None while it may still be committed.
        self._failure: BaseException | None = None
        #: Whether anything was sent in the open transaction, so that the coordinator may have begun it.
        self._has_work = False
        self._coordinator: BrokerInfo | None = None
        #: Whether the cluster's transaction.version is below FEATURE_LEVEL. Only then are the next two fields used.
        self._is_old = False
        #: Partitions that the coordinator has added to the open transaction.
        self._added: set[TopicPartition] = set()
        #: Whether an add request was sent, answered or not, so that the coordinator may have begun the transaction.
        self._has_added = False

    async def start(self) -> None:
        """Connect. Raises ClientError."""
        await self.cluster.retry(lambda: self.cluster.refresh([]))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def close(self, timeout_ms: int | None = None) -> None:
        """Disconnect, after trying to abort an open transaction."""
        if self._state in (_State.OPEN, _State.ENDING):
            with contextlib.suppress(ClientError, *TRANSPORT_ERRORS):
                await within(None if timeout_ms is None else timeout_ms / 1000, self.abort())
        await super().close(timeout_ms)

    # -- transactions ----------------------------------------------------------------------------------------------

    async def init_transactions(self) -> None:
        """Fence earlier producers with this transactional id, abort their open transaction, and wait until it has ended. Raises
        ClientError, TimeoutError."""
        if self._state is not _State.NEW:
            raise ClientError(f"init_transactions is called once: {self._state.value}")
        self._is_old = await self.cluster.retry(self._transaction_version) < FEATURE_LEVEL
        if self._is_old:
            self._produce_version_max = OLD_PRODUCE
        await self._init(None)
        self._state = _State.READY

    def begin(self) -> None:
        """Begin a transaction. Raises ClientError."""
        self._require(_State.READY)
        self._state, self._failure, self._has_work = _State.OPEN, None, False
        self._added.clear()
        self._has_added = False

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """As `Producer.send`, within the open transaction. Raises ClientError, TransactionFailed when it can only be aborted."""
        self._check_failure()
        self._require(_State.OPEN)
        self._has_work = True
        return await super().send(topic, value, key, partition, headers, timestamp_ms)

    async def send_batch(
        self, topic: str, partition: int, data: bytearray, records: int, sequence: int = -1
    ) -> asyncio.Future[RecordMetadata]:  # fmt: skip
        """As `Producer.send_batch`, within the open transaction. Raises ClientError, TransactionFailed when it can only be aborted."""
        self._check_failure()
        self._require(_State.OPEN)
        self._has_work = True
        return await super().send_batch(topic, partition, data, records, sequence)

    async def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata | str) -> None:
        """Commit a group's offsets with the transaction: the positions after the records that were processed. `group`: the consumer's
        `group_metadata`, so that the broker rejects a member that has been replaced (KIP-447), or a group id. Raises TransactionFailed."""
        self._check_failure()
        self._require(_State.OPEN)
        if not offsets:
            return
        member = GroupMetadata(group) if isinstance(group, str) else group
        topics: dict[str, list[_Offset]] = {}
        for (topic, index), offset in offsets.items():
            topics.setdefault(topic, []).append(_Offset(partition_index=index, committed_offset=offset, committed_metadata=""))
        request = TxnOffsetCommitRequest(
            transactional_id=cast(str, self.transactional_id),
            group_id=member.group_id,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        self._has_work = True

        async def ask() -> bool | None:
            coordinator = await find_coordinator(self.cluster, member.group_id, self._request_timeout_ms, GROUP)
            version_max = OLD_COMMIT if self._is_old else COMMIT_VERSION
            response = cast(TxnOffsetCommitResponse, await self._request(coordinator, request, version_max))
            codes = {ErrorCode(p.error_code) for topic in response.topics for p in topic.partitions} - {ErrorCode.NONE}
            for code in codes:
                if not code.retriable:
                    raise refusal(code, f"committing offsets of group {member.group_id} in a transaction")
            return None if codes else True

        try:
            if self._is_old:
                await self._add_group(member.group_id)
            await self.cluster.retry(ask, self._request_timeout_ms)
        except (ClientError, *TRANSPORT_ERRORS) as error:
            self._failure = error
            raise self._failed() from error

    async def commit(self) -> None:
        """Send the queued records, and commit. Raises TransactionFailed if the transaction can only be aborted. After TimeoutError or
        NoBrokers the outcome is unknown: repeat `commit`, or call `abort`, which fails if the transaction was committed."""
        self._require(_State.OPEN, _State.ENDING)
        await self.flush()
        self._check_failure()
        try:
            await self._end(commit=True)
        except BrokerError as error:
            self._failure = error
            raise self._failed() from error

    async def abort(self) -> None:
        """Drop the queued records, and abort. Raises ProducerFenced if another producer has the transactional id, BrokerError
        (INVALID_TXN_STATE) if an earlier `commit` has succeeded, TimeoutError (then repeat `abort`)."""
        self._require(_State.OPEN, _State.ENDING)
        self._drop("the transaction was aborted")
        try:
            await self._end(commit=False)
            if self._is_old:
                await self._init(self._producer)  # the dropped records had sequence numbers: start over in the next epoch (KIP-360)
        except BrokerError as error:
            if error.code not in _FENCED:
                raise
            # The coordinator has already aborted it, because it timed out or a newer producer took over. InitProducerId succeeds only after
            # a timeout (KIP-360).
            await self._init(self._producer)
            self._state, self._failure = _State.READY, None

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """`begin`, and `commit` at the end of the block; `abort` if the block or the commit raises."""
        self.begin()
        try:
            yield
            await self.commit()
        except BaseException:
            if self._state in (_State.OPEN, _State.ENDING):
                with contextlib.suppress(ClientError, *TRANSPORT_ERRORS):
                    await self.abort()
            raise

    # -- inside ----------------------------------------------------------------------------------------------------

    def _require(self, *states: _State) -> None:
        if self._state not in states:
            raise ProducerFenced(self._fenced_text()) if self._state is _State.FENCED else ClientError(self._state.value)

    def _fenced_text(self) -> str:
        return f"another producer has the transactional id {self.transactional_id} now"

    def _failed(self) -> TransactionFailed:
        return TransactionFailed(f"the transaction can only be aborted: {self._failure}")

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise self._failed() from self._failure

    async def _transaction_version(self) -> int:
        request = ApiVersionsRequest(client_software_name="minikafka", client_software_version="0.1.0")
        response = cast(ApiVersionsResponse, await self.cluster.request(request))
        return max((entry.max_version_level for entry in response.finalized_features if entry.name == FEATURE), default=0)

    async def _request(self, coordinator: BrokerInfo, request: Request, version_max: int) -> Any:
        """Send a request once, on a connection that carries only transaction requests."""
        channel = await self.cluster.channel_at(coordinator.host, coordinator.port, "transaction")
        try:
            return await channel.request(request, channel.version_for(request, version_max), min(self._request_timeout_ms, TRY_TIMEOUT_MS))
        except TimeoutError:
            channel.close("no answer in time")
            raise

    async def _ask_coordinator(self, request: Any, version_max: int, what: str) -> Any:
        """The successful response of the transaction coordinator, after retries. Raises BrokerError, NoBrokers, TimeoutError."""

        async def ask() -> Any:
            if self._coordinator is None:
                transactional_id = cast(str, self.transactional_id)
                self._coordinator = await find_coordinator(self.cluster, transactional_id, self._request_timeout_ms, TRANSACTION)
            try:
                response = await self._request(self._coordinator, request, version_max)
            except TRANSPORT_ERRORS:
                self._coordinator = None
                raise
            code = _code(response)
            if code is ErrorCode.NONE:
                return response
            if code in _LOST_COORDINATOR:
                self._coordinator = None
            if code.retriable:
                return None
            raise refusal(code, what)

        return await self.cluster.retry(ask, self._request_timeout_ms)

    async def _init(self, current: tuple[int, int] | None) -> None:
        """Request a producer id and epoch; `current` are those that this producer has had. Raises ProducerFenced."""
        producer_id, epoch = current or (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        what = f"a producer id for the transactional id {self.transactional_id}"
        try:
            response = cast(InitProducerIdResponse, await self._ask_coordinator(request, INIT_VERSION_MAX, what))
        except BrokerError as error:
            if error.code not in _FENCED:
                raise
            self._state, self._failure = _State.FENCED, None
            raise ProducerFenced(self._fenced_text()) from error
        self._renew(response.producer_id, response.producer_epoch)

    async def _end(self, *, commit: bool) -> None:
        if self._has_added if self._is_old else self._has_work:
            self._state = _State.ENDING
            producer_id, epoch = self._producer
            request = EndTxnRequest(
                transactional_id=cast(str, self.transactional_id), producer_id=producer_id, producer_epoch=epoch, committed=commit
            )
            what = f"{'committing' if commit else 'aborting'} a transaction of {self.transactional_id}"
            response = cast(EndTxnResponse, await self._ask_coordinator(request, OLD_END if self._is_old else END_VERSION, what))
            if not self._is_old:
                self._renew(response.producer_id, response.producer_epoch)
        self._state, self._failure = _State.READY, None

    def _renew(self, producer_id: int, epoch: int) -> None:
        """Take the id and epoch of the next transaction, whose sequence numbers start at 0."""
        self._producer = (producer_id, epoch)
        for queue in self._queues.values():
            queue.next_sequence = 0

    # -- before transaction.version 2 ------------------------------------------------------------------------------

    async def _before_sending(self, queue: PartitionQueue) -> None:
        key = queue.topic, queue.index
        if not self._is_old or key in self._added:
            return
        self._has_added = True
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=queue.topic, partitions=[queue.index])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=cast(str, self.transactional_id),
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[topic],
        )
        await self._ask_coordinator(request, OLD_ADD, f"adding {queue.topic}-{queue.index} to a transaction of {self.transactional_id}")
        self._added.add(key)

    async def _add_group(self, group_id: str) -> None:
        producer_id, epoch = self._producer
        self._has_added = True
        request = AddOffsetsToTxnRequest(
            transactional_id=cast(str, self.transactional_id), producer_id=producer_id, producer_epoch=epoch, group_id=group_id
        )
        await self._ask_coordinator(request, OLD_ADD, f"adding group {group_id} to a transaction of {self.transactional_id}")

    # -- the producer's side ---------------------------------------------------------------------------------------

    async def _ensure_producer_id(self) -> None:
        # After a batch was given up the sequence numbers have a gap: only an abort helps.
        self._check_failure()

    def _fail(self, batch: Batch, code: ErrorCode, reason: str) -> None:
        if self._failure is None:
            self._failure = BrokerError(code, f"a record was not acknowledged: {reason or code.text} ({code.name})")
        super()._fail(batch, code, reason)


def _code(response: Any) -> ErrorCode:
    """The first error code of a response, at the top level or of a partition."""
    codes = [response.error_code] if hasattr(response, "error_code") else []
    for topic in getattr(response, "results_by_topic_v3_and_below", ()):
        codes += [partition.partition_error_code for partition in topic.results_by_partition]
    return ErrorCode(next(filter(None, codes), 0))
