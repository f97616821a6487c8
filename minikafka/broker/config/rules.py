"""Validates configurations for the controller with the property tables. The messages are Kafka's (ConfigDef, LogConfig)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minikafka.broker.config.group_rules import (
    GROUP_NUMBERS,
    GROUP_PROPERTIES,
    fault_of_bounds,
    fault_of_text,
    fault_together,
    kind_of_number,
)
from minikafka.broker.config.listeners import LISTENER_LIMITS, base_of
from minikafka.broker.config.properties import Property
from minikafka.broker.config.table import BROKER_PROPERTIES
from minikafka.broker.config.topic_config import TOPIC_PROPERTIES, inherited
from minikafka.core.controller.config import TopicConfigValue
from minikafka.core.metadata.image import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig

# DescribeConfigs sources.
TOPIC_SOURCE, BROKER_SOURCE, CLUSTER_SOURCE, STATIC_SOURCE, DEFAULT_SOURCE = 1, 2, 3, 4, 5

#: Topic properties for tests, which are not described.
HIDDEN_PROPERTIES = frozenset({"internal.segment.bytes"})

#: Key and trust stores can be altered only for single listeners (DynamicBrokerConfig.DYNAMIC_SECURITY_CONFIGS).
STORES = frozenset(
    {
        "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password",
        "ssl.keystore.type", "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type",
    }
)  # fmt: skip
#: Properties that cannot be set for all brokers, in addition to those of TLS, SASL and single listeners; and the properties of single
#: listeners that can (DynamicBrokerConfig.PER_BROKER_CONFIGS, CLUSTER_LEVEL_LISTENER_CONFIGS).
_OF_ONE_BROKER = frozenset({"cordoned.log.dirs", "listener.security.protocol.map", "listeners", "principal.builder.class"})
_OF_ALL_LISTENERS = frozenset({*LISTENER_LIMITS, "num.network.threads"})

GZIP_LEVEL, RETENTION_MS = "compression.gzip.level", "log.retention.ms"
THROTTLED_REPLICAS = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")
NEVER_NOTHING = frozenset({"max.connections", "max.connection.creation.rate"})
DEDUPE_BYTES, CLEANER_THREADS = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
DEDUPE_BYTES_MIN = 1 << 20
PER_ADDRESS, OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"

_TYPE_WORDS = {"short": "SHORT", "int": "INT", "long": "LONG", "double": "DOUBLE"}


def source_of(entry: Property, config: BrokerConfig, overrides: Mapping[str, str], cluster: Mapping[str, str]) -> int:
    """The source of a topic property's value, as a DescribeConfigs source id."""
    if entry.name in overrides:
        return TOPIC_SOURCE
    if any(name in cluster for name in entry.synonyms):
        return CLUSTER_SOURCE
    return STATIC_SOURCE if any(name in config.given for name in static_names(entry)) else DEFAULT_SOURCE


def static_names(entry: Property) -> tuple[str, ...]:
    """Names in server.properties from which a topic property inherits, those with coarser time units included."""
    coarser = {
        "retention.ms": ("log.retention.minutes", "log.retention.hours"),
        "segment.ms": ("log.roll.hours",),
        "segment.jitter.ms": ("log.roll.jitter.hours",),
        "flush.ms": ("log.flush.scheduler.interval.ms",),
    }
    return (*entry.synonyms, *coarser.get(entry.name, ()))


def fault_of(entry: Property, text: str) -> str | None:
    """The message of Kafka's ConfigDef for an invalid value, or None."""
    try:
        entry.parse(text)
    except ValueError as error:
        reason = str(error)
    else:
        return None
    prefix = f"Invalid value {text} for configuration {entry.name}: "
    if entry.kind in _TYPE_WORDS:
        try:
            number: float = Property(entry.name, entry.kind, None, "").parse(text)
        except ValueError:
            return f"{prefix}Not a number of type {_TYPE_WORDS[entry.kind]}"
        if entry.name == GZIP_LEVEL:
            return f"{prefix}Value must be between 1 and 9 or equal to -1"
        if entry.low is not None and number < entry.low:
            return f"{prefix}Value must be at least {_plain(entry.low)}"
        if entry.high is not None and number > entry.high:
            return f"{prefix}Value must be no more than {_plain(entry.high)}"
        return f"{prefix}Not a number of type {_TYPE_WORDS[entry.kind]}"
    if entry.kind == "boolean":
        return f"{prefix}Expected value to be either true or false"
    if entry.choices:
        return f"{prefix}String must be one of: {', '.join(entry.choices)}"
    return prefix + reason


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def fault_of_topic(entry: Property, text: str) -> str | None:
    """The message for an invalid value of a topic's property, or None."""
    if entry.name in THROTTLED_REPLICAS:
        items = [item.strip() for item in text.split(",")]
        if text.strip() == "*" or all(_REPLICA.fullmatch(item) for item in items):
            return None
        wanted = "the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
        return f"Invalid value [{', '.join(items)}] for configuration {entry.name}: {entry.name} must be {wanted}"
    return fault_of_items(entry, text, is_unique=False) or fault_of(entry, text)


def fault_of_items(entry: Property, text: str, *, is_unique: bool) -> str | None:
    """The message for a list of given words that has an empty item, or one twice, or None."""
    if entry.kind != "list" or not entry.choices or not text.strip():
        return None
    items = [item.strip() for item in text.split(",")]
    if is_unique and len(set(items)) < len(items):
        return f"Configuration '{entry.name}' values must not be duplicated."
    return None if all(items) else f"Configuration '{entry.name}' values must not be empty."


def _fault_of_nothing(entry: Property, text: str) -> str | None:
    """The message for a number of 0 that would let nobody connect, or keep nothing, or None."""
    if entry.kind not in _TYPE_WORDS or entry.parse(text) != 0:
        return None
    if entry.name in NEVER_NOTHING:
        return f"Invalid {entry.name} {text.strip()}"
    if entry.name == RETENTION_MS:
        return f"requirement failed: {RETENTION_MS} must be unlimited (-1) or, greater than or equal to 1"
    return None


class BrokerConfigRules:
    """ConfigRules (core/controller/config.py) over this node's tables."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def validate(self, resource_type: int, resource_name: str, name: str, value: str) -> str | None:
        """The message for an invalid property, or None."""
        if resource_type == RESOURCE_TOPIC:
            entry = TOPIC_PROPERTIES.get(name)
            return f"Unknown topic config name: {name}" if entry is None else fault_of_topic(entry, value)
        if resource_type == RESOURCE_BROKER:
            entry = BROKER_PROPERTIES.get(name)
            if entry is not None and not entry.dynamic:
                return f"Cannot update these configs dynamically: [{name}]"
            if name in STORES:
                return f"These security configs can be dynamically updated only per-listener using the listener prefix: [{name}]"
            base = base_of(name)
            if base is None and entry is None:
                return None  # Kafka stores unknown properties: a plug-in may use them
            found = base or entry
            assert found is not None
            is_own = name in _OF_ONE_BROKER or name.startswith(("ssl.", "sasl.")) if base is None else base.name not in _OF_ALL_LISTENERS
            if is_own and not resource_name:
                return f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
            return fault_of_items(found, value, is_unique=True) or fault_of(found, value) or _fault_of_nothing(found, value)
        if resource_type == RESOURCE_GROUP:
            return self._fault_of_group(name, value) if name in GROUP_PROPERTIES else f"Unknown group config name: {name}"
        return None

    def _fault_of_group(self, name: str, value: str) -> str | None:
        if name not in GROUP_NUMBERS:
            return fault_of_text(name, value, self._config)
        fault = fault_of(Property(name, kind_of_number(name), None, "", low=GROUP_NUMBERS[name][0]), value)
        return fault if fault is not None else fault_of_bounds(name, int(value), self._config)

    def validate_together(self, resource_type: int, values: Mapping[str, str]) -> str | None:
        """The message for valid properties that contradict each other, or None."""
        if resource_type == RESOURCE_GROUP:
            return fault_together(values, self._config)
        if resource_type == RESOURCE_BROKER:
            return self._fault_of_broker(values)
        if resource_type != RESOURCE_TOPIC:
            return None
        low, high = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
        if low is not None and high is not None and int(low) > int(high):
            return (
                f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
            )
        if values.get("remote.storage.enable", "false").strip().lower() == "true":
            return "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
        return None

    def _fault_of_broker(self, values: Mapping[str, str]) -> str | None:
        def value(name: str) -> Any:
            entry, text = BROKER_PROPERTIES.get(name), values.get(name)
            assert entry is not None
            return getattr(self._config, entry.attribute) if text is None or fault_of(entry, text) else entry.parse(text)

        is_cleaned = not values.keys().isdisjoint((DEDUPE_BYTES, CLEANER_THREADS))
        if is_cleaned and (value(CLEANER_THREADS) == 0 or value(DEDUPE_BYTES) // value(CLEANER_THREADS) <= DEDUPE_BYTES_MIN):
            return f"requirement failed: {DEDUPE_BYTES} must be at least 1MB per cleaner thread."
        if PER_ADDRESS in values and value(PER_ADDRESS) == 0 and not value(OVERRIDES):
            return f"requirement failed: {PER_ADDRESS} can be set to zero only if {OVERRIDES} property is set."
        for kind in ("consumer", "share", "streams"):
            name, low, high = (f"group.{kind}.{bound}assignment.interval.ms" for bound in ("", "min.", "max."))
            if name in values and value(name) < value(low):
                return f"{name} must be greater than or equal to {low}"
            if name in values and value(name) > value(high):
                return f"{name} must be less than or equal to {high}"
        return None

    def is_list(self, resource_type: int, name: str) -> bool:
        """Whether the property accepts APPEND and SUBTRACT."""
        entry = self._entry(resource_type, name)
        return entry is not None and entry.kind == "list"

    def default(self, resource_type: int, name: str) -> str | None:
        """The value to which APPEND or SUBTRACT applies if there is no override."""
        entry = self._entry(resource_type, name)
        if entry is None:
            return None
        return inherited(entry, self._config) if resource_type == RESOURCE_TOPIC else entry.default

    def effective_topic(self, overrides: Mapping[str, str], cluster: Mapping[str, str]) -> list[TopicConfigValue]:
        """All properties of a topic, sorted by name."""
        values = []
        for entry in sorted(TOPIC_PROPERTIES, key=lambda entry: entry.name):
            if entry.name in HIDDEN_PROPERTIES and entry.name not in overrides:
                continue
            value = overrides.get(entry.name)
            if value is None:
                value = inherited(entry, self._config, cluster)
            values.append(TopicConfigValue(entry.name, value, source_of(entry, self._config, overrides, cluster)))
        return values

    @staticmethod
    def _entry(resource_type: int, name: str) -> Property | None:
        table = {RESOURCE_TOPIC: TOPIC_PROPERTIES, RESOURCE_BROKER: BROKER_PROPERTIES}.get(resource_type)
        return None if table is None else table.get(name)
