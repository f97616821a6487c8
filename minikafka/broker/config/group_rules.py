"""Validates configurations of groups. The messages are Kafka's (org.apache.kafka.coordinator.group.GroupConfig)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig

#: Numeric properties of groups -> (type of group, minimum, name in the broker's bounds: group.<type>.<min or max>.<name>).
GROUP_NUMBERS: Mapping[str, tuple[int, str, str]] = {
    "consumer.session.timeout.ms": (1, "consumer", "session.timeout.ms"),
    "consumer.heartbeat.interval.ms": (1, "consumer", "heartbeat.interval.ms"),
    "consumer.assignment.interval.ms": (0, "consumer", "assignment.interval.ms"),
    "share.session.timeout.ms": (1, "share", "session.timeout.ms"),
    "share.heartbeat.interval.ms": (1, "share", "heartbeat.interval.ms"),
    "share.assignment.interval.ms": (0, "share", "assignment.interval.ms"),
    "share.record.lock.duration.ms": (1000, "share", "record.lock.duration.ms"),
    "share.delivery.count.limit": (2, "share", "delivery.count.limit"),
    "share.partition.max.record.locks": (100, "share", "partition.max.record.locks"),
    "streams.session.timeout.ms": (1, "streams", "session.timeout.ms"),
    "streams.heartbeat.interval.ms": (1, "streams", "heartbeat.interval.ms"),
    "streams.assignment.interval.ms": (0, "streams", "assignment.interval.ms"),
    "streams.initial.rebalance.delay.ms": (0, "streams", "initial.rebalance.delay.ms"),
    "streams.task.offset.interval.ms": (1, "streams", "task.offset.interval.ms"),
    "streams.num.standby.replicas": (0, "streams", "standby.replicas"),
    "streams.num.warmup.replicas": (0, "streams", "warmup.replicas"),
    "streams.acceptable.recovery.lag": (0, "streams", "acceptable.recovery.lag"),
}
#: Numeric properties of type long; the others are int.
_LONGS = frozenset({"streams.acceptable.recovery.lag"})
#: Text properties of groups -> (pattern, Kafka's message for a value that does not match).
_GROUP_TEXTS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "share.auto.offset.reset": (
        re.compile("latest|earliest|by_duration:.*", re.IGNORECASE),
        "Invalid value {value} for configuration {name}: Invalid value `{value}` for configuration {name}. The value must be either"
        " 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
    ),
    "share.isolation.level": (
        re.compile("read_committed|read_uncommitted"),
        "Invalid value {value} for configuration {name}: String must be one of: read_committed, read_uncommitted",
    ),
    "errors.deadletterqueue.topic.name": (
        re.compile(r"(?!__).*", re.DOTALL),
        "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
    ),
    **dict.fromkeys(
        ("share.renew.acknowledge.enable", "streams.assignor.offload.enable", "errors.deadletterqueue.copy.record.enable"),
        (
            re.compile("true|false", re.IGNORECASE),
            "Invalid value {value} for configuration {name}: Expected value to be either true or false",
        ),
    ),
}
#: Properties without a corresponding broker property -> (type, default).
GROUP_DEFAULTS: Mapping[str, tuple[str, str]] = {
    "share.auto.offset.reset": ("string", "latest"),
    "share.isolation.level": ("string", "read_uncommitted"),
    "share.renew.acknowledge.enable": ("boolean", "true"),
    "errors.deadletterqueue.topic.name": ("string", ""),
    "errors.deadletterqueue.copy.record.enable": ("boolean", "false"),
}
RESET, BY_DURATION = "share.auto.offset.reset", "by_duration:"
_DURATION = re.compile(r"P(?=[\dT])(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?", re.ASCII | re.IGNORECASE)
#: Most digits of a number of a duration, leading zeros included, and most seconds: what a long of Java holds.
_DIGITS_MAX, _SECONDS_MAX = 50, (1 << 63) - 1
ASSIGNOR, TAGS = "streams.assignor.name", "streams.rack.aware.assignment.tags"
#: The names of all properties of groups.
GROUP_PROPERTIES = frozenset({*GROUP_NUMBERS, *_GROUP_TEXTS, ASSIGNOR, TAGS})


def fault_of_text(name: str, value: str, config: BrokerConfig) -> str | None:
    """The message for an invalid text value, or None."""
    if name == TAGS:
        tags = [tag.strip() for tag in value.split(",")] if value.strip() else []
        if len(set(tags)) < len(tags):
            return f"{name} must not contain duplicate tag keys."
        return None if all(tags) else f"Configuration '{name}' values must not be empty."
    if name == ASSIGNOR and value not in config.group_streams_assignors:
        registered = f"Registered assignors are: [{', '.join(config.group_streams_assignors)}]."
        return f"{name} '{value}' is not a registered task assignor. {registered}"
    if name not in _GROUP_TEXTS:
        return None
    pattern, message = _GROUP_TEXTS[name]
    is_valid = pattern.fullmatch(value.strip()) is not None
    if is_valid and name == RESET and value.strip().lower().startswith(BY_DURATION):
        is_valid = duration_ms(value.strip()[len(BY_DURATION) :]) is not None
    return None if is_valid else message.format(name=name, value=value)


def duration_ms(text: str) -> int | None:
    """The milliseconds of an ISO 8601 duration, as `java.time.Duration` reads it; None if Java has no such duration."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    numbers = [number or "0" for number in found.groups()[:4]]
    if max(map(len, numbers)) > _DIGITS_MAX:
        return None
    seconds = sum(int(number) * unit_s for number, unit_s in zip(numbers, (86_400, 3600, 60, 1), strict=True))
    return None if seconds > _SECONDS_MAX else 1000 * seconds + int((found[5] or "0").ljust(9, "0")) // 1_000_000


def kind_of_number(name: str) -> str:
    """The type of a numeric property of groups."""
    return "long" if name in _LONGS else "int"


def fault_of_bounds(name: str, value: int, config: BrokerConfig) -> str | None:
    """The message for a number outside of the broker's bounds, or None (KIP-848, KIP-932, KIP-1071)."""
    _, kind, rest = GROUP_NUMBERS[name]
    low, high = (getattr(config, f"group.{kind}.{bound}.{rest}".replace(".", "_"), None) for bound in ("min", "max"))
    if (low is None or value >= low) and (high is None or value <= high):
        return None
    if low is None:
        return f"{name} must be less than or equal to {high}"
    return f"{name} must be greater than or equal to {low}" if high is None else f"{name} must be in the range {low} to {high} inclusive."


def fault_together(values: Mapping[str, str], config: BrokerConfig) -> str | None:
    """The message if the session timeout does not exceed the heartbeat interval, or None."""
    for kind in ("consumer", "share", "streams"):
        session, interval = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        numbers = [int(values.get(name, getattr(config, f"group_{name.replace('.', '_')}"))) for name in (session, interval)]
        if numbers[0] <= numbers[1]:
            return f"{session} must be greater than {interval}"
    return None
