"""Log directories are listed where tasks run, each once, and the plan is that of a process that sees them all."""

from __future__ import annotations

import os
import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.audited_clusters import BROKERS
from helpers.log_clusters import Partition, plain, write_broker
from helpers.log_fault_bases import BASES

from minikafka.spark import audit as auditing
from minikafka.spark import planning
from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.directories import SourceError
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.planning import PlanScope, make_plan, read_facts


class Tasks:
    """Runs functions as tasks of another machine do: what goes in and comes out is copied. `ran`: the items of each job."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []

    def mapped(self, function: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        inner = getattr(function, "function", function)
        self.ran.append((inner.__name__, len(items)))
        for item in items:
            yield pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(item)))))


class ElsewhereEngine(LocalEngine):
    """Tasks on other machines."""

    is_elsewhere = True

    def __init__(self, tasks: Tasks) -> None:
        super().__init__(1)
        self.tasks = tasks

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        return self.tasks.mapped(function, items)


def with_kept_findings(plan: Any) -> Any:
    """Lists of findings are equal by what is in them."""
    for one in (plan, *(copy for copies in plan.replicas.values() for copy in copies)):
        one.findings = one.findings.kept
    return plan


@pytest.mark.parametrize("each", [1, 2, 500])
@pytest.mark.parametrize("kind", ["compacted transactions", "crashed", "two log directories"])
def test_tasks_plan_as_one_process_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, each: int) -> None:
    monkeypatch.setattr(planning, "DIRECTORIES_A_TASK", each)
    BASES[kind].write(tmp_path / "cluster")
    tasks = Tasks()
    here, there = make_plan([str(tmp_path)]), make_plan([str(tmp_path)], mapped=tasks.mapped)
    there.instant_ms = here.instant_ms
    assert with_kept_findings(here) == with_kept_findings(there)
    assert [name for name, _ in tasks.ran] == ["_find", "_read_root", "read_copy", "_list", "_open_entries", "_open_entries"]
    entries = sum(len(one.entries) for one in read_facts([str(tmp_path)], PlanScope()))
    assert each > 1 or sum(count for name, count in tasks.ran if name == "_open_entries") == entries


def test_each_directory_is_listed_once_by_tasks_and_never_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Coordinators' partitions first; a task gets the checkpoints of its partitions, not of all."""
    monkeypatch.setattr(planning, "DIRECTORIES_A_TASK", 4)
    for broker in BROKERS:
        made = [Partition(f"t-{number}", [plain(0)]) for number in range(10)] + [Partition("__consumer_offsets-0", [plain(0)])]
        write_broker(tmp_path / f"b{broker}", broker, made)
    paths = [str(tmp_path / f"b{broker}") for broker in BROKERS]
    opened: list[str] = []
    high_watermark_counts: list[int] = []
    original = planning.open_entry

    def noted(directory: Any, key: Any, path: str, *rest: Any) -> Any:
        opened.append(path)
        high_watermark_counts.append(len(directory.high_watermark))
        return original(directory, key, path, *rest)

    monkeypatch.setattr(planning, "open_entry", noted)
    tasks = Tasks()
    result = run_audit(paths, ElsewhereEngine(tasks), AuditOptions())
    assert len(opened) == 33 and set(Counter(opened).values()) == {1} and max(high_watermark_counts) == 4
    assert all("__consumer_offsets" in path for path in opened[:3]) and result.plan.is_elsewhere
    assert ("_open_entries", 3) in tasks.ran and ("_open_entries", 9) in tasks.ran
    inside = False

    def guarded(*arguments: Any) -> Any:
        assert inside, "the driver lists nothing"
        return listdir(*arguments)

    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", guarded)

    def only_in_tasks(function: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
        nonlocal inside
        for item in items:
            inside = True
            found = function(item)
            inside = False
            yield found

    monkeypatch.setattr(tasks, "mapped", only_in_tasks)
    assert len(auditing._plan(paths, ElsewhereEngine(tasks), AuditOptions(), []).replicas) == 11


def test_a_path_that_is_not_a_log_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no such directory \(where Spark's tasks run\)"):
        run_audit([str(tmp_path / "none")], ElsewhereEngine(Tasks()), AuditOptions())


@pytest.mark.parametrize(("name", "is_odd"), [
    ("lost+found", True), (".git", True), ("t-0.bak", True), ("t-delete", True), ("-0", True), ("t-+", True), ("t-2147483648", True),
    ("t-\U0001d7ce", True), (f"t-+0.{'f' * 32}-delete", False), (f"t-0.{'f' * 32}-delete", False),
    (f"t-0.{'f' * 32}-stray", False), ("remote-log-index-cache", False),
])  # fmt: skip
def test_a_directory_beside_which_apache_kafka_does_not_start(tmp_path: Path, name: str, is_odd: bool) -> None:
    """It says nothing about the logs, and minikafka starts: a warning."""
    BASES["plain"].write(tmp_path)
    (tmp_path / "b2" / name).mkdir()
    (tmp_path / "b2" / "a file").write_text("a file does no harm")
    result = run_audit([str(path) for path in sorted(tmp_path.iterdir())], LocalEngine(1))
    named = [one.file for one in result.findings.kept if one.check == "foreign-directory"]
    assert (result.outcome, named) == ("PASS", [str(tmp_path / "b2" / name)] if is_odd else [])
    strict = run_audit([str(path) for path in sorted(tmp_path.iterdir())], LocalEngine(1), AuditOptions(fail_on=("WARNINGS",)))
    assert strict.outcome == ("FAIL" if is_odd else "PASS")


@pytest.mark.parametrize("name", ["t-00", "t-+0", "t-+00", "t-\u0660", "t-\uff10"])
@pytest.mark.parametrize("how", ["renamed", "beside"])
def test_a_number_that_is_written_otherwise_is_a_partitions_for_apache_kafka_alone(tmp_path: Path, how: str, name: str) -> None:
    """Java reads zeros and a plus before a number, and the digits of other scripts."""
    BASES["plain"].write(tmp_path)
    place = tmp_path / "b2" / "t-0"
    (place.rename if how == "renamed" else lambda path: shutil.copytree(place, path))(tmp_path / "b2" / name)
    result = run_audit([str(path) for path in sorted(tmp_path.iterdir())], LocalEngine(1))
    assert result.outcome == "INCOMPLETE" and any("minikafka does not" in one.message for one in result.findings.kept)


def test_a_folder_that_is_no_brokers_may_hold_anything(tmp_path: Path) -> None:
    for broker in BROKERS:
        Partition("t-0", [plain(0)]).write(tmp_path / f"b{broker}")
        (tmp_path / f"b{broker}" / "notes").mkdir()
    assert not run_audit([str(path) for path in sorted(tmp_path.iterdir())], LocalEngine(1)).plan.findings.kept
