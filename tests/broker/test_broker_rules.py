"""Which properties of brokers can be altered while they run, and for how many; texts are those of Kafka's DynamicBrokerConfig."""

from __future__ import annotations

import pytest

from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.config.rules import STORES, BrokerConfigRules
from minikafka.core.metadata.image import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC

CONFIG = {"process.roles": "broker", "node.id": "1", "controller.quorum.voters": "9@127.0.0.1:9", "controller.listener.names": "C"}
PREFIX = "listener.name.internal"
PER_LISTENER = "These security configs can be dynamically updated only per-listener using the listener prefix"
FOR_ONE = "Cannot update these configs at default cluster level, broker id must be specified"


@pytest.mark.parametrize(
    ("broker", "name", "value", "fault"),
    [
        ("", "node.id", "2", "Cannot update these configs dynamically"),
        ("", "cordoned.log.dirs", "/d", FOR_ONE),
        ("", "ssl.client.auth", "required", FOR_ONE),
        ("", f"{PREFIX}.ssl.keystore.location", "/k.pem", FOR_ONE),
        ("1", f"{PREFIX}.ssl.keystore.location", "/k.pem", None),
        ("", f"{PREFIX}.max.connections", "10", None),
        ("", "max.connections", "10", None),
        ("1", "ssl.client.auth", "required", None),
        ("", "known.to.plugins", "x", None),
        *(("1", name, "x", PER_LISTENER) for name in sorted(STORES)),
    ],
)
def test_what_can_be_altered_and_where(broker: str, name: str, value: str, fault: str | None) -> None:
    rules = BrokerConfigRules(BrokerConfig.from_properties(CONFIG))
    assert rules.validate(RESOURCE_BROKER, broker, name, value) == (None if fault is None else f"{fault}: [{name}]")


THROTTLED = "leader.replication.throttled.replicas"
NO_REPLICAS = (
    f"Invalid value [a, 1:1] for configuration {THROTTLED}: {THROTTLED} must be the literal '*' or a list of replicas in the following"
    " format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
)
FOREVER = "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
RATIO = "log.cleaner.io.buffer.load.factor"


@pytest.mark.parametrize(
    ("kind", "name", "value", "fault"),
    [
        (RESOURCE_TOPIC, "retention.ms", "1_000", "Invalid value 1_000 for configuration retention.ms: Not a number of type LONG"),
        (RESOURCE_TOPIC, "retention.ms", " +7 ", None),
        (RESOURCE_BROKER, RATIO, "inf", f"Invalid value inf for configuration {RATIO}: Not a number of type DOUBLE"),
        *((RESOURCE_BROKER, RATIO, text, None) for text in ("Infinity", "NaN", "1d", ".5f", "0x1p3", "1.e-3")),
        (RESOURCE_TOPIC, THROTTLED, "a,1:1", NO_REPLICAS),
        *((RESOURCE_TOPIC, THROTTLED, text, None) for text in ("", ",", "*", "1:1", "0:1, 1:2")),
        (RESOURCE_TOPIC, "cleanup.policy", "compact,", "Configuration 'cleanup.policy' values must not be empty."),
        *((RESOURCE_TOPIC, "cleanup.policy", text, None) for text in ("", "delete,delete")),
        (RESOURCE_BROKER, "log.cleanup.policy", "compact,", "Configuration 'log.cleanup.policy' values must not be empty."),
        (RESOURCE_BROKER, "log.cleanup.policy", "delete,delete", "Configuration 'log.cleanup.policy' values must not be duplicated."),
        (
            RESOURCE_TOPIC,
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (RESOURCE_BROKER, "log.retention.ms", "0", FOREVER),
        (RESOURCE_BROKER, "max.connection.creation.rate", "0", "Invalid max.connection.creation.rate 0"),
        (
            RESOURCE_GROUP,
            "streams.rack.aware.assignment.tags",
            "compact,",
            "Configuration 'streams.rack.aware.assignment.tags' values must not be empty.",
        ),
    ],
)
def test_values_that_apache_kafka_takes_and_refuses(kind: int, name: str, value: str, fault: str | None) -> None:
    rules = BrokerConfigRules(BrokerConfig.from_properties(CONFIG))
    assert rules.validate(kind, "", name, value) == fault


DEDUPE = "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"log.cleaner.dedupe.buffer.size": "0"}, DEDUPE),
        ({"log.cleaner.dedupe.buffer.size": "2097152"}, None),
        ({"log.cleaner.dedupe.buffer.size": "2097152", "log.cleaner.threads": "2"}, DEDUPE),
        ({"log.cleaner.threads": "0"}, DEDUPE),
        ({"max.connections.per.ip": "0"}, "requirement failed: max.connections.per.ip can be set to zero only if"
            " max.connections.per.ip.overrides property is set."),
        ({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "localhost:5"}, None),
        ({"group.share.assignment.interval.ms": "2147483647"},
            "group.share.assignment.interval.ms must be less than or equal to group.share.max.assignment.interval.ms"),
        ({"group.share.assignment.interval.ms": "2147483647", "group.share.max.assignment.interval.ms": "2147483647"}, None),
    ],
)  # fmt: skip
def test_values_that_contradict_each_other(values: dict[str, str], fault: str | None) -> None:
    rules = BrokerConfigRules(BrokerConfig.from_properties(CONFIG))
    assert rules.validate_together(RESOURCE_BROKER, values) == fault
