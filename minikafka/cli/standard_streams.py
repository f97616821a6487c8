"""Standard output and error of a command: on a full disk, or read by a program that has ended."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import TextIO, cast

#: Commands whose exit status is a verdict, or that run a cluster: nobody who stops reading changes what they find, so they go on. The
#: others end when nobody reads what they write.
GO_ON = frozenset({"audit", "bench", "cluster", "demo", "doctor", "health", "load", "sim", "start", "storage", "verify-files"})
#: Their lines are a log, which may be lost.
LOGS_ONLY = frozenset({"start"})


class Output(io.FileIO):
    """A standard stream. Where nobody reads it, the rest goes nowhere, after one BrokenPipeError unless the command goes on; other errors
    name the stream."""

    def __init__(self, number: int, name: str, *, goes_on: bool, never_fails: bool) -> None:
        """`never_fails`: what cannot be written is lost."""
        super().__init__(number, "wb", closefd=False)
        self._called = name
        self._goes_on = goes_on
        self._never_fails = never_fails

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """As of a file."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR):
                raise
            is_unread = error.errno == errno.EPIPE
            if is_unread or self._never_fails:
                _to_nowhere(self.fileno())
            if self._never_fails or (is_unread and self._goes_on):
                return len(data)
            if is_unread:
                # Without the number click does not take it for its own and end with status 1.
                raise BrokenPipeError(f"nobody reads {self._called}") from None
            raise OSError(error.errno, error.strerror, self._called) from None


def watch(command: str | None) -> None:
    """From now on, `Output` writes what the process writes to its own standard output and error."""
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        goes_on, is_log = command in GO_ON, command in LOGS_ONLY
        sys.stdout = _wrapped(sys.stdout, Output(1, "standard output", goes_on=goes_on, never_fails=is_log))
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        sys.stderr = _wrapped(sys.stderr, Output(2, "standard error", goes_on=True, never_fails=True))


def finish() -> OSError | None:
    """Write what is buffered. Returns why it cannot be written; then nothing is left for Python to try again."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _to_nowhere(1)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        return error
    return None


def _wrapped(before: TextIO, output: Output) -> TextIO:
    before.flush()
    is_terminal = before.isatty()
    buffer = io.BufferedWriter(cast("io.RawIOBase", output))
    return io.TextIOWrapper(buffer, encoding=before.encoding, errors=before.errors, line_buffering=is_terminal or output.fileno() == 2)


def _to_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
