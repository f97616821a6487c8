"""The engine without Spark: processes of this machine, no Java and no pyarrow."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class LocalEngine:
    """`processes` 0 means as many as there are usable cores; with one process, or one item, work is done in this one."""

    name = "local"
    is_elsewhere = False

    def __init__(self, processes: int = 0) -> None:
        self.parallelism = processes or _usable_cores()
        self._pool: Any = None

    def open(self) -> None:
        """Fork the processes, as long as this one has no threads.

        The pool ends its processes by SIGTERM, for which this one may have a handler that they inherit: it is held back until they
        have the default action."""
        if self._pool is None and self.parallelism > 1:
            context = multiprocessing.get_context("forkserver" if _threads_run() else "fork")
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            try:
                self._pool = context.Pool(self.parallelism, _end_by_sigterm)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def map(self, function: Callable[[Item], Result], items: list[Item]) -> Iterator[Result]:
        """The results in the order of the items."""
        if self.parallelism == 1 or len(items) < 2:
            for item in items:  # not `yield from map`: a StopIteration inside a function would pass for the end
                yield function(item)
            return
        self.open()
        yield from self._pool.imap_unordered(function, items)

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()
            self._pool = None


def _usable_cores() -> int:
    # macOS does not say which cores a process may use.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_by_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _threads_run() -> bool:
    """Forking a process with threads can deadlock the child; the fork server costs an interpreter start instead."""
    import threading

    return threading.active_count() > 1
