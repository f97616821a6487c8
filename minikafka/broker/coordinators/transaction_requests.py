"""The transaction APIs: those of producers, those between brokers, and those of administrators (KIP-98, KIP-360, KIP-664, KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from minikafka.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from minikafka.broker.coordinators.transaction_coordinator import refused_for
from minikafka.broker.front.turns import STEP_ITEMS, in_steps
from minikafka.core.group.transactional import IDS_VERSION, names_existing, refused_commits
from minikafka.core.pattern import InvalidPattern, matching
from minikafka.core.transaction.records import by_topic
from minikafka.core.transaction.state import STATES_BY_LABEL, PartitionKey
from minikafka.core.transaction.verification import Support, Verification
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.lazy_list import lazy_list
from minikafka.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from minikafka.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from minikafka.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from minikafka.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from minikafka.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

if TYPE_CHECKING:
    from minikafka.broker.coordinators.group_coordinator import GroupHost
    from minikafka.broker.coordinators.producer_ids import ProducerIdBlocks
    from minikafka.broker.coordinators.transaction_coordinator import TransactionHost
    from minikafka.broker.coordinators.transaction_markers import MarkerWriter
    from minikafka.broker.coordinators.transaction_verification import TransactionVerifier
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.front.heavy_work import HeavyWork
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost

BATCHED_VERSION_MIN = 4
#: TxnOffsetCommit clients understand TRANSACTION_ABORTABLE from this version on.
ABORTABLE_VERSION = 4
#: Clients understand PRODUCER_FENCED from these versions on; older ones get INVALID_PRODUCER_EPOCH.
FENCED_VERSION_MIN = {InitProducerIdRequest: 4, AddPartitionsToTxnRequest: 2, AddOffsetsToTxnRequest: 2, EndTxnRequest: 2}
EPOCH_BUMP_END_VERSION = 5
#: The addition of more partitions is answered in another turn of the loop than that in which they are added.
ADDED_AT_ONCE = 1024
_RETRY_COMMIT = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_COORDINATOR})
_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
_TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult


class TransactionHandlers:
    """Translates between the wire and the shards of the transaction coordinator."""

    def __init__(
        self,
        host: TransactionHost,
        writer: MarkerWriter,
        verifier: TransactionVerifier,
        groups: GroupHost,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        producer_ids: ProducerIdBlocks,
        environment: Environment,
        heavy_work: HeavyWork,
        may_describe: Callable[[Any, str], bool],
    ) -> None:
        """`may_describe(context, transactional_id)`: whether ListTransactions may name the id to the client."""
        self._heavy_work = heavy_work
        self._may_describe = may_describe
        self._host = host
        self._writer = writer
        self._verifier = verifier
        self._groups = groups
        self._replicas = replicas
        self._metadata = metadata
        self._producer_ids = producer_ids
        self._environment, self._clock = environment, environment.clock

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve the transaction APIs on a broker listener."""
        dispatcher.register(InitProducerIdRequest, self.init_producer_id)
        dispatcher.register(AddPartitionsToTxnRequest, self.add_partitions)
        dispatcher.register(AddOffsetsToTxnRequest, self.add_offsets)
        dispatcher.register(TxnOffsetCommitRequest, self.commit_offsets)
        dispatcher.register(EndTxnRequest, self.end)
        dispatcher.register(WriteTxnMarkersRequest, self.write_markers)
        dispatcher.register(DescribeTransactionsRequest, self.describe)
        dispatcher.register(ListTransactionsRequest, self.list_)

    # -- producers -------------------------------------------------------------------------------------------------

    async def init_producer_id(self, context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse | None:
        """Without a transactional id: a new producer id with epoch 0, whatever the request says. With one: its id and next epoch."""
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
        if request.transactional_id is None:
            code, producer_id = await self._producer_ids.next_id()
            return InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=0 if code is ErrorCode.NONE else -1)

        def done(code: ErrorCode, producer_id: int, epoch: int) -> None:
            reported = _client_error(context, request, code)
            context.respond(InitProducerIdResponse(error_code=reported, producer_id=producer_id, producer_epoch=epoch))

        if not request.transactional_id:
            done(ErrorCode.INVALID_REQUEST, -1, -1)
            return None
        if not 0 < request.transaction_timeout_ms <= self._host.timeout_ms_max:
            done(ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)
            return None
        try:
            index, shard = self._host.shard(request.transactional_id)
        except ApiError as error:
            done(error.code, -1, -1)
            return None
        expected = None if request.producer_id == -1 else (request.producer_id, request.producer_epoch)
        shard.init_producer_id(request.transactional_id, request.transaction_timeout_ms, expected, done, self._clock.wall_ms())
        self._host.run_effects(index, shard)
        return None

    def add_partitions(self, context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse | None:
        """The partitions of one client's transaction (v0-3), or of several transactions to add or verify, from another broker (v4+)."""
        if context.api_version < BATCHED_VERSION_MIN:
            self._add_for_client(context, request)
            return None
        answers: dict[int, AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = {}
        if not request.transactions:
            return AddPartitionsToTxnResponse()
        for number, requested in enumerate(request.transactions):
            partitions = frozenset((topic.name, index) for topic in requested.topics for index in topic.partitions)

            def done(
                results: dict[PartitionKey, ErrorCode],
                number: int = number,
                requested: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction = requested,
            ) -> None:
                answers[number] = AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                    transactional_id=requested.transactional_id, topic_results=_results(results)
                )
                if len(answers) == len(request.transactions):
                    context.respond(AddPartitionsToTxnResponse(results_by_transaction=[answers[n] for n in sorted(answers)]))

            verification = Verification(
                requested.transactional_id, requested.producer_id, requested.producer_epoch, partitions, adds=not requested.verify_only
            )
            self._host.add_or_verify(verification, done)
        return None

    def _add_for_client(self, context: RequestContext, request: AddPartitionsToTxnRequest) -> None:
        keys = [(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
        unknown = self._host.unknown_partitions(keys)

        def answer(code: ErrorCode) -> None:
            results = dict.fromkeys(keys, _client_error(context, request, code))
            context.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(results)))

        def done(code: ErrorCode) -> None:
            if len(keys) > ADDED_AT_ONCE:
                self._environment.supervisor.call_soon("an answer to AddPartitionsToTxn", answer, code)
            else:
                answer(code)

        if unknown:
            context.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(refused_for(keys, unknown))))
            return
        self._add(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            frozenset(keys),
            done,
        )

    def _add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[PartitionKey],
        done: Callable[[ErrorCode], None],
    ) -> None:
        try:
            if not transactional_id:
                raise ApiError(ErrorCode.INVALID_REQUEST)
            index, shard = self._host.shard(transactional_id)
        except ApiError as error:
            done(error.code)
            return
        shard.add_partitions(transactional_id, producer_id, producer_epoch, partitions, 0, done, self._clock.wall_ms())
        self._host.run_effects(index, shard)

    async def add_offsets(self, context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse | None:
        """Add the partition that holds a group's offsets to the transaction."""
        await self._groups.ensure_topic()
        index = self._groups.partition_of(request.group_id)
        if index is None:
            return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

        def done(code: ErrorCode) -> None:
            context.respond(AddOffsetsToTxnResponse(error_code=_client_error(context, request, code)))

        key = (OFFSETS_TOPIC, index)
        self._add(request.transactional_id, request.producer_id, request.producer_epoch, frozenset({key}), done)
        return None

    def end(self, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse | None:
        """Answered when the decision is committed. v5 returns the producer id and epoch of the next transaction (KIP-890)."""

        def done(code: ErrorCode, producer_id: int, epoch: int) -> None:
            context.respond(EndTxnResponse(error_code=_client_error(context, request, code), producer_id=producer_id, producer_epoch=epoch))

        try:
            if not request.transactional_id:
                raise ApiError(ErrorCode.INVALID_REQUEST)
            index, shard = self._host.shard(request.transactional_id)
        except ApiError as error:
            done(error.code, -1, -1)
            return None
        version = 2 if context.api_version >= EPOCH_BUMP_END_VERSION else 0
        shard.end_transaction(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            version,
            done,
            self._clock.wall_ms(),
        )
        self._host.run_effects(index, shard)
        return None

    # -- offsets ---------------------------------------------------------------------------------------------------

    def commit_offsets(self, context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse | None:
        """Commit offsets that take effect with the transaction. The group's partition is verified or added like any other. If no partition
        exists, the group is not asked."""
        resolve = self._groups.resolve_topic_id if context.api_version >= IDS_VERSION else self._groups.resolve_topic
        if not names_existing(request, resolve):
            return refused_commits(request, ErrorCode.NONE, resolve)
        try:
            if not request.group_id:
                raise ApiError(ErrorCode.INVALID_GROUP_ID)
            index, _ = self._groups.shard(request.group_id)
            partition = self._replicas.require(OFFSETS_TOPIC, None, index)
            support = Support.of(context.api_version, ABORTABLE_VERSION)
            producers = partition.log.producer_state
            verification = producers.begin_verification(
                request.producer_id, request.producer_epoch, 0, self._clock.wall_ms(), must_begin_at_zero=support is Support.ADDS
            )
        except ApiError as error:
            return refused_commits(request, error.code, resolve)

        def go_on(code: ErrorCode) -> None:
            try:
                if code is not ErrorCode.NONE:
                    raise ApiError(code)
                # A new leader may have come while the coordinator answered.
                now_index, shard = self._groups.shard(request.group_id)
                if now_index != index:
                    raise ApiError(ErrorCode.NOT_COORDINATOR)
            except ApiError as error:
                context.respond(refused_commits(request, error.code, resolve))
                return
            # The marker may have come meanwhile, or may come while the commit waits for its group.
            check_open = partial(producers.check_verified, request.producer_id, request.producer_epoch, verification)
            shard.commit_transactional(context, request, context.api_version, resolve, check_open, self._clock.now_ms())
            self._groups.run_effects(index, shard)

        if verification is None or not self._verifier.is_enabled(support):
            go_on(ErrorCode.NONE)
            return None
        key = (OFFSETS_TOPIC, index)

        def verified(results: dict[PartitionKey, ErrorCode]) -> None:
            code = results[key]
            go_on(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code in _RETRY_COMMIT else code)

        self._verifier.verify(request.transactional_id, request.producer_id, request.producer_epoch, frozenset({key}), support, verified)
        return None

    # -- between brokers -------------------------------------------------------------------------------------------

    def write_markers(self, context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse | None:
        """Answered when every marker is replicated or has failed."""
        answers: dict[int, WriteTxnMarkersResponse.WritableTxnMarkerResult] = {}
        if not request.markers:
            return WriteTxnMarkersResponse()
        for number, marker in enumerate(request.markers):

            def done(
                results: dict[PartitionKey, ErrorCode],
                number: int = number,
                marker: WriteTxnMarkersRequest.WritableTxnMarker = marker,
            ) -> None:
                topics: dict[str, list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]] = {}
                for (topic, index), code in results.items():
                    topics.setdefault(topic, []).append(
                        WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                    )
                answers[number] = WriteTxnMarkersResponse.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=name, partitions=partitions)
                        for name, partitions in topics.items()
                    ],
                )
                if len(answers) == len(request.markers):
                    context.respond(WriteTxnMarkersResponse(markers=[answers[n] for n in sorted(answers)]))

            self._writer.write(marker, done)
        return None

    # -- administrators --------------------------------------------------------------------------------------------

    async def describe(self, context: RequestContext, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        """Describe transactions that this broker coordinates. Each may have thousands of partitions, and takes a turn of its own then."""
        response, left = DescribeTransactionsResponse(), STEP_ITEMS
        for name in request.transactional_ids:
            described = self._describe(name)
            response.transaction_states.append(described)
            left -= sum(len(topic.partitions) for topic in described.topics)
            if left <= 0:
                left = STEP_ITEMS
                await asyncio.sleep(0)
        return response

    def _describe(self, transactional_id: str) -> DescribeTransactionsResponse.TransactionState:
        described = DescribeTransactionsResponse.TransactionState(transactional_id=transactional_id)
        try:
            if not transactional_id:
                raise ApiError(ErrorCode.INVALID_REQUEST)
            _, shard = self._host.shard(transactional_id)
            found = shard.find(transactional_id)
            if found is None:
                raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        except ApiError as error:
            described.error_code = error.code
            return described
        described.transaction_state = found.state.label
        described.transaction_timeout_ms = found.timeout_ms
        described.transaction_start_time_ms = found.start_ms
        described.producer_id = found.producer_id
        described.producer_epoch = found.producer_epoch
        described.topics = [
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=indexes) for topic, indexes in by_topic(found.partitions)
        ]
        return described

    async def list_(self, context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
        """The transactions of this broker's shards that pass the filters, and the filter states that do not exist. The pattern is matched
        only against ids that the client may see."""
        response = ListTransactionsResponse(
            unknown_state_filters=[s for s in dict.fromkeys(request.state_filters) if s not in STATES_BY_LABEL]
        )
        states = {STATES_BY_LABEL[name] for name in request.state_filters if name in STATES_BY_LABEL}
        producers = set(request.producer_id_filters)
        try:
            shards = self._host.shards()
        except ApiError as error:
            return ListTransactionsResponse(error_code=error.code)
        now_ms = self._clock.wall_ms()
        response.transaction_states = [
            ListTransactionsResponse.TransactionState(
                transactional_id=found.transactional_id, producer_id=found.producer_id, transaction_state=found.state.label
            )
            async for found in in_steps(found for shard in shards for found in shard.transactions)
            if (not request.state_filters or found.state in states)
            and (not producers or found.producer_id in producers)
            and (request.duration_filter < 0 or now_ms - found.start_ms > request.duration_filter)
            and self._may_describe(context, found.transactional_id)
        ]
        if request.transactional_id_pattern:
            names = [found.transactional_id for found in response.transaction_states]
            try:
                matched = await self._heavy_work.run(matching, request.transactional_id_pattern, names)
            except InvalidPattern:
                return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
            response.transaction_states = [found for found in response.transaction_states if found.transactional_id in matched]
        return response


def _client_error(context: RequestContext, request: object, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_VERSION_MIN[type(request)]:  # type: ignore[index]
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _results(results: dict[PartitionKey, ErrorCode]) -> list[_TopicResult]:
    return [
        _TopicResult(
            name=topic,
            results_by_partition=lazy_list(indexes, lambda index, topic=topic: _result(index, results[topic, index])),  # type: ignore[misc]
        )
        for topic, indexes in by_topic(results)
    ]


def _result(index: int, code: ErrorCode) -> _Result:
    return _Result(partition_index=index, partition_error_code=code)
