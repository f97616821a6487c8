"""Keys and values of `__consumer_offsets`."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Record, Struct, field
from minikafka.wire.types import array, bytes_, int8, int16, int32, int64, string, uint16, uuid


class ConsumerGroupCurrentMemberAssignmentKey(Record, record_type=8, versions="0"):
    """ConsumerGroupCurrentMemberAssignmentKey, versions 0."""

    group_id: str = field(string, "0")
    member_id: str = field(string, "0")


class _ConsumerGroupCurrentMemberAssignmentValueTopicPartitions(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[int] = field(array(int32), "0+")
    assignment_epochs: list[int] | None = field(array(int32), "0+", nullable="0+", default=None, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Record, record_type=8, versions="0", flexible="0+"):
    """ConsumerGroupCurrentMemberAssignmentValue, versions 0."""

    TopicPartitions: TypeAlias = _ConsumerGroupCurrentMemberAssignmentValueTopicPartitions

    member_epoch: int = field(int32, "0+")
    previous_member_epoch: int = field(int32, "0+")
    state: int = field(int8, "0+")
    assigned_partitions: list[_ConsumerGroupCurrentMemberAssignmentValueTopicPartitions] = field(
        array(_ConsumerGroupCurrentMemberAssignmentValueTopicPartitions), "0+"
    )
    partitions_pending_revocation: list[_ConsumerGroupCurrentMemberAssignmentValueTopicPartitions] = field(
        array(_ConsumerGroupCurrentMemberAssignmentValueTopicPartitions), "0+"
    )


class ConsumerGroupMemberMetadataKey(Record, record_type=5, versions="0"):
    """ConsumerGroupMemberMetadataKey, versions 0."""

    group_id: str = field(string, "0")
    member_id: str = field(string, "0")


class _ClassicProtocol(Struct):
    name: str = field(string, "0+")
    metadata: bytes = field(bytes_, "0+")


class _ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(int32, "0+")
    supported_protocols: list[_ClassicProtocol] = field(array(_ClassicProtocol), "0+")


class ConsumerGroupMemberMetadataValue(Record, record_type=5, versions="0", flexible="0+"):
    """ConsumerGroupMemberMetadataValue, versions 0."""

    ClassicProtocol: TypeAlias = _ClassicProtocol
    ClassicMemberMetadata: TypeAlias = _ClassicMemberMetadata

    instance_id: str | None = field(string, "0+", nullable="0+")
    rack_id: str | None = field(string, "0+", nullable="0+")
    client_id: str = field(string, "0+")
    client_host: str = field(string, "0+")
    subscribed_topic_names: list[str] = field(array(string), "0+")
    subscribed_topic_regex: str | None = field(string, "0+", nullable="0+")
    rebalance_timeout_ms: int = field(int32, "0+", default=-1)
    server_assignor: str | None = field(string, "0+", nullable="0+")
    classic_member_metadata: _ClassicMemberMetadata | None = field(_ClassicMemberMetadata, "0+", nullable="0+", default=None, tag=0)


class ConsumerGroupMetadataKey(Record, record_type=3, versions="0"):
    """ConsumerGroupMetadataKey, versions 0."""

    group_id: str = field(string, "0")


class ConsumerGroupMetadataValue(Record, record_type=3, versions="0", flexible="0+"):
    """ConsumerGroupMetadataValue, versions 0."""

    epoch: int = field(int32, "0+")
    metadata_hash: int = field(int64, "0+", tag=0)


class ConsumerGroupPartitionMetadataKey(Record, record_type=4, versions="0"):
    """ConsumerGroupPartitionMetadataKey, versions 0."""

    group_id: str = field(string, "0")


class _PartitionMetadata(Struct):
    partition: int = field(int32, "0+")
    racks: list[str] = field(array(string), "0+")


class _TopicMetadata(Struct):
    topic_id: bytes = field(uuid, "0+")
    topic_name: str = field(string, "0+")
    num_partitions: int = field(int32, "0+")
    partition_metadata: list[_PartitionMetadata] = field(array(_PartitionMetadata), "0+")


class ConsumerGroupPartitionMetadataValue(Record, record_type=4, versions="0", flexible="0+"):
    """ConsumerGroupPartitionMetadataValue, versions 0."""

    PartitionMetadata: TypeAlias = _PartitionMetadata
    TopicMetadata: TypeAlias = _TopicMetadata

    topics: list[_TopicMetadata] = field(array(_TopicMetadata), "0+")


class ConsumerGroupRegularExpressionKey(Record, record_type=16, versions="0"):
    """ConsumerGroupRegularExpressionKey, versions 0."""

    group_id: str = field(string, "0")
    regular_expression: str = field(string, "0")


class ConsumerGroupRegularExpressionValue(Record, record_type=16, versions="0", flexible="0+"):
    """ConsumerGroupRegularExpressionValue, versions 0."""

    topics: list[str] = field(array(string), "0+")
    version: int = field(int64, "0+")
    timestamp: int = field(int64, "0+")


class ConsumerGroupTargetAssignmentMemberKey(Record, record_type=7, versions="0"):
    """ConsumerGroupTargetAssignmentMemberKey, versions 0."""

    group_id: str = field(string, "0")
    member_id: str = field(string, "0")


class _ConsumerGroupTargetAssignmentMemberValueTopicPartition(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[int] = field(array(int32), "0+")


class ConsumerGroupTargetAssignmentMemberValue(Record, record_type=7, versions="0", flexible="0+"):
    """ConsumerGroupTargetAssignmentMemberValue, versions 0."""

    TopicPartition: TypeAlias = _ConsumerGroupTargetAssignmentMemberValueTopicPartition

    topic_partitions: list[_ConsumerGroupTargetAssignmentMemberValueTopicPartition] = field(
        array(_ConsumerGroupTargetAssignmentMemberValueTopicPartition), "0+"
    )


class ConsumerGroupTargetAssignmentMetadataKey(Record, record_type=6, versions="0"):
    """ConsumerGroupTargetAssignmentMetadataKey, versions 0."""

    group_id: str = field(string, "0")


class ConsumerGroupTargetAssignmentMetadataValue(Record, record_type=6, versions="0", flexible="0+"):
    """ConsumerGroupTargetAssignmentMetadataValue, versions 0."""

    assignment_epoch: int = field(int32, "0+")
    assignment_timestamp: int = field(int64, "0+", tag=0, ignorable=True)


class GroupMetadataKey(Record, record_type=2, versions="0"):
    """GroupMetadataKey, versions 0."""

    group: str = field(string, "0")


class _MemberMetadata(Struct):
    member_id: str = field(string, "0+")
    group_instance_id: str | None = field(string, "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = field(string, "0+")
    client_host: str = field(string, "0+")
    rebalance_timeout: int = field(int32, "1+", default=-1, ignorable=True)
    session_timeout: int = field(int32, "0+")
    subscription: bytes = field(bytes_, "0+")
    assignment: bytes = field(bytes_, "0+")


class GroupMetadataValue(Record, record_type=2, versions="0-4", flexible="4+"):
    """GroupMetadataValue, versions 0-4."""

    MemberMetadata: TypeAlias = _MemberMetadata

    protocol_type: str = field(string, "0+")
    generation: int = field(int32, "0+")
    protocol: str | None = field(string, "0+", nullable="0+")
    leader: str | None = field(string, "0+", nullable="0+")
    current_state_timestamp: int = field(int64, "2+", default=-1, ignorable=True)
    members: list[_MemberMetadata] = field(array(_MemberMetadata), "0+")


class LegacyOffsetCommitKey(Record, record_type=0, versions="0"):
    """LegacyOffsetCommitKey, versions 0."""

    group: str = field(string, "0")
    topic: str = field(string, "0")
    partition: int = field(int32, "0")


class LegacyOffsetCommitValue(Record, record_type=0, versions="0"):
    """LegacyOffsetCommitValue, versions 0."""

    offset: int = field(int64, "0")
    metadata: str = field(string, "0")
    commit_timestamp: int = field(int64, "0")


class OffsetCommitKey(Record, record_type=1, versions="0"):
    """OffsetCommitKey, versions 0."""

    group: str = field(string, "0")
    topic: str = field(string, "0")
    partition: int = field(int32, "0")


class OffsetCommitValue(Record, record_type=1, versions="0-4", flexible="4+"):
    """OffsetCommitValue, versions 0-4."""

    offset: int = field(int64, "0+")
    leader_epoch: int = field(int32, "3+", default=-1, ignorable=True)
    metadata: str = field(string, "0+")
    commit_timestamp: int = field(int64, "0+")
    expire_timestamp: int = field(int64, "1", default=-1, ignorable=True)
    topic_id: bytes = field(uuid, "4+", tag=0, ignorable=True)


class ShareGroupCurrentMemberAssignmentKey(Record, record_type=14, versions="0"):
    """ShareGroupCurrentMemberAssignmentKey, versions 0."""

    group_id: str = field(string, "0")
    member_id: str = field(string, "0")


class _ShareGroupCurrentMemberAssignmentValueTopicPartitions(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[int] = field(array(int32), "0+")


class ShareGroupCurrentMemberAssignmentValue(Record, record_type=14, versions="0", flexible="0+"):
    """ShareGroupCurrentMemberAssignmentValue, versions 0."""

    TopicPartitions: TypeAlias = _ShareGroupCurrentMemberAssignmentValueTopicPartitions

    member_epoch: int = field(int32, "0+")
    previous_member_epoch: int = field(int32, "0+")
    state: int = field(int8, "0+")
    assigned_partitions: list[_ShareGroupCurrentMemberAssignmentValueTopicPartitions] = field(
        array(_ShareGroupCurrentMemberAssignmentValueTopicPartitions), "0+"
    )


class ShareGroupMemberMetadataKey(Record, record_type=10, versions="0"):
    """ShareGroupMemberMetadataKey, versions 0."""

    group_id: str = field(string, "0")
    member_id: str = field(string, "0")


class ShareGroupMemberMetadataValue(Record, record_type=10, versions="0", flexible="0+"):
    """ShareGroupMemberMetadataValue, versions 0."""

    rack_id: str | None = field(string, "0+", nullable="0+")
    client_id: str = field(string, "0+")
    client_host: str = field(string, "0+")
    subscribed_topic_names: list[str] = field(array(string), "0+")


class ShareGroupMetadataKey(Record, record_type=11, versions="0"):
    """ShareGroupMetadataKey, versions 0."""

    group_id: str = field(string, "0")


class ShareGroupMetadataValue(Record, record_type=11, versions="0", flexible="0+"):
    """ShareGroupMetadataValue, versions 0."""

    epoch: int = field(int32, "0+")
    metadata_hash: int = field(int64, "0+")


class ShareGroupStatePartitionMetadataKey(Record, record_type=15, versions="0"):
    """ShareGroupStatePartitionMetadataKey, versions 0."""

    group_id: str = field(string, "0")


class _TopicPartitionsInfo(Struct):
    topic_id: bytes = field(uuid, "0+")
    topic_name: str = field(string, "0+")
    partitions: list[int] = field(array(int32), "0+")


class _ShareGroupStatePartitionMetadataValueTopicInfo(Struct):
    topic_id: bytes = field(uuid, "0+")
    topic_name: str = field(string, "0+")


class ShareGroupStatePartitionMetadataValue(Record, record_type=15, versions="0", flexible="0+"):
    """ShareGroupStatePartitionMetadataValue, versions 0."""

    TopicPartitionsInfo: TypeAlias = _TopicPartitionsInfo
    TopicInfo: TypeAlias = _ShareGroupStatePartitionMetadataValueTopicInfo

    initializing_topics: list[_TopicPartitionsInfo] = field(array(_TopicPartitionsInfo), "0+")
    initialized_topics: list[_TopicPartitionsInfo] = field(array(_TopicPartitionsInfo), "0+")
    deleting_topics: list[_ShareGroupStatePartitionMetadataValueTopicInfo] = field(
        array(_ShareGroupStatePartitionMetadataValueTopicInfo), "0+"
    )


class ShareGroupTargetAssignmentMemberKey(Record, record_type=13, versions="0"):
    """ShareGroupTargetAssignmentMemberKey, versions 0."""

    group_id: str = field(string, "0")
    member_id: str = field(string, "0")


class _ShareGroupTargetAssignmentMemberValueTopicPartition(Struct):
    topic_id: bytes = field(uuid, "0+")
    partitions: list[int] = field(array(int32), "0+")


class ShareGroupTargetAssignmentMemberValue(Record, record_type=13, versions="0", flexible="0+"):
    """ShareGroupTargetAssignmentMemberValue, versions 0."""

    TopicPartition: TypeAlias = _ShareGroupTargetAssignmentMemberValueTopicPartition

    topic_partitions: list[_ShareGroupTargetAssignmentMemberValueTopicPartition] = field(
        array(_ShareGroupTargetAssignmentMemberValueTopicPartition), "0+"
    )


class ShareGroupTargetAssignmentMetadataKey(Record, record_type=12, versions="0"):
    """ShareGroupTargetAssignmentMetadataKey, versions 0."""

    group_id: str = field(string, "0")


class ShareGroupTargetAssignmentMetadataValue(Record, record_type=12, versions="0", flexible="0+"):
    """ShareGroupTargetAssignmentMetadataValue, versions 0."""

    assignment_epoch: int = field(int32, "0+")
    assignment_timestamp: int = field(int64, "0+", tag=0, ignorable=True)


class StreamsGroupCurrentMemberAssignmentKey(Record, record_type=22, versions="0"):
    """StreamsGroupCurrentMemberAssignmentKey, versions 0."""

    group_id: str = field(string, "0")
    member_id: str = field(string, "0")


class _StreamsGroupCurrentMemberAssignmentValueTaskIds(Struct):
    subtopology_id: str = field(string, "0+")
    partitions: list[int] = field(array(int32), "0+")
    assignment_epochs: list[int] | None = field(array(int32), "0+", nullable="0+", default=None, tag=0)


class StreamsGroupCurrentMemberAssignmentValue(Record, record_type=22, versions="0", flexible="0+"):
    """StreamsGroupCurrentMemberAssignmentValue, versions 0."""

    TaskIds: TypeAlias = _StreamsGroupCurrentMemberAssignmentValueTaskIds

    member_epoch: int = field(int32, "0+")
    previous_member_epoch: int = field(int32, "0+")
    state: int = field(int8, "0+")
    active_tasks: list[_StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        array(_StreamsGroupCurrentMemberAssignmentValueTaskIds), "0+"
    )
    standby_tasks: list[_StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        array(_StreamsGroupCurrentMemberAssignmentValueTaskIds), "0+"
    )
    warmup_tasks: list[_StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        array(_StreamsGroupCurrentMemberAssignmentValueTaskIds), "0+"
    )
    active_tasks_pending_revocation: list[_StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        array(_StreamsGroupCurrentMemberAssignmentValueTaskIds), "0+"
    )
    standby_tasks_pending_revocation: list[_StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        array(_StreamsGroupCurrentMemberAssignmentValueTaskIds), "0+"
    )
    warmup_tasks_pending_revocation: list[_StreamsGroupCurrentMemberAssignmentValueTaskIds] = field(
        array(_StreamsGroupCurrentMemberAssignmentValueTaskIds), "0+"
    )


class StreamsGroupMemberMetadataKey(Record, record_type=19, versions="0"):
    """StreamsGroupMemberMetadataKey, versions 0."""

    group_id: str = field(string, "0")
    member_id: str = field(string, "0")


class _Endpoint(Struct):
    host: str = field(string, "0+")
    port: int = field(uint16, "0+")


class _KeyValue(Struct):
    key: str = field(string, "0+")
    value: str = field(string, "0+")


class StreamsGroupMemberMetadataValue(Record, record_type=19, versions="0", flexible="0+"):
    """StreamsGroupMemberMetadataValue, versions 0."""

    Endpoint: TypeAlias = _Endpoint
    KeyValue: TypeAlias = _KeyValue

    instance_id: str | None = field(string, "0+", nullable="0+")
    rack_id: str | None = field(string, "0+", nullable="0+")
    client_id: str = field(string, "0+")
    client_host: str = field(string, "0+")
    rebalance_timeout_ms: int = field(int32, "0+", default=-1)
    topology_epoch: int = field(int32, "0+")
    process_id: str = field(string, "0+")
    user_endpoint: _Endpoint | None = field(_Endpoint, "0+", nullable="0+", default=None)
    client_tags: list[_KeyValue] = field(array(_KeyValue), "0+")


class StreamsGroupMetadataKey(Record, record_type=17, versions="0"):
    """StreamsGroupMetadataKey, versions 0."""

    group_id: str = field(string, "0")


class _LastAssignmentConfig(Struct):
    key: str = field(string, "0+")
    value: str = field(string, "0+")


class StreamsGroupMetadataValue(Record, record_type=17, versions="0", flexible="0+"):
    """StreamsGroupMetadataValue, versions 0."""

    LastAssignmentConfig: TypeAlias = _LastAssignmentConfig

    epoch: int = field(int32, "0+")
    metadata_hash: int = field(int64, "0+")
    validated_topology_epoch: int = field(int32, "0+", default=-1, tag=0)
    last_assignment_configs: list[_LastAssignmentConfig] | None = field(
        array(_LastAssignmentConfig), "0+", nullable="0+", default=None, tag=1
    )
    stored_description_topology_epoch: int = field(int32, "0+", default=-1, tag=2)
    failed_description_topology_epoch: int = field(int32, "0+", default=-1, tag=3)


class StreamsGroupTargetAssignmentMemberKey(Record, record_type=21, versions="0"):
    """StreamsGroupTargetAssignmentMemberKey, versions 0."""

    group_id: str = field(string, "0")
    member_id: str = field(string, "0")


class _StreamsGroupTargetAssignmentMemberValueTaskIds(Struct):
    subtopology_id: str = field(string, "0+")
    partitions: list[int] = field(array(int32), "0+")


class StreamsGroupTargetAssignmentMemberValue(Record, record_type=21, versions="0", flexible="0+"):
    """StreamsGroupTargetAssignmentMemberValue, versions 0."""

    TaskIds: TypeAlias = _StreamsGroupTargetAssignmentMemberValueTaskIds

    active_tasks: list[_StreamsGroupTargetAssignmentMemberValueTaskIds] = field(
        array(_StreamsGroupTargetAssignmentMemberValueTaskIds), "0+"
    )
    standby_tasks: list[_StreamsGroupTargetAssignmentMemberValueTaskIds] = field(
        array(_StreamsGroupTargetAssignmentMemberValueTaskIds), "0+"
    )
    warmup_tasks: list[_StreamsGroupTargetAssignmentMemberValueTaskIds] = field(
        array(_StreamsGroupTargetAssignmentMemberValueTaskIds), "0+"
    )


class StreamsGroupTargetAssignmentMetadataKey(Record, record_type=20, versions="0"):
    """StreamsGroupTargetAssignmentMetadataKey, versions 0."""

    group_id: str = field(string, "0")


class StreamsGroupTargetAssignmentMetadataValue(Record, record_type=20, versions="0", flexible="0+"):
    """StreamsGroupTargetAssignmentMetadataValue, versions 0."""

    assignment_epoch: int = field(int32, "0+")
    assignment_timestamp: int = field(int64, "0+", tag=0, ignorable=True)


class StreamsGroupTopologyKey(Record, record_type=23, versions="0"):
    """StreamsGroupTopologyKey, versions 0."""

    group_id: str = field(string, "0")


class _TopicConfig(Struct):
    key: str = field(string, "0+")
    value: str = field(string, "0+")


class _StreamsGroupTopologyValueTopicInfo(Struct):
    name: str = field(string, "0+")
    partitions: int = field(int32, "0+")
    replication_factor: int = field(int16, "0+")
    topic_configs: list[_TopicConfig] = field(array(_TopicConfig), "0+")


class _CopartitionGroup(Struct):
    source_topics: list[int] = field(array(int16), "0+")
    source_topic_regex: list[int] = field(array(int16), "0+")
    repartition_source_topics: list[int] = field(array(int16), "0+")


class _Subtopology(Struct):
    subtopology_id: str = field(string, "0+")
    source_topics: list[str] = field(array(string), "0+")
    source_topic_regex: list[str] = field(array(string), "0+")
    state_changelog_topics: list[_StreamsGroupTopologyValueTopicInfo] = field(array(_StreamsGroupTopologyValueTopicInfo), "0+")
    repartition_sink_topics: list[str] = field(array(string), "0+")
    repartition_source_topics: list[_StreamsGroupTopologyValueTopicInfo] = field(array(_StreamsGroupTopologyValueTopicInfo), "0+")
    copartition_groups: list[_CopartitionGroup] = field(array(_CopartitionGroup), "0+")


class StreamsGroupTopologyValue(Record, record_type=23, versions="0", flexible="0+"):
    """StreamsGroupTopologyValue, versions 0."""

    TopicConfig: TypeAlias = _TopicConfig
    TopicInfo: TypeAlias = _StreamsGroupTopologyValueTopicInfo
    CopartitionGroup: TypeAlias = _CopartitionGroup
    Subtopology: TypeAlias = _Subtopology

    epoch: int = field(int32, "0+")
    subtopologies: list[_Subtopology] = field(array(_Subtopology), "0+")
