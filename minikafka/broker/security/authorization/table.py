"""The guard of each API. With an authorizer, an API without an entry cannot be served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from minikafka.broker.security.authorization import groups, topics, transactions
from minikafka.broker.security.authorization.cluster import describe_cluster, describe_controllers, on_cluster, open_to_all
from minikafka.broker.security.authorization.guard import Guard, guarded
from minikafka.broker.security.authorization.share_groups import SHARE_GUARDS
from minikafka.broker.security.authorization.streams_groups import STREAMS_GUARDS
from minikafka.core.authorizer.acl import Operation
from minikafka.wire.message import Request
from minikafka.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from minikafka.wire.messages.add_raft_voter import AddRaftVoterRequest
from minikafka.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from minikafka.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from minikafka.wire.messages.alter_partition import AlterPartitionRequest
from minikafka.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from minikafka.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minikafka.wire.messages.api_versions import ApiVersionsRequest
from minikafka.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from minikafka.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from minikafka.wire.messages.broker_registration import BrokerRegistrationRequest
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.controller_registration import ControllerRegistrationRequest
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_acls import DeleteAclsRequest
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest
from minikafka.wire.messages.delete_records import DeleteRecordsRequest
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest
from minikafka.wire.messages.describe_acls import DescribeAclsRequest
from minikafka.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from minikafka.wire.messages.describe_cluster import DescribeClusterRequest
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest
from minikafka.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest
from minikafka.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from minikafka.wire.messages.describe_producers import DescribeProducersRequest
from minikafka.wire.messages.describe_quorum import DescribeQuorumRequest
from minikafka.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from minikafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from minikafka.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest
from minikafka.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from minikafka.wire.messages.end_txn import EndTxnRequest
from minikafka.wire.messages.envelope import EnvelopeRequest
from minikafka.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.fetch_snapshot import FetchSnapshotRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from minikafka.wire.messages.heartbeat import HeartbeatRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.leave_group import LeaveGroupRequest
from minikafka.wire.messages.list_config_resources import ListConfigResourcesRequest
from minikafka.wire.messages.list_groups import ListGroupsRequest
from minikafka.wire.messages.list_offsets import ListOffsetsRequest
from minikafka.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from minikafka.wire.messages.list_transactions import ListTransactionsRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.offset_delete import OffsetDeleteRequest
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest
from minikafka.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.messages.push_telemetry import PushTelemetryRequest
from minikafka.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from minikafka.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from minikafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from minikafka.wire.messages.sasl_handshake import SaslHandshakeRequest
from minikafka.wire.messages.sync_group import SyncGroupRequest
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from minikafka.wire.messages.unregister_broker import UnregisterBrokerRequest
from minikafka.wire.messages.unregister_controller import UnregisterControllerRequest
from minikafka.wire.messages.update_features import UpdateFeaturesRequest
from minikafka.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from minikafka.wire.messages.vote import VoteRequest
from minikafka.wire.messages.write_txn_markers import WriteTxnMarkersRequest

if TYPE_CHECKING:
    from minikafka.broker.front.dispatch import Handler
    from minikafka.broker.security.authorization.authority import Authority
    from minikafka.core.metadata.image import MetadataImage

Guards = Mapping[type[Request], Guard]
_ALTER = on_cluster(Operation.ALTER)
_ALTER_CONFIGS = on_cluster(Operation.ALTER_CONFIGS)
_CLUSTER_ACTION = on_cluster(Operation.CLUSTER_ACTION)
_DESCRIBE = on_cluster(Operation.DESCRIBE)
_DESCRIBE_CONFIGS = on_cluster(Operation.DESCRIBE_CONFIGS)

_ANYWHERE: Guards = {
    ApiVersionsRequest: open_to_all,
    SaslHandshakeRequest: open_to_all,
    SaslAuthenticateRequest: open_to_all,
    DescribeAclsRequest: _DESCRIBE,
    DescribeUserScramCredentialsRequest: _DESCRIBE,
    # admin/delegation_tokens.py checks them: they depend on the token.
    **dict.fromkeys(
        (CreateDelegationTokenRequest, RenewDelegationTokenRequest, ExpireDelegationTokenRequest, DescribeDelegationTokenRequest),
        open_to_all,
    ),
}

#: Guards of a broker's APIs. The controller authorizes forwarded requests, with the principal in the envelope.
ON_BROKERS: Guards = {
    **_ANYWHERE,
    ProduceRequest: transactions.produce,
    FetchRequest: open_to_all,  # partitions are authorized when they are read (security/authorization/data_plane.py)
    ListOffsetsRequest: topics.list_offsets,
    OffsetForLeaderEpochRequest: topics.offset_for_leader_epoch,
    DeleteRecordsRequest: topics.delete_records,
    DescribeProducersRequest: topics.describe_producers,
    MetadataRequest: topics.metadata,
    DescribeTopicPartitionsRequest: topics.describe_topic_partitions,
    DescribeConfigsRequest: topics.describe_configs,
    GetTelemetrySubscriptionsRequest: open_to_all,
    PushTelemetryRequest: open_to_all,
    DescribeClusterRequest: describe_cluster,
    DescribeLogDirsRequest: _DESCRIBE,
    AlterReplicaLogDirsRequest: _ALTER,
    DescribeClientQuotasRequest: _DESCRIBE_CONFIGS,
    ListConfigResourcesRequest: _DESCRIBE_CONFIGS,
    FindCoordinatorRequest: groups.find_coordinator,
    JoinGroupRequest: groups.of_group(Operation.READ),
    SyncGroupRequest: groups.of_group(Operation.READ),
    HeartbeatRequest: groups.of_group(Operation.READ),
    LeaveGroupRequest: groups.of_group(Operation.READ),
    OffsetCommitRequest: groups.offset_commit,
    OffsetFetchRequest: groups.offset_fetch,
    OffsetDeleteRequest: groups.offset_delete,
    DescribeGroupsRequest: groups.describe_groups,
    ListGroupsRequest: groups.list_groups,
    DeleteGroupsRequest: groups.delete_groups,
    ConsumerGroupHeartbeatRequest: groups.heartbeat,
    ConsumerGroupDescribeRequest: groups.consumer_group_describe,
    **SHARE_GUARDS,
    **STREAMS_GUARDS,
    InitProducerIdRequest: transactions.init_producer_id,
    AddPartitionsToTxnRequest: transactions.add_partitions,
    AddOffsetsToTxnRequest: transactions.add_offsets,
    TxnOffsetCommitRequest: transactions.txn_offset_commit,
    EndTxnRequest: transactions.end_transaction,
    WriteTxnMarkersRequest: transactions.write_markers,
    DescribeTransactionsRequest: transactions.describe_transactions,
    ListTransactionsRequest: transactions.list_transactions,
    **dict.fromkeys(
        (
            CreateTopicsRequest, DeleteTopicsRequest, CreatePartitionsRequest, AlterConfigsRequest, IncrementalAlterConfigsRequest,
            ElectLeadersRequest, AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest, UpdateFeaturesRequest,
            UnregisterBrokerRequest, UnregisterControllerRequest, AlterClientQuotasRequest, AlterUserScramCredentialsRequest,
            DescribeQuorumRequest,
            AddRaftVoterRequest, RemoveRaftVoterRequest, CreateAclsRequest, DeleteAclsRequest,
        ),
        open_to_all,
    ),
}  # fmt: skip


def on_controllers(newest: Callable[[], MetadataImage]) -> Guards:
    """Guards of a controller's APIs: for nodes, for clients that connect to it (KIP-919), and for requests that brokers forward."""
    return {
        **_ANYWHERE,
        **dict.fromkeys(
            (
                EnvelopeRequest, VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, FetchSnapshotRequest,
                UpdateRaftVoterRequest, BrokerRegistrationRequest, BrokerHeartbeatRequest, AlterPartitionRequest,
                AllocateProducerIdsRequest, AssignReplicasToDirsRequest, ControllerRegistrationRequest,
            ),
            _CLUSTER_ACTION,
        ),
        **dict.fromkeys(
            (
                CreateAclsRequest, DeleteAclsRequest, ElectLeadersRequest, AlterPartitionReassignmentsRequest, UpdateFeaturesRequest,
                UnregisterBrokerRequest, UnregisterControllerRequest, AlterUserScramCredentialsRequest, AddRaftVoterRequest,
                RemoveRaftVoterRequest,
            ),
            _ALTER,
        ),
        **dict.fromkeys((DescribeQuorumRequest, ListPartitionReassignmentsRequest), _DESCRIBE),
        AlterClientQuotasRequest: _ALTER_CONFIGS,
        CreateTopicsRequest: topics.create_topics,
        DeleteTopicsRequest: topics.delete_topics(newest),
        CreatePartitionsRequest: topics.create_partitions,
        AlterConfigsRequest: topics.alter_configs(AlterConfigsResponse),
        DescribeConfigsRequest: topics.describe_configs,
        IncrementalAlterConfigsRequest: topics.alter_configs(IncrementalAlterConfigsResponse),
        DescribeClusterRequest: describe_controllers,
    }  # fmt: skip


def guarding(authority: Authority | None, guards: Guards) -> Callable[[type[Request], Handler], Handler]:
    """Makes the function by which a dispatcher guards its handlers. Without an authority they have no guard.

    The function raises AssertionError for an API that is missing from `guards`.
    """
    by_key: dict[int, Any] = {request.API_KEY: guard for request, guard in guards.items()}

    def before(request: type[Request], handler: Handler) -> Handler:
        if authority is None:
            return handler
        guard = by_key.get(request.API_KEY)
        assert guard is not None, f"{request.__name__} is served without an authorization rule"
        return handler if guard is open_to_all else guarded(authority, guard, handler)

    return before
