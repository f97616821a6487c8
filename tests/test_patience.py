"""A test's time-out counts seconds as far as there are cores."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from helpers import patience

from minikafka.testing.wait import LoadAdjustedDeadline


@pytest.mark.parametrize(("load_factor", "looks"), [(0.5, 1), (1.0, 1), (2.0, 5), (10.0, 37)])
def test_a_test_has_the_longer_the_more_tasks_compete(monkeypatch: pytest.MonkeyPatch, load_factor: float, looks: int) -> None:
    now_s, timers, ended = 0.0, [60.0], []
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: timers.append(seconds))
    deadline = LoadAdjustedDeadline(60, load_factor=lambda: load_factor, now_s=lambda: now_s)
    look = patience.look_at(deadline, 60, lambda: ended.append(now_s))
    while not ended:
        now_s += timers[-1] + 0.001
        look(signal.SIGALRM, None)
    assert len(timers) == looks
    assert ended == [pytest.approx(60 * max(load_factor, 1), rel=0.01)]


def test_this_test_is_timed_so(request: pytest.FixtureRequest) -> None:
    handler: Any = signal.getsignal(signal.SIGALRM)
    assert handler.__qualname__ == "look_at.<locals>.look"
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
