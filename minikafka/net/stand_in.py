"""A wrapper of a connection that others take for the connection itself."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Has everything that the connection has. It is equal to the connection and to its other stand-ins: whoever keeps requests by their
    connection must see that they came on the same one."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Any) -> None:
        """`connection` may be a stand-in, too."""
        self._connection = connection

    @property
    def origin(self) -> Any:
        """The connection itself."""
        connection = self._connection
        return connection.origin if isinstance(connection, StandIn) else connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __eq__(self, other: object) -> bool:
        return bool(self.origin == (other.origin if isinstance(other, StandIn) else other))

    def __hash__(self) -> int:
        return hash(self.origin)
