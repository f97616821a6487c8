"""The TLS settings of listeners and of connections."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

HANDSHAKE_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class ClientTls:
    """How to open TLS connections: with which context. The certificate must name the host when `context.check_hostname`."""

    context: ssl.SSLContext


@dataclass(slots=True)
class ServerTls:
    """How a listener speaks TLS; `context` may be replaced while it listens and holds for the next connections."""

    context: ssl.SSLContext
    handshake_timeout_ms: int = field(default=HANDSHAKE_TIMEOUT_MS)
