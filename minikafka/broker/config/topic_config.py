"""Topic properties: their table, inheritance from the broker, and the resulting log configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from minikafka.broker.config.properties import Property, PropertyTable, gzip_level
from minikafka.broker.config.table import CODECS, MAX_LONG
from minikafka.storage.config import LogConfig

if TYPE_CHECKING:
    from minikafka.broker.config.attributes import BrokerProperties


def _p(name: str, kind: str, default: str, broker: str | None, doc: str, **options: object) -> Property:
    synonyms = (broker,) if broker else ()
    return Property(name, kind, default, doc, synonyms=synonyms, dynamic=True, **options)  # type: ignore[arg-type]


#: `synonyms`: the broker property from which a topic without a value of its own inherits.
TOPIC_PROPERTIES = PropertyTable(
    [
        _p("cleanup.policy", "list", "delete", "log.cleanup.policy", "Treatment of old segments: delete, compact, or both.", choices=("compact", "delete")),
        _p("compression.type", "string", "producer", "compression.type", "Codec of stored batches; producer keeps the producer's codec.", choices=CODECS),
        _p("compression.gzip.level", "int", "-1", "compression.gzip.level", "Level for gzip when the broker compresses.", low=-1, high=9, convert=gzip_level),
        _p("compression.lz4.level", "int", "9", "compression.lz4.level", "Level for lz4 when the broker compresses.", low=1, high=17),
        _p("compression.zstd.level", "int", "3", "compression.zstd.level", "Level for zstd when the broker compresses.", low=-131072, high=22),
        _p("delete.retention.ms", "long", "86400000", "log.cleaner.delete.retention.ms", "How long tombstones are kept.", low=0),
        _p("errors.deadletterqueue.group.enable", "boolean", "false", None, "Whether the topic may be the dead-letter topic of share groups."),
        _p("file.delete.delay.ms", "long", "60000", "log.segment.delete.delay.ms", "How long a deleted file stays on disk.", low=0),
        _p("flush.messages", "long", MAX_LONG, "log.flush.interval.messages", "Records after which the log is synced to disk.", low=1),
        _p("flush.ms", "long", MAX_LONG, "log.flush.interval.ms", "Time since its last sync after which the log is synced to disk; checked every log.flush.scheduler.interval.ms.", low=0),
        _p("follower.replication.throttled.replicas", "list", "", None, "Replicas whose fetching is throttled: partition:broker, or *."),
        _p("index.interval.bytes", "int", "4096", "log.index.interval.bytes", "Bytes between two entries of the offset index.", low=0),
        _p("internal.segment.bytes", "int", "1073741824", None, "As segment.bytes, but without its lower bound; for tests.", low=1),
        _p("leader.replication.throttled.replicas", "list", "", None, "Replicas that are throttled at their leader: partition:broker, or *."),
        _p("local.retention.bytes", "long", "-2", None, "Retention of local segments of a tiered topic.", low=-2, effect="accepted"),
        _p("local.retention.ms", "long", "-2", None, "Retention of local segments of a tiered topic.", low=-2, effect="accepted"),
        _p("max.compaction.lag.ms", "long", MAX_LONG, "log.cleaner.max.compaction.lag.ms", "Maximum time that a record stays uncompacted.", low=1),
        _p("max.decompressed.message.bytes", "int", "2147483639", "max.decompressed.message.bytes", "Maximum size of a decompressed record, in bytes.", low=1, high=2147483639, effect="accepted"),
        _p("max.message.bytes", "int", "1048588", "message.max.bytes", "Maximum size of a record batch, in bytes.", low=0),
        _p("message.timestamp.after.max.ms", "long", "3600000", "log.message.timestamp.after.max.ms", "How far a timestamp may be in the future.", low=0),
        _p("message.timestamp.before.max.ms", "long", MAX_LONG, "log.message.timestamp.before.max.ms", "How far a timestamp may be in the past.", low=0),
        _p("message.timestamp.type", "string", "CreateTime", "log.message.timestamp.type", "Source of record timestamps: the producer (CreateTime) or the broker (LogAppendTime).", choices=("CreateTime", "LogAppendTime")),
        _p("min.cleanable.dirty.ratio", "double", "0.5", "log.cleaner.min.cleanable.ratio", "Minimum share of uncompacted bytes for the log to be compacted.", low=0, high=1),
        _p("min.compaction.lag.ms", "long", "0", "log.cleaner.min.compaction.lag.ms", "Minimum time that a record stays uncompacted.", low=0),
        _p("min.insync.replicas", "int", "1", "min.insync.replicas", "In-sync replicas that acks=all needs.", low=1),
        _p("preallocate", "boolean", "false", "log.preallocate", "Whether segment files are created with their full size."),
        _p("remote.copy.lag.bytes", "long", "-1", "log.remote.copy.lag.bytes", "Bytes that must follow a segment before it is copied.", low=-1, effect="accepted"),
        _p("remote.copy.lag.ms", "long", "0", "log.remote.copy.lag.ms", "How long a segment waits before it is copied.", low=-1, effect="accepted"),
        _p("remote.log.copy.disable", "boolean", "false", None, "Whether copying is disabled.", effect="accepted"),
        _p("remote.log.delete.on.disable", "boolean", "false", None, "Whether remote segments are deleted when tiering is disabled.", effect="accepted"),
        _p("remote.storage.enable", "boolean", "false", None, "Whether segments are tiered.", effect="accepted"),
        _p("retention.bytes", "long", "-1", "log.retention.bytes", "Size beyond which old segments are deleted; -1 = unlimited."),
        _p("retention.ms", "long", "604800000", "log.retention.ms", "Age at which a segment is deleted; -1 = never.", low=-1),
        _p("segment.bytes", "int", "1073741824", "log.segment.bytes", "Size at which a segment is rolled.", low=1048576),
        _p("segment.index.bytes", "int", "10485760", "log.index.size.max.bytes", "Size of an index file.", low=4),
        _p("segment.jitter.ms", "long", "0", "log.roll.jitter.ms", "Upper bound of a random time that is subtracted from segment.ms.", low=0),
        _p("segment.ms", "long", "604800000", "log.roll.ms", "Age at which a segment is rolled.", low=1),
        _p("unclean.leader.election.enable", "boolean", "false", "unclean.leader.election.enable", "Whether a replica outside the in-sync set may lead, losing records."),
    ]
)


def topic_problems(overrides: Mapping[str, str]) -> list[str]:
    """All problems of a topic's overrides, each as a sentence."""
    problems = [problem for name, text in overrides.items() if (problem := TOPIC_PROPERTIES.problem(name, text)) is not None]
    if not problems:
        lag_min = int(overrides.get("min.compaction.lag.ms", "0"))
        lag_max = int(overrides.get("max.compaction.lag.ms", MAX_LONG))
        if lag_min > lag_max:
            problems.append(f"min.compaction.lag.ms={lag_min}: must not exceed max.compaction.lag.ms ({lag_max})")
        if overrides.get("max.decompressed.message.bytes", "2147483639") != "2147483639":
            problems.append("max.decompressed.message.bytes: what records may take decompressed follows from max.message.bytes here")
        if overrides.get("remote.storage.enable", "false").lower() == "true":
            problems.append("remote.storage.enable=true: tiered storage is not supported")
    return problems


def inherited(entry: Property, broker: BrokerProperties, cluster: Mapping[str, str] | None = None) -> str:
    """The value, as text, of a topic without an override: the cluster's dynamic value, else the broker's, else the default."""
    for name in entry.synonyms:
        if cluster and name in cluster:
            return cluster[name]
        value = getattr(broker, name.replace(".", "_"), None)
        if value is not None:
            return text_of(value)
    return entry.default or ""


def text_of(value: object) -> str:
    """A typed value in the syntax of a properties file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(str(item) for item in value) if isinstance(value, list) else str(value)


def effective(broker: BrokerProperties, overrides: Mapping[str, str], cluster: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every topic property as text: the override or the inherited value."""
    return {entry.name: overrides.get(entry.name, inherited(entry, broker, cluster)) for entry in TOPIC_PROPERTIES}


def inherited_problems(broker: BrokerProperties) -> list[str]:
    """What topics would inherit from the broker and may not have, each as a sentence."""
    found = []
    for entry in TOPIC_PROPERTIES:
        for name in entry.synonyms:
            value = getattr(broker, name.replace(".", "_"), None)
            problem = None if value is None else TOPIC_PROPERTIES.problem(entry.name, text_of(value))
            if problem is not None:
                found.append(name + problem.removeprefix(entry.name))
    return found


def _valid(cluster: Mapping[str, str]) -> dict[str, str]:
    names = {name: entry.name for entry in TOPIC_PROPERTIES for name in entry.synonyms}
    return {name: text for name, text in cluster.items() if name in names and TOPIC_PROPERTIES.problem(names[name], text) is None}


def log_config(broker: BrokerProperties, overrides: Mapping[str, str], cluster: Mapping[str, str] | None = None) -> LogConfig:
    """The configuration of a topic's logs. Invalid values, overrides and the cluster's, are ignored; the controller has refused them
    before."""
    good = {name: text for name, text in overrides.items() if TOPIC_PROPERTIES.problem(name, text) is None}
    text = effective(broker, good, _valid(cluster or {}))
    value = {entry.name: entry.parse(text[entry.name]) for entry in TOPIC_PROPERTIES if entry.name != "segment.bytes"}
    segment_bytes = good.get("internal.segment.bytes") or text["segment.bytes"]
    segment_ms = value["segment.ms"]
    if "compact" in value["cleanup.policy"]:
        # The active segment is not compacted, so it must be rolled before its records exceed the lag.
        segment_ms = min(segment_ms, value["max.compaction.lag.ms"])
    return LogConfig(
        segment_bytes=int(segment_bytes),
        segment_ms=segment_ms,
        segment_jitter_ms=value["segment.jitter.ms"],
        segment_index_bytes=value["segment.index.bytes"],
        index_interval_bytes=value["index.interval.bytes"],
        retention_bytes=value["retention.bytes"],
        retention_ms=value["retention.ms"],
        file_delete_delay_ms=value["file.delete.delay.ms"],
        max_message_bytes=value["max.message.bytes"],
        message_timestamp_type=value["message.timestamp.type"],
        message_timestamp_before_max_ms=value["message.timestamp.before.max.ms"],
        message_timestamp_after_max_ms=value["message.timestamp.after.max.ms"],
        compression_type=value["compression.type"],
        compression_gzip_level=value["compression.gzip.level"],
        compression_lz4_level=value["compression.lz4.level"],
        compression_zstd_level=value["compression.zstd.level"],
        cleanup_policy=frozenset(value["cleanup.policy"]),
        min_compaction_lag_ms=value["min.compaction.lag.ms"],
        max_compaction_lag_ms=value["max.compaction.lag.ms"],
        min_cleanable_dirty_ratio=value["min.cleanable.dirty.ratio"],
        delete_retention_ms=value["delete.retention.ms"],
        flush_messages=value["flush.messages"],
        flush_ms=value["flush.ms"],
        producer_id_expiration_ms=int((cluster or {}).get("producer.id.expiration.ms", broker.producer_id_expiration_ms)),
        preallocate=value["preallocate"],
    )
