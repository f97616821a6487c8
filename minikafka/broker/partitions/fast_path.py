"""What the fast paths of Produce and Fetch share: how a connection learns the templates of its requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from minikafka.wire.errors import WireError
from minikafka.wire.header import RequestHeader, decode_request_header

if TYPE_CHECKING:
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.net.network import Connection

MISSES_MAX = 64
#: Longer requests have no template, apart from their records.
TEMPLATE_BYTES_MAX = 1024
#: A longer frame is looked into only as far as this many elements: no request with a template has as many.
MUCH_BYTES, ELEMENTS_MAX = 8 * 1024, 512
#: API key, version, correlation id.
HEAD = Struct(">hhi")
Key = TypeVar("Key")
Value = TypeVar("Value")


class Counted(Protocol):
    """The dispatcher's entry of an API: its requests by version."""

    counts: list[int]


#: Asked with version and request before a template is learned.
Permits = Callable[[int, Any], bool]


class TemplateFastPath(ABC):
    """The fast path of one API on one connection. `_misses` is to become 0 when a template has been learned."""

    __slots__ = ("_counts", "_misses", "_permits", "_replicas")

    def __init__(self, replicas: ReplicaManager, entry: Counted, permits: Permits | None = None) -> None:
        """`entry` counts the requests that are served; `permits` None: every template may be learned."""
        self._replicas = replicas
        self._counts = entry.counts
        self._misses = 0
        self._permits = permits

    @abstractmethod
    def serve(self, connection: Connection, frame: memoryview) -> bool:
        """Serve a request of a known template; False leaves everything as it was."""

    @abstractmethod
    def forget(self) -> None:
        """Forget what was learned; the fast path may learn again."""

    def _decode(self, frame: memoryview, request_class: Any, version_min: int) -> tuple[int, RequestHeader, Any, int] | None:
        """Version, header, request and its end; None for a frame that has no template, and once so many of the connection had none that
        trying costs more than it may bring."""
        if self._misses >= MISSES_MAX or len(frame) < HEAD.size:
            return None
        _, version, _ = HEAD.unpack_from(frame)
        if not version_min <= version <= request_class.MAX_VERSION:
            return None
        self._misses += 1
        try:
            header, position = decode_request_header(frame)
            if len(frame) > MUCH_BYTES and request_class.decode_few(version, frame, position, ELEMENTS_MAX) is None:
                return None
            request, end = request_class.decode_from(version, frame, position)
        except WireError:
            return None
        if self._permits is not None and not self._permits(version, request):
            return None
        return version, header, request, end


def remember(table: dict[Key, Value], key: Key, value: Value, most: int) -> Value:
    """Add to a table of bounded size; one that is full begins anew."""
    if len(table) >= most:
        table.clear()
    table[key] = value
    return value
