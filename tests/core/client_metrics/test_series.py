"""What becomes of the values that clients push."""

from __future__ import annotations

import pytest

from minikafka.core.client_metrics import series as rules
from minikafka.core.client_metrics.series import Point, Series

WHO = (("client_id", "c"),)


def point(metric: str, value: float, *, counter: bool = False, delta: bool = False) -> Point:
    return Point(metric, (("topic", "t"),), value, counter, delta)


def test_counters_grow_by_deltas_and_gauges_keep_their_last_value() -> None:
    series = Series()
    series.add(b"a", WHO, [point("sent", 2, counter=True, delta=True), point("lag", 7), point("all", 5, counter=True)], 100)
    series.add(b"a", WHO, [point("sent", 3, counter=True, delta=True), point("lag", 4), point("all", 9, counter=True)], 200)
    assert list(series.samples(1, are_counters=True)) == [
        [({"metric": "sent", "client_id": "c", "topic": "t"}, 5)],
        [({"metric": "all", "client_id": "c", "topic": "t"}, 9)],
    ]
    assert list(series.samples(1, are_counters=False)) == [[({"metric": "lag", "client_id": "c", "topic": "t"}, 4)]]
    series.expire(199)
    assert series.count == 3
    series.expire(200)
    assert (series.count, list(series.samples(9, are_counters=True))) == (0, [])


def test_there_is_room_for_so_many_samples_of_a_client_and_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "SERIES_OF_INSTANCE_MAX", 3)
    monkeypatch.setattr(rules, "SERIES_MAX", 5)
    series = Series()
    for name in (b"a", b"b"):
        series.add(name, WHO, [point(str(number), number) for number in range(4)], 100)
    assert (series.count, series.dropped) == (5, 1 + 2)
    series.add(b"a", WHO, [point("0", 10)], 200)
    assert (series.count, series.dropped) == (5, 3)
    series.leave(b"a", 50 - rules.KEPT_MS)
    series.expire(50)
    series.add(b"b", WHO, [point("7", 7)], 200)
    assert (series.count, series.dropped) == (3, 3)


def test_the_last_values_of_a_client_can_be_read_after_it_has_gone() -> None:
    series = Series()
    series.add(b"a", WHO, [point("lag", 7)], 10_800_000)
    series.leave(b"a", 1000)
    series.leave(b"nobody", 1000)
    series.expire(1000 + rules.KEPT_MS - 1)
    assert series.count == 1
    series.expire(1000 + rules.KEPT_MS)
    assert (series.count, series.by_instance) == (0, {})


def test_a_sum_that_leaves_the_range_of_numbers_begins_anew() -> None:
    series = Series()
    for _ in range(2):
        series.add(b"a", WHO, [point("sent", 1.7e308, counter=True, delta=True)], 100)
    assert [value for part in series.samples(9, are_counters=True) for _, value in part] == [1.7e308]


def test_a_client_that_tells_nothing_that_is_kept_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids cost a peer nothing: there are no more clients than samples."""
    monkeypatch.setattr(rules, "SERIES_MAX", 5)
    series = Series()
    for number in range(20):
        series.add(bytes([number, 0]), WHO, [], 100)
        series.add(bytes([number, 1]), WHO, [point("lag", number)], 100)
    assert (len(series.by_instance), series.count, series.dropped) == (5, 5, 15)
    series.expire(100)
    assert (series.count, series.by_instance) == (0, {})
