"""What collections of garbage set aside, and when everything is looked at again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from minikafka.net import garbage
from minikafka.net.garbage import BLOCKS_MIN, LONG_S, STAYED_S, THRESHOLDS, GarbagePauses


class Collector:
    """Python's, with objects that are only counted. A collection takes 40 ns for each that is not set aside."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []
        self.now_s = 0.0
        self.young = self.frozen = 0
        self.thresholds: tuple[int, ...] = ()

    def collect(self) -> None:
        pass

    def set_threshold(self, *thresholds: int) -> None:
        self.thresholds = thresholds

    def freeze(self) -> None:
        self.young, self.frozen = 0, self.young + self.frozen

    def unfreeze(self) -> None:
        self.young, self.frozen = self.young + self.frozen, 0

    def blocks(self) -> int:
        return 3 * (self.young + self.frozen)

    def full(self, dead: int = 0, generation: int = 2) -> float:
        """One collection, in which so many turn out to be dead; how long it took."""
        for callback in self.callbacks:
            callback("start", {"generation": generation})
        took_s = self.young * 4e-8
        self.now_s += took_s
        self.young -= dead
        for callback in self.callbacks:
            callback("stop", {"generation": generation})
        return took_s


@pytest.fixture
def collector() -> Collector:
    return Collector()


def started(collector: Collector) -> GarbagePauses:
    pauses = GarbagePauses(lambda: collector.now_s, collector, collector.blocks)
    pauses.start()
    return pauses


def test_survivors_of_a_long_collection_are_not_examined_again(collector: Collector) -> None:
    collector.young = 70_000
    pauses = started(collector)
    assert collector.frozen == 70_000 and collector.thresholds == THRESHOLDS
    collector.young = 1000
    collector.full()
    assert collector.frozen == 70_000, "a short one is no reason"
    for _ in range(3):
        collector.young += 200_000
        assert collector.full() < 0.0085
    assert collector.frozen == 671_000 and pauses.full_rounds == 0
    collector.young = int(LONG_S / 4e-8) * 2
    collector.full(generation=1)
    assert collector.young, "younger generations are always small"
    pauses.stop()
    assert not collector.callbacks


def test_everything_is_looked_at_when_what_is_set_aside_has_doubled(collector: Collector) -> None:
    pauses = started(collector)
    looks = []
    for number in range(40):
        collector.young += 200_000
        # Half of what is set aside has died in cycles, which only a look at everything sees.
        dead = collector.young // 2 if pauses._is_full_round else 0
        collector.full(dead)
        collector.now_s += STAYED_S / 2
        if pauses.full_rounds > len(looks):
            looks.append(number)
    assert looks[0] == BLOCKS_MIN // 600_000 + 1, "not before there is much, and has been for a minute"
    assert len(looks) >= 3 and collector.frozen <= 4_000_000, "of eight million, what has died in cycles does not stay"


def test_what_a_large_request_holds_for_a_while_is_no_reason_to_look_at_everything(collector: Collector) -> None:
    pauses = started(collector)
    for _ in range(20):
        for _ in range(10):
            collector.young += 200_000
            assert collector.full() < 0.0085
        collector.frozen = 0
        collector.young += 100_000
        collector.full()
        collector.now_s += STAYED_S
    assert pauses.full_rounds == 0


@pytest.fixture
def real() -> Iterator[GarbagePauses]:
    frozen, thresholds = gc.get_freeze_count(), gc.get_threshold()
    pauses = GarbagePauses()
    pauses.start()
    yield pauses
    pauses.stop()
    gc.set_threshold(*thresholds)
    if not frozen:
        gc.unfreeze()


def test_python_calls_back(real: GarbagePauses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "LONG_S", -1.0)
    before = gc.get_freeze_count()
    kept = [[number] for number in range(10_000)]
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept) and real.longest_s > 0
