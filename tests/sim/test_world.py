"""Whole clusters: the same seed is the same run, seeds hold every invariant, and a failing one is told and shrunk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from minikafka.broker.partitions.partition import Partition
from minikafka.cli.sim import sim
from minikafka.core.partition.leader import PartitionLeader
from minikafka.sim.invariants import Invariants
from minikafka.sim.runner import run_drawn, run_seed, shrink
from minikafka.sim.swarm import Fault, Options, draw
from minikafka.sim.world import Outcome, World
from minikafka.testing.layout import QUICK_PROPERTIES

pytestmark = pytest.mark.timeout(180)
ROOT = Path(__file__).parent.parent.parent
DIGESTS = """
import sys
from minikafka.sim.runner import run_seed
for seed in map(int, sys.argv[1:]):
    outcome = run_seed(seed, duration_s=4.0)
    print(seed, outcome.digest, outcome.steps, outcome.acknowledged, outcome.violation)
"""


def digests(hash_seed: str, seeds: list[str]) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-B", "-c", DIGESTS, *seeds], capture_output=True, text=True, check=True, env=environment, timeout=150
    )
    return run.stdout


def test_the_same_seed_is_the_same_run_under_every_hash_seed() -> None:
    seeds = ["1", "3", "4", "8", "56", "6", "52"]
    assert [draw(int(seed))[0].transactors > 0 for seed in seeds[:4]] == [True, False, True, False]
    assert draw(56)[0].streams_members == 3 and draw(56)[0].wake_s == 0.005
    assert all(draw(int(seed))[0].consumer_members and draw(int(seed))[0].share_members for seed in seeds[-2:])
    first = digests("1", seeds)
    assert first == digests("2", seeds)
    assert len(first.splitlines()) == len(seeds) and "None" in first


def test_different_seeds_are_different_runs() -> None:
    assert run_seed(1, duration_s=2.0).digest != run_seed(2, duration_s=2.0).digest


def test_batches_that_arrive_together_are_appended_together_in_some_seeds() -> None:
    outcome = run_drawn(Options(3, duration_s=2.0, wake_s=0.001, batch_bytes_max=1, batch_records_max=8), [])
    assert outcome.violation is None, outcome.story
    assert outcome.appended_together > 20
    drawn = [draw(seed)[0] for seed in range(100)]
    assert 25 < sum(found.wake_s is not None for found in drawn) < 55
    assert {found.pending_answers_max for found in drawn} == {1, 2, 8, Options(0).pending_answers_max}
    assert {found.batch_bytes_max for found in drawn} == {1, 100, Options(0).batch_bytes_max}


def test_three_nodes_that_start_together_are_in_service_at_once() -> None:
    """Whoever has waited long for a controller asks a new one again soon, for it may not be active yet when it is first asked."""
    for seed in range(16):
        world = World(Options(seed=seed, shape="combined", duration_s=0.1), [])
        assert world.run().violation is None
        times = [at_s for at_s, _, text in world.lines if text == "in service"]
        assert len(times) == 3 and times[-1] < 0.12, (seed, times)


def test_the_high_watermarks_of_all_replicas_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """However a broker moves them: those of followers once moved past the simulator, and nothing compared what they covered."""
    watched: dict[tuple[str, int], dict[int, int]] = {}
    original = Invariants.high_watermark_moved

    def moved(self: Invariants, node: Any, log: Any, before: int) -> None:
        watched.setdefault((log.topic, log.partition), {})[node.node_id] = log.high_watermark
        original(self, node, log, before)

    monkeypatch.setattr(Invariants, "high_watermark_moved", moved)
    outcome = run_drawn(Options(4711, partitions=2, duration_s=2.0), [])
    assert outcome.violation is None
    ends = [watched["records", index] for index in range(2)]
    assert [sorted(end) for end in ends] == [[1, 2, 3]] * 2
    assert all(len(set(end.values())) == 1 for end in ends), "at rest all replicas agree"


def test_a_broken_rule_is_found_reported_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader whose high watermark is the end of its own log."""
    original = PartitionLeader.advance

    def advance(leader: PartitionLeader, now_ms: int) -> bool:
        moved = leader.high_watermark < leader.log_end_offset
        leader.high_watermark = leader.log_end_offset
        return moved or original(leader, now_ms)

    monkeypatch.setattr(PartitionLeader, "advance", advance)
    options, faults = draw(3, duration_s=5.0)
    outcome = run_seed(3, duration_s=5.0)
    assert outcome.violation is not None and outcome.violation.rule in ("S7", "S9", "S14", "S15")
    assert "the last 60 events" in outcome.story and "records-0" in outcome.story and str(outcome.seed) in outcome.story
    assert shrink(options, faults, outcome.violation.rule) == []


@pytest.mark.parametrize("seeds", [["--seed", "2"], ["--seeds", "2..3", "--jobs", "2"]], ids=["one", "in processes"])
def test_a_violation_ends_the_command_with_its_story(monkeypatch: pytest.MonkeyPatch, seeds: list[str]) -> None:
    monkeypatch.setattr(Partition, "check_epoch", lambda *_: 1 // 0)
    run = CliRunner().invoke(sim, [*seeds, "--duration", "2", "--no-shrink"])
    assert run.exit_code == 1
    assert "S24" in run.output and "ZeroDivisionError" in run.output and "violations: 1 (seeds 2)" in run.output


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    totals = tmp_path / "totals.json"
    for _ in range(2):
        run = CliRunner().invoke(sim, ["--seeds", "1..3", "--duration", "2", "--save", str(totals)])
        assert run.exit_code == 0, run.output
    assert "2 seeds" in run.output and "violations: 0" in run.output
    assert "compared: L1 2, " in run.output and ", L7 2, " in run.output and ", S1 " in run.output
    assert json.loads(totals.read_text())["checked"]["L7"] == 4
    assert '"seeds": 4' in totals.read_text()
    assert CliRunner().invoke(sim, ["--seeds", "x"]).exit_code == 2


def test_a_run_that_is_interrupted_says_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_until_interrupted(numbers: Iterable[int], **_: object) -> Iterator[Outcome]:
        yield run_seed(next(iter(numbers)), duration_s=1.0)
        raise KeyboardInterrupt

    monkeypatch.setattr("minikafka.sim.runner.run_seeds", run_until_interrupted)
    totals = tmp_path / "totals.json"
    run = CliRunner().invoke(sim, ["--seeds", "1..9", "--save", str(totals)])
    assert run.exit_code != 0
    assert run.output.startswith("1 seed,") and '"seeds": 1' in totals.read_text()


def test_only_seeds_with_group_members() -> None:
    """Half of the seeds have members of a consumer, share or streams group; `--groups` leaves the others out and counts by protocol."""
    with_members = [seed for seed in range(60) if draw(seed)[0].group_protocols]
    assert 15 < len(with_members) < 45
    first = with_members[0]
    result = CliRunner().invoke(sim, ["--seeds", f"0..{first + 1}", "--groups"])
    assert result.exit_code == 0, result.output
    options = draw(first)[0]
    assert result.output.startswith("1 seed,")
    assert f"seeds with group members: {', '.join(f'{name} 1' for name in sorted(['any', *options.group_protocols]))}" in result.output


@pytest.mark.parametrize("path", sorted((Path(__file__).parent / "found").glob("*.json")), ids=lambda path: path.stem)
def test_runs_that_found_something(path: Path) -> None:
    """Options and faults that once broke an invariant, kept as they were drawn then: what a seed draws changes with the simulator."""
    kept = json.loads(path.read_text())
    outcome = run_drawn(Options(**kept["options"]), [Fault(**fault) for fault in kept["faults"]])
    assert outcome.violation is None, outcome.story


def test_a_tree_without_a_name_saves_its_totals_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither git nor the metadata of a package say which sources run: that is known before the first seed, and loses nothing."""

    def absent(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError("git")

    def not_installed(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(subprocess, "run", absent)
    monkeypatch.setattr(metadata, "version", not_installed)
    totals = tmp_path / "totals.json"
    run = CliRunner().invoke(sim, ["--seeds", "1..2", "--duration", "2", "--save", str(totals)])
    assert run.exit_code == 0, run.output
    assert list(json.loads(totals.read_text())["runs"]) == ["unknown"]


@pytest.mark.parametrize("turn_s", [0.01, 0.03, 0.06])
def test_three_nodes_come_up_where_every_turn_takes_a_hundred_times_as_long(turn_s: float) -> None:
    """A machine whose cores are taken many times over: with fixed time-outs of 200 ms no election ended for minutes at 0.03 s a turn."""
    for seed in range(3):
        world = World(Options(seed=seed, turn_s=turn_s, properties=dict(QUICK_PROPERTIES)), [])
        for node in world.nodes.values():
            node.format()
            node.boot()
        assert world._until(world._is_up, 800 * turn_s), (seed, world.now)
        world._end()


def test_brokers_serve_what_is_not_in_memory() -> None:
    """Every read that does not wait finds nothing: it is read on another thread first."""
    world = World(Options(5, duration_s=4.0, misses_every=1), [])
    outcome = world.run()
    assert outcome.violation is None and outcome.acknowledged > 50
    assert sum(node.disk.misses for node in world.nodes.values()) > 5
    assert {options.misses_every for options, _ in map(draw, range(60))} >= {0, 1, 2, 5}
