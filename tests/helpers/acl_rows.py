"""Every API of a broker: the ACLs that it needs, and the error without them.

A row is a request, the ACLs that it needs, and the error. Without any one of them it fails with the error, with all of them it does not:
so each is needed and all are enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from helpers.acl_node import allow, error_codes, on_cluster

from minikafka.core.authorizer.acl import Acl, Operation, ResourceType
from minikafka.net.channel import Channel
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Request
from minikafka.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    unregister_controller,
    update_features,
    write_txn_markers,
)

Op, R, E = Operation, ResourceType, ErrorCode
TOPIC_DENIED, GROUP_DENIED = E.TOPIC_AUTHORIZATION_FAILED, E.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED, TXN_DENIED = E.CLUSTER_AUTHORIZATION_FAILED, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def topic(operation: Operation) -> Acl:
    return allow(R.TOPIC, "t", operation)


def group(operation: Operation) -> Acl:
    return allow(R.GROUP, "g", operation)


def txn(operation: Operation) -> Acl:
    return allow(R.TRANSACTIONAL_ID, "x", operation)


class Row(NamedTuple):
    """One request. `make` gets the id of topic t; `versions` None means the newest."""

    make: Callable[[bytes], Request]
    takes: tuple[tuple[Acl, ErrorCode], ...]
    version: int | None = None


def records(*, transactional: bool = False) -> bytes:
    ids = {"producer_id": 4711, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
    return bytes(build_batch([(0, 0, None, b"v")], is_transactional=transactional, **ids))  # type: ignore[arg-type]


def produce_request(topic_id: bytes, *, by_id: bool, transactional_id: str | None = None, transactional: bool = False) -> Request:
    kind = produce.ProduceRequest
    data = kind.TopicProduceData(
        name="" if by_id else "t",
        topic_id=topic_id if by_id else bytes(16),
        partition_data=[kind.PartitionProduceData(index=0, records=memoryview(bytearray(records(transactional=transactional))))],
    )
    return kind(transactional_id=transactional_id, acks=1, timeout_ms=1000, topic_data=[data])


def fetch_request(topic_id: bytes, replica_id: int = -1) -> Request:
    kind = fetch.FetchRequest
    wanted = kind.FetchTopic(topic_id=topic_id, partitions=[kind.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)])
    return kind(
        replica_state=kind.ReplicaState(replica_id=replica_id, replica_epoch=-1), max_wait_ms=0, min_bytes=0, max_bytes=1000,
        topics=[wanted], session_id=0, session_epoch=-1,
    )  # fmt: skip


def needs(error: ErrorCode, *acls: Acl) -> tuple[tuple[Acl, ErrorCode], ...]:
    return tuple((acl, error) for acl in acls)


_C = create_topics.CreateTopicsRequest
_D = delete_topics.DeleteTopicsRequest
_I = incremental_alter_configs.IncrementalAlterConfigsRequest
_A = add_partitions_to_txn.AddPartitionsToTxnRequest
_W = write_txn_markers.WriteTxnMarkersRequest
_OC, _TC, _OD = offset_commit.OffsetCommitRequest, txn_offset_commit.TxnOffsetCommitRequest, offset_delete.OffsetDeleteRequest
_OF, _L = offset_fetch.OffsetFetchRequest, alter_replica_log_dirs.AlterReplicaLogDirsRequest


def config_row(kind: int, name: str, acl: Acl, error: ErrorCode) -> tuple[Row, Row, Row]:
    describe, legacy = describe_configs.DescribeConfigsRequest, alter_configs.AlterConfigsRequest
    read = acl._replace(operation=Op.DESCRIBE_CONFIGS)
    return (
        Row(
            lambda _: describe(
                resources=[describe.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)]
            ),
            needs(error, read),
        ),
        Row(
            lambda _: _I(resources=[_I.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])], validate_only=True),
            needs(error, acl),
        ),
        Row(
            lambda _: legacy(
                resources=[legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])], validate_only=True
            ),
            needs(error, acl),
        ),
    )


#: Requests that take an operation on the cluster.
CLUSTER: dict[str, tuple[Request, Operation]] = {
    "DescribeLogDirs": (describe_log_dirs.DescribeLogDirsRequest(topics=None), Op.DESCRIBE),
    "AlterReplicaLogDirs": (
        _L(dirs=[_L.AlterReplicaLogDir(path="/x", topics=[_L.AlterReplicaLogDirTopic(name="t", partitions=[0])])]),
        Op.ALTER,
    ),
    "DescribeAcls": (
        describe_acls.DescribeAclsRequest(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None, host_filter=None,
            operation=1, permission_type=1,
        ),
        Op.DESCRIBE,
    ),
    "CreateAcls": (
        create_acls.CreateAclsRequest(
            creations=[
                create_acls.CreateAclsRequest.AclCreation(
                    resource_type=2, resource_name="zz", principal="User:zz", host="*", operation=3, permission_type=3
                )
            ]
        ),
        Op.ALTER,
    ),
    "DeleteAcls": (
        delete_acls.DeleteAclsRequest(
            filters=[
                delete_acls.DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=2, resource_name_filter="yy", pattern_type_filter=3, principal_filter=None, host_filter=None,
                    operation=1, permission_type=1,
                )
            ]
        ),
        Op.ALTER,
    ),
    "DescribeClientQuotas": (describe_client_quotas.DescribeClientQuotasRequest(components=[], strict=False), Op.DESCRIBE_CONFIGS),
    "ListConfigResources": (list_config_resources.ListConfigResourcesRequest(resource_types=[]), Op.DESCRIBE_CONFIGS),
    "AlterClientQuotas": (
        alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.AlterClientQuotasRequest.EntryData(
                    entity=[alter_client_quotas.AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="u")], ops=[]
                )
            ],
            validate_only=True,
        ),
        Op.ALTER_CONFIGS,
    ),
    "DescribeUserScramCredentials": (
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            users=[describe_user_scram_credentials.DescribeUserScramCredentialsRequest.UserName(name="u")]
        ),
        Op.DESCRIBE,
    ),
    "AlterUserScramCredentials": (
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="u", mechanism=1)],
            upsertions=[],
        ),
        Op.ALTER,
    ),
    "ElectLeaders": (
        elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])], timeout_ms=1000
        ),
        Op.ALTER,
    ),
    "AlterPartitionReassignments": (alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[]), Op.ALTER),
    "ListPartitionReassignments": (list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None), Op.DESCRIBE),
    "UpdateFeatures": (update_features.UpdateFeaturesRequest(feature_updates=[], validate_only=True), Op.ALTER),
    "UnregisterBroker": (unregister_broker.UnregisterBrokerRequest(broker_id=99), Op.ALTER),
    "UnregisterController": (unregister_controller.UnregisterControllerRequest(controller_id=99), Op.ALTER),
    "AddRaftVoter": (add_raft_voter.AddRaftVoterRequest(cluster_id="other", timeout_ms=30_000, voter_id=9, listeners=[]), Op.ALTER),
    "RemoveRaftVoter": (remove_raft_voter.RemoveRaftVoterRequest(cluster_id="other", voter_id=9), Op.ALTER),
    "DescribeQuorum": (
        describe_quorum.DescribeQuorumRequest(
            topics=[
                describe_quorum.DescribeQuorumRequest.TopicData(
                    topic_name="__cluster_metadata",
                    partitions=[describe_quorum.DescribeQuorumRequest.PartitionData(partition_index=0)],
                )
            ]
        ),
        Op.DESCRIBE,
    ),
    "InitProducerId": (
        init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), Op.IDEMPOTENT_WRITE,
    ),
}  # fmt: skip

RECORDS: dict[str, Row] = {
    "Produce by id": Row(lambda i: produce_request(i, by_id=True), needs(TOPIC_DENIED, topic(Op.WRITE))),
    "Produce by name": Row(lambda i: produce_request(i, by_id=False), needs(TOPIC_DENIED, topic(Op.WRITE)), 9),
    "Produce, transactional": Row(
        lambda i: produce_request(i, by_id=True, transactional_id="x", transactional=True),
        ((txn(Op.WRITE), TXN_DENIED), (topic(Op.WRITE), TOPIC_DENIED)),
    ),
    "Fetch": Row(fetch_request, needs(TOPIC_DENIED, topic(Op.READ))),
    "Fetch of a follower": Row(lambda i: fetch_request(i, 7), needs(TOPIC_DENIED, on_cluster(Op.CLUSTER_ACTION))),
    "ListOffsets": Row(
        lambda _: list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsRequest.ListOffsetsTopic(
                    name="t", partitions=[list_offsets.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)]
                )
            ],
        ),
        needs(TOPIC_DENIED, topic(Op.DESCRIBE)),
    ),
    "OffsetForLeaderEpoch": Row(
        lambda _: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic="t",
                    partitions=[
                        offset_for_leader_epoch.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
                    ],
                )
            ]
        ),
        needs(TOPIC_DENIED, topic(Op.DESCRIBE)),
    ),
    "DeleteRecords": Row(
        lambda _: delete_records.DeleteRecordsRequest(
            timeout_ms=1000,
            topics=[
                delete_records.DeleteRecordsRequest.DeleteRecordsTopic(
                    name="t", partitions=[delete_records.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)]
                )
            ],
        ),
        needs(TOPIC_DENIED, topic(Op.DELETE)),
    ),
    "DescribeProducers": Row(
        lambda _: describe_producers.DescribeProducersRequest(
            topics=[describe_producers.DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])]
        ),
        needs(TOPIC_DENIED, topic(Op.READ)),
    ),
}  # fmt: skip

TOPICS: dict[str, Row] = {
    "Metadata": Row(
        lambda _: metadata.MetadataRequest(topics=[metadata.MetadataRequest.MetadataRequestTopic(name="t")]),
        needs(TOPIC_DENIED, topic(Op.DESCRIBE)),
    ),
    "Metadata by id": Row(
        lambda i: metadata.MetadataRequest(topics=[metadata.MetadataRequest.MetadataRequestTopic(name=None, topic_id=i)]),
        needs(TOPIC_DENIED, topic(Op.DESCRIBE)),
    ),
    "DescribeTopicPartitions": Row(
        lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.DescribeTopicPartitionsRequest.TopicRequest(name="t")]
        ),
        needs(TOPIC_DENIED, topic(Op.DESCRIBE)),
    ),
    "CreateTopics by topic": Row(
        lambda _: _C(topics=[_C.CreatableTopic(name="new", num_partitions=1, replication_factor=1)], validate_only=True),
        needs(TOPIC_DENIED, allow(R.TOPIC, "new", Op.CREATE)),
        4,
    ),
    "CreateTopics by cluster": Row(
        lambda _: _C(topics=[_C.CreatableTopic(name="new", num_partitions=1, replication_factor=1)], validate_only=True),
        needs(TOPIC_DENIED, on_cluster(Op.CREATE)),
        4,
    ),
    "DeleteTopics": Row(
        lambda _: _D(topics=[_D.DeleteTopicState(name="gone")], timeout_ms=1000), needs(TOPIC_DENIED, allow(R.TOPIC, "gone", Op.DELETE))
    ),
    "DeleteTopics by names": Row(
        lambda _: _D(topic_names=["gone"], timeout_ms=1000), needs(TOPIC_DENIED, allow(R.TOPIC, "gone", Op.DELETE)), 5
    ),
    "CreatePartitions": Row(
        lambda _: create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2, assignments=None)],
            timeout_ms=1000, validate_only=True,
        ),
        needs(TOPIC_DENIED, topic(Op.ALTER)),
    ),
}  # fmt: skip

CONFIGS: dict[str, Row] = {
    f"{api} of a {what}": row
    for what, made in (
        ("topic", config_row(2, "t", topic(Op.ALTER_CONFIGS), TOPIC_DENIED)),
        ("group", config_row(32, "g", group(Op.ALTER_CONFIGS), GROUP_DENIED)),
        ("broker", config_row(4, "1", on_cluster(Op.ALTER_CONFIGS), CLUSTER_DENIED)),
    )
    for api, row in zip(("DescribeConfigs", "IncrementalAlterConfigs", "AlterConfigs"), made, strict=True)
}

GROUPS: dict[str, Row] = {
    "FindCoordinator of a group": Row(
        lambda _: find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), needs(GROUP_DENIED, group(Op.DESCRIBE))
    ),
    "FindCoordinator of a group, old": Row(
        lambda _: find_coordinator.FindCoordinatorRequest(key="g"), needs(GROUP_DENIED, group(Op.DESCRIBE)), 2
    ),
    "FindCoordinator of a transaction": Row(
        lambda _: find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), needs(TXN_DENIED, txn(Op.DESCRIBE))
    ),
    "FindCoordinator of a share group": Row(
        lambda _: find_coordinator.FindCoordinatorRequest(key_type=2, coordinator_keys=["g:t:0"]),
        needs(CLUSTER_DENIED, on_cluster(Op.CLUSTER_ACTION)),
    ),
    "JoinGroup": Row(
        lambda _: join_group.JoinGroupRequest(
            group_id="g", session_timeout_ms=1, rebalance_timeout_ms=1, member_id="", protocol_type="consumer", protocols=[]
        ),
        needs(GROUP_DENIED, group(Op.READ)),
    ),
    "SyncGroup": Row(
        lambda _: sync_group.SyncGroupRequest(
            group_id="g", generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range", assignments=[]
        ),
        needs(GROUP_DENIED, group(Op.READ)),
    ),
    "Heartbeat": Row(
        lambda _: heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), needs(GROUP_DENIED, group(Op.READ))
    ),
    "LeaveGroup": Row(
        lambda _: leave_group.LeaveGroupRequest(group_id="g", members=[leave_group.LeaveGroupRequest.MemberIdentity(member_id="m")]),
        needs(GROUP_DENIED, group(Op.READ)),
    ),
    "OffsetCommit": Row(
        lambda i: _OC(
            group_id="g",
            topics=[
                _OC.OffsetCommitRequestTopic(
                    topic_id=i,
                    partitions=[_OC.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")],
                )
            ],
        ),
        ((group(Op.READ), GROUP_DENIED), (topic(Op.READ), TOPIC_DENIED)),
    ),
    "OffsetFetch": Row(
        lambda i: _OF(
            groups=[
                _OF.OffsetFetchRequestGroup(
                    group_id="g", topics=[_OF.OffsetFetchRequestTopics(topic_id=i, partition_indexes=[0])], member_id=None
                )
            ]
        ),
        ((group(Op.DESCRIBE), GROUP_DENIED), (topic(Op.DESCRIBE), TOPIC_DENIED)),
    ),
    "OffsetFetch, old": Row(
        lambda _: _OF(group_id="g", topics=[_OF.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]),
        ((group(Op.DESCRIBE), GROUP_DENIED), (topic(Op.DESCRIBE), TOPIC_DENIED)),
        5,
    ),
    "OffsetDelete": Row(
        lambda _: _OD(
            group_id="kept",
            topics=[_OD.OffsetDeleteRequestTopic(name="t", partitions=[_OD.OffsetDeleteRequestPartition(partition_index=0)])],
        ),
        ((allow(R.GROUP, "kept", Op.DELETE), GROUP_DENIED), (topic(Op.READ), TOPIC_DENIED)),
    ),
    "DescribeGroups": Row(lambda _: describe_groups.DescribeGroupsRequest(groups=["g"]), needs(GROUP_DENIED, group(Op.DESCRIBE))),
    "ConsumerGroupHeartbeat": Row(
        lambda _: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="consumers", member_id="m", member_epoch=0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        ((allow(R.GROUP, "consumers", Op.READ), GROUP_DENIED), (topic(Op.DESCRIBE), TOPIC_DENIED)),
    ),
    "ConsumerGroupDescribe": Row(
        lambda _: consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["consumers"]),
        ((allow(R.GROUP, "consumers", Op.DESCRIBE), GROUP_DENIED), (topic(Op.DESCRIBE), TOPIC_DENIED)),
    ),
    "DeleteGroups": Row(
        lambda _: delete_groups.DeleteGroupsRequest(groups_names=["nobody"]), needs(GROUP_DENIED, allow(R.GROUP, "nobody", Op.DELETE))
    ),
}  # fmt: skip

TRANSACTIONS: dict[str, Row] = {
    "InitProducerId of a transaction": Row(
        lambda _: init_producer_id.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000),
        needs(TXN_DENIED, txn(Op.WRITE)),
    ),
    "InitProducerId by a topic": Row(
        lambda _: init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        needs(CLUSTER_DENIED, allow(R.TOPIC, "whatever", Op.WRITE)),
    ),
    "AddPartitionsToTxn": Row(
        lambda _: _A(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=4242, v3_and_below_producer_epoch=0,
            v3_and_below_topics=[_A.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        ((txn(Op.WRITE), TXN_DENIED), (topic(Op.WRITE), TOPIC_DENIED)),
        3,
    ),
    "AddPartitionsToTxn of a broker": Row(
        lambda _: _A(
            transactions=[
                _A.AddPartitionsToTxnTransaction(
                    transactional_id="x", producer_id=4242, producer_epoch=0, verify_only=True,
                    topics=[_A.AddPartitionsToTxnTopic(name="t", partitions=[0])],
                )
            ]
        ),
        needs(CLUSTER_DENIED, on_cluster(Op.CLUSTER_ACTION)),
    ),
    "AddOffsetsToTxn": Row(
        lambda _: add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id="x", producer_id=4242, producer_epoch=0, group_id="g"),
        ((txn(Op.WRITE), TXN_DENIED), (group(Op.READ), GROUP_DENIED)),
    ),
    "TxnOffsetCommit": Row(
        lambda i: _TC(
            transactional_id="x", group_id="g", producer_id=4242, producer_epoch=0,
            topics=[
                _TC.TxnOffsetCommitRequestTopic(
                    topic_id=i,
                    partitions=[_TC.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")],
                )
            ],
        ),
        ((txn(Op.WRITE), TXN_DENIED), (group(Op.READ), GROUP_DENIED), (topic(Op.READ), TOPIC_DENIED)),
    ),
    "EndTxn": Row(
        lambda _: end_txn.EndTxnRequest(transactional_id="x", producer_id=4242, producer_epoch=0, committed=True),
        needs(TXN_DENIED, txn(Op.WRITE)),
    ),
    **{
        f"WriteTxnMarkers by {operation.label}": Row(
            lambda _: _W(
                markers=[
                    _W.WritableTxnMarker(
                        producer_id=4242, producer_epoch=0, transaction_result=False, coordinator_epoch=0,
                        topics=[_W.WritableTxnMarkerTopic(name="t", partition_indexes=[5])],
                    )
                ]
            ),
            needs(CLUSTER_DENIED, on_cluster(operation)),
        )
        for operation in (Op.ALTER, Op.CLUSTER_ACTION)
    },
    "DescribeTransactions": Row(
        lambda _: describe_transactions.DescribeTransactionsRequest(transactional_ids=["x"]), needs(TXN_DENIED, txn(Op.DESCRIBE))
    ),
}  # fmt: skip


def _of_cluster(request: Request, operation: Operation) -> Row:
    return Row(lambda _: request, needs(CLUSTER_DENIED, on_cluster(operation)))


def rows() -> dict[str, Row]:
    """All of them by name."""
    return {name: _of_cluster(*entry) for name, entry in CLUSTER.items()} | RECORDS | TOPICS | CONFIGS | GROUPS | TRANSACTIONS


async def prepare(admin: Channel) -> bytes:
    """Topics t and gone, the coordinators, and a group called kept; the id of t."""
    kind = create_topics.CreateTopicsRequest
    made = [kind.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("t", "gone")]
    response: Any = await admin.request(kind(topics=made, timeout_ms=5000))
    assert [found.error_code for found in response.topics] == [0, 0]
    topic_id: bytes = next(found.topic_id for found in response.topics if found.name == "t")
    keys = find_coordinator.FindCoordinatorRequest
    for key_type, key in ((0, "g"), (1, "x")):
        while True:
            answer: Any = await admin.request(keys(key_type=key_type, coordinator_keys=[key]))
            if not answer.coordinators[0].error_code:
                break
            await asyncio.sleep(0.05)
    partition = _OC.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    kept = _OC(group_id="kept", topics=[_OC.OffsetCommitRequestTopic(name="t", partitions=[partition])])
    while error_codes(await admin.request(kept, 9)) != [0]:
        await asyncio.sleep(0.05)
    return topic_id
