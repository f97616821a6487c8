"""Configuration of one consumer group (KIP-848): within what the broker allows."""

from __future__ import annotations

import pytest
from helpers.coordinator_world import CONFIG

from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.config.rules import BrokerConfigRules
from minikafka.core.metadata.image import RESOURCE_GROUP

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
