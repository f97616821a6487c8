"""The image on every node: when it is published, and what subscribers see."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from helpers.control_plane import FakeClock, FakeRaft

from minikafka.broker.quorum.metadata_log import MetadataHost
from minikafka.core.metadata.delta import MetadataDelta
from minikafka.core.metadata.image import MetadataImage, empty_image
from minikafka.steps import at_once
from minikafka.wire.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    TopicRecord,
)


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=bytes((number,)) * 16)


class Subscriber:
    def __init__(self, host: MetadataHost) -> None:
        self.steps: list[list[str]] = []
        host.subscribe(self.step)

    def step(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.steps.append([change.name for change in delta.changed_topics.values()])


def test_nothing_is_published_before_the_log_has_been_replayed() -> None:
    raft = FakeRaft()
    host: Any = MetadataHost(raft)  # type: ignore[arg-type]
    seen = Subscriber(host)
    raft.high_watermark = 4
    host.on_commit(0, 1, [(0, topic(1))])
    host.on_commit(1, 1, [(1, topic(2))])
    assert (seen.steps, host.offset, host.is_caught_up) == ([], -1, False)
    host.on_commit(2, 1, [(2, topic(3))])
    host.on_high_watermark(4)
    assert seen.steps == [["t1", "t2", "t3"]]
    assert (host.offset, host.image.offset, host.is_caught_up) == (3, 3, True)
    host.on_commit(4, 1, [(4, topic(4))])
    assert seen.steps[1:] == [["t4"]]


def test_a_transaction_is_one_step_and_an_aborted_one_none() -> None:
    raft = FakeRaft()
    host: Any = MetadataHost(raft)  # type: ignore[arg-type]
    seen = Subscriber(host)
    raft.records = [BeginTransactionRecord(name="x"), topic(1)]
    raft.commit()
    raft.records.append(topic(2))
    raft.commit()
    assert seen.steps == []
    raft.records.append(EndTransactionRecord())
    raft.commit()
    assert seen.steps == [["t1", "t2"]]
    raft.records += [BeginTransactionRecord(name="y"), topic(3), AbortTransactionRecord(reason="no"), topic(4)]
    raft.commit()
    assert seen.steps == [["t1", "t2"], ["t4"]]


def test_records_that_change_nothing_are_no_step() -> None:
    raft = FakeRaft()
    host: Any = MetadataHost(raft)  # type: ignore[arg-type]
    seen = Subscriber(host)
    raft.records = [NoOpRecord()]
    raft.commit()
    assert seen.steps == []
    assert host.offset == 0


def test_a_subscriber_that_fails_does_not_keep_a_step_from_the_others() -> None:
    raft = FakeRaft()
    host: Any = MetadataHost(raft)  # type: ignore[arg-type]

    def broken(delta: MetadataDelta, image: MetadataImage) -> None:
        raise ValueError("mine alone")

    host.subscribe(broken)
    seen = Subscriber(host)
    raft.records = [topic(1)]
    raft.commit()
    assert seen.steps == [["t1"]]


def test_a_snapshot_is_one_step_with_what_follows_it() -> None:
    raft = FakeRaft()
    host: Any = MetadataHost(raft)  # type: ignore[arg-type]
    seen = Subscriber(host)
    raft.high_watermark = 12
    at_once(host.on_snapshot((10, 2), [topic(1), topic(2)]))
    assert seen.steps == []
    host.on_commit(10, 2, [(10, topic(3)), (11, NoOpRecord())])
    assert seen.steps == [["t1", "t2", "t3"]]
    assert host.offset == 11


async def test_waiting_for_an_image() -> None:
    raft = FakeRaft()
    host: Any = MetadataHost(raft)  # type: ignore[arg-type]
    assert not await host.wait_until(lambda image: "t1" in image.topics_by_name, 1)
    raft.records = [topic(1)]
    raft.commit()
    assert await host.wait_until(lambda image: "t1" in image.topics_by_name, 1)


def test_snapshots_are_written_by_size_and_by_age() -> None:
    raft: Any = FakeRaft()
    raft.metadata_log = SimpleNamespace(log=SimpleNamespace(size=0))
    written: list[tuple[Any, int]] = []
    raft.write_snapshot = lambda snapshot_id, records, timestamp: written.append((snapshot_id, len(list(records))))
    clock = FakeClock()
    MetadataHost(raft, clock, snapshot_bytes=1000, snapshot_interval_ms=5000)

    def grow(number: int, size: int) -> None:
        raft.metadata_log.log.size += size
        raft.records.append(topic(number))
        raft.commit()

    grow(1, 100)
    assert written == []
    grow(2, 900)
    assert written == [((2, 1), 2)]
    grow(3, 10)
    clock.now += 5000
    grow(4, 10)
    assert [snapshot_id for snapshot_id, _ in written] == [(2, 1), (4, 1)]
    assert empty_image().topics_by_name == {}
