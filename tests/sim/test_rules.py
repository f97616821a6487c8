"""Rules of a partition on its broker that a simulated cluster breaks too rarely to be relied on: epochs of requests and of answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.handlers.produce_lane import _ParkedAppend
from minikafka.broker.hosts.partition import Partition
from minikafka.core.metadata.image import PartitionRegistration
from minikafka.sim.disk import Disk, DiskView
from storage.config import LogConfig
from storage.recovery import load_log
from wire.batch import build_batch
from wire.errors import ApiError, ErrorCode
from wire.record import Record


def registration(epoch: int, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3)) -> PartitionRegistration:
    return PartitionRegistration((1, 2, 3), isr, leader, epoch, epoch)


@pytest.fixture
def partition() -> Partition:
    """Of broker 1, which leads in epoch 4."""
    disk = DiskView(Disk())
    disk.mkdir("/data/t-0")
    purgatory = SimpleNamespace(wake=lambda key: None, is_watched=lambda key: False, watched={})
    manager: Any = SimpleNamespace(
        broker_id=1, lag_ms_max=1000, is_eligible=lambda *_: True, produces=purgatory, fetches=purgatory, deletes=purgatory,
        purgatory_wake=lambda key: None, propose=lambda *_: None,
    )  # fmt: skip
    made = Partition(manager, "t", bytes(16), 0, load_log(disk, "/data/t-0", "t", 0, LogConfig(), wall_ms=0))
    made.make_leader(registration(4), 1, 0)
    return made


def batch(value: bytes = b"x") -> memoryview:
    return memoryview(build_batch([Record(0, 1, None, value)]))


def test_kip_320_requests_of_another_epoch_are_refused(partition: Partition) -> None:
    partition.check_epoch(4)
    partition.check_epoch(-1)
    for epoch, code in ((3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        with pytest.raises(ApiError) as refused:
            partition.check_epoch(epoch)
        assert refused.value.code is code


def test_a_leader_notes_the_start_of_its_epoch_before_any_record(partition: Partition) -> None:
    """KIP-279: who comes later must learn where the epochs without records began."""
    partition.append(batch(), -1, 0, 0)
    partition.make_follower(registration(5, leader=2))
    partition.make_leader(registration(7), 1, 0)
    assert partition.log.epochs.entries == [(4, 0), (7, 1)]


def test_an_append_of_an_earlier_epoch_is_not_acknowledged_by_a_later_one(partition: Partition) -> None:
    """Its record may have been cut meanwhile, and another may stand in its place."""
    answers: list[Any] = []
    connection: Any = SimpleNamespace(begin=lambda: 0, finish=lambda ticket, pieces: answers.append(pieces[0]))
    shape: Any = SimpleNamespace(
        size=0, head=0, tail=0, answer=lambda *_: "acknowledged", failed=lambda correlation_id, code: ErrorCode(code).name
    )
    info = partition.append(batch(), -1, 0, 0)
    parked = _ParkedAppend(connection, 1, shape, partition, partition.leading(), info)
    assert parked.try_complete() is False and answers == []
    partition.make_follower(registration(5, leader=2))
    partition.make_leader(registration(6, isr=(1,)), 1, 0)
    assert partition.leading().high_watermark > info.last_offset
    assert parked.try_complete() is True
    assert answers == ["NOT_LEADER_OR_FOLLOWER"]
