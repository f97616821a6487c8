"""Values of settings that controllers accept (LogConfig, GroupConfig, ClientMetricsConfigs, ControllerConfigurationValidator).

A broker cannot make the logs of a topic with any other. Bounds are those of the release that had the widest ones. Names that are not listed
are passed over, because earlier releases had more of them, and later ones will.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from minikafka.spark.logformat import FormatError

BROKER, METRICS, GROUP = 4, 16, 32
_INT, _LONG = (1 << 31) - 1, (1 << 63) - 1
_MATCH = re.compile(r"(client_(instance_id|id|software_name|software_version|source_address|source_port)\s*=[^=]*)?")
Check = Callable[[str], bool]


def _whole(low: int, high: int) -> Check:
    def check(text: str) -> bool:
        return re.fullmatch(r"[+-]?[0-9]{1,19}", text) is not None and low <= int(text) <= high

    return check


def _number(low: int = 0) -> Check:
    return _whole(low, _LONG)


def _count(low: int = 0, high: int = _INT) -> Check:
    return _whole(low, high)


def _one_of(*choices: str) -> Check:
    return choices.__contains__


def _is_boolean(text: str) -> bool:
    return text.lower() in {"true", "false"}


def _is_share(text: str) -> bool:
    """A number between 0 and 1."""
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def _is_match(text: str) -> bool:
    """Attributes of clients, each with a pattern."""
    return all(_MATCH.fullmatch(part.strip()) for part in text.split(","))


def _is_reset(text: str) -> bool:
    return text.lower() in {"earliest", "latest"} or re.fullmatch(r"by_duration:P[0-9A-Z.]+", text, re.IGNORECASE) is not None


TOPIC_SETTINGS: dict[str, Check] = {
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), "compression.gzip.level": _count(-1, 9),
    "compression.lz4.level": _count(1, 17), "compression.zstd.level": _count(-131072, 22), "delete.retention.ms": _number(),
    "errors.deadletterqueue.group.enable": _is_boolean, "file.delete.delay.ms": _number(), "flush.messages": _number(),
    "flush.ms": _number(), "index.interval.bytes": _count(), "local.retention.bytes": _number(-2), "local.retention.ms": _number(-2),
    "max.compaction.lag.ms": _number(1), "max.message.bytes": _count(), "message.timestamp.after.max.ms": _number(),
    "message.timestamp.before.max.ms": _number(), "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _is_share, "min.compaction.lag.ms": _number(), "min.insync.replicas": _count(1),
    "preallocate": _is_boolean, "remote.log.copy.disable": _is_boolean, "remote.log.delete.on.disable": _is_boolean,
    "remote.storage.enable": _is_boolean, "retention.bytes": _number(-_LONG - 1), "retention.ms": _number(-1),
    "segment.bytes": _count(1), "segment.index.bytes": _count(), "segment.jitter.ms": _number(), "segment.ms": _number(1),
    "unclean.leader.election.enable": _is_boolean,
}  # fmt: skip
#: What topics without a value of their own have, by the broker's name for it. Those with another unit or default are left out.
BROKER_SETTINGS: dict[str, Check] = {
    broker: TOPIC_SETTINGS[topic] for broker, topic in {
        "compression.type": "compression.type", "log.cleaner.delete.retention.ms": "delete.retention.ms",
        "log.index.interval.bytes": "index.interval.bytes", "log.message.timestamp.type": "message.timestamp.type",
        "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio", "log.preallocate": "preallocate",
        "log.retention.bytes": "retention.bytes", "log.retention.ms": "retention.ms", "log.segment.bytes": "segment.bytes",
        "message.max.bytes": "max.message.bytes", "min.insync.replicas": "min.insync.replicas",
        "unclean.leader.election.enable": "unclean.leader.election.enable",
    }.items()
}  # fmt: skip
BROKER_SETTINGS["log.cleaner.threads"] = _count()
GROUP_SETTINGS: dict[str, Check] = {
    "consumer.session.timeout.ms": _count(1), "consumer.heartbeat.interval.ms": _count(1), "share.session.timeout.ms": _count(1),
    "share.heartbeat.interval.ms": _count(1), "share.record.lock.duration.ms": _count(1), "share.auto.offset.reset": _is_reset,
    "share.isolation.level": lambda text: text.lower() in {"read_committed", "read_uncommitted"},
    "streams.session.timeout.ms": _count(1), "streams.heartbeat.interval.ms": _count(1), "streams.num.standby.replicas": _count(),
}  # fmt: skip
METRICS_SETTINGS: dict[str, Check] = {"interval.ms": _count(100, 3_600_000), "match": _is_match}
_SETTINGS = {2: TOPIC_SETTINGS, BROKER: BROKER_SETTINGS, GROUP: GROUP_SETTINGS, METRICS: METRICS_SETTINGS}


def check_value(resource: int, name: str, option: str, value: str) -> None:
    """Check a setting of a topic, broker, group or subscription to metrics. Raises FormatError."""
    check = _SETTINGS[resource].get(option)
    if check is not None and not check(value.strip()):
        raise FormatError(f"{option} of {name or 'all brokers'} is {value!r}")
    if resource == BROKER and name and not _count()(name):
        raise FormatError(f"{option} is set for the broker {name!r}")
    if resource in {GROUP, METRICS} and not name:
        raise FormatError(f"{option} is set for a {'group' if resource == GROUP else 'subscription'} without a name")
