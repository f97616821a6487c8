"""Configuration of one consumer group (KIP-848): within what the broker allows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.coordinator_world import CONFIG

from minikafka.broker.admin.config_descriptions import ConfigDescriptions
from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.config.rules import BrokerConfigRules
from minikafka.core.metadata.image import RESOURCE_BROKER, RESOURCE_GROUP
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest

NO_NUMBER = "Invalid value x for configuration consumer.heartbeat.interval.ms: Not a number of type INT"


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("consumer.session.timeout.ms", "50000", None),
        ("consumer.session.timeout.ms", "44999", "greater min"),
        ("consumer.session.timeout.ms", "60001", "less max"),
        ("consumer.heartbeat.interval.ms", "4999", "greater min"),
        ("consumer.assignment.interval.ms", "0", None),
        ("consumer.assignment.interval.ms", "15001", "less max"),
        ("consumer.heartbeat.interval.ms", "x", NO_NUMBER),
        ("consumer.heartbeats", "1", "Unknown group config name: consumer.heartbeats"),
    ],
)  # fmt: skip
def test_times_of_a_group_stay_within_the_brokers_bounds(name: str, value: str, fault: str | None) -> None:
    rules = BrokerConfigRules(BrokerConfig.from_properties(CONFIG))
    if fault in ("greater min", "less max"):
        word, bound = fault.split()
        fault = f"{name} must be {word} than or equal to {name.replace('consumer', f'group.consumer.{bound}')}"
    assert rules.validate(RESOURCE_GROUP, "g", name, value) == fault


def test_a_session_is_longer_than_a_heartbeat() -> None:
    rules = BrokerConfigRules(BrokerConfig.from_properties({**CONFIG, "group.consumer.max.heartbeat.interval.ms": "90000"}))
    fault = rules.validate_together(RESOURCE_GROUP, {"consumer.heartbeat.interval.ms": "60000"})
    assert fault == "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
    assert rules.validate_together(RESOURCE_GROUP, {"consumer.session.timeout.ms": "50000"}) is None


def described(name: str, keys: list[str] | None = None) -> Any:
    """DescribeConfigs of a group where one property is its own, one of the cluster, one in the broker's file."""
    stored = {
        (RESOURCE_GROUP, "g"): {"consumer.session.timeout.ms": "46000"},
        (RESOURCE_BROKER, ""): {"group.consumer.assignment.interval.ms": "7"},
    }
    image = SimpleNamespace(config=lambda kind, of: stored.get((kind, of), {}))
    config = BrokerConfig.from_properties({**CONFIG, "group.consumer.session.timeout.ms": "50000"})
    metadata: Any = SimpleNamespace(image=image)
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=RESOURCE_GROUP, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    context: Any = None
    return ConfigDescriptions(config, metadata).describe(context, request).results[0]


def test_a_group_is_described_with_the_brokers_values_and_the_defaults() -> None:
    """As Apache Kafka 4.3.0 answers, sources and synonyms included."""
    found = {entry.name: entry for entry in described("g").configs}
    assert len(found) == 17

    def told(name: str) -> tuple[str, int, int, list[tuple[str, str, int]]]:
        entry = found[name]
        return entry.value, entry.config_source, entry.config_type, [(one.name, one.value, one.source) for one in entry.synonyms]

    session = [("group.consumer.session.timeout.ms", "50000", 4), ("group.consumer.session.timeout.ms", "45000", 5)]
    assert told("consumer.session.timeout.ms") == ("46000", 8, 3, [("consumer.session.timeout.ms", "46000", 8), *session])
    assert told("consumer.assignment.interval.ms")[:3] == ("7", 3, 3)
    assert told("consumer.heartbeat.interval.ms") == ("5000", 5, 3, [("group.consumer.heartbeat.interval.ms", "5000", 5)])
    assert told("share.auto.offset.reset") == ("latest", 5, 2, [("share.auto.offset.reset", "latest", 5)])
    assert told("share.renew.acknowledge.enable") == ("true", 5, 1, [("share.renew.acknowledge.enable", "true", 5)])
    assert {entry.name: entry.value for entry in described("other", ["consumer.session.timeout.ms", "nothing"]).configs} == {
        "consumer.session.timeout.ms": "50000"
    }
    refused = described("")
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, "Group name must not be empty")
