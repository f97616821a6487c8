"""Connections under TLS: frames of every size, regions of files, peers that are slow, silent or speak something else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from minikafka.net import tls
from minikafka.net.network import AuthenticationFailed, ConnectionLimits
from minikafka.net.server import SocketListener, SocketNetwork
from minikafka.net.tls_settings import ClientTls, ServerTls

CA = trustme.CA()
CERTIFICATE = CA.issue_cert("127.0.0.1")


def server_side(**options: Any) -> ServerTls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CERTIFICATE.configure_cert(context)
    return ServerTls(context, **options)


def client_side(authority: trustme.CA = CA) -> ClientTls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return ClientTls(context)


class Echo:
    """Answers every frame with itself, or with a region of the file when it says so."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.regions: list[Region] = []
        self.closed: list[str] = []

    def on_frame(self, connection: Any, frame: memoryview) -> None:
        ticket = connection.begin()
        if self.path is not None and bytes(frame[:4]) == b"file":
            region = Region(self.path, *struct.unpack(">ii", frame[4:12]))
            self.regions.append(region)
            connection.finish(ticket, [struct.pack(">i", region.size + 4), b"head", region])
        else:
            connection.finish(ticket, [struct.pack(">i", len(frame)) + bytes(frame)])

    def on_closed(self, connection: Any, reason: str) -> None:
        self.closed.append(reason)


class Region:
    def __init__(self, path: Path, position: int, size: int) -> None:
        self.file = path.open("rb")
        self.position, self.size = position, size
        self.releases = 0

    def fileno(self) -> int:
        return self.file.fileno()

    def pread(self, count: int, offset: int) -> bytes:
        return os.pread(self.file.fileno(), min(count, self.size - offset), self.position + offset)

    def release(self) -> None:
        self.releases += 1
        self.file.close()


class Caller:
    """Sends frames and gathers answers."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed = asyncio.Event()

    def on_frame(self, connection: Any, frame: memoryview) -> None:
        self.answers.put_nowait(bytes(frame))

    def on_closed(self, connection: Any, reason: str) -> None:
        self.closed.set()

    async def next(self) -> bytes:
        return await self.answers.get()


@contextlib.asynccontextmanager
async def listening(handler: Echo, tls: ServerTls | None = None, **limits: Any) -> AsyncIterator[tuple[SocketNetwork, SocketListener]]:
    network = SocketNetwork(asyncio.get_running_loop())
    listener = await network.listen(
        "127.0.0.1", 0, lambda connection: handler, ConnectionLimits(**limits), tls or server_side()  # type: ignore[arg-type,return-value]
    )
    listener.accept()
    yield network, listener
    listener.close()


async def call(network: SocketNetwork, listener: SocketListener, tls: ClientTls | None = None) -> tuple[Any, Caller]:
    caller = Caller()
    return await network.connect("127.0.0.1", listener.port, caller, tls or client_side()), caller  # type: ignore[arg-type]


async def until(condition: Any, what: str) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"waited in vain for {what}")


async def test_frames_of_every_size_in_both_directions() -> None:
    async with listening(Echo()) as (network, listener):
        connection, caller = await call(network, listener)
        sizes = [1, 2, 100, 16_383, 16_384, 16_385, 70_000, 1_000_000, 9_000_000, 3]
        for size in sizes:
            connection.send([struct.pack(">i", size), os.urandom(1) * size])
        for size in sizes:
            assert len(await caller.next()) == size
        connection.close()


async def test_small_frames_sent_together_arrive_in_order() -> None:
    async with listening(Echo()) as (network, listener):
        connection, caller = await call(network, listener)
        for number in range(5_000):
            connection.send([struct.pack(">ii", 4, number)])
        for number in range(5_000):
            assert int.from_bytes(await caller.next(), "big") == number


async def test_regions_of_files_are_read_and_encrypted_and_released_once(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "log").write_bytes(content)
    echo = Echo(tmp_path / "log")
    async with listening(echo) as (network, listener):
        connection, caller = await call(network, listener)
        wanted = [(0, 10), (5, 100_000), (1_000, 2_900_000), (0, 0), (7, 1)]
        for position, size in wanted:
            connection.send([struct.pack(">i", 12), b"file", struct.pack(">ii", position, size)])
        for position, size in wanted:
            assert await caller.next() == b"head" + content[position : position + size]
        assert [region.releases for region in echo.regions] == [1] * len(wanted)


async def test_an_unread_region_is_released_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(bytes(30_000_000))
    echo = Echo(tmp_path / "log")
    async with listening(echo) as (_network, listener):
        context = client_side().context
        _reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context, limit=1024)
        for _ in range(3):
            writer.write(struct.pack(">i", 12) + b"file" + struct.pack(">ii", 0, 30_000_000))
        await until(lambda: echo.regions, "the region")
        writer.transport.abort()
        await until(lambda: listener.connections == {}, "the end")
        assert [region.releases for region in echo.regions] == [1] * len(echo.regions)


async def test_a_peer_that_does_not_read_is_read_from_no_more_and_then_again() -> None:
    async with listening(Echo(), queued_bytes_max=100_000, pending_answers_max=64) as (_network, listener):
        context = client_side().context
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context, limit=4096)
        frame = struct.pack(">i", 50_000) + b"x" * 50_000
        writer.write(frame * 400)
        await until(lambda: any(c.paused for c in listener.connections.values()), "back-pressure")
        for _ in range(400):
            assert await reader.readexactly(50_004) == frame
        writer.close()


async def test_a_wrong_authority_is_reported_on_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(Echo()) as (network, listener):
        with pytest.raises(AuthenticationFailed, match="the server's certificate is not accepted"):
            await call(network, listener, client_side(trustme.CA()))
        await until(lambda: listener.failed_handshakes_total, "the failure")
        assert "the client does not trust the server's certificate" in caplog.text


async def test_expired_certificate_and_wrong_host_name(caplog: pytest.LogCaptureFixture) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("127.0.0.1", not_after=datetime.now(UTC) - timedelta(hours=1)).configure_cert(context)
    async with listening(Echo(), ServerTls(context)) as (network, listener):
        with pytest.raises(AuthenticationFailed, match="certificate has expired"):
            await call(network, listener)
        await until(lambda: listener.failed_handshakes_total, "the failure")
        assert "the client says that the server's certificate has expired" in caplog.text
    async with listening(Echo()) as (network, listener):
        with pytest.raises(AuthenticationFailed, match="not valid for 'localhost'"):
            await network.connect("localhost", listener.port, Caller(), client_side())  # type: ignore[arg-type]


async def test_required_certificate(caplog: pytest.LogCaptureFixture) -> None:
    tls = server_side()
    CA.configure_trust(tls.context)
    tls.context.verify_mode = ssl.CERT_REQUIRED
    async with listening(Echo(), tls) as (network, listener):
        connection, caller = await call(network, listener)
        await caller.closed.wait()
        assert "showed no certificate (ssl.client.auth=required)" in caplog.text
        client_context = client_side()
        CA.issue_cert("client@x").configure_cert(client_context.context)
        connection, caller = await call(network, listener, client_context)
        connection.send([struct.pack(">i", 2), b"hi"])
        assert await caller.next() == b"hi"
        assert all(c.peer_certificate() for c in listener.connections.values())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"\0\0\0\x1b\0\x12\0\3\0\0\0\1", "a Kafka client that speaks plain text"),
        (b"GET / HTTP/1.1\r\n\r\n", "looks like HTTP"),
        (b"SSH-2.0-x\r\n", "not TLS"),
        (b"\x16\x03\x01\xff\xff" + b"\xff" * 200, "the TLS handshake failed"),
    ],
)
async def test_a_client_of_another_protocol_is_closed_with_a_log_line(
    first: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(Echo()) as (_network, listener):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(first)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        await until(lambda: listener.failed_handshakes_total == 1, "the failure")
        assert said in caplog.text and not listener.connections
        writer.close()


async def test_silent_and_slow_peers_are_closed_and_do_not_delay_others(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(Echo(), server_side(handshake_timeout_ms=400)) as (network, listener):
        silent = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(50)]
        for sock in silent[::2]:
            sock.sendall(b"\x16\x03\x01\x02")
        await until(lambda: len(listener.connections) == 50, "the connections")
        connection, caller = await call(network, listener)
        connection.send([struct.pack(">i", 2), b"hi"])
        assert await caller.next() == b"hi"
        await until(lambda: len(listener.connections) == 1, "the time-out")
        assert "the TLS handshake took too long" in caplog.text
        for sock in silent:
            sock.close()


async def test_a_probe_of_the_port_leaves_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with listening(Echo()) as (_, listener):
        socket.create_connection(("127.0.0.1", listener.port)).close()
        await until(lambda: listener.failed_handshakes_total == 1, "the probe")
        assert "closed the connection" not in caplog.text


async def test_a_server_without_tls_is_named() -> None:
    network = SocketNetwork(asyncio.get_running_loop())
    listener = await network.listen("127.0.0.1", 0, lambda connection: Echo(), ConnectionLimits())  # type: ignore[arg-type,return-value]
    listener.accept()
    with pytest.raises(ConnectionError, match="does it speak TLS"):
        await call(network, listener)
    listener.close()


async def test_a_server_that_ends_in_the_handshake_has_not_refused_the_client() -> None:
    """A broker that dies is asked again, one that refuses is not. Python 3.11.2 says SSLZeroReturnError here, later ones SSLEOFError."""
    network = SocketNetwork(asyncio.get_running_loop())
    with socket.create_server(("127.0.0.1", 0)) as server:

        def end() -> None:
            accepted, _ = server.accept()
            accepted.recv(65536)
            accepted.close()

        ending = asyncio.get_running_loop().run_in_executor(None, end)
        with pytest.raises(ConnectionError, match="closed the connection during the TLS handshake") as raised:
            await call(network, SimpleNamespace(port=server.getsockname()[1]))  # type: ignore[arg-type]
        assert not isinstance(raised.value, AuthenticationFailed)
        await ending


async def test_limits_count_handshakes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(Echo(), connections_max=2) as (network, listener):
        monkeypatch.setattr(tls, "HANDSHAKE_TIMEOUT_MS", 500)
        silent = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(2)]
        await until(lambda: len(listener.connections) == 2, "the connections")
        with pytest.raises(ConnectionError):
            await call(network, listener)
        monkeypatch.undo()
        for sock in silent:
            sock.close()
        await until(lambda: not listener.connections, "room")
        await call(network, listener)
