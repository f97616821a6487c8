"""Time-outs of tests count seconds as far as there are cores: where ten tasks compete for each, ten seconds count as one.

The hook of pytest-timeout that starts a test's timer; a fixed time-out says more about the machine than about the test.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pytest_timeout import timeout_sigalrm

from minikafka.testing.wait import LoadAdjustedDeadline

#: After the first look at a test's deadline, it is looked at this many times per time-out.
LOOKS = 4


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: Any, settings: Any) -> bool | None:
    """Start the timer of a test. Other threads than the main one, and other methods than signals, are left to pytest-timeout."""
    if settings.method != "signal" or threading.current_thread() is not threading.main_thread():
        return None
    end = partial(timeout_sigalrm, item, settings)
    signal.signal(signal.SIGALRM, look_at(LoadAdjustedDeadline(settings.timeout), settings.timeout, end))
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    item.cancel_timeout = _cancel
    return True


def look_at(deadline: LoadAdjustedDeadline, timeout_s: float, end: Callable[[], object]) -> Callable[..., None]:
    """A signal handler that ends the test when its time is over, and otherwise looks again later."""

    def look(*_: object) -> None:
        __tracebackhide__ = True
        if deadline.is_over:
            end()
        else:
            signal.setitimer(signal.ITIMER_REAL, timeout_s / LOOKS)

    return look


def _cancel() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
