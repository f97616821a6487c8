"""Which task reads what: a partition that fits into a task is not divided, and is judged where it was read."""

from __future__ import annotations

import operator
import shutil
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from helpers.log_clusters import Partition, plain, write_broker

from minikafka.spark import judging, splits, wire_ledger
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.engine_spark import SparkEngine, _apart
from minikafka.spark.fetch_client import Place
from minikafka.spark.planning import make_plan
from minikafka.spark.sources import SegmentTask, partition_tasks
from minikafka.spark.splits import split

Key = tuple[str, int]


@pytest.fixture
def tasks(tmp_path: Any) -> list[SegmentTask]:
    """Of four partitions with two replicas each; the third has a segment for every batch."""
    for broker in (1, 2):
        made = [Partition(f"t-{number}", [plain(0), plain(1), plain(2)], high_watermark=3) for number in range(4)]
        made[2].bases = (0, 1, 2)
        write_broker(tmp_path / f"b{broker}", broker, made)
    plan = make_plan([str(tmp_path)])
    return [task for number in range(4) for task in partition_tasks(plan.replicas["t", number], "batches", "crc")]


def test_a_partition_that_fits_is_not_divided_and_stands_beside_such_only(tasks: list[SegmentTask]) -> None:
    of_one = sum(task.size for task in tasks if task.partition == 0)
    for split_bytes in (1, of_one - 1, of_one, 2 * of_one, 3 * of_one, 9 * of_one):
        found = list(split(tasks, split_bytes))
        assert sorted(map(repr, (task for one in found for task in one))) == sorted(map(repr, tasks))
        assert all(sum(task.size for task in one) <= split_bytes or len(one) == 1 for one in found)
        lists = Counter(number for one in found for number in {task.partition for task in one})
        assert set(lists.values()) == ({1} if split_bytes >= of_one else {2} if split_bytes > 1 else {2, 6})


def test_a_list_has_no_more_tasks_than_so_many(tasks: list[SegmentTask], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "TASKS_MAX", 4)
    found = list(split(tasks, 1 << 30))
    assert sorted(map(repr, (task for one in found for task in one))) == sorted(map(repr, tasks))
    lists = Counter(number for one in found for number in {task.partition for task in one})
    assert [len(one) for one in found] == [4, 4, 2, 2] and lists == {0: 1, 1: 1, 2: 2, 3: 1}, "six segments of one partition are divided"


def test_an_item_is_whole_if_it_gives_all_values_of_all_its_groups() -> None:
    groups: dict[Key, tuple[str, int]] = {("a", 0): ("A", 2), ("b", 0): ("B", 1), ("c", 0): ("C", 1), ("d", 0): ("D", 0)}
    items = [[("a", 0), ("b", 0), ("a", 0)], [("c", 0)]]
    assert _apart(items, groups, list) == (
        [(items[0], {("a", 0): "A", ("b", 0): "B"}), (items[1], {("c", 0): "C"})],
        [],
        set(groups) - {("d", 0)},
    )
    divided = [[("a", 0), ("b", 0)], [("a", 0)], []]
    assert _apart(divided, groups, list) == ([], divided, set())


def test_what_a_broker_may_not_answer_is_judged_after_all_else_was_read(tasks: list[SegmentTask]) -> None:
    on_wire = replace(tasks[0], place=Place("127.0.0.1", 1))
    assert judging.keys_of(tasks[:2]) == wire_ledger.keys_of([*tasks[:2]]) == [("t", 0)] * 2
    assert list(judging.keys_of([tasks[1], on_wire])) == list(wire_ledger.keys_of([on_wire, tasks[1]])) == []
    assert list(wire_ledger.keys_of([tasks[1], wire_ledger.Kept(on_wire, b"")])) == []


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("items", [
    [["a", "b"], ["c", "a"], ["d", "e", "d"], ["f"]], [["d", "e", "d"], ["f"]], [["a"], ["a"]], [],
], ids=["both", "whole", "divided", "none"])  # fmt: skip
def test_both_engines_give_each_group_its_values_once(session: Any, items: list[list[str]]) -> None:
    def values(item: list[Key]) -> list[tuple[Key, int]]:  # in here, for Spark's processes do not know this module
        return [(key, number) for number, key in enumerate(item)]

    def finished(group: tuple[str, list[tuple[Key, int]]]) -> tuple[str, list[int]]:
        return group[0], sorted(number for _, number in group[1])

    keyed = [[(name, 0) for name in item] for item in items]
    counts = Counter(key for item in keyed for key in item)
    groups = {(name, 0): (name.upper(), counts[name, 0]) for name in "abcdefg"}
    found = [
        sorted(engine.gather(values, keyed, operator.itemgetter(0), groups, finished, lambda _: None, list))
        for engine in (LocalEngine(1), SparkEngine(session))
    ]
    assert found[0] == found[1] and [name for name, _ in found[1]] == list("ABCDEFG")
    assert sum(len(numbers) for _, numbers in found[1]) == sum(counts.values())
