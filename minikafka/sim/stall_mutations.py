"""Mutations after which a leader's high watermark waits for the next record (L9)."""

from __future__ import annotations

from typing import Any


def _only_with_progress(original: Any) -> Any:
    """A follower that fetches again from where it is tells the leader nothing."""

    def fetched(self: Any, broker_id: int, offset: int, *state: Any) -> bool:
        follower = self.followers.get(broker_id)
        if follower is None or follower.log_end_offset != offset or broker_id not in self.isr.maximal:
            return bool(original(self, broker_id, offset, *state))
        high_watermark = self.high_watermark
        original(self, broker_id, offset, *state)
        self.high_watermark = high_watermark
        return False

    return fetched


def _shrink_without_looking(original: Any) -> Any:
    """The periodic look at the in-sync sets leaves high watermarks alone."""

    def shrinking(self: Any, partitions: Any) -> Any:
        now_ms = self._clock.now_ms()
        for partition in partitions:
            proposal = None if partition.leader is None else partition.leader.shrinkage(now_ms)
            if proposal is not None:
                self.propose(partition, proposal)
        yield

    return shrinking


STALL_MUTATIONS: list[dict[str, Any]] = [
    {"name": "high-watermark-only-with-progress", "breaks": "the high watermark does not move on when what held it back has gone",
     "patches": (("minikafka.core.partition.leader:PartitionLeader.fetched", _only_with_progress),),
     "tests": ("tests/core/partition/test_leader.py",)},
    {"name": "silent-replica-holds", "breaks": "a replica that fell silent just before it joined holds the high watermark back forever",
     "patches": (("minikafka.broker.partitions.in_sync_sets:InSyncSets.shrinking", _shrink_without_looking),),
     "tests": ("tests/broker/test_in_sync_sets.py",)},
]
