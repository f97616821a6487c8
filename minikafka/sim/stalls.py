"""L9: a leader's high watermark does not stall. Whatever held it back, it moves on soon after that has gone, without a new record.

The oracle works out for itself how far the high watermark may go, from the leader's view of its followers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.sim.node import SimNode
    from minikafka.sim.parts import Invariants

#: A leader looks every replica.lag.time.max.ms / 2; this is for a node whose loop or disk is slow.
GRACE_MS = 2000


def attainable(partition: Any, now_ms: int, lag_ms_max: int) -> int:
    """How far the high watermark may go: the least end among the in-sync replicas and those that are about to join them."""
    leader = partition.leader
    if len(leader.isr.committed) < leader.min_isr:
        return int(leader.high_watermark)
    ends = [leader.log_end_offset]
    for broker_id, follower in leader.followers.items():
        if broker_id in leader.isr.maximal or (follower.log_end_offset >= 0 and now_ms - follower.last_caught_up_ms <= lag_ms_max):
            ends.append(follower.log_end_offset)
    return int(min(ends))


class Stalls:
    """Remembers since when each leader's high watermark could have moved."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._since: dict[tuple[int, bytes, int], tuple[tuple[int, int], int]] = {}

    def watch(self, node: SimNode, partition: Any) -> None:
        """Look at a partition that this node leads."""
        world = self._invariants.world
        assert node.node is not None and node.node.broker is not None
        key = (node.node_id, partition.topic_id, partition.index)
        now_ms = node.node.environment.clock.now_ms()
        leader = partition.leader
        lag_ms_max = node.config.replica_lag_time_max_ms
        self._invariants.checked["L9"] += 1
        # What lacks descriptors or memory, or still waits for a slow disk, is not synced, and may not count (flush.messages).
        is_unsynced = node.disk.is_short or self._invariants.world.now < node.long_call_ends_s
        if node.is_paused or is_unsynced or attainable(partition, now_ms, lag_ms_max) <= leader.high_watermark:
            self._since.pop(key, None)
            return
        state = (partition.leader_epoch, leader.high_watermark)
        before, since_ms = self._since.get(key, (None, 0))
        if before != state:
            self._since[key] = (state, now_ms)
        elif now_ms - since_ms > lag_ms_max // 2 + GRACE_MS:
            ends = {broker_id: follower.log_end_offset for broker_id, follower in leader.followers.items()}
            world.violate(
                "L9",
                f"{node} {partition}: for {now_ms - since_ms} ms the high watermark has been {leader.high_watermark}; the log ends at"
                f" {leader.log_end_offset}, the followers at {ends}, in sync are {leader.isr.maximal}",
            )
