"""Limits the rate of new connections: max.connection.creation.rate, broker-wide and per listener (KIP-612)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minikafka.core.client_quota import WindowedRate

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.config.dynamic import Settings

UNLIMITED = 2**31 - 1
PROPERTY = "max.connection.creation.rate"


class ConnectionRates:
    """Counts over the windows of quota.window.num and quota.window.size.seconds, as Kafka's ConnectionQuotas does.

    The broker-wide limit exempts the inter-broker listener if there is another listener, so that clients cannot cut brokers off from each
    other. `listener.name.NAME.max.connection.creation.rate` limits one listener; without it, the broker-wide value limits each listener
    by itself, too."""

    def __init__(self, config: BrokerConfig, settings: Settings, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._windows = (config.quota_window_num, 1000 * config.quota_window_size_seconds)
        self._broker = WindowedRate(*self._windows)
        self._of_listeners = {endpoint.name: WindowedRate(*self._windows) for endpoint in config.broker_listeners}
        self._protected = config.inter_broker_listener if len(config.broker_listeners) > 1 else None

    def of(self, listener: str) -> Callable[[], int]:
        """A function that the listener calls for each new connection. It returns how many milliseconds to wait before accepting more."""
        return lambda: self._pause_ms(listener)

    def _pause_ms(self, listener: str) -> int:
        pause_ms, limit = 0, int(self._settings.max_connection_creation_rate)
        if limit < UNLIMITED and listener != self._protected:
            pause_ms = self._counted(self._broker, limit)
        own = int(self._settings.of_listener(listener, PROPERTY))
        return pause_ms if own >= UNLIMITED else max(pause_ms, self._counted(self._of_listeners[listener], own))

    def _counted(self, rate: WindowedRate, limit: int) -> int:
        now_ms, (count, window_ms) = self._now_ms(), self._windows
        rate.add(1, now_ms)
        longest_ms = count * window_ms
        return min(rate.pause_ms(limit, now_ms), longest_ms) if limit > 0 else longest_ms
