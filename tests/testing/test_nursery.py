"""What the nursery says of a node that ends while it starts."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from minikafka.testing.nursery import Nursery, _Child


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import os; os.kill(os.getpid(), 9)", "it has ended by SIGKILL; its log is /x/broker.log"),
        ("raise SystemExit(3)", "it has ended with exit status 3; its log is /x/broker.log"),
    ],
)
def test_a_node_that_ends_while_it_starts(program: str, said: str) -> None:
    """It was only said to have ended."""
    connection, _ = socket.socketpair()
    nursery = Nursery(connection)
    ours, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    pid = os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", program], os.environ)
    theirs.close()
    nursery._children[1] = _Child(pid, ours, "/x/broker.log")
    with pytest.raises(ConnectionError, match=said):
        nursery.do_started(1, 30)


def test_a_node_that_is_stopped_before_it_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It ignored the signal like its parent, started, and was killed 20 s later."""
    fork = os.fork

    def fork_and_stop() -> int:
        pid = fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return pid

    connection, _ = socket.socketpair()
    nursery = Nursery(connection)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        monkeypatch.setattr(os, "fork", fork_and_stop)
        nursery.do_spawn(1, {}, str(tmp_path / "broker.log"), "INFO")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert nursery.do_wait(1, 30) == -signal.SIGTERM
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
