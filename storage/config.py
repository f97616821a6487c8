"""The part of a topic's configuration that a log uses (Kafka's LogConfig)."""

from __future__ import annotations

from minikafka.late_dataclass import dataclass

INT64_MAX = 2**63 - 1


@dataclass(slots=True)
class LogConfig:
    """A log's configuration; the defaults are Apache Kafka 4.3's. `cleanup_policy` holds "delete" and/or "compact"; `compression_type` is
    "producer", "uncompressed" or the name of a codec; a retention of -1 means unlimited."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compression_gzip_level: int | None = None
    compression_lz4_level: int | None = None
    compression_zstd_level: int | None = None
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    delete_retention_ms: int = 86_400_000
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    producer_id_expiration_ms: int = 86_400_000
    preallocate: bool = False

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"
