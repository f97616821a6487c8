"""One TLS connection that breaks takes no other of its thread with it (CPython issue 148594)."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Iterator

import pytest
import trustme
from helpers import openssl_queue

from minikafka.net.network import ConnectionLimits
from minikafka.net.server import SocketNetwork
from minikafka.net.tls_settings import ClientTls, ServerTls
from minikafka.openssl import forget_failures
from minikafka.security.client import ClientSecurity
from minikafka.spark.fetch_client import BrokerError, Connection
from minikafka.spark.security import Security
from minikafka.testing import EmbeddedBroker, probe


@pytest.fixture(autouse=True)
def empty_queue() -> Iterator[None]:
    yield
    forget_failures()


def test_the_queue_is_empty_when_failures_are_forgotten() -> None:
    for _ in range(3):
        openssl_queue.leave_behind()
    assert not openssl_queue.is_empty()
    forget_failures()
    assert openssl_queue.is_empty()
    forget_failures()
    assert openssl_queue.is_empty()


class Echo:
    def on_frame(self, connection: object, frame: memoryview) -> None:
        connection.finish(connection.begin(), [struct.pack(">i", len(frame)) + bytes(frame)])  # type: ignore[attr-defined]

    def on_closed(self, connection: object, reason: str) -> None:
        pass


class Caller:
    def __init__(self) -> None:
        self.answers: asyncio.Queue[str] = asyncio.Queue()

    def on_frame(self, connection: object, frame: memoryview) -> None:
        self.answers.put_nowait(bytes(frame).decode())

    def on_closed(self, connection: object, reason: str) -> None:
        self.answers.put_nowait(f"closed: {reason}")


def leave_rudely(port: int, context: ssl.SSLContext, resets: bool) -> None:
    """Connect, ask, and go without reading the answer and without a close_notify."""
    with socket.create_connection(("127.0.0.1", port)) as plain:
        if resets:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        tls = context.wrap_socket(plain, server_hostname="127.0.0.1")
        tls.sendall(struct.pack(">i", 5) + b"alone")
        socket.socket.close(tls)


@pytest.mark.parametrize("resets", [False, True], ids=["ends", "resets"])
async def test_an_abrupt_disconnect_affects_no_other_connection(resets: bool) -> None:
    authority = trustme.CA()
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("127.0.0.1").configure_cert(ours)
    authority.configure_trust(theirs)
    network, caller = SocketNetwork(asyncio.get_running_loop()), Caller()
    listener = await network.listen("127.0.0.1", 0, lambda _: Echo(), ConnectionLimits(), ServerTls(ours))
    listener.accept()
    connection = await network.connect("127.0.0.1", listener.port, caller, ClientTls(theirs))
    for number in range(10):
        await asyncio.to_thread(leave_rudely, listener.port, theirs, resets)
        connection.send([struct.pack(">i", 1), b"%d" % number])
        assert await caller.answers.get() == str(number)
    while len(listener.connections) > 1:
        await asyncio.sleep(0.01)
    # What newer versions of OpenSSL leave behind, on older ones too.
    other = await network.connect("127.0.0.1", listener.port, Caller(), ClientTls(theirs))
    other._socket.unwrap = openssl_queue.broken_pipe  # type: ignore[attr-defined]
    other.close()
    assert openssl_queue.is_empty()
    connection.close()
    listener.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security="SSL") as made:
        yield made


def security_of(broker: EmbeddedBroker) -> Security:
    assert broker.secured is not None
    return Security.from_properties(broker.secured.client_properties())


def test_the_reader_of_the_audit_leaves_nothing_behind(broker: EmbeddedBroker) -> None:
    with Connection("127.0.0.1", broker.port, security_of(broker)) as connection:
        connection.socket.read = openssl_queue.broken_pipe  # type: ignore[attr-defined]
        with pytest.raises(BrokerError, match="does not answer: Broken pipe"):
            connection.metadata()
        assert openssl_queue.is_empty()


def test_the_probe_of_a_cluster_leaves_nothing_behind(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert broker.secured is not None
    monkeypatch.setattr(probe, "_receive", openssl_queue.broken_pipe)
    with pytest.raises(BrokenPipeError):
        probe.metadata("127.0.0.1", broker.port, security=ClientSecurity.from_properties(broker.secured.client_properties()))
    assert openssl_queue.is_empty()
