"""A minimal HTTP/1.1 server for /metrics, /healthz, /readyz, the page /ui and its JSON.

It supports GET and HEAD only, reads no request bodies, and cannot change anything.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from minikafka.net.tasks import within

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.observe.observed import ObservedNode

logger = logging.getLogger("minikafka.http")
HEAD_BYTES_MAX = 8192
READ_TIMEOUT_S = 5.0
WRITE_TIMEOUT_S = 30.0
#: Bound on connections. Beyond it the one whose client keeps it waiting for longest is closed: otherwise every probe would fail while
#: somebody sends or reads nothing on that many connections. If none is waiting, the new one is closed.
CONNECTIONS_MAX = 64
ANY_NAME = "*"
#: Rows of a long list that are encoded in one turn of the loop.
ROWS_AT_ONCE = 256
#: The page is self-contained and connects to this server only.
PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"


class HttpServer:
    """Serves a node's state to probes and scrapers."""

    def __init__(self, node: ObservedNode) -> None:
        from minikafka.broker.observe.cluster_view import ClusterView
        from minikafka.broker.observe.metrics.node import NodeMetrics
        from minikafka.broker.observe.topic_view import TopicView

        self._node = node
        self._metrics = NodeMetrics(node)
        self._view = ClusterView(node)
        self._topics = TopicView(node, self._view)
        self._server: asyncio.Server | None = None
        self._names = _names_of(node.config)
        self._open = 0
        #: Connections that wait for their clients, the longest first.
        self._waiting: dict[asyncio.StreamWriter, None] = {}
        self.refused_total = 0
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
        if self._open >= CONNECTIONS_MAX:
            self.refused_total += 1
            if not self._waiting:
                writer.close()
                return
            # Its handler ends with the connection.
            longest = next(iter(self._waiting))
            del self._waiting[longest]
            longest.transport.abort()
        self._open += 1
        try:
            head = await self._wait(writer, READ_TIMEOUT_S, _head(reader))
            method, _, rest = head.decode("latin-1").partition(" ")
            if not method:
                status, kind, body = "400 Bad Request", "text/plain", b"this port speaks HTTP only\n"
            elif self._is_own_name(_host_of(head)):
                status, kind, body = await self._answer(method, rest.split(" ", 1)[0])
            else:
                status, kind, body = "421 Misdirected Request", "text/plain", b"this host name is not allowed (minikafka.http.names)\n"
            lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close"]
            lines += ["X-Content-Type-Options: nosniff", "Cache-Control: no-store", f"Content-Security-Policy: {PAGE_POLICY}", "", ""]
            writer.write("\r\n".join(lines).encode() + (b"" if method == "HEAD" else body))
            await self._wait(writer, WRITE_TIMEOUT_S, _sent(writer))
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            self._open -= 1
            if writer.transport.get_write_buffer_size():
                # `close` would keep unread data for as long as the peer likes.
                writer.transport.abort()
            else:
                writer.close()

    async def _wait(self, writer: asyncio.StreamWriter, timeout_s: float, work: Coroutine[Any, Any, bytes | None]) -> bytes:
        """Wait for the connection's client: the result of `work`."""
        self._waiting[writer] = None
        try:
            return await within(timeout_s, work) or b""
        finally:
            self._waiting.pop(writer, None)

    def _is_own_name(self, host: str) -> bool:
        """Whether the request's host name belongs to this node.

        A web page whose name resolves to this address (DNS rebinding) uses its own name.
        """
        return not host or "." not in host or host in self._names or ANY_NAME in self._names or _is_address(host)

    async def _answer(self, method: str, target: str) -> tuple[str, str, bytes]:
        path, _, query = target.partition("?")
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", "text/plain", b"only GET and HEAD\n"
        if path == "/metrics":
            return "200 OK", METRICS_TYPE, await self._render_metrics()
        if path == "/healthz":
            failed = self._node.failed.done()
            return ("503 Service Unavailable" if failed else "200 OK"), "application/json", _json({"alive": not failed})
        if path == "/readyz":
            ready, why = self._readiness()
            return ("200 OK" if ready else "503 Service Unavailable"), "application/json", _json({"ready": ready, "reason": why})
        if path in ("/ui", "/ui/"):
            return "200 OK", "text/html; charset=utf-8", _page()
        if path == "/v1/cluster":
            return "200 OK", "application/json", await json_in_steps(await self._view.get())
        if path in ("/v1/configs", "/v1/records"):
            return await self._query(path, dict(parse_qsl(query, keep_blank_values=True)))
        return "404 Not Found", "text/plain", b"try /ui, /v1/cluster, /v1/configs, /v1/records, /metrics, /healthz or /readyz\n"

    async def _query(self, path: str, parameters: dict[str, str]) -> tuple[str, str, bytes]:
        from minikafka.broker.observe.topic_view import Refused

        try:
            answer = await (self._topics.configs(parameters) if path == "/v1/configs" else self._topics.records(parameters))
        except Refused as refused:
            return refused.status, "application/json", _json({"error": str(refused)})
        return "200 OK", "application/json", _json(answer)

    async def _render_metrics(self) -> bytes:
        """The metrics, rendered in steps so that the broker can do other work in between."""
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
        if node.broker is not None and (trouble := node.broker.lifecycle.trouble) is not None:
            return False, trouble
        return True, "in service"


def _names_of(config: BrokerConfig) -> set[str]:
    names = {name.lower() for name in config.minikafka_http_names}
    return names | {endpoint.host.lower() for endpoint in config.advertised.values()} | {socket.gethostname().lower()}


async def _head(reader: asyncio.StreamReader) -> bytes:
    """The request's head; nothing if it cannot be HTTP: a Kafka client that took this port for the broker's is told at once."""
    first = await reader.readexactly(1)
    return first + await reader.readuntil(b"\r\n\r\n") if first.isalpha() else b""


def _host_of(head: bytes) -> str:
    """The request's Host header in lower case, without the port; "" if it is missing."""
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() == "host":
            host = value.strip().lower()
            return host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _sent(writer: asyncio.StreamWriter) -> None:
    """Wait until the peer's system has received everything."""
    writer.transport.set_write_buffer_limits(high=0)
    await writer.drain()


def _json(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"


async def json_in_steps(value: dict[str, object]) -> bytes:
    """As `_json`, but the long lists among the values are encoded in steps, between which the loop serves others."""
    members = []
    for key, held in value.items():
        text = []
        rows: list[object] = held if isinstance(held, list) else []
        for start in range(0, len(rows), ROWS_AT_ONCE):
            text.append(json.dumps(rows[start : start + ROWS_AT_ONCE])[1:-1])
            await asyncio.sleep(0)
        members.append(f"{json.dumps(key)}: " + (f"[{', '.join(text)}]" if rows else json.dumps(held)))
    return ("{" + ", ".join(members) + "}").encode() + b"\n"


def _page() -> bytes:
    from importlib import resources

    return resources.files("minikafka.broker.observe").joinpath("ui.html").read_bytes()
