"""Lines of standard input for a coroutine, which Ctrl-C and errors end although nothing more is typed.

A thread of an executor would be waited for until the next line: Ctrl-C would do nothing. This one may be left behind. It reads the
descriptor itself, because Python cannot end while such a thread holds the lock of a buffered file.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable

CHUNK_BYTES = 1 << 16


class Lines:
    """`async for line in Lines()`: each with its end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._read = _reader()
        self._asked: queue.SimpleQueue[asyncio.Future[bytes]] = queue.SimpleQueue()
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._is_over = False
        threading.Thread(target=self._run, name="standard-input", daemon=True).start()

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> bytes:
        """The next line. Raises OSError if standard input cannot be read."""
        while not self._lines:
            chunk = b"" if self._is_over else await self._chunk()
            if not chunk:
                self._is_over = True
                if not self._parts:
                    raise StopAsyncIteration
                self._end_line()
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                self._parts.append(line + b"\n")
                self._end_line()
            if rest:
                self._parts.append(rest)
        return self._lines.popleft()

    def _end_line(self) -> None:
        self._lines.append(b"".join(self._parts))
        self._parts.clear()

    async def _chunk(self) -> bytes:
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._asked.put(answer)
        return await answer

    def _run(self) -> None:
        chunk = b"more"
        while chunk:
            answer = self._asked.get()
            chunk, error = b"", None
            try:
                chunk = self._read()
            except OSError as failure:
                error = failure
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(_settle, answer, chunk, error)


def _settle(answer: asyncio.Future[bytes], chunk: bytes, error: OSError | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(chunk)


def _reader() -> Callable[[], bytes]:
    """What waits for the next bytes of standard input."""
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:  # a test's
        return sys.stdin.buffer.readline
    return lambda: os.read(descriptor, CHUNK_BYTES)
