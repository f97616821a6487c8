"""How many connections a broker has: max.connections, of all its listeners and of each, and max.connections.per.ip (KIP-402)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from minikafka.net.slots import ConnectionSlots

if TYPE_CHECKING:
    from minikafka.broker.config import BrokerConfig
    from minikafka.broker.hosts.settings import Settings
    from minikafka.net.network import Listener

PROPERTY = "max.connections"


class ConnectionLimiter:
    """Keeps the bounds of the broker's listeners as the settings are now."""

    def __init__(self, config: BrokerConfig, settings: Settings, listeners: Mapping[str, Listener]) -> None:
        self._settings = settings
        self._listeners = listeners
        reserved = config.inter_broker_listener if len(listeners) > 1 else None
        self._slots = ConnectionSlots(listeners, reserved, settings.max_connections)
        settings.watch(self._apply)
        self._apply()

    def _apply(self) -> None:
        settings = self._settings
        for name, listener in self._listeners.items():
            listener.limit(int(settings.of_listener(name, PROPERTY)), settings.max_connections_per_ip)
        self._slots.limit(settings.max_connections)
