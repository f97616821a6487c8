"""Which properties of brokers can be altered while they run, and for how many; texts are those of Kafka's DynamicBrokerConfig."""

from __future__ import annotations

import pytest

from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.config.rules import STORES, BrokerConfigRules
from minikafka.core.metadata.image import RESOURCE_BROKER

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
