"""Limits the number of connections: max.connections (broker-wide and per listener) and max.connections.per.ip (KIP-402)."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from minikafka.net.slots import ConnectionSlots

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.config.dynamic import Settings
    from minikafka.broker.environment import Environment
    from minikafka.net.network import Listener

logger = logging.getLogger("minikafka.network")

PROPERTY = "max.connections"
PROPERTY_OF_ADDRESSES = "max.connections.per.ip.overrides"


class ConnectionLimiter:
    """Applies the current connection limits to the broker's listeners."""

    def __init__(self, config: BrokerConfig, settings: Settings, listeners: Mapping[str, Listener], environment: Environment) -> None:
        self._settings = settings
        self._supervisor = environment.supervisor
        self._listeners = listeners
        reserved = config.inter_broker_listener if len(listeners) > 1 else None
        self._slots = ConnectionSlots(listeners, reserved, settings.max_connections, environment.connections_max)
        #: max.connections.per.ip.overrides as configured: host name or address -> limit.
        #: `_of_addresses` holds the same limits with host names resolved.
        self._overrides: dict[str, int] = {}
        self._of_addresses: dict[str, int] = {}
        self._looking_up: asyncio.Task[None] | None = None
        settings.watch(self._apply)
        self._apply()

    def _apply(self) -> None:
        overrides = self._settings.max_connections_per_ip_overrides
        if overrides != self._overrides:
            self._overrides = overrides
            self._of_addresses = {host: count for host, count in overrides.items() if _is_address(host)}
            names = {host: count for host, count in overrides.items() if not _is_address(host)}
            if self._looking_up is not None:
                self._looking_up.cancel()
            self._looking_up = self._supervisor.start(self._look_up(names), PROPERTY_OF_ADDRESSES) if names else None
        self._limit()

    def _limit(self) -> None:
        settings = self._settings
        for name, listener in self._listeners.items():
            listener.limit(int(settings.of_listener(name, PROPERTY)), settings.max_connections_per_ip, self._of_addresses)
        self._slots.limit(settings.max_connections)

    async def _look_up(self, names: Mapping[str, int]) -> None:
        """Resolve host names once, when the setting changes, as Kafka does."""
        for name, count in names.items():
            try:
                found = await asyncio.get_running_loop().getaddrinfo(name, None)
            except OSError as error:
                logger.warning("max.connections.per.ip.overrides: %s has no address: %s", name, error)
                continue
            self._of_addresses = {**dict.fromkeys((str(address[0]) for *_, address in found), count), **self._of_addresses}
        self._limit()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
