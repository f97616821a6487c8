"""The engine without Spark: processes of this machine, no Java and no pyarrow."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class LocalEngine:
    """`processes` 0 means as many as there are usable cores; with one process, or one item, work is done in this one."""

    name = "local"
    is_elsewhere = False

    def __init__(self, processes: int = 0) -> None:
        self.parallelism = processes or len(os.sched_getaffinity(0))
        self._pool: Any = None

    def open(self) -> None:
        """Fork the processes, as long as this one has no threads."""
        if self._pool is None and self.parallelism > 1:
            self._pool = multiprocessing.get_context("forkserver" if _threads_run() else "fork").Pool(self.parallelism)

    def map(self, function: Callable[[Item], Result], items: list[Item]) -> Iterator[Result]:
        if self.parallelism == 1 or len(items) < 2:
            yield from map(function, items)
            return
        self.open()
        yield from self._pool.imap_unordered(function, items)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()
            self._pool = None


def _threads_run() -> bool:
    """Forking a process with threads can deadlock the child; the fork server costs an interpreter start instead."""
    import threading

    return threading.active_count() > 1
