"""An append that waits for its replicas is settled once, by the leadership that made it, or by time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.core.partition.leader import PartitionLeader
from minikafka.core.partition.replication_wait import ReplicationWait
from minikafka.wire.errors import ErrorCode


class Wait(ReplicationWait):
    def __init__(self, replica: Any, required: int) -> None:
        super().__init__(replica, replica.leader, required)
        self.codes: list[ErrorCode] = []

    def settled(self, code: ErrorCode) -> None:
        assert self.is_done
        self.codes.append(code)


def leadership(epoch: int = 5, high_watermark: int = 10) -> PartitionLeader:
    return PartitionLeader(
        broker_id=1, leader_epoch=epoch, partition_epoch=1, replicas=(1, 2), isr=(1, 2), log_end_offset=20, high_watermark=high_watermark,
        min_isr=2, lag_ms_max=1000, eligible=lambda *_: True, now_ms=0,
    )  # fmt: skip


def test_a_wait_completes_when_everything_before_it_is_replicated() -> None:
    replica = SimpleNamespace(leader=leadership())
    wait = Wait(replica, 12)
    assert wait.try_complete() is False and not wait.is_done
    replica.leader.fetched(2, 12, 0, 1, 0)
    assert wait.try_complete() is True and wait.codes == [ErrorCode.NONE]


def test_a_set_that_shrank_meanwhile_is_said() -> None:
    replica = SimpleNamespace(leader=leadership(high_watermark=12))
    wait = Wait(replica, 12)
    replica.leader.committed((1,), 2, 0)
    assert wait.try_complete() is True and wait.codes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


@pytest.mark.parametrize("later", [None, leadership(6, 20)])
def test_another_leadership_says_nothing_about_it(later: PartitionLeader | None) -> None:
    replica = SimpleNamespace(leader=leadership())
    wait = Wait(replica, 12)
    replica.leader = later
    assert wait.try_complete() is True and wait.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_without_a_leader_the_wait_times_out() -> None:
    alone = Wait(SimpleNamespace(leader=None), 12)
    assert alone.try_complete() is True and alone.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    late = Wait(SimpleNamespace(leader=leadership()), 12)
    late.expire()
    assert late.is_done and late.codes == [ErrorCode.REQUEST_TIMED_OUT]
