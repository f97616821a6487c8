"""`minikafka top` on a terminal: it goes on while a broker dies, and q ends it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from minikafka.testing import EmbeddedCluster
from minikafka.testing.wait import LoadAdjustedDeadline

pytestmark = pytest.mark.timeout(60)
ROOT = Path(__file__).parents[2]


class Terminal:
    """A command on a terminal of its own. It is not forked from here: the cluster's threads run in this process."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.descriptor, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 110, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "minikafka", *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env={**os.environ, **environment, "TERM": "xterm-256color"},
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.shown = b""

    def wait(self, text: bytes, timeout_s: float = 20) -> None:
        deadline = LoadAdjustedDeadline(timeout_s)
        while text not in self.shown:
            assert not deadline.is_over, self._output_text()
            assert self._read(0.1), f"it ended with {self.process.wait()}: {self._output_text()}"

    def _output_text(self) -> str:
        return self.shown[-3000:].decode(errors="replace")

    def _read(self, timeout_s: float) -> bool:
        """False when nobody can write any more."""
        if not select.select([self.descriptor], [], [], timeout_s)[0]:
            return True
        try:
            self.shown += os.read(self.descriptor, 1 << 16)
        except OSError:
            return False
        return True

    def press(self, keys: bytes) -> None:
        os.write(self.descriptor, keys)

    def end(self) -> tuple[int, str]:
        """Exit status, and the last that it showed."""
        while self._read(1):
            pass
        os.close(self.descriptor)
        return self.process.wait(), self._output_text()


def test_it_goes_on_while_a_broker_dies_and_ends_with_q() -> None:
    with EmbeddedCluster(3, topics={"orders": {"partitions": 1}}) as cluster:
        terminal = Terminal("top", "--interval", "0.1", MINIKAFKA_BOOTSTRAP=cluster.bootstrap_servers)
        terminal.wait(b"orders-0")
        terminal.wait(b"under-replicated 0")
        cluster.broker(cluster.leader("orders", 0)).kill()
        terminal.wait(b"under-replicated 1")
        terminal.press(b"x")
        terminal.press(b"q")
        status, output = terminal.end()
        assert status == 0, output
