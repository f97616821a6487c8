"""A range read from brokers that die, hand over, shorten their log or lose the topic, by a model of a few of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from helpers.partition_files import one_by_one, value  # noqa: E402

from minikafka.spark import source_reading  # noqa: E402
from minikafka.spark.fetch_client import BrokerError, ClusterState, PartitionState, Place  # noqa: E402
from minikafka.spark.logformat import walk  # noqa: E402
from minikafka.spark.source_loss import DataLossError  # noqa: E402
from minikafka.spark.source_ranges import Range  # noqa: E402
from minikafka.spark.source_reading import read_range  # noqa: E402

SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
STEP = 10


@dataclass
class Brokers:
    """What the brokers have of t-0; each fetch answers STEP records. `events`: what happens before a fetch from an offset."""

    start: int = 0
    end: int = 100
    leader: int = 1
    alive: set[int] = field(default_factory=lambda: {1, 2})
    exists: bool = True
    is_compacted: bool = False
    cleaned: set[int] = field(default_factory=set)
    events: dict[int, Callable[[Brokers], None]] = field(default_factory=dict)
    fetches: list[tuple[int, int]] = field(default_factory=list)
    now: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def state(self, *_: object) -> ClusterState:
        if not self.alive:
            raise BrokerError("nobody answers")
        partitions = {("t", 0): PartitionState(self.leader, 0, [1, 2], [1, 2])} if self.exists else {}
        return ClusterState("c", {node: ("b", node) for node in self.alive}, partitions, [])


def reader_of(brokers: Brokers) -> type:
    class Reader:
        def __init__(self, place: Place, topic: str, partition: int, begin: int, end: int, window: int, committed: bool) -> None:
            self.node, self.offset, self.end = place.port, begin, end
            self.stopped, self.log_start, self.aborted = "", -1, ()

        def __iter__(self) -> Any:
            while self.offset < self.end:
                event = brokers.events.pop(self.offset, None)
                if event is not None:
                    event(brokers)
                brokers.fetches.append((self.node, self.offset))
                if self.node not in brokers.alive or self.node != brokers.leader or not brokers.exists:
                    raise BrokerError(f"broker {self.node} does not answer")
                if not brokers.start <= self.offset < brokers.end:
                    self.stopped = "shrunk"
                    return
                self.log_start = brokers.start
                there = [n for n in range(self.offset, brokers.end) if n not in brokers.cleaned][:STEP]
                batches, _, _ = walk(memoryview(b"".join(b for n in there for b in one_by_one(n, n + 1))))
                self.offset = there[-1] + 1
                yield batches

    return Reader


def connection_of(brokers: Brokers) -> type:
    class Connection:
        def __init__(self, host: str, port: int, *_: object) -> None:
            self.place, self.node = f"b:{port}", port

        def __enter__(self) -> Connection:
            if self.node not in brokers.alive:
                raise BrokerError("down")
            return self

        def __exit__(self, *_: object) -> None: ...

        def earliest(self, keys: list[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
            return {key: (0, brokers.start) for key in keys}

        def latest(self, keys: list[tuple[str, int]], committed: bool) -> dict[tuple[str, int], tuple[int, int]]:
            return {key: (0, brokers.end) for key in keys}

        def compacted(self, topics: list[str]) -> set[str]:
            return set(topics) if brokers.is_compacted else set()

    return Connection


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(source_reading, "FetchReader", reader_of(made))
    monkeypatch.setattr(source_reading, "Connection", connection_of(made))
    monkeypatch.setattr(source_reading, "first_answer", made.state)
    # The module's own clock: other threads of this process go on sleeping by the real one.
    monkeypatch.setattr(source_reading, "time", SimpleNamespace(sleep=made.sleep, monotonic=lambda: made.now))
    return made


def offsets(fails: bool = True) -> list[int]:
    wanted = Range("t", 0, 0, 100, "1", place=Place("b", 1), bootstrap="b:1", fail_on_data_loss=fails)
    rows = [row for one in read_range(wanted, "records", SCHEMA) for row in one.to_pylist()]
    assert all(row["value"] == value(row["offset"]) for row in rows)
    return [row["offset"] for row in rows]


def test_all_is_read(brokers: Brokers) -> None:
    assert offsets() == [*range(100)] and len(brokers.fetches) == 100 // STEP


def test_a_leader_that_dies_is_followed_by_another(brokers: Brokers) -> None:
    def dies(all_: Brokers) -> None:
        all_.alive, all_.leader = {2}, 2

    brokers.events[40] = dies
    assert offsets() == [*range(100)]
    assert brokers.fetches.count((1, 40)) == 1 and (2, 40) in brokers.fetches, "gone on where it stopped"


def test_no_broker_comes_back(brokers: Brokers) -> None:
    """PATIENCE_S: counted from the last records."""
    brokers.events[40] = lambda all_: all_.alive.clear()
    with pytest.raises(BrokerError):
        offsets()
    assert source_reading.PATIENCE_S <= brokers.now < source_reading.PATIENCE_S + 2


def test_a_broker_that_comes_back_in_time(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(seconds: float) -> None:
        brokers.now += seconds
        if brokers.now > source_reading.PATIENCE_S - 1:
            brokers.alive = {1, 2}

    monkeypatch.setattr(source_reading.time, "sleep", sleep)
    brokers.events[40] = lambda all_: all_.alive.clear()
    assert offsets() == [*range(100)]


def test_retention_under_the_reader(brokers: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    def removes(all_: Brokers) -> None:
        all_.start = 75

    brokers.events[40] = removes
    with pytest.raises(DataLossError, match=r"t-0: offsets 40 to 74 are missing: the log begins at 75.*\(broker b:1\)"):
        offsets()
    brokers.start, brokers.events[40] = 0, removes
    assert offsets(fails=False) == [*range(40), *range(75, 100)]
    assert "skipped: t-0: offsets 40 to 74" in caplog.text


def test_a_log_that_became_shorter(brokers: Brokers) -> None:
    def cuts(all_: Brokers) -> None:
        all_.end = 40

    brokers.events[40] = cuts
    with pytest.raises(DataLossError, match=r"t-0: offsets 40 to 99 are missing: the log ends at 40"):
        offsets()
    brokers.end, brokers.events[40] = 100, cuts
    assert offsets(fails=False) == [*range(40)]


def test_a_topic_that_was_deleted_under_the_reader(brokers: Brokers) -> None:
    def deletes(all_: Brokers) -> None:
        all_.exists = False

    brokers.events[40] = deletes
    with pytest.raises(DataLossError, match=r"t-0: offsets 40 to 99 are missing: the partition no longer exists"):
        offsets()
    brokers.exists, brokers.events[40] = True, deletes
    assert offsets(fails=False) == [*range(40)]


@pytest.mark.parametrize("is_compacted", [True, False])
def test_offsets_that_are_not_sent_are_no_loss_to_a_consumer(
    brokers: Brokers, caplog: pytest.LogCaptureFixture, is_compacted: bool
) -> None:
    brokers.is_compacted, brokers.cleaned = is_compacted, {33, 34, 35, 60}
    with caplog.at_level(logging.WARNING, "minikafka.spark"):
        assert offsets() == [n for n in range(100) if n not in brokers.cleaned]
    message = "t-0: broker b:1 has no batch with offsets 33 to 35, though the topic is not compacted"
    assert (message in caplog.text) != is_compacted and caplog.text.count("no batch with") == (not is_compacted)
