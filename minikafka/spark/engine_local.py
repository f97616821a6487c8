"""The engine without Spark: runs tasks in processes on this machine, and needs neither Java nor pyarrow."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from minikafka.orphans import end_with_parent, quiet_context

Item = TypeVar("Item")
Result = TypeVar("Result")
Value = TypeVar("Value")
Context = TypeVar("Context")
Key = tuple[str, int]
#: Calls queued for each process.
AHEAD = 4
LOOK_SECONDS = 1.0
KILLED_MAX = 5
_END: Any = object()


class ProcessKilledError(RuntimeError):
    """A process of the pool died during its work."""


class LocalEngine:
    """Runs an audit or a load in processes of this machine; `processes` 0 means one for each usable core."""

    name = "local"
    is_elsewhere = False

    def __init__(self, processes: int = 0) -> None:
        self.parallelism = processes or _usable_cores()
        self._pool: Any = None
        self._pids: set[int] = set()

    def open(self) -> None:
        """Fork the processes, while this one has no threads.

        The pool ends its processes with SIGTERM. They could inherit a handler from this process, so SIGTERM is blocked until they have
        restored the default action."""
        if self._pool is None and self.parallelism > 1:
            context = quiet_context(has_threads=_threads_run())
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            try:
                self._pool = context.Pool(self.parallelism, _begin_worker)
                self._pids = {one.pid for one in self._pool._pool}
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def map(self, function: Callable[[Item], Result], items: list[Item]) -> Iterator[Result]:
        """The results in the order of the items. Only a few results are computed ahead. If a process is killed, its work is repeated, at
        most KILLED_MAX times."""
        if self.parallelism == 1 or len(items) < 2:
            for item in items:  # not `yield from map`: a StopIteration inside a function would pass for the end
                yield function(item)
            return
        self.open()
        pool, killed = self._pool, 0
        waiting: deque[tuple[Item, Any]] = deque()
        following = iter(items)
        while True:
            while len(waiting) < AHEAD * self.parallelism and (item := next(following, _END)) is not _END:
                waiting.append((item, pool.apply_async(function, (item,))))
            if not waiting:
                return
            try:
                result = self._result(pool, waiting[0][1])
            except ProcessKilledError:
                killed += 1
                if killed > KILLED_MAX:
                    raise
                if self._pool is pool:
                    self.close()
                    self.open()
                pool = self._pool
                waiting = deque((item, pool.apply_async(function, (item,))) for item, _ in waiting)
                continue
            waiting.popleft()
            yield result

    def _result(self, pool: Any, pending: Any) -> Any:
        """The result of an asynchronous call. A killed process loses its call, and the pool silently starts another process."""
        while True:
            with contextlib.suppress(multiprocessing.TimeoutError):
                return pending.get(LOOK_SECONDS)
            is_whole = self._pool is pool and {one.pid for one in pool._pool} == self._pids
            if not is_whole and not pending.ready():
                raise ProcessKilledError("a worker process was killed, perhaps because the machine ran out of memory")

    def gather(
        self, function: Callable[[Item], list[Value]], items: list[Item], key_of: Callable[[Value], Key],
        groups: dict[Key, tuple[Context, int]], finish: Callable[[tuple[Context, list[Value]]], Result],
        watch: Callable[[list[Value]], None], keys_of: Callable[[Item], Iterable[Key]],
    ) -> Iterator[Result]:  # fmt: skip
        """For this package: as audit.Engine.gather.

        Groups are finished as they become complete, then the incomplete ones. Complete ones wait only until
        there is one for each process, because this process holds their values."""
        held: dict[Key, list[Value]] = {key: [] for key in groups}
        whole: list[tuple[Context, list[Value]]] = []
        for values in self.map(function, items):
            watch(values)
            for value in values:
                key = key_of(value)
                held[key].append(value)
                if len(held[key]) == groups[key][1]:
                    whole.append((groups[key][0], held.pop(key)))
            if len(whole) >= self.parallelism:
                yield from self.map(finish, whole)
                whole.clear()
        yield from self.map(finish, whole)
        yield from self.map(finish, [(groups[key][0], values) for key, values in held.items()])

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()
            self._pool = None


def _usable_cores() -> int:
    # macOS has no sched_getaffinity.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _begin_worker() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    end_with_parent()


def _threads_run() -> bool:
    """Whether this process has threads. Forking then could deadlock the child, so a fork server is used, which starts an interpreter."""
    import threading

    return threading.active_count() > 1
