"""Judges the configuration of groups; in Kafka's words (org.apache.kafka.coordinator.group.GroupConfig)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig

#: Numbers of a group, each with its least value and the name in the broker's properties: group.<kind>.<min or max>.<name>.
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
}
#: Texts of a group, each with a pattern and what Kafka says of what is not like it.
_GROUP_TEXTS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "share.auto.offset.reset": (
        re.compile(r"latest|earliest|by_duration:P(?=[\dT])(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d{1,9})?S)?)?", re.IGNORECASE),
        "Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or of the format"
        " 'by_duration:<PnDTnHnMn.nS.>'.",
    ),
    "share.isolation.level": (
        re.compile("read_committed|read_uncommitted"),
        "Invalid value {value} for configuration {name}: String must be one of: read_committed, read_uncommitted",
    ),
    "share.renew.acknowledge.enable": (
        re.compile("true|false", re.IGNORECASE),
        "Invalid value {value} for configuration {name}: Expected value to be either true or false",
    ),
}
#: What brokers have no property for: kind and default.
GROUP_DEFAULTS: Mapping[str, tuple[str, str]] = {
    "share.auto.offset.reset": ("string", "latest"),
    "share.isolation.level": ("string", "read_uncommitted"),
    "share.renew.acknowledge.enable": ("boolean", "true"),
}
#: What may be stored for a group.
GROUP_PROPERTIES = frozenset(
    {
        *GROUP_NUMBERS, *_GROUP_TEXTS, "streams.session.timeout.ms", "streams.heartbeat.interval.ms", "streams.num.standby.replicas",
        "streams.initial.rebalance.delay.ms", "streams.assignment.interval.ms",
    }
)  # fmt: skip


def fault_of_text(name: str, value: str) -> str | None:
    """A message for a text that a group may not have, or None."""
    if name not in _GROUP_TEXTS:
        return None
    pattern, message = _GROUP_TEXTS[name]
    return None if pattern.fullmatch(value.strip()) else message.format(name=name, value=value)


def fault_of_bounds(name: str, value: int, config: BrokerConfig) -> str | None:
    """Numbers of a group stay between the broker's bounds (KIP-848, KIP-932)."""
    _, kind, rest = GROUP_NUMBERS[name]
    for word, bound, is_outside in (("greater", "min", int.__lt__), ("less", "max", int.__gt__)):
        limit = f"group.{kind}.{bound}.{rest}"
        if is_outside(value, getattr(config, limit.replace(".", "_"))):
            return f"{name} must be {word} than or equal to {limit}"
    return None


def fault_together(values: Mapping[str, str], config: BrokerConfig) -> str | None:
    """A member has to heartbeat more than once in its session."""
    for kind in ("consumer", "share"):
        session, interval = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        numbers = [int(values.get(name, getattr(config, f"group_{name.replace('.', '_')}"))) for name in (session, interval)]
        if numbers[0] <= numbers[1]:
            return f"{session} must be greater than {interval}"
    return None
