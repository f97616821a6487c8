"""Error responses for the APIs of producers, consumers and coordinators, and for ACLs (see `error_responses.py`)."""

from __future__ import annotations

from typing import Any

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from minikafka.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from minikafka.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from minikafka.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from minikafka.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from minikafka.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from minikafka.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from minikafka.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from minikafka.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

TRANSACTIONS_VERSION_MIN = 4
GROUPS_VERSION_MIN = 8
KEYS_VERSION_MIN = 4
TOP_LEVEL_VERSION_MIN = 2


def _produce(request: ProduceRequest, version: int, code: ErrorCode, message: str | None) -> ProduceResponse:
    return ProduceResponse(responses=[refused_produce(topic, code, message) for topic in request.topic_data])


def refused_produce(topic: ProduceRequest.TopicProduceData, code: ErrorCode, message: str | None) -> ProduceResponse.TopicProduceResponse:
    """The response for one topic of a Produce request whose partitions all failed."""
    return ProduceResponse.TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[
            ProduceResponse.PartitionProduceResponse(
                index=data.index, error_code=code, base_offset=-1, log_append_time_ms=-1, log_start_offset=-1, error_message=message
            )
            for data in topic.partition_data
        ],
    )


def _offset_commit(request: OffsetCommitRequest, version: int, code: ErrorCode, message: str | None) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[refused_commit(topic, code) for topic in request.topics])


def refused_commit(topic: OffsetCommitRequest.OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponse.OffsetCommitResponseTopic:
    """The response for one topic of an OffsetCommit request whose offsets were all refused."""
    kind = OffsetCommitResponse
    return kind.OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[kind.OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code) for p in topic.partitions],
    )


def _txn_offset_commit(request: TxnOffsetCommitRequest, version: int, code: ErrorCode, message: str | None) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=[refused_txn_commit(topic, code) for topic in request.topics])


def refused_txn_commit(
    topic: TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic, code: ErrorCode
) -> TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic:
    """The response for one topic of a TxnOffsetCommit request whose offsets were all refused."""
    kind = TxnOffsetCommitResponse
    return kind.TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[kind.TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code) for p in topic.partitions],
    )


def _offset_fetch(request: OffsetFetchRequest, version: int, code: ErrorCode, message: str | None) -> OffsetFetchResponse:
    kind = OffsetFetchResponse
    if version >= GROUPS_VERSION_MIN:
        return kind(groups=[kind.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups])
    response = kind(error_code=code, topics=[])
    for topic in request.topics or () if version < TOP_LEVEL_VERSION_MIN else ():
        partitions = [
            kind.OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
            for index in topic.partition_indexes
        ]
        response.topics.append(kind.OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return response


def _add_partitions(request: AddPartitionsToTxnRequest, version: int, code: ErrorCode, message: str | None) -> AddPartitionsToTxnResponse:
    kind = AddPartitionsToTxnResponse
    if version >= TRANSACTIONS_VERSION_MIN:
        return kind(error_code=code)
    return kind(
        results_by_topic_v3_and_below=[
            kind.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    kind.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code) for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def _write_markers(request: WriteTxnMarkersRequest, version: int, code: ErrorCode, message: str | None) -> WriteTxnMarkersResponse:
    kind = WriteTxnMarkersResponse
    return kind(
        markers=[
            kind.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    kind.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            kind.WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _init_producer_id(request: InitProducerIdRequest, version: int, code: ErrorCode, message: str | None) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def _join_group(request: JoinGroupRequest, version: int, code: ErrorCode, message: str | None) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=None if version >= 7 else "", member_id="")


def _find_coordinator(request: FindCoordinatorRequest, version: int, code: ErrorCode, message: str | None) -> FindCoordinatorResponse:
    if version < KEYS_VERSION_MIN:
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(coordinators=[refused_coordinator(key, code, message) for key in request.coordinator_keys])


def refused_coordinator(key: str, code: ErrorCode, message: str | None) -> FindCoordinatorResponse.Coordinator:
    """The error response for one key of a FindCoordinator request."""
    return FindCoordinatorResponse.Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


def _alter_log_dirs(request: AlterReplicaLogDirsRequest, version: int, code: ErrorCode, message: str | None) -> AlterReplicaLogDirsResponse:
    kind = AlterReplicaLogDirsResponse
    return kind(
        results=[
            kind.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[kind.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code) for index in topic.partitions],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _describe_quotas(
    request: DescribeClientQuotasRequest, version: int, code: ErrorCode, message: str | None
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def _describe_users(
    request: DescribeUserScramCredentialsRequest, version: int, code: ErrorCode, message: str | None
) -> DescribeUserScramCredentialsResponse:
    kind = DescribeUserScramCredentialsResponse
    results = [
        kind.DescribeUserScramCredentialsResult(user=user.name, error_code=code, error_message=message) for user in request.users or []
    ]
    return kind(error_code=code, error_message=message, results=results)


def _create_acls(request: CreateAclsRequest, version: int, code: ErrorCode, message: str | None) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[CreateAclsResponse.AclCreationResult(error_code=code, error_message=message) for _ in request.creations]
    )


def _delete_acls(request: DeleteAclsRequest, version: int, code: ErrorCode, message: str | None) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsResponse.DeleteAclsFilterResult(error_code=code, error_message=message) for _ in request.filters]
    )


BUILDERS: dict[type, Any] = {
    ProduceRequest: _produce,
    OffsetCommitRequest: _offset_commit,
    TxnOffsetCommitRequest: _txn_offset_commit,
    OffsetFetchRequest: _offset_fetch,
    AddPartitionsToTxnRequest: _add_partitions,
    WriteTxnMarkersRequest: _write_markers,
    InitProducerIdRequest: _init_producer_id,
    JoinGroupRequest: _join_group,
    FindCoordinatorRequest: _find_coordinator,
    AlterReplicaLogDirsRequest: _alter_log_dirs,
    DescribeClientQuotasRequest: _describe_quotas,
    DescribeUserScramCredentialsRequest: _describe_users,
    CreateAclsRequest: _create_acls,
    DeleteAclsRequest: _delete_acls,
}
