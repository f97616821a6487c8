"""The metadata log reaches its listeners in several turns of the loop, and a batch or snapshot as a whole."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node
from helpers.raft_nodes import close, config_of, format_node, host_of

from minikafka.broker.quorum import raft_delivery, snapshots
from minikafka.broker.quorum.metadata_log import MetadataHost
from minikafka.client.admin import Admin
from minikafka.core.controller import state
from minikafka.core.metadata import delta
from minikafka.core.metadata.delta import MetadataDelta
from minikafka.core.metadata.records import image_records
from minikafka.net.turn_share import TurnShares
from minikafka.steps import at_once
from minikafka.wire.batch import RecordBatch, build_batch
from minikafka.wire.record import Record
from minikafka.wire.records.frame import encode_metadata_record
from minikafka.wire.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    TopicRecord,
)

MANY = 1_500


class Work:
    """Counts records that are decoded and applied between two turns of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._counts: dict[str, int] = {}
        self.most: dict[str, int] = {}
        #: How many partitions of the topic readers saw.
        self.seen: set[int] = set()
        self._count(monkeypatch, "delivered", raft_delivery, "decode_metadata_record")
        self._count(monkeypatch, "loaded", snapshots, "decode_metadata_record")
        self._count(monkeypatch, "applied", MetadataDelta, "apply")

    def _count(self, monkeypatch: pytest.MonkeyPatch, what: str, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            self._counts[what] = self._counts.get(what, 0) + 1
            return real(*arguments)

        monkeypatch.setattr(owner, name, counted)

    async def watch(self, node: Any = None) -> None:
        while True:
            for what, count in self._counts.items():
                self.most[what] = max(count, self.most.get(what, 0))
            self._counts.clear()
            if node is not None:
                topic = node.metadata.image.topics_by_name.get("many")
                self.seen.add(0 if topic is None else len(topic.partitions))
            await asyncio.sleep(0)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Each step has a turn of its own."""
    monkeypatch.setattr(TurnShares, "begin", lambda shares: lambda: True)
    return Work(monkeypatch)


@pytest.mark.timeout(120)
async def test_a_large_batch_and_a_large_snapshot_are_seen_as_a_whole(tmp_path: Path, work: Work) -> None:
    async with live_node(tmp_path) as node:
        watching = asyncio.ensure_future(work.watch(node))
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.create_topic("many", partitions=MANY, replication_factor=1)
        watching.cancel()
        # The controller's replay of the same records takes steps of its own.
        assert work.most["delivered"] <= raft_delivery.STEP_RECORDS
        assert work.most["applied"] <= raft_delivery.STEP_RECORDS + state.STEP_RECORDS
        assert work.seen == {0, MANY}
        offset, epoch = node.metadata.offset + 1, node.raft.leader_epoch
        records = list(image_records(node.metadata.image))
        node.raft.write_snapshot(raft_delivery.SnapshotId(offset, epoch), records, 0)
        while not node.raft.quorum.log.snapshots:
            await asyncio.sleep(0.01)
    work.most.clear()
    work._counts.clear()
    work.seen.clear()
    watching = asyncio.ensure_future(work.watch())
    async with live_node(tmp_path) as node:
        watching.cancel()
        assert work.most["loaded"] <= snapshots.STEP_RECORDS
        # The broker and the controller may take a step each between two looks.
        assert work.most["applied"] <= delta.STEP_RECORDS + state.STEP_RECORDS
        assert len(node.metadata.image.topics_by_name["many"].partitions) == MANY


@pytest.mark.parametrize("end", [EndTransactionRecord, AbortTransactionRecord])
async def test_a_transaction_of_apache_kafkas_controllers_ends_in_steps_and_is_seen_as_a_whole(
    tmp_path: Path, work: Work, end: type[Any]
) -> None:
    """All its records, of any number of batches, were replayed in the turn of its last one."""
    config = config_of(tmp_path / "d")
    format_node(config, standalone=True)
    host = host_of(config)
    metadata = MetadataHost(host)
    seen: list[int] = []
    metadata.subscribe(lambda delta, image: seen.append(len(image.topics_by_name)))
    await host.start()
    records = [TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16)) for number in range(1, MANY + 1)]
    watching = asyncio.ensure_future(work.watch())
    host.append([BeginTransactionRecord(name="many")])
    for begin in range(0, MANY, 100):
        host.append(records[begin : begin + 100])
    last = host.append([end(), TopicRecord(name="behind", topic_id=bytes(15) + b"\xff")])
    await metadata.wait_until(lambda image: "behind" in image.topics_by_name, 20_000)
    watching.cancel()
    assert last > MANY and work.most["applied"] <= raft_delivery.STEP_RECORDS + 2
    many = MANY if end is EndTransactionRecord else 0
    assert set(seen) <= {0, many + 1} and len(metadata.image.topics_by_name) == many + 1
    await close(host)


def most_between(steps: Any, monkeypatch: pytest.MonkeyPatch, owner: Any) -> int:
    """How many records are decoded in the longest step."""
    work, most = Work(monkeypatch), 0
    what = {raft_delivery: "delivered", snapshots: "loaded"}[owner]
    for _ in steps:
        most = max(most, work._counts.pop(what, 0))
    return max(most, work._counts.pop(what, 0))


@pytest.mark.parametrize("size", [1, 100])
def test_a_step_ends_in_small_batches_too(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Records were counted anew in each batch: of 256 KiB of changed in-sync sets, all were decoded in a turn, 50 ms."""
    record = encode_metadata_record(NoOpRecord())
    batches = [
        RecordBatch(memoryview(build_batch([Record(0, 0, None, record)] * size, base_offset=at * size, partition_leader_epoch=1)))
        for at in range(MANY // size)
    ]
    log = SimpleNamespace(batches=lambda start, end, bytes_max: iter(batches))
    delivery = raft_delivery.Delivery(SimpleNamespace(), TurnShares(lambda: 0.0), log, lambda: None, lambda error: None)  # type: ignore[arg-type]
    assert 0 < most_between(delivery._pieces(0, MANY), monkeypatch, raft_delivery) <= raft_delivery.STEP_RECORDS
    pieces = at_once(delivery._pieces(0, MANY))
    assert sum(len(piece.records or ()) for piece in pieces) == MANY and pieces[-1].next_offset == MANY


def test_a_snapshot_of_small_batches_is_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "BATCH_BYTES_MAX", 1)
    data = b"".join(snapshots.encode_snapshot([NoOpRecord()] * MANY, epoch=1, wall_ms=0, last_timestamp_ms=0))
    assert 0 < most_between(snapshots.decoding_snapshot(data), monkeypatch, snapshots) <= snapshots.STEP_RECORDS
    assert len(snapshots.decode_snapshot(data).records) == MANY
