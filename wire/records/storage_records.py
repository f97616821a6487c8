"""Data that the storage layer stores."""

from __future__ import annotations

from typing import TypeAlias

from minikafka.wire.message import Data, Record, Struct, field
from minikafka.wire.types import array, boolean, bytes_, int8, int16, int32, int64, string, uint32, uuid


class _ProducerEntry(Struct):
    producer_id: int = field(int64, "1")
    epoch: int = field(int16, "1")
    last_sequence: int = field(int32, "1")
    last_offset: int = field(int64, "1")
    offset_delta: int = field(int32, "1")
    timestamp: int = field(int64, "1")
    coordinator_epoch: int = field(int32, "1")
    current_txn_first_offset: int = field(int64, "1")


class ProducerSnapshot(Data, versions="1"):
    """ProducerSnapshot, versions 1."""

    ProducerEntry: TypeAlias = _ProducerEntry

    crc: int = field(uint32, "1")
    producer_entries: list[_ProducerEntry] = field(array(_ProducerEntry), "1")


class _RemoteLogSegmentMetadataRecordTopicIdPartitionEntry(Struct):
    name: str = field(string, "0+")
    id: bytes = field(uuid, "0+")
    partition: int = field(int32, "0+")


class _RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry(Struct):
    topic_id_partition: _RemoteLogSegmentMetadataRecordTopicIdPartitionEntry = field(
        _RemoteLogSegmentMetadataRecordTopicIdPartitionEntry, "0+"
    )
    id: bytes = field(uuid, "0+")


class _RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry(Struct):
    leader_epoch: int = field(int32, "0+")
    offset: int = field(int64, "0+")


class RemoteLogSegmentMetadataRecord(Record, record_type=0, versions="0", flexible="0+"):
    """RemoteLogSegmentMetadataRecord, versions 0."""

    TopicIdPartitionEntry: TypeAlias = _RemoteLogSegmentMetadataRecordTopicIdPartitionEntry
    RemoteLogSegmentIdEntry: TypeAlias = _RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry
    SegmentLeaderEpochEntry: TypeAlias = _RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry

    remote_log_segment_id: _RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry = field(
        _RemoteLogSegmentMetadataRecordRemoteLogSegmentIdEntry, "0+"
    )
    start_offset: int = field(int64, "0+")
    end_offset: int = field(int64, "0+")
    broker_id: int = field(int32, "0+")
    max_timestamp_ms: int = field(int64, "0+")
    event_timestamp_ms: int = field(int64, "0+")
    segment_leader_epochs: list[_RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry] = field(
        array(_RemoteLogSegmentMetadataRecordSegmentLeaderEpochEntry), "0+"
    )
    segment_size_in_bytes: int = field(int32, "0+")
    custom_metadata: bytes | None = field(bytes_, "0+", nullable="0+", default=None)
    remote_log_segment_state: int = field(int8, "0+")
    txn_index_empty: bool = field(boolean, "0+", tag=0)


class _RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry(Struct):
    leader_epoch: int = field(int32, "0+")
    offset: int = field(int64, "0+")


class RemoteLogSegmentMetadataSnapshotRecord(Record, record_type=3, versions="0", flexible="0+"):
    """RemoteLogSegmentMetadataSnapshotRecord, versions 0."""

    SegmentLeaderEpochEntry: TypeAlias = _RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry

    segment_id: bytes = field(uuid, "0+")
    start_offset: int = field(int64, "0+")
    end_offset: int = field(int64, "0+")
    broker_id: int = field(int32, "0+")
    max_timestamp_ms: int = field(int64, "0+")
    event_timestamp_ms: int = field(int64, "0+")
    segment_leader_epochs: list[_RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry] = field(
        array(_RemoteLogSegmentMetadataSnapshotRecordSegmentLeaderEpochEntry), "0+"
    )
    segment_size_in_bytes: int = field(int32, "0+")
    custom_metadata: bytes | None = field(bytes_, "0+", nullable="0+", default=None)
    remote_log_segment_state: int = field(int8, "0+")
    txn_index_empty: bool = field(boolean, "0+", tag=0)


class _RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry(Struct):
    name: str = field(string, "0+")
    id: bytes = field(uuid, "0+")
    partition: int = field(int32, "0+")


class _RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry(Struct):
    topic_id_partition: _RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry = field(
        _RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry, "0+"
    )
    id: bytes = field(uuid, "0+")


class RemoteLogSegmentMetadataUpdateRecord(Record, record_type=1, versions="0", flexible="0+"):
    """RemoteLogSegmentMetadataUpdateRecord, versions 0."""

    TopicIdPartitionEntry: TypeAlias = _RemoteLogSegmentMetadataUpdateRecordTopicIdPartitionEntry
    RemoteLogSegmentIdEntry: TypeAlias = _RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry

    remote_log_segment_id: _RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry = field(
        _RemoteLogSegmentMetadataUpdateRecordRemoteLogSegmentIdEntry, "0+"
    )
    broker_id: int = field(int32, "0+")
    event_timestamp_ms: int = field(int64, "0+")
    custom_metadata: bytes | None = field(bytes_, "0+", nullable="0+", default=None)
    remote_log_segment_state: int = field(int8, "0+")


class _RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry(Struct):
    name: str = field(string, "0+")
    id: bytes = field(uuid, "0+")
    partition: int = field(int32, "0+")


class RemotePartitionDeleteMetadataRecord(Record, record_type=2, versions="0", flexible="0+"):
    """RemotePartitionDeleteMetadataRecord, versions 0."""

    TopicIdPartitionEntry: TypeAlias = _RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry

    topic_id_partition: _RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry = field(
        _RemotePartitionDeleteMetadataRecordTopicIdPartitionEntry, "0+"
    )
    broker_id: int = field(int32, "0+")
    event_timestamp_ms: int = field(int64, "0+")
    remote_partition_delete_state: int = field(int8, "0+")
