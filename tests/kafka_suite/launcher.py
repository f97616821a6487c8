"""Forks nodes from a process that has everything imported: `python launcher.py SOCKET`. It and its nodes end when its input does.

A connection carries one line, "PROPERTIES TAB OUTPUT TAB LOGIN-FILE TAB PRINCIPALS", and is answered with the process id. What the child
runs is `minikafka start --config PROPERTIES`; that nothing has to be imported is a second of a core for each node. PRINCIPALS is the socket
where it asks whose a connection is: a test may have a class of its own for that."""

from __future__ import annotations

import base64
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from minikafka.broker import node
from minikafka.broker.front.dispatch import Dispatcher
from minikafka.broker.security.node_security import ListenerSecurity
from minikafka.broker.security.sasl_session import SaslSession
from minikafka.cli.start import start
from minikafka.net.network import Connection, ConnectionHandler
from minikafka.testing import zygote

LINE_BYTES = 8192
PRINCIPAL_BYTES = 1024


def serve(listener: socket.socket) -> None:
    """Start nodes until the standard input ends."""
    zygote.prepare()
    gc.freeze()
    nodes: dict[int, int] = {}
    watched = select.epoll()
    watched.register(listener, select.EPOLLIN)
    watched.register(sys.stdin, select.EPOLLIN | select.EPOLLHUP)
    print("ready", flush=True)
    while True:
        for descriptor, _ in watched.poll():
            if descriptor == listener.fileno():
                _answer(listener, watched, nodes)
            elif descriptor in nodes:
                os.waitpid(nodes.pop(descriptor), 0)
                watched.unregister(descriptor)
                os.close(descriptor)
            else:
                _kill(nodes)
                return


def _kill(nodes: dict[int, int]) -> None:
    for descriptor, pid in nodes.items():
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        os.waitpid(pid, 0)


def _answer(listener: socket.socket, watched: select.epoll, nodes: dict[int, int]) -> None:
    connection, _ = listener.accept()
    with connection:
        properties, output, login, principals = connection.recv(LINE_BYTES).decode().rstrip("\n").split("\t")
        pid = os.fork()
        if pid == 0:
            _run(properties, output, login, principals)
        descriptor = os.pidfd_open(pid)
        nodes[descriptor] = pid
        watched.register(descriptor, select.EPOLLIN)
        connection.sendall(str(pid).encode())


def _ask_principals(principals: str, properties: str) -> None:
    """Let the test say whose a connection is."""
    plain: Callable[[Callable[[], Dispatcher], str, Connection], ConnectionHandler] = node._session
    plain_done = SaslSession._done

    def ask(listener: str, address: str, certificate: str, user: str = "") -> str:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(principals)
            asking.sendall(f"{properties}\t{listener}\t{address}\t{certificate}\t{user}\n".encode())
            return asking.recv(PRINCIPAL_BYTES).decode()

    def session(dispatcher: Callable[[], Dispatcher], listener: str, connection: Connection) -> ConnectionHandler:
        connection.principal = ask(listener, connection.peer_host, "") or connection.principal
        return plain(dispatcher, listener, connection)

    def certificate_principal(security: ListenerSecurity, certificate: bytes | None) -> str | None:
        return ask(security.name, "127.0.0.1", base64.b64encode(certificate or b"").decode() or "none") or None

    def done(session: SaslSession, connection: Connection) -> int:
        lifetime_ms = plain_done(session, connection)
        assert session._authenticated_as is not None
        user, _ = session._authenticated_as
        connection.principal = ask(session._listener, connection.peer_host, "", user) or connection.principal
        return lifetime_ms

    node._session = session
    SaslSession._done = done  # type: ignore[method-assign]
    ListenerSecurity.certificate_principal = certificate_principal  # type: ignore[method-assign]


def _run(properties: str, output: str, login: str, principals: str) -> None:
    """The life of a child; does not return."""
    status = 1
    try:
        os.setsid()
        target = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(target, 1)
        os.dup2(target, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        if login:
            os.environ["KAFKA_OPTS"] = f"-Djava.security.auth.login.config={login}"
        if principals:
            _ask_principals(principals, properties)
        start.main(["--config", properties], prog_name="minikafka start", standalone_mode=True)
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """The process."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen(64)
        serve(listener)


if __name__ == "__main__":
    main()
