"""A very small HTTP/1.1 server: /metrics, /healthz, /readyz, the page /ui and its JSON. GET and HEAD; no body is read.

It only reads: nothing can be changed through it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.broker.node import Node

logger = logging.getLogger("minikafka.http")
HEAD_BYTES_MAX = 8192
READ_TIMEOUT_S = 5.0
#: The page brings everything with it and talks to nobody else.
PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"


class HttpServer:
    """Serves a node's state to probes and scrapers."""

    def __init__(self, node: Node) -> None:
        from minikafka.broker.cluster_view import ClusterView
        from minikafka.broker.metrics.node import NodeMetrics

        self._node = node
        self._metrics = NodeMetrics(node)
        self._view = ClusterView(node)
        self._server: asyncio.Server | None = None
        self.port = -1

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host or None, port, limit=HEAD_BYTES_MAX)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
        await self._view.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), READ_TIMEOUT_S)
            method, _, rest = head.decode("latin-1").partition(" ")
            status, kind, body = await self._answer(method, rest.split(" ", 1)[0].split("?", 1)[0])
            lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close"]
            lines += ["X-Content-Type-Options: nosniff", "Cache-Control: no-store", f"Content-Security-Policy: {PAGE_POLICY}", "", ""]
            writer.write("\r\n".join(lines).encode() + (b"" if method == "HEAD" else body))
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, method: str, path: str) -> tuple[str, str, bytes]:
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", "text/plain", b"only GET and HEAD\n"
        if path == "/metrics":
            return "200 OK", METRICS_TYPE, await self._scraped()
        if path == "/healthz":
            failed = self._node.failed.done()
            return ("503 Service Unavailable" if failed else "200 OK"), "application/json", _json({"alive": not failed})
        if path == "/readyz":
            ready, why = self._readiness()
            return ("200 OK" if ready else "503 Service Unavailable"), "application/json", _json({"ready": ready, "reason": why})
        if path in ("/ui", "/ui/"):
            return "200 OK", "text/html; charset=utf-8", resources.files("minikafka.broker").joinpath("ui.html").read_bytes()
        if path == "/v1/cluster":
            return "200 OK", "application/json", _json(await self._view.get())
        return "404 Not Found", "text/plain", b"try /ui, /v1/cluster, /metrics, /healthz or /readyz\n"

    async def _scraped(self) -> bytes:
        """The metrics, made in steps between which the broker works on."""
        pieces = []
        for piece in self._metrics.steps():
            pieces.append(piece)
            await asyncio.sleep(0)
        return b"".join(pieces)

    def _readiness(self) -> tuple[bool, str]:
        node = self._node
        if node.failed.done():
            return False, f"failed: {node.failed.result()}"
        if not node.ready.is_set():
            return False, "starting"
        if node.broker is not None and node.broker.lifecycle.fenced:
            return False, "fenced by the controller"
        return True, "in service"


def _json(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"
