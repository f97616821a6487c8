"""Guards of producers: Produce, InitProducerId and the transaction APIs (KafkaApis; KIP-98, KIP-679, KIP-890, KIP-939)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minikafka.broker.front.error_responses_data import TRANSACTIONS_VERSION_MIN, refused_produce, refused_txn_commit
from minikafka.broker.partitions.partition import INTERNAL_TOPICS
from minikafka.broker.partitions.produce_answer import TOPIC_ID_VERSION_MIN
from minikafka.broker.security.authorization.groups import require_group
from minikafka.broker.security.authorization.guard import Verdict
from minikafka.broker.security.authorization.topics import split, topic_name
from minikafka.core.authorizer.acl import Operation, ResourceType
from minikafka.wire.batch import TRANSACTIONAL_BIT, leading_attributes
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.message import received
from minikafka.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from minikafka.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from minikafka.wire.messages.end_txn import EndTxnRequest
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest
from minikafka.wire.messages.list_transactions import ListTransactionsRequest
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from minikafka.wire.messages.write_txn_markers import WriteTxnMarkersRequest

if TYPE_CHECKING:
    from minikafka.broker.security.authorization.authority import Authority, AuthorizableContext

DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def require_transactional_id(authority: Authority, context: AuthorizableContext, operation: Operation, transactional_id: str) -> None:
    """Raises ApiError TRANSACTIONAL_ID_AUTHORIZATION_FAILED unless the principal may perform the operation on the transactional id."""
    if not authority.allows(context, operation, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise ApiError(DENIED)


# -- Produce -------------------------------------------------------------------------------------------------------


def produce(authority: Authority, context: AuthorizableContext, request: ProduceRequest) -> Verdict:
    """Needs WRITE on each topic, and on the transactional id if a batch is transactional (CVE-2018-17196)."""
    bad = request.topic_data
    if not _is_transactional(request) or (
        request.transactional_id is not None
        and authority.allows(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    ):
        code = TOPIC_DENIED
        request.topic_data, bad = split_produce(authority, context, request)
        if not bad:
            return None
    else:
        code = DENIED
        request.topic_data = []
    errors = [refused_produce(topic, code, None) for topic in bad]

    def merge(response: ProduceResponse) -> ProduceResponse:
        response.responses = [*response.responses, *errors]
        return response

    return merge


def split_produce(
    authority: Authority, context: AuthorizableContext, request: ProduceRequest, *, log: bool = True
) -> tuple[list[Any], list[Any]]:
    """(allowed topics, denied topics)."""
    image = authority.image
    by_id = context.api_version >= TOPIC_ID_VERSION_MIN
    return split(
        authority,
        context,
        Operation.WRITE,
        request.topic_data,
        (lambda topic: topic_name(image, None, topic.topic_id)) if by_id else (lambda topic: topic.name),
        log=log,
    )


def _is_transactional(request: ProduceRequest) -> bool:
    return any(
        leading_attributes(received(data.records)) & TRANSACTIONAL_BIT
        for topic in request.topic_data
        for data in topic.partition_data
        if data.records is not None
    )


# -- transactions --------------------------------------------------------------------------------------------------


def init_producer_id(authority: Authority, context: AuthorizableContext, request: InitProducerIdRequest) -> Verdict:
    """Needs WRITE on the transactional id; without one, IDEMPOTENT_WRITE on the cluster or WRITE on any topic."""
    if request.transactional_id is not None:
        require_transactional_id(authority, context, Operation.WRITE, request.transactional_id)
        if request.enable2_pc:
            require_transactional_id(authority, context, Operation.TWO_PHASE_COMMIT, request.transactional_id)
    elif not authority.allows_on_cluster(context, Operation.IDEMPOTENT_WRITE, log=False) and not authority.allows_on_any(
        context, Operation.WRITE, ResourceType.TOPIC
    ):
        authority.require_on_cluster(context, Operation.IDEMPOTENT_WRITE)
    return None


def add_partitions(authority: Authority, context: AuthorizableContext, request: AddPartitionsToTxnRequest) -> Verdict:
    """Clients need WRITE on the transactional id and on every topic, or nothing is added. The batched versions are for brokers only."""
    if context.api_version >= TRANSACTIONS_VERSION_MIN:
        authority.require_on_cluster(context, Operation.CLUSTER_ACTION)
        return None
    require_transactional_id(authority, context, Operation.WRITE, request.v3_and_below_transactional_id)
    topics = request.v3_and_below_topics
    names = [topic.name for topic in topics if topic.name not in INTERNAL_TOPICS]
    allowed = authority.allowed_among(context, Operation.WRITE, ResourceType.TOPIC, names)
    if len(allowed) == len({topic.name for topic in topics}):
        return None
    kind = AddPartitionsToTxnResponse
    image = authority.image
    results = []
    for topic in topics:
        answers = []
        for index in topic.partitions:
            code = ErrorCode.OPERATION_NOT_ATTEMPTED
            if topic.name not in allowed:
                code = TOPIC_DENIED
            elif image.partition(topic.name, index) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(kind.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code))
        results.append(kind.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=answers))
    return kind(results_by_topic_v3_and_below=results)


def add_offsets(authority: Authority, context: AuthorizableContext, request: AddOffsetsToTxnRequest) -> Verdict:
    """Needs WRITE on the transactional id and READ on the group."""
    require_transactional_id(authority, context, Operation.WRITE, request.transactional_id)
    require_group(authority, context, Operation.READ, request.group_id)
    return None


def end_transaction(authority: Authority, context: AuthorizableContext, request: EndTxnRequest) -> Verdict:
    """Needs WRITE on the transactional id."""
    require_transactional_id(authority, context, Operation.WRITE, request.transactional_id)
    return None


def txn_offset_commit(authority: Authority, context: AuthorizableContext, request: TxnOffsetCommitRequest) -> Verdict:
    """Needs WRITE on the transactional id, and READ on the group and on each topic."""
    require_transactional_id(authority, context, Operation.WRITE, request.transactional_id)
    require_group(authority, context, Operation.READ, request.group_id)
    image = authority.image
    request.topics, bad = split(
        authority, context, Operation.READ, request.topics, lambda topic: topic_name(image, topic.name, topic.topic_id)
    )
    if not bad:
        return None
    errors = [refused_txn_commit(topic, TOPIC_DENIED) for topic in bad]
    if not request.topics:
        return TxnOffsetCommitResponse(topics=errors)

    def merge(response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
        response.topics = [*response.topics, *errors]
        return response

    return merge


def write_markers(authority: Authority, context: AuthorizableContext, request: WriteTxnMarkersRequest) -> Verdict:
    """Needs CLUSTER_ACTION (brokers) or ALTER (administrators who abort hanging transactions) on the cluster."""
    if not authority.allows_on_cluster(context, Operation.ALTER, log=False):
        authority.require_on_cluster(context, Operation.CLUSTER_ACTION)
    return None


def describe_transactions(authority: Authority, context: AuthorizableContext, request: DescribeTransactionsRequest) -> Verdict:
    """Needs DESCRIBE on each transactional id. Topics that the principal may not describe are left out."""
    allowed = authority.allowed_among(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, request.transactional_ids)
    kind = DescribeTransactionsResponse.TransactionState
    errors = [kind(transactional_id=name, error_code=DENIED) for name in request.transactional_ids if name not in allowed]
    request.transactional_ids = [name for name in request.transactional_ids if name in allowed]

    def merge(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics = [
                topic for topic in state.topics if authority.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic, log=False)
            ]
        response.transaction_states = [*response.transaction_states, *errors]
        return response

    return merge


def list_transactions(authority: Authority, context: AuthorizableContext, request: ListTransactionsRequest) -> Verdict:
    """Anyone may send it: the handler checks `may_describe` before it matches an id against the client's pattern."""
    return None


def may_describe(authority: Authority | None) -> Callable[[AuthorizableContext, str], bool]:
    """The test whether a request's principal may describe a transactional id."""
    if authority is None:
        return lambda context, name: True
    return lambda context, name: authority.allows(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name, log=False)
