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

NO_ASSIGNOR = "streams.assignor.name 'none' is not a registered task assignor. Registered assignors are: [sticky]."
NO_NUMBER = "Invalid value x for configuration consumer.heartbeat.interval.ms: Not a number of type INT"


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("consumer.session.timeout.ms", "50000", None),
        ("consumer.session.timeout.ms", "44999", "in the range 45000 to 60000 inclusive."),
        ("consumer.session.timeout.ms", "60001", "in the range 45000 to 60000 inclusive."),
        ("consumer.heartbeat.interval.ms", "4999", "in the range 5000 to 15000 inclusive."),
        ("consumer.assignment.interval.ms", "0", None),
        ("consumer.assignment.interval.ms", "15001", "in the range 0 to 15000 inclusive."),
        ("streams.num.standby.replicas", "2", None),
        ("streams.num.standby.replicas", "3", "less than or equal to 2"),
        ("streams.task.offset.interval.ms", "14999", "greater than or equal to 15000"),
        ("streams.initial.rebalance.delay.ms", "2147483647", None),
        ("streams.acceptable.recovery.lag", "9223372036854775807", None),
        ("streams.rack.aware.assignment.tags", "zone, cluster", None),
        ("streams.rack.aware.assignment.tags", "zone, zone", "streams.rack.aware.assignment.tags must not contain duplicate tag keys."),
        ("streams.assignor.name", "sticky", None),
        ("streams.assignor.name", "none", NO_ASSIGNOR),
        ("consumer.heartbeat.interval.ms", "x", NO_NUMBER),
        ("consumer.heartbeats", "1", "Unknown group config name: consumer.heartbeats"),
    ],
)  # fmt: skip
def test_times_of_a_group_stay_within_the_brokers_bounds(name: str, value: str, fault: str | None) -> None:
    rules = BrokerConfigRules(BrokerConfig.from_properties(CONFIG))
    if fault is not None and fault.startswith(("in ", "less ", "greater ")):
        fault = f"{name} must be {fault}"
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
    """As Apache Kafka 4.4.0 answers, sources and synonyms included; what its brokers hide is hidden of groups."""
    found = {entry.name: entry for entry in described("g").configs}
    assert len(found) == 21
    assert not found.keys() & {"streams.task.offset.interval.ms", "streams.acceptable.recovery.lag", "streams.num.warmup.replicas"}

    def described_as(name: str) -> tuple[str, int, int, list[tuple[str, str, int]]]:
        entry = found[name]
        return entry.value, entry.config_source, entry.config_type, [(one.name, one.value, one.source) for one in entry.synonyms]

    session = [("group.consumer.session.timeout.ms", "50000", 4), ("group.consumer.session.timeout.ms", "45000", 5)]
    assert described_as("consumer.session.timeout.ms") == ("46000", 8, 3, [("consumer.session.timeout.ms", "46000", 8), *session])
    assert described_as("consumer.assignment.interval.ms")[:3] == ("7", 3, 3)
    assert described_as("consumer.heartbeat.interval.ms") == ("5000", 5, 3, [("group.consumer.heartbeat.interval.ms", "5000", 5)])
    assert described_as("streams.assignor.name") == ("sticky", 5, 2, [("group.streams.assignors", "sticky", 5)])
    assert described_as("share.auto.offset.reset") == ("latest", 5, 2, [("share.auto.offset.reset", "latest", 5)])
    assert described_as("share.renew.acknowledge.enable") == ("true", 5, 1, [("share.renew.acknowledge.enable", "true", 5)])
    assert {entry.name: entry.value for entry in described("other", ["consumer.session.timeout.ms", "nothing"]).configs} == {
        "consumer.session.timeout.ms": "50000"
    }
    refused = described("")
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, "Group name must not be empty")
