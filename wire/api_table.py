"""The APIs of Apache Kafka 4.4: their versions, the first flexible version (KIP-482), and the listeners that serve them.

The message classes declare the same, and a test compares the two. The table can be read without importing any message class.
"""

from __future__ import annotations

from typing import NamedTuple


class ApiRow(NamedTuple):
    """One API: `module` is its module in `wire.messages`, `flexible_from` is None if no version is flexible, `listeners` are the kinds of
    listener that serve it."""

    key: int
    name: str
    module: str
    min_version: int
    max_version: int
    flexible_from: int | None
    listeners: tuple[str, ...]


_BROKER = ("broker",)
_CONTROLLER = ("controller",)
_BOTH = ("broker", "controller")

API_TABLE = (
    ApiRow(0, "Produce", "produce", 3, 13, 9, _BROKER),
    ApiRow(1, "Fetch", "fetch", 4, 18, 12, _BOTH),
    ApiRow(2, "ListOffsets", "list_offsets", 1, 11, 6, _BROKER),
    ApiRow(3, "Metadata", "metadata", 0, 13, 9, _BROKER),
    ApiRow(8, "OffsetCommit", "offset_commit", 2, 10, 8, _BROKER),
    ApiRow(9, "OffsetFetch", "offset_fetch", 1, 10, 6, _BROKER),
    ApiRow(10, "FindCoordinator", "find_coordinator", 0, 6, 3, _BROKER),
    ApiRow(11, "JoinGroup", "join_group", 0, 9, 6, _BROKER),
    ApiRow(12, "Heartbeat", "heartbeat", 0, 4, 4, _BROKER),
    ApiRow(13, "LeaveGroup", "leave_group", 0, 5, 4, _BROKER),
    ApiRow(14, "SyncGroup", "sync_group", 0, 5, 4, _BROKER),
    ApiRow(15, "DescribeGroups", "describe_groups", 0, 6, 5, _BROKER),
    ApiRow(16, "ListGroups", "list_groups", 0, 5, 3, _BROKER),
    ApiRow(17, "SaslHandshake", "sasl_handshake", 0, 1, None, _BOTH),
    ApiRow(18, "ApiVersions", "api_versions", 0, 5, 3, _BOTH),
    ApiRow(19, "CreateTopics", "create_topics", 2, 7, 5, _BOTH),
    ApiRow(20, "DeleteTopics", "delete_topics", 1, 6, 4, _BOTH),
    ApiRow(21, "DeleteRecords", "delete_records", 0, 2, 2, _BROKER),
    ApiRow(22, "InitProducerId", "init_producer_id", 0, 5, 2, _BROKER),
    ApiRow(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4, 4, _BROKER),
    ApiRow(24, "AddPartitionsToTxn", "add_partitions_to_txn", 0, 5, 3, _BROKER),
    ApiRow(25, "AddOffsetsToTxn", "add_offsets_to_txn", 0, 4, 3, _BROKER),
    ApiRow(26, "EndTxn", "end_txn", 0, 5, 3, _BROKER),
    ApiRow(27, "WriteTxnMarkers", "write_txn_markers", 1, 2, 1, _BROKER),
    ApiRow(28, "TxnOffsetCommit", "txn_offset_commit", 0, 6, 3, _BROKER),
    ApiRow(29, "DescribeAcls", "describe_acls", 1, 3, 2, _BOTH),
    ApiRow(30, "CreateAcls", "create_acls", 1, 3, 2, _BOTH),
    ApiRow(31, "DeleteAcls", "delete_acls", 1, 3, 2, _BOTH),
    ApiRow(32, "DescribeConfigs", "describe_configs", 1, 4, 4, _BOTH),
    ApiRow(33, "AlterConfigs", "alter_configs", 0, 2, 2, _BOTH),
    ApiRow(34, "AlterReplicaLogDirs", "alter_replica_log_dirs", 1, 2, 2, _BROKER),
    ApiRow(35, "DescribeLogDirs", "describe_log_dirs", 1, 5, 2, _BROKER),
    ApiRow(36, "SaslAuthenticate", "sasl_authenticate", 0, 2, 2, _BOTH),
    ApiRow(37, "CreatePartitions", "create_partitions", 0, 3, 2, _BOTH),
    ApiRow(38, "CreateDelegationToken", "create_delegation_token", 1, 3, 2, _BOTH),
    ApiRow(39, "RenewDelegationToken", "renew_delegation_token", 1, 2, 2, _BOTH),
    ApiRow(40, "ExpireDelegationToken", "expire_delegation_token", 1, 2, 2, _BOTH),
    ApiRow(41, "DescribeDelegationToken", "describe_delegation_token", 1, 3, 2, _BOTH),
    ApiRow(42, "DeleteGroups", "delete_groups", 0, 3, 2, _BROKER),
    ApiRow(43, "ElectLeaders", "elect_leaders", 0, 2, 2, _BOTH),
    ApiRow(44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1, 1, _BOTH),
    ApiRow(45, "AlterPartitionReassignments", "alter_partition_reassignments", 0, 1, 0, _BOTH),
    ApiRow(46, "ListPartitionReassignments", "list_partition_reassignments", 0, 0, 0, _BOTH),
    ApiRow(47, "OffsetDelete", "offset_delete", 0, 0, None, _BROKER),
    ApiRow(48, "DescribeClientQuotas", "describe_client_quotas", 0, 1, 1, _BROKER),
    ApiRow(49, "AlterClientQuotas", "alter_client_quotas", 0, 1, 1, _BOTH),
    ApiRow(50, "DescribeUserScramCredentials", "describe_user_scram_credentials", 0, 0, 0, _BOTH),
    ApiRow(51, "AlterUserScramCredentials", "alter_user_scram_credentials", 0, 0, 0, _BOTH),
    ApiRow(52, "Vote", "vote", 0, 2, 0, _CONTROLLER),
    ApiRow(53, "BeginQuorumEpoch", "begin_quorum_epoch", 0, 1, 1, _CONTROLLER),
    ApiRow(54, "EndQuorumEpoch", "end_quorum_epoch", 0, 1, 1, _CONTROLLER),
    ApiRow(55, "DescribeQuorum", "describe_quorum", 0, 2, 0, _BOTH),
    ApiRow(56, "AlterPartition", "alter_partition", 2, 3, 0, _CONTROLLER),
    ApiRow(57, "UpdateFeatures", "update_features", 0, 2, 0, _BOTH),
    ApiRow(58, "Envelope", "envelope", 0, 0, 0, _CONTROLLER),
    ApiRow(59, "FetchSnapshot", "fetch_snapshot", 0, 1, 0, _CONTROLLER),
    ApiRow(60, "DescribeCluster", "describe_cluster", 0, 2, 0, _BOTH),
    ApiRow(61, "DescribeProducers", "describe_producers", 0, 0, 0, _BROKER),
    ApiRow(62, "BrokerRegistration", "broker_registration", 0, 4, 0, _CONTROLLER),
    ApiRow(63, "BrokerHeartbeat", "broker_heartbeat", 0, 2, 0, _CONTROLLER),
    ApiRow(64, "UnregisterBroker", "unregister_broker", 0, 0, 0, _BOTH),
    ApiRow(65, "DescribeTransactions", "describe_transactions", 0, 0, 0, _BROKER),
    ApiRow(66, "ListTransactions", "list_transactions", 0, 2, 0, _BROKER),
    ApiRow(67, "AllocateProducerIds", "allocate_producer_ids", 0, 0, 0, _CONTROLLER),
    ApiRow(68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0, 1, 0, _BROKER),
    ApiRow(69, "ConsumerGroupDescribe", "consumer_group_describe", 0, 1, 0, _BROKER),
    ApiRow(70, "ControllerRegistration", "controller_registration", 0, 0, 0, _CONTROLLER),
    ApiRow(71, "GetTelemetrySubscriptions", "get_telemetry_subscriptions", 0, 0, 0, _BROKER),
    ApiRow(72, "PushTelemetry", "push_telemetry", 0, 0, 0, _BROKER),
    ApiRow(73, "AssignReplicasToDirs", "assign_replicas_to_dirs", 0, 0, 0, _CONTROLLER),
    ApiRow(74, "ListConfigResources", "list_config_resources", 0, 1, 0, _BROKER),
    ApiRow(75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0, 0, _BROKER),
    ApiRow(76, "ShareGroupHeartbeat", "share_group_heartbeat", 1, 1, 0, _BROKER),
    ApiRow(77, "ShareGroupDescribe", "share_group_describe", 1, 1, 0, _BROKER),
    ApiRow(78, "ShareFetch", "share_fetch", 1, 2, 0, _BROKER),
    ApiRow(79, "ShareAcknowledge", "share_acknowledge", 1, 2, 0, _BROKER),
    ApiRow(80, "AddRaftVoter", "add_raft_voter", 0, 1, 0, _BOTH),
    ApiRow(81, "RemoveRaftVoter", "remove_raft_voter", 0, 0, 0, _BOTH),
    ApiRow(82, "UpdateRaftVoter", "update_raft_voter", 0, 0, 0, _CONTROLLER),
    ApiRow(83, "InitializeShareGroupState", "initialize_share_group_state", 0, 0, 0, _BROKER),
    ApiRow(84, "ReadShareGroupState", "read_share_group_state", 0, 0, 0, _BROKER),
    ApiRow(85, "WriteShareGroupState", "write_share_group_state", 0, 1, 0, _BROKER),
    ApiRow(86, "DeleteShareGroupState", "delete_share_group_state", 0, 0, 0, _BROKER),
    ApiRow(87, "ReadShareGroupStateSummary", "read_share_group_state_summary", 0, 1, 0, _BROKER),
    ApiRow(88, "StreamsGroupHeartbeat", "streams_group_heartbeat", 0, 1, 0, _BROKER),
    ApiRow(89, "StreamsGroupDescribe", "streams_group_describe", 0, 1, 0, _BROKER),
    ApiRow(90, "DescribeShareGroupOffsets", "describe_share_group_offsets", 0, 1, 0, _BROKER),
    ApiRow(91, "AlterShareGroupOffsets", "alter_share_group_offsets", 0, 0, 0, _BROKER),
    ApiRow(92, "DeleteShareGroupOffsets", "delete_share_group_offsets", 0, 0, 0, _BROKER),
    ApiRow(93, "StreamsGroupTopologyDescriptionUpdate", "streams_group_topology_description_update", 0, 0, 0, _BROKER),
    ApiRow(94, "UnregisterController", "unregister_controller", 0, 0, 0, _BOTH),
)

#: API key -> first flexible version.
FLEXIBLE_FROM = {row.key: row.flexible_from for row in API_TABLE if row.flexible_from is not None}
