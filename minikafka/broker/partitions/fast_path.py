"""What the fast paths of Produce and Fetch share: how a connection learns templates of its requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from minikafka.wire.errors import WireError
from minikafka.wire.header import RequestHeader, decode_request_header

if TYPE_CHECKING:
    from minikafka.broker.front.fast_path import Refer
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.supervise import Supervisor
    from minikafka.net.network import Connection

MISSES_MAX = 64
#: Longer requests, not counting their records, get no template.
TEMPLATE_BYTES_MAX = 1024
#: Bound on the templates of an API and connection. A template's objects take several times as many bytes as the request, and some for each
#: partition.
TEMPLATES_BYTES_MAX, PARTITION_BYTES = 128 * 1024, 64
#: Frames longer than MUCH_BYTES are decoded only up to ELEMENTS_MAX elements; no request with a template has as many.
MUCH_BYTES, ELEMENTS_MAX = 8 * 1024, 512
#: API key, version, correlation id.
HEAD = Struct(">hhi")
Key = TypeVar("Key")
Value = TypeVar("Value")


class Counted(Protocol):
    """The dispatcher's entry of an API, which counts requests by version."""

    name: str
    counts: list[int]
    supervisor: Supervisor


#: Called with version and request; a template is learned only if it returns true.
Permits = Callable[[int, Any], bool]


class TemplateFastPath(ABC):
    """The fast path of one API on one connection. Subclasses set `_misses` to 0 when they have learned a template."""

    puts_off: bool = False

    __slots__ = ("_counts", "_entry", "_kept_bytes", "_misses", "_permits", "_refer", "_replicas")

    def __init__(self, replicas: ReplicaManager, entry: Counted, refer: Refer, permits: Permits | None = None) -> None:
        """`entry` counts the served requests. If `permits` is None, every template may be learned."""
        self._replicas = replicas
        self._entry = entry
        self._counts = entry.counts
        self._refer = refer
        self._misses = 0
        #: What the templates take, roughly.
        self._kept_bytes = 0
        self._permits = permits

    @abstractmethod
    def serve(self, connection: Connection, frame: memoryview) -> bool:
        """See FastPath: serve a request that matches a template."""

    def complete(self) -> None:  # noqa: B027 - nothing is put off, unless a subclass does it
        """See FastPath."""

    @abstractmethod
    def forget(self) -> None:
        """Forget everything learned from earlier requests. The fast path may learn again."""
        self._kept_bytes = self._misses = 0

    def _keep(self, frame_bytes: int, partitions: int) -> None:
        """Make room for a template of a request of so many bytes, without its records."""
        size = frame_bytes + PARTITION_BYTES * partitions
        if self._kept_bytes + size > TEMPLATES_BYTES_MAX:
            self.forget()
        self._kept_bytes += size

    def _decode(self, frame: memoryview, request_class: Any, version_min: int) -> tuple[int, RequestHeader, int, Any, int] | None:
        """Version, header and its end position, request and its end position. None if the frame can have no template, or if so many
        frames of this connection had none that further attempts do not pay."""
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
        return version, header, position, request, end


def remember(table: dict[Key, Value], key: Key, value: Value, most: int) -> Value:
    """Add an entry to a table of bounded size; a full table is cleared first."""
    if len(table) >= most:
        table.clear()
    table[key] = value
    return value
