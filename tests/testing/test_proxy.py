"""The faulty network: what passes, what waits, what is reset, and who is who."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from minikafka.testing.proxy import CLIENT, FaultyNetwork

NODE, OTHER = 7, 8
QUIET_S = 0.3
TIMEOUT_S = 10.0
Connect = Callable[[], socket.socket]


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that returns what it gets, a connection a thread."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


@pytest.fixture
def network() -> Iterator[FaultyNetwork]:
    made = FaultyNetwork(lambda: {os.getpid(): OTHER})
    yield made
    made.close()


@pytest.fixture
def connect(network: FaultyNetwork, echo: int) -> Iterator[Connect]:
    port = network.front(NODE, echo)
    opened: list[socket.socket] = []

    def make() -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        opened.append(connection)
        return connection

    yield make
    for connection in opened:
        connection.close()


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(QUIET_S)
    try:
        return connection.recv(1) is None
    except TimeoutError:
        return True
    finally:
        connection.settimeout(TIMEOUT_S)


def exchange(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return receive(connection, len(data))


def receive(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (chunk := connection.recv(size - len(found))):
        found += chunk
    return found


def test_bytes_pass_in_order(connect: Connect) -> None:
    data = os.urandom(300_000)
    connection = connect()
    sender = threading.Thread(target=connection.sendall, args=(data,))
    sender.start()
    assert receive(connection, len(data)) == data
    sender.join()


def test_an_end_is_passed_on(connect: Connect) -> None:
    connection = connect()
    connection.sendall(b"last")
    connection.shutdown(socket.SHUT_WR)
    assert receive(connection, 100) == b"last"


@pytest.mark.parametrize("link", [(OTHER, NODE), (NODE, OTHER)], ids=["there", "back"])
def test_a_cut_direction_holds_bytes_until_it_heals(network: FaultyNetwork, connect: Connect, link: tuple[int, int]) -> None:
    connection = connect()
    assert exchange(connection, b"before") == b"before"
    network.cut([link])
    connection.sendall(b"held")
    assert is_silent(connection)
    network.heal()
    assert receive(connection, 4) == b"held"


def test_links_of_others_go_on(network: FaultyNetwork, connect: Connect) -> None:
    connection = connect()
    network.cut([(CLIENT, NODE), (NODE, CLIENT), (5, NODE)])
    assert exchange(connection, b"through") == b"through"


def test_a_connection_over_a_cut_link_is_half_open(network: FaultyNetwork, connect: Connect) -> None:
    network.cut([(OTHER, NODE)])
    connection = connect()
    connection.sendall(b"hello?")
    assert is_silent(connection)
    network.heal(reset=True)
    with pytest.raises(ConnectionError):
        if receive(connection, 1) == b"":
            raise ConnectionError("closed")


def test_healing_with_a_reset_spares_whole_connections(network: FaultyNetwork, echo: int, connect: Connect) -> None:
    whole = connect()
    assert exchange(whole, b"x") == b"x"
    port = network.front(9, echo)
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as broken:
        assert exchange(broken, b"x") == b"x"
        network.cut([(9, OTHER)])
        network.heal(reset=True)
        with pytest.raises(ConnectionError):
            if receive(broken, 1) == b"":
                raise ConnectionError("closed")
    assert exchange(whole, b"y") == b"y"


def test_delays_add_up_to_a_slow_link(network: FaultyNetwork, connect: Connect) -> None:
    connection = connect()
    network.delay([(OTHER, NODE), (NODE, OTHER)], 0.1)
    started = time.monotonic()
    assert exchange(connection, b"x") == b"x"
    assert time.monotonic() - started >= 0.2
    network.heal()
    assert exchange(connection, b"x") == b"x"


def test_a_reset_is_felt(network: FaultyNetwork, connect: Connect) -> None:
    connection = connect()
    assert exchange(connection, b"x") == b"x"
    network.reset([(NODE, OTHER)])
    with pytest.raises(ConnectionError):
        if receive(connection, 1) == b"":
            raise ConnectionError("closed")


def test_another_process_is_another_node(network: FaultyNetwork, echo: int) -> None:
    port = network.front(NODE, echo)
    network.cut([(OTHER, NODE)])
    script = "import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5); c.sendall(b'x'); print(c.recv(1))"
    done = subprocess.run([sys.executable, "-c", script, str(port)], capture_output=True, text=True, check=False)
    assert done.stdout == "b'x'\n", done.stderr


def test_no_server_listens_behind_the_proxy(network: FaultyNetwork) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = network.front(NODE, holder.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection, pytest.raises(ConnectionError):
            if receive(connection, 1) == b"":
                raise ConnectionError("closed")


def test_a_silenced_connection_is_dead_without_notice(network: FaultyNetwork, connect: Connect) -> None:
    connection = connect()
    assert exchange(connection, b"before") == b"before"
    assert network.silence([(OTHER, NODE)]) == 1
    connection.sendall(b"lost")
    assert is_silent(connection)
    network.heal(reset=True)
    assert is_silent(connection), "no cut has made it so"
    assert exchange(connect(), b"another") == b"another"
    assert network.silence([(OTHER, NODE)]) == 1, "the one before is counted once"
