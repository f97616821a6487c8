"""Runs the asynchronous clients from code without an event loop: Spark tasks, threads, scripts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

Result = TypeVar("Result")


class BlockingLoop:
    """An event loop that runs only during a call of `run`. A context manager; not safe for use by several threads at once.

    If the calling thread already runs an event loop (a notebook does), the work is done in another thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._elsewhere: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run the coroutine. Returns or raises what it does."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run_until_complete(work)
        if self._elsewhere is None:
            self._elsewhere = ThreadPoolExecutor(1, "blocking-loop")
        return self._elsewhere.submit(self._loop.run_until_complete, work).result()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        """Cancel the tasks that are still running. Closing again does nothing."""
        if self._loop.is_closed():
            return
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            self.run(_ended(left))
        if self._elsewhere is not None:
            self._elsewhere.shutdown()
        self._loop.close()


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
