"""Counting lines doubles or trebles the time that Python takes. So each test counts them in its first 0.2 s of CPU time: what runs longer
plays the same lines again. Tests that measure do without it from the start.

In a worker of pytest-xdist there are two counters. Stopping the inner one resumes the outer one.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import coverage

#: CPU time of one test (in its own process, all threads) in which lines are counted, in seconds.
COUNTED_CPU_S = 0.2
#: What has been stopped, the outermost last.
_stopped: list[coverage.Coverage] = []
_is_spent = False


def _pause() -> None:
    while (running := coverage.Coverage.current()) is not None:
        running.stop()
        _stopped.append(running)


def _resume() -> None:
    while _stopped:
        _stopped.pop().start()


@contextmanager
def without_coverage() -> Iterator[None]:
    """Count no lines meanwhile."""
    _pause()
    try:
        yield
    finally:
        if not _is_spent:
            _resume()


@contextmanager
def coverage_at_first(cpu_s: float = COUNTED_CPU_S) -> Iterator[None]:
    """Lines are counted until `cpu_s` of CPU time are spent, and again afterwards."""
    global _is_spent  # noqa: PLW0603
    if coverage.Coverage.current() is None:
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        global _is_spent  # noqa: PLW0603
        _is_spent = True
        _pause()

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        _is_spent = False
        _resume()
