"""A blocking face of what is asynchronous here, for code without an event loop: tasks of Spark, threads, scripts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

Result = TypeVar("Result")


class BlockingLoop:
    """An event loop that runs while somebody waits in `run`, and stands still else; a context manager. Not for several threads at once.

    In a thread that runs a loop of its own (a notebook's cell), the work is done in another thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._elsewhere: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What the coroutine returns or raises."""
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
        """Cancel what is under way. Closing again does nothing."""
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
