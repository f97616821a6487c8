"""The bound on open connections: max.connections of a broker and of each of its listeners (KIP-402)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.net.network import Listener


class ConnectionSlots:
    """The bound that the listeners of a broker share. A connection beyond it stays in the kernel's accept queue.

    The inter-broker listener accepts connections beyond the bound; for each of them the connection of another listener that has been idle
    longest is closed, as in Kafka's ConnectionQuotas."""

    def __init__(
        self, listeners: Mapping[str, Listener], reserved: str | None, connections_max: int, descriptors_max: int = 1 << 31
    ) -> None:
        """`reserved`: name of the inter-broker listener, None if it is the only listener. `descriptors_max` bounds that listener too."""
        self._listeners = dict(listeners)
        self._reserved = reserved
        self._descriptors_max = descriptors_max
        self._connections_max = min(connections_max, descriptors_max)
        for listener in self._listeners.values():
            listener.share(self)

    def limit(self, connections_max: int) -> None:
        """Set another bound. Connections above it are closed now; waiting ones below it are accepted."""
        self._connections_max = min(connections_max, self._descriptors_max)
        self.settle()
        self.freed()

    def has_room(self, listener: Listener) -> bool:
        """Whether the broker's bound lets this listener accept a connection."""
        count = self._count()
        if listener is self._listeners.get(self._reserved or ""):
            # `settle` closes a connection of another listener for each, so the count rises above the bound only briefly.
            return count < self._descriptors_max + self._descriptors_max // 4
        return count < self._connections_max

    def settle(self) -> None:
        """Close connections above the broker's bound, those of the other listeners that have been idle longest."""
        excess = self._count() - self._connections_max
        if excess <= 0:
            return
        others = [entry for name, listener in self._listeners.items() if name != self._reserved for entry in listener.open_connections()]
        for _, connection in sorted(others, key=lambda entry: entry[0])[:excess]:
            connection.close("max.connections is exceeded, and this connection has been idle longest")

    def connections_from(self, address: str) -> int:
        """How many connections an address has with all listeners."""
        return sum(listener.connections_from(address) for listener in self._listeners.values())

    def freed(self) -> None:
        """A connection has ended or a bound was raised: let waiting listeners check again."""
        for listener in self._listeners.values():
            listener.accept_if_slot()

    def _count(self) -> int:
        return sum(len(listener.connections) for listener in self._listeners.values())
