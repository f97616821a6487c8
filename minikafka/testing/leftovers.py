"""Temporary directories that go away with the process that made them, even if it is killed."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from pathlib import Path

#: Waits for the end of its standard input, which only the owner of the directory holds open. Brokers that die with the owner may still
#: write for a moment.
_SCRIPT = 'cat; for try in 1 2 3; do rm -rf -- "$1"; [ -e "$1" ] || exit; sleep 1; done'


class TemporaryDirectory:
    """A directory, and a small process that removes it when this process ends in any way."""

    def __init__(self, prefix: str, *, watched: bool = True) -> None:
        """Make it. Not `watched`: something else removes it if this process is killed."""
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._remover: subprocess.Popen[bytes] | None = None
        if watched:
            command = ["/bin/sh", "-c", _SCRIPT, "minikafka-remover", str(self.path)]
            null = subprocess.DEVNULL
            # Where there is no shell, `remove` still works. In a session of its own, Ctrl-C in the terminal does not end it too early.
            with contextlib.suppress(OSError):
                self._remover = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=null, stderr=null, cwd="/", start_new_session=True
                )

    def remove(self) -> None:
        """Remove it now. Safe to call again."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._end()

    def keep(self) -> None:
        """Let it stay after this process."""
        if self._remover is not None:
            self._remover.kill()
        self._end()

    def _end(self) -> None:
        remover, self._remover = self._remover, None
        if remover is not None:
            assert remover.stdin is not None
            remover.stdin.close()
            remover.wait()
