"""Bit rot: bits of a stored batch flip on one replica, while another in-sync replica keeps it whole; later an operator replaces the copy.

Kafka's rules are asked for: a broker does not look at what it has stored, so that rot on a leader is found by whoever reads - a consumer
gets an error and no record, a follower refuses the batch and tries again -, and nothing mends it but a new copy of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.sim.replicas import log_of, segments_of

if TYPE_CHECKING:
    from minikafka.sim.node import SimNode
    from minikafka.sim.swarm import Fault
    from minikafka.sim.world import World

#: Only records rot: offsets, lengths and epochs stand before the checksummed part of a batch, and nobody could tell.
_RECORDS_FROM = 61
_RETRY_S = 0.3


class Rot:
    """What is rotten: (node id, directory of the log) -> base offsets."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.batches: dict[tuple[int, str], set[int]] = {}

    def begin(self, node: SimNode, topic: str, index: int, fault: Fault) -> str | None:
        """Flip a bit of a committed batch; None if the node has none. Half the time it is the newest, which others may have to read yet."""
        partition: Any = node.partition(topic, index)
        if partition is None or partition.log.failure is not None:
            return None
        directory = partition.log.directory
        committed = [batch for batch in log_of(node.disk, directory) if batch.last < partition.log.high_watermark]
        committed = [batch for batch in committed if batch.end - batch.position > _RECORDS_FROM]
        if not committed:
            return None
        batch = committed[-1] if fault.pick & 1 else committed[(fault.pick >> 1) % len(committed)]
        for _, inode in segments_of(node.disk, directory):
            if batch in inode.parsed:
                at = batch.position + _RECORDS_FROM + fault.pick % (batch.end - batch.position - _RECORDS_FROM)
                inode.data[at] ^= 1 << fault.pick % 8
        self.batches.setdefault((node.node_id, directory), set()).add(batch.base)
        return f"{topic}-{index}, the batch at {batch.base}"

    def end(self, node: SimNode) -> None:
        """An operator replaces the replica when the others can do without this broker for a while."""
        world = self._world
        if not any(node_id == node.node_id for node_id, _ in self.batches):
            return
        if world.chaos.may_lose_power(node):
            self.replace(node)
            world.fabric.later(_RETRY_S, node.boot)
        else:
            world.fabric.later(_RETRY_S, self.end, node)

    def replace(self, node: SimNode) -> None:
        """Stop the broker at once and remove its rotten logs; it copies them from the leader when it starts again."""
        directories = [directory for node_id, directory in self.batches if node_id == node.node_id]
        node.kill()
        # Its metadata do not tell yet that it has less than before.
        node.has_lost_power = node.has_lost_power or bool(directories)
        for directory in directories:
            node.disk.remove(directory)
            del self.batches[(node.node_id, directory)]
            self._world.invariants.forget_log(node, directory)
            self._world.tell("world", f"{node.host}: {directory} is removed")

    def heal(self) -> None:
        """Everything heals: replace whatever is rotten, as soon as others have it all."""
        for node in self._world.brokers:
            self.end(node)
