"""The engine of processes lives in other people's programs: what they do with signals and threads is theirs."""

from __future__ import annotations

import operator
import signal
import threading
from collections.abc import Iterator

import pytest

from minikafka.spark.engine_local import LocalEngine

pytestmark = pytest.mark.timeout(20)


@pytest.fixture
def deaf() -> Iterator[None]:
    """A program with a handler for SIGTERM of its own, which forked processes inherit."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.usefixtures("deaf")
def test_it_ends_its_processes_whatever_the_program_does_at_sigterm(threads: int) -> None:
    ended = threading.Event()
    others = [threading.Thread(target=ended.wait) for _ in range(threads)]
    for other in others:
        other.start()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    try:
        for _ in range(10):
            engine = LocalEngine(2)
            assert sorted(engine.map(operator.neg, [1, 2, 3])) == [-3, -2, -1]
            engine.close()
            engine.close()
        engine.open()
        engine.close()
    finally:
        ended.set()
        for other in others:
            other.join()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == mask


def test_work_left_undone_is_dropped() -> None:
    engine = LocalEngine(2)
    first = next(iter(engine.map(operator.neg, list(range(1000)))))
    engine.close()
    assert first <= 0
