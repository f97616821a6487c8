"""max.connection.creation.rate (KIP-612): new connections beyond the rate wait, none is lost; altered while the broker runs."""

from __future__ import annotations

import re
import time

import pytest

from minikafka.broker.front.connection_rates import ConnectionRates
from minikafka.core.metadata.image import RESOURCE_BROKER
from minikafka.testing import EmbeddedBroker, EmbeddedCluster, inspection
from minikafka.testing.errors import WrongConfiguration

pytestmark = pytest.mark.timeout(60)
PROPERTY = "max.connection.creation.rate"
#: Two samples of a second, so that a rate shows at once.
WINDOWS = {"quota.window.num": 2, "quota.window.size.seconds": 1}


def seconds_of_connections(broker: EmbeddedCluster, count: int) -> float:
    began = time.monotonic()
    for _ in range(count):
        assert inspection.brokers_of(broker.broker(1).address) == {1}
    return time.monotonic() - began


def alter(broker: EmbeddedCluster, value: str | None) -> None:
    change = ("delete" if value is None else "set", PROPERTY, value)
    broker.admin.call(lambda admin: admin.alter_configs(RESOURCE_BROKER, "", [change]))
    settings = broker.broker(1).process._runner.node.broker.settings
    wanted = 2**31 - 1 if value is None else int(value)
    broker.wait_until(lambda: settings.max_connection_creation_rate == wanted, "the rate to be known", 5)


def test_a_rate_that_is_set_while_the_broker_runs_makes_connections_wait() -> None:
    with EmbeddedBroker(config=WINDOWS) as broker:
        alter(broker, "10")
        # Ten at once, and four for which there must be time.
        assert seconds_of_connections(broker, 14) > 0.3
        alter(broker, None)
        broker.wait_until(lambda: seconds_of_connections(broker, 1) < 0.2, "the pause to be over", 5)
        assert broker.broker(1).process._runner.node.listeners["PLAINTEXT"]._pace() == 0


def test_a_listener_has_a_rate_of_its_own() -> None:
    with EmbeddedBroker(config={**WINDOWS, f"listener.name.plaintext.{PROPERTY}": 10}) as broker:
        assert seconds_of_connections(broker, 14) > 0.3


def test_a_rate_that_is_none_is_refused() -> None:
    name = f"listener.name.plaintext.{PROPERTY}"
    with pytest.raises(WrongConfiguration, match=re.escape(f"{name}=many")), EmbeddedBroker(config={name: "many"}):
        pass


class _Config:
    quota_window_num, quota_window_size_seconds = 2, 1
    inter_broker_listener = "INTERNAL"

    def __init__(self, *names: str) -> None:
        self.broker_listeners = [type("Endpoint", (), {"name": name}) for name in names]


class _Settings:
    max_connection_creation_rate = 2

    def __init__(self, **of_listeners: int) -> None:
        self._of_listeners = of_listeners

    def of_listener(self, listener: str, name: str) -> int:
        assert name == PROPERTY
        return self._of_listeners.get(listener, self.max_connection_creation_rate)


def test_the_listener_of_the_brokers_is_not_held_back_by_clients() -> None:
    """What Apache Kafka 4.3 does, too: each listener has the broker's rate for itself."""
    rates = ConnectionRates(_Config("CLIENT", "INTERNAL"), _Settings(), lambda: 0)  # type: ignore[arg-type]
    client, internal = rates.of("CLIENT"), rates.of("INTERNAL")
    assert [client() for _ in range(4)] == [0, 0, 500, 1000]
    assert [internal() for _ in range(3)] == [0, 0, 500]
    only = ConnectionRates(_Config("INTERNAL"), _Settings(), lambda: 0).of("INTERNAL")  # type: ignore[arg-type]
    assert [only() for _ in range(3)] == [0, 0, 500]


def test_a_listener_with_a_rate_of_its_own_beside_the_brokers() -> None:
    config, settings = _Config("CLIENT", "INTERNAL"), _Settings(INTERNAL=4, CLIENT=1000)
    rates = ConnectionRates(config, settings, lambda: 0)  # type: ignore[arg-type]
    assert [rates.of("INTERNAL")() for _ in range(6)] == [0, 0, 0, 0, 250, 500]
    assert [rates.of("CLIENT")() for _ in range(3)] == [0, 0, 500], "the broker's holds for clients all the same"
