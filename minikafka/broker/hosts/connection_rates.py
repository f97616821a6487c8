"""How many new connections a second a broker takes: max.connection.creation.rate, of all its listeners together and of each (KIP-612)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minikafka.broker.config import ConfigurationError
from minikafka.broker.config_table import BROKER_PROPERTIES
from minikafka.core.client_quota import WindowedRate

if TYPE_CHECKING:
    from minikafka.broker.config import BrokerConfig
    from minikafka.broker.hosts.settings import Settings

UNLIMITED = 2**31 - 1
PROPERTY = "max.connection.creation.rate"


def creation_rates(config: BrokerConfig) -> dict[str, int]:
    """Limits of single listeners, from listener.name.NAME.max.connection.creation.rate. Raises ConfigurationError."""
    entry = BROKER_PROPERTIES.get(PROPERTY)
    found = {}
    for endpoint in config.broker_listeners:
        name = f"listener.name.{endpoint.name.lower()}.{PROPERTY}"
        text = next((text for given, text in config.given.items() if given.lower() == name), None)
        if text is not None and entry is not None:
            try:
                found[endpoint.name] = int(entry.parse(text))
            except ValueError as error:
                raise ConfigurationError([f"{name}={text}: {error}"]) from error
    return found


class ConnectionRates:
    """Counts over the windows of quota.window.num and quota.window.size.seconds, as Kafka's ConnectionQuotas does.

    The broker's limit is not for its inter-broker listener where it has others, so that clients cannot keep brokers apart."""

    def __init__(self, config: BrokerConfig, settings: Settings, now_ms: Callable[[], int], of_listeners: dict[str, int]) -> None:
        """`of_listeners`: connections a second of listeners that have a limit of their own."""
        self._settings = settings
        self._now_ms = now_ms
        self._windows = (config.quota_window_num, 1000 * config.quota_window_size_seconds)
        self._broker = WindowedRate(*self._windows)
        self._of_listeners = {name: (limit, WindowedRate(*self._windows)) for name, limit in of_listeners.items()}
        self._protected = config.inter_broker_listener if len(config.broker_listeners) > 1 else None

    def of(self, listener: str) -> Callable[[], int]:
        """What a listener asks about each new connection: for how many milliseconds it and those after it must wait."""
        return lambda: self._pause_ms(listener)

    def _pause_ms(self, listener: str) -> int:
        pause_ms, limit = 0, int(self._settings.max_connection_creation_rate)
        if limit < UNLIMITED and listener != self._protected:
            pause_ms = self._counted(self._broker, limit)
        own = self._of_listeners.get(listener)
        return pause_ms if own is None else max(pause_ms, self._counted(own[1], own[0]))

    def _counted(self, rate: WindowedRate, limit: int) -> int:
        now_ms, (count, window_ms) = self._now_ms(), self._windows
        rate.add(1, now_ms)
        longest_ms = count * window_ms
        return min(rate.pause_ms(limit, now_ms), longest_ms) if limit > 0 else longest_ms
