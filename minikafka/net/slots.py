"""How many connections there may be at a time: max.connections of a broker and of each of its listeners (KIP-402)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.net.network import Listener


class ConnectionSlots:
    """What the listeners of a broker share. Who finds no slot waits unaccepted; who reads what is ready elsewhere is not touched.

    The listener that brokers use among themselves takes connections beyond the broker's bound, and the connection of another listener that
    has been quiet for longest is closed for each, as in Kafka's ConnectionQuotas."""

    def __init__(
        self, listeners: Mapping[str, Listener], reserved: str | None, connections_max: int, descriptors_max: int = 1 << 31
    ) -> None:
        """`reserved` names the brokers' listener where there are others; not even it takes more connections than `descriptors_max`."""
        self._listeners = dict(listeners)
        self._reserved = reserved
        self._descriptors_max = descriptors_max
        self._connections_max = min(connections_max, descriptors_max)
        for listener in self._listeners.values():
            listener.share(self)

    def limit(self, connections_max: int) -> None:
        """Another bound; connections above it are closed now, those that may come are taken."""
        self._connections_max = min(connections_max, self._descriptors_max)
        self.settle()
        self.freed()

    def has_room(self, listener: Listener) -> bool:
        """Whether the broker's bound lets this listener take a connection."""
        count = self._count()
        if listener is self._listeners.get(self._reserved or ""):
            # For each of them another's connection is closed, so that it needs only so many more as come at a time.
            return count < self._descriptors_max + self._descriptors_max // 4
        return count < self._connections_max

    def settle(self) -> None:
        """Close what is above the broker's bound."""
        excess = self._count() - self._connections_max
        if excess <= 0:
            return
        others = [entry for name, listener in self._listeners.items() if name != self._reserved for entry in listener.open_connections()]
        for _, connection in sorted(others, key=lambda entry: entry[0])[:excess]:
            connection.close("max.connections is exceeded, and others were quiet for less long")

    def connections_from(self, address: str) -> int:
        """How many connections an address has with all listeners."""
        return sum(listener.connections_from(address) for listener in self._listeners.values())

    def freed(self) -> None:
        """A connection has ended or a bound was raised: let those that wait look again."""
        for listener in self._listeners.values():
            listener.look_for_slot()

    def _count(self) -> int:
        return sum(len(listener.connections) for listener in self._listeners.values())
