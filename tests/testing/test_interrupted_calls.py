"""A command to the nursery that a signal interrupts: its answer, which comes later, is no answer to another command."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from minikafka.testing import processes
from minikafka.testing.errors import ClusterError
from minikafka.testing.nursery import Nursery
from minikafka.testing.processes import ProcessHost, Zygote


class Echoing(Nursery):
    """A nursery that answers when it is told to."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def do_take_environment(self, directory: str | None, environment: dict[str, str]) -> None:
        """Leave the environment of the tests alone."""

    def do_echo(self, text: str) -> str:
        """Answer at once."""
        return text

    def do_late(self) -> str:
        """Answer when it may."""
        self.asked.set()
        self.may_answer.wait()
        return "late"

    def do_fail(self) -> None:
        """Answer with an error."""
        raise ValueError("no")


@pytest.fixture
def nursery(monkeypatch: pytest.MonkeyPatch) -> Iterator[Echoing]:
    ours, theirs = socket.socketpair()
    made = Echoing(theirs)
    thread = threading.Thread(target=made.serve, daemon=True)
    monkeypatch.setattr(Zygote, "begin", type("Standing", (), {"nursery": lambda self: ours}))
    thread.start()
    yield made
    made.may_answer.set()
    ours.close()
    thread.join()
    theirs.close()


def test_an_answer_that_comes_after_the_interruption(nursery: Echoing) -> None:
    """`cluster up`, stopped while it started, read the end of another command as that of a broker that had not ended."""
    host = ProcessHost()

    def interrupt() -> None:
        nursery.asked.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    # Workers of pytest-xdist ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            host.call("late")
    finally:
        signal.signal(signal.SIGINT, before)
    nursery.may_answer.set()
    assert host.call("echo", text="mine") == "mine"


def test_the_error_of_a_command_without_a_wait(nursery: Echoing) -> None:
    """It took the place of the answer, for good."""
    host = ProcessHost()
    host.post("fail")
    with pytest.raises(ClusterError, match="no"):
        host.call("echo", text="first")
    assert host.call("echo", text="second") == "second"


def interrupted_at(line: int, call: Callable[[], Any]) -> bool:
    """Run a call, and raise KeyboardInterrupt where it begins its n-th line in the module; False if it has fewer."""
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_filename != processes.__file__ or frame.f_code.co_name == "call":
            return trace
        seen += event == "line"
        if event == "line" and seen == line:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interruption_anywhere(nursery: Echoing) -> None:
    host = ProcessHost()
    line = 1
    while interrupted_at(line, lambda: host.call("echo", text="lost")):
        assert host.call("echo", text=f"mine {line}") == f"mine {line}"
        line += 1
    assert line > 5


@pytest.mark.parametrize("sent", [1, 10, -1])
def test_half_a_command(nursery: Echoing, sent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the interruption came while the connection was full."""
    host = ProcessHost()
    connection = host._connection

    class Half:
        def sendall(self, data: bytes) -> None:
            connection.sendall(data[:sent])
            raise KeyboardInterrupt

    monkeypatch.setattr(host, "_connection", Half())
    with pytest.raises(KeyboardInterrupt):
        host.call("echo", text="lost")
    monkeypatch.undo()
    assert host.call("echo", text="mine") == "mine"
