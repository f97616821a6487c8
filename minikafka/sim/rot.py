"""Bit rot: a bit of a stored batch flips on one replica while another in-sync replica stays intact; later an operator replaces the copy.

The expected behaviour is Kafka's. A broker does not check its stored batches, so readers find rot on a leader: a consumer gets an error and
no record, a follower refuses the batch and tries again, a coordinator does not load what it cannot read. Only a new copy of the log repairs
it. In the metadata log, a node that would apply the batch or send it on finds the rot and ends. When it starts again, it truncates its log
there, fetches the rest, and does not vote before it has everything. A power cut that leaves a gap looks the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.broker.quorum.raft_promises import PROMISES_LOST
from minikafka.sim.replicas import Batch, batch_at, batches_of, corrupt_batches, is_durable, log_of, segments_of

if TYPE_CHECKING:
    from minikafka.sim.node import SimNode
    from minikafka.sim.parts import World
    from minikafka.sim.swarm import Fault

#: Outside the metadata log only records rot: rot in the offset, length and epoch before the checksummed part could not be detected.
_RECORDS_FROM = 61
_UNCHECKED_BYTES = 17
_EPOCH = range(12, 16)
_RETRY_S = 0.3
METADATA_DIRECTORY = "/data/__cluster_metadata-0"
#: Files that an operator keeps: those that are not part of the metadata log, and those of a newly formatted directory.
_KEPT = frozenset({"quorum-state", "partition.metadata", "bootstrap.checkpoint", "00000000000000000000-0000000000.checkpoint"})


class Rot:
    """The rotten batches: (node id, directory of the log) -> base offsets."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.batches: dict[tuple[int, str], set[int]] = {}
        #: The same for metadata logs, until the node has everything again: node id -> base offsets.
        self.metadata: dict[int, set[int]] = {}

    def of(self, node: SimNode, directory: str) -> set[int]:
        """Base offsets of the rotten batches in a log of the node."""
        if directory == METADATA_DIRECTORY:
            return self.metadata.get(node.node_id, set())
        return self.batches.get((node.node_id, directory), set())

    def begin(self, node: SimNode, topic: str, index: int, fault: Fault) -> str | None:
        """Flip a bit of a committed batch. Half of the time it is the newest, which others may still have to read. Returns a text, or None
        if the node has no committed batch."""
        partition: Any = node.partition(topic, index)
        if partition is None or partition.log.failure is not None or node.node_id in self.metadata:
            return None
        directory = partition.log.directory
        committed = [batch for batch in log_of(node.disk, directory) if batch.last < partition.log.high_watermark]
        committed = [batch for batch in committed if batch.end - batch.position > _RECORDS_FROM]
        if not committed:
            return None
        batch = committed[-1] if fault.pick & 1 else committed[(fault.pick >> 1) % len(committed)]
        _flip(node, directory, batch, _RECORDS_FROM + fault.pick % (batch.end - batch.position - _RECORDS_FROM), fault.pick % 8)
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
        # The metadata do not reflect yet that this broker has fewer records than before.
        node.has_lost_power = node.has_lost_power or bool(directories)
        for directory in directories:
            node.disk.remove(directory)
            del self.batches[(node.node_id, directory)]
            self._world.invariants.forget_log(node, directory)
            self._world.record_event("world", f"{node.host}: {directory} is removed")

    def lose_copy(self, node: SimNode, topic: str, index: int) -> None:
        """An operator replaces a whole replica, which then copies everything from the leader."""
        directory = f"/data/{topic}-{index}"
        node.kill()
        node.has_lost_power = True
        node.disk.remove(directory)
        self._world.invariants.forget_log(node, directory)
        self._world.record_event("world", f"{node.host}: {directory} is removed")

    # -- the metadata log

    def begin_metadata(self, node: SimNode, fault: Fault) -> str | None:
        """Flip a bit of a batch of the metadata log; on a controller, of one that every other controller has on its disk. Returns a text,
        or None without such a batch. Only one metadata log at a time: with two of three voters affected, no majority would be left."""
        process = node.node
        if self.metadata or process is None or not hasattr(process, "raft") or process.raft.failure is not None:
            return None
        if any(node_id == node.node_id for node_id, _ in self.batches):
            return None  # The operator's restart would truncate the other log at its rot, as Kafka does.
        log = process.raft.metadata_log.log
        batches = [batch for batch in log_of(node.disk, METADATA_DIRECTORY) if batch.base >= log.log_start_offset]
        batches = [batch for batch in batches if batch.end - batch.position > _RECORDS_FROM and self._others_have(node, batch)]
        if not batches:
            return None
        batch = batches[-1] if fault.pick & 1 else batches[(fault.pick >> 3) % len(batches)]
        _flip(node, METADATA_DIRECTORY, batch, _anywhere(batch, fault, is_first=batch == batches[0]), fault.pick % 8)
        self.metadata[node.node_id] = {batch.base}
        return f"the metadata log, the batch at {batch.base}"

    def _others_have(self, node: SimNode, batch: Batch) -> bool:
        others = [other for other in self._world.controllers if other is not node]
        if not node.config.is_controller:
            return True

        def has(other: SimNode) -> bool:
            found = batch_at(other.disk, METADATA_DIRECTORY, batch.base)
            return found is not None and found.key == batch.key and is_durable(other.disk, METADATA_DIRECTORY, batch.base)

        return len(others) > 1 and all(map(has, others))

    def make_gap(self, node: SimNode, fault: Fault) -> str | None:
        """Make the metadata log durable, except for the end of an unsynced batch that has another after it. Returns a text, or None without
        such a batch."""
        for _, inode in segments_of(node.disk, METADATA_DIRECTORY):
            synced = len(inode.durable()[0]) if inode.undo else inode.size
            unsynced = [batch for batch in batches_of(inode) if batch.position >= synced]
            if len(unsynced) < 2:
                continue
            batch = unsynced[fault.pick % (len(unsynced) - 1)]
            start = batch.position + _RECORDS_FROM + fault.pick % (batch.end - batch.position - _RECORDS_FROM)
            if not any(inode.data[start : batch.end]):
                return None
            inode.data[start : batch.end] = bytes(batch.end - start)
            inode.undo.clear()
            return f"the metadata log has a gap in the batch at {batch.base}"
        return None

    def note_gap(self, node: SimNode) -> bool:
        """Record the gap that a power cut may have left in the metadata log. Returns whether there is one."""
        corrupt = corrupt_batches(node.disk, METADATA_DIRECTORY)
        if corrupt:
            self.metadata[node.node_id] = set(corrupt)
        return bool(corrupt)

    def end_metadata(self, node: SimNode) -> None:
        """An operator restarts the node, unless that has happened already, and waits until it has everything again."""
        world = self._world
        if node.node_id not in self.metadata:
            return
        is_rotten = not self.metadata[node.node_id].isdisjoint(corrupt_batches(node.disk, METADATA_DIRECTORY))
        if not is_rotten and PROMISES_LOST not in node.disk.files.get(METADATA_DIRECTORY, ()):
            del self.metadata[node.node_id]
            return
        if not node.is_alive:
            node.boot()
        elif is_rotten and node.is_running and not node.disk.failing:
            # A node that is just starting finds the rot by itself.
            node.stop()
        world.fabric.later(_RETRY_S, self.end_metadata, node)

    def forget_metadata(self, node: SimNode) -> None:
        """Remove the metadata log's segments, indexes, epochs and snapshots."""
        names = node.disk.files.get(METADATA_DIRECTORY, {})
        for name in [name for name in names if name not in _KEPT]:
            del names[name]
        node.disk.durable[METADATA_DIRECTORY] = dict(names)
        node.disk.journal.pop(METADATA_DIRECTORY, None)
        node.disk.segments.clear()
        self.metadata.pop(node.node_id, None)
        self._world.record_event("world", f"{node.host}: the metadata log is removed")

    def heal(self) -> None:
        """Replace all rotten copies as soon as other replicas have everything."""
        for node in self._world.brokers:
            self.end(node)
        for node in self._world.nodes.values():
            self.end_metadata(node)


def _anywhere(batch: Batch, fault: Fault, *, is_first: bool) -> int:
    """A byte of a batch of the metadata log. This log has no gaps, so rot in a header can be detected, except in the epoch of the first
    batch and of a control batch that begins an epoch, which might have been another."""
    at = fault.pick % (_UNCHECKED_BYTES if fault.pick >> 5 & 1 else batch.end - batch.position)
    return at + _UNCHECKED_BYTES if at in _EPOCH and (is_first or batch.is_control) else at


def _flip(node: SimNode, directory: str, batch: Batch, at: int, bit: int) -> None:
    for _, inode in segments_of(node.disk, directory):
        if batch in inode.parsed:
            inode.data[batch.position + at] ^= 1 << bit
