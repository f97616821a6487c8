"""Compacted replicas on the wire: nobody tells how far a remote broker's cleaner came, and it may go on while the audit reads."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from helpers.audited_clusters import registered_topic
from helpers.log_clusters import CLUSTER_ID, Batch, Partition, write_broker
from helpers.wire_replicas import WireReplicas

from minikafka.spark import audit as auditing
from minikafka.spark.audit import AuditResult

BROKERS = (1, 2, 3)


def cleaned(batches: list[Batch], upto: int) -> list[Batch]:
    """What a cleaner leaves that came to `upto`: of every key the latest record before it, and all behind it."""
    latest = {one[1]: batch.base + one[0] for batch in batches for one in batch.records if batch.base + one[0] < upto}
    left = []
    for batch in batches:
        records = [one for one in batch.records if batch.base + one[0] >= upto or latest[one[1]] == batch.base + one[0]]
        if records:
            left.append(replace(batch, records=records, last_delta=batch.span - 1))
    return left


def offsets_of(batches: list[Batch]) -> set[int]:
    return {batch.base + delta for batch in batches for delta, _, _ in batch.records}


@dataclass
class Story:
    """A log of a few keys and how far each broker's cleaner came; `directory`: "" or whether broker 1, whose directory is given, is
    "running" or "stopped". A stopped one has only what there was when it stopped."""

    seed: int
    directory: str
    whole: list[Batch] = field(default_factory=list)
    held: dict[int, list[Batch]] = field(default_factory=dict)
    bases: tuple[int, ...] = (0,)
    checkpoint: int = 0

    def __post_init__(self) -> None:
        chance = random.Random(f"{self.seed} {self.directory}")
        base = 0
        for _ in range(chance.randrange(3, 40)):
            records: list[tuple[int, bytes | None, bytes | None]] = [
                (delta, b"k%d" % chance.randrange(6), b"v%d" % (base + delta)) for delta in range(chance.choice([1, 1, 1, 3]))
            ]
            self.whole.append(Batch(base, records))
            base += len(records)
        bounds = [batch.base for batch in self.whole] + [base]
        for broker in BROKERS:
            self.held[broker] = cleaned(self.whole, chance.choice(bounds))
        if self.directory:
            count = chance.randrange(2, len(self.whole)) if self.directory == "stopped" else len(self.whole)
            own = self.whole[:count]
            self.bases = tuple(sorted({0, *(batch.base for batch in own if chance.random() < 0.2)}))
            self.checkpoint = chance.choice(self.bases)
            self.held[1] = cleaned(own, self.checkpoint)

    def change(self, broker: int, offset: int, value: bytes | None) -> None:
        """Give a record of a broker another value, or take it away."""
        changed = []
        for batch in self.held[broker]:
            records = [(delta, key, old) if batch.base + delta != offset else (delta, key, value) for delta, key, old in batch.records]
            records = [one for one in records if one[2] is not None]
            changed += [replace(batch, records=records, last_delta=batch.span - 1)] if records else []
        self.held[broker] = changed

    def audit(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, confirm: bool = False,
        on_fetch: Callable[[int, int], None] = lambda broker, offset: None,
    ) -> AuditResult:  # fmt: skip
        """An audit of the brokers on the wire, and of broker 1's directory if it is given."""
        paths = []
        if self.directory:
            is_stopped = self.directory == "stopped"
            log = registered_topic((2, 3) if is_stopped else BROKERS, leader=2).config("t", "cleanup.policy", "compact")
            mine = Partition("t-0", self.held[1], self.bases)
            write_broker(folder / "b1", 1, [mine], log.encode(), is_stopped, cleaned={"t-0": self.checkpoint})
            paths = [str(folder / "b1")]
        down = (1,) if self.directory == "stopped" else ()
        logs = {broker: batches for broker, batches in self.held.items() if broker not in down}
        world = WireReplicas(
            logs, answer_bytes=300, compacted=True, leader_epoch=0, cluster_id=CLUSTER_ID, down=down, on_fetch=on_fetch
        )
        world.high_watermark = self.whole[-1].last + 1
        world.install(monkeypatch)
        return world.audit(paths=paths, confirm=confirm)


@pytest.mark.parametrize("directory", ["", "running", "stopped"])
@pytest.mark.parametrize("seed", range(16))
def test_each_cleaner_may_have_come_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, directory: str) -> None:
    result = Story(seed, directory).audit(tmp_path, monkeypatch)
    assert [(one.check, one.brokers, one.message) for one in result.findings.kept if one.level != "note"] == []
    assert result.outcome == "PASS"


@pytest.mark.parametrize("directory", ["", "running", "stopped"])
@pytest.mark.parametrize("seed", range(16))
def test_a_survivor_that_is_another_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, directory: str) -> None:
    story = Story(seed, directory)
    chance = random.Random(seed)
    places = [offsets_of(batches) for batches in story.held.values()]
    offset = chance.choice(sorted(offset for offset in set.union(*places) if sum(offset in one for one in places) > 1))
    broker = chance.choice([broker for broker in BROKERS if offset in offsets_of(story.held[broker])])
    story.change(broker, offset, b"another")
    assert story.audit(tmp_path, monkeypatch).exit_code == 1


@pytest.mark.parametrize("directory", ["", "running", "stopped"])
@pytest.mark.parametrize("seed", range(16))
def test_the_latest_record_of_a_key_must_not_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, directory: str) -> None:
    story = Story(seed, directory)
    chance = random.Random(seed)
    latest = {key: batch.base + delta for batch in story.whole for delta, key, _ in batch.records}
    offset, broker = chance.choice(sorted(latest.values())), chance.choice([2, 3])
    story.change(broker, offset, None)
    is_last = offset == story.whole[-1].last and len(story.whole[-1].records) == 1
    assert story.audit(tmp_path, monkeypatch).exit_code in ({1, 3} if is_last else {1})


class Overtaking:
    """Cleaners that take everything before the fence when broker `at` is read, and writers who go on, in the first `rounds` readings."""

    def __init__(self, at: int, rounds: int) -> None:
        self.at, self.left = at, rounds
        self.world = WireReplicas(
            {broker: [Batch(0, [(0, b"k", b"v0")])] for broker in BROKERS}, compacted=True, on_fetch=self, answer_bytes=1 << 20
        )

    def __call__(self, broker: int, offset: int) -> None:
        if broker == self.at and self.left and offset < self.world.high_watermark:
            self.left -= 1
            base = self.world.high_watermark
            for logs, sent in zip(self.world.logs.values(), self.world.bytes.values(), strict=True):
                logs[:] = [Batch(base, [(0, b"k", b"v%d" % base)])]
                sent[:] = [logs[0].encode()]
            self.world.high_watermark += 1


@pytest.mark.parametrize("at", BROKERS)
@pytest.mark.parametrize(("rounds", "expected"), [(0, "MATCH"), (1, "MATCH"), (5, "MATCH"), (1 << 30, "INCOMPLETE")])
def test_cleaners_that_overtake_the_audit_leave_nothing_proven(
    monkeypatch: pytest.MonkeyPatch, at: int, rounds: int, expected: str
) -> None:
    monkeypatch.setattr(auditing.time, "sleep", lambda _: None)
    world = Overtaking(at, rounds).world
    world.install(monkeypatch)
    result = world.audit(confirm=True)
    assert [one.verdict for one in result.partitions] == [expected], result.findings.kept
    assert result.outcome == ("PASS" if expected == "MATCH" else "INCOMPLETE")


def test_a_directory_whose_segments_are_always_replaced_is_left_out_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cleaner replaces a segment between its reading and the comparison, each time: the replicas on the wire did not lag."""
    story = Story(1, "running")
    planned, removed, gone = auditing._plan, tmp_path / "b1" / "t-0" / f"{0:020d}.log", tmp_path / "gone.log"
    monkeypatch.setattr(auditing.time, "sleep", lambda _: None)

    def plan(*what: Any) -> Any:
        if gone.exists():
            removed.write_bytes(gone.read_bytes())
        return planned(*what)

    def replaced(broker: int, offset: int) -> None:
        if removed.exists():
            gone.write_bytes(removed.read_bytes())
            removed.unlink()

    monkeypatch.setattr(auditing, "_plan", plan)
    result = story.audit(tmp_path, monkeypatch, on_fetch=replaced, confirm=True)
    told = [(one.level, one.message) for one in result.findings.kept if one.topic == "t"]
    assert [level for level, _ in told] == ["note"] and "during each of 6 readings" in told[0][1], told
    assert (result.outcome, result.count("SKIPPED")) == ("INCOMPLETE", 1)
