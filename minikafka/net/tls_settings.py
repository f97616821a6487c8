"""The TLS settings of listeners and of connections."""

from __future__ import annotations

import ssl
from dataclasses import field

from minikafka.late_dataclass import dataclass

HANDSHAKE_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS settings of outgoing connections. With `context.check_hostname` the peer's certificate must name its host."""

    context: ssl.SSLContext


@dataclass(slots=True)
class ServerTls:
    """TLS settings of a listener. `context` may be replaced while it listens; the new one applies to later connections."""

    context: ssl.SSLContext
    handshake_timeout_ms: int = field(default=HANDSHAKE_TIMEOUT_MS)
