"""S4 for compacted logs: the cleaner rewrites batches, but each record that it keeps is as it was committed, and the last of a key stays.

A batch is first covered by a high watermark before any replica may clean it, so its records are noted then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from minikafka.sim.memberships import GROUPS_TOPIC
from minikafka.sim.replicas import Batch, Truth, batches_of, from_offset, inode_of, segments_of
from minikafka.wire.batch import iterate_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from minikafka.sim.disk import Inode
    from minikafka.sim.node import SimNode
    from minikafka.sim.parts import Invariants

#: A record: its offset, its key, and the CRC of key and value; a value of None has another CRC than an empty one.
Content = tuple[int, bytes, int]


def covered(invariants: Invariants, node: SimNode, log: Any, truth: Truth, before: int) -> None:
    """A high watermark of a compacted log has moved: note what it covers first, and compare what was covered before."""
    rotten = invariants.world.chaos.rot.of(node, log.directory)
    for batch in from_offset(node.disk, log.directory, max(before, log.log_start_offset)):
        if batch.base >= log.high_watermark:
            return
        if batch.base in rotten:
            continue
        inode = inode_of(node.disk, log.directory, batch)
        held = () if batch.is_control else tuple(contents(inode, batch))
        if batch.base < truth.end:
            _compare(invariants, node, log.directory, truth, held)
            continue
        truth.append(batch)
        truth.contents.update({offset: (key, crc, not batch.is_transactional) for offset, key, crc in held})
        if log.topic == GROUPS_TOPIC:
            invariants.memberships.committed(node, log, batch)


def check(invariants: Invariants, node: SimNode, directory: str, truth: Truth) -> None:
    """A replica at rest: its committed records are as they were committed, and have the last value of each key, unless that deletes it.
    What a rotten batch holds is not looked at."""
    found: set[int] = set()
    rotten = invariants.world.chaos.rot.of(node, directory)
    for _, inode in segments_of(node.disk, directory):
        for batch in batches_of(inode):
            if batch.base in rotten:
                found.update(range(batch.base, batch.last + 1))
            elif batch.last < truth.end and not batch.is_control:
                held = list(contents(inode, batch))
                _compare(invariants, node, directory, truth, held)
                found.update(offset for offset, _, _ in held)
    last = {key: (offset, crc, counts) for offset, (key, crc, counts) in sorted(truth.contents.items())}
    # A tombstone may be gone, and a record of a transaction that was aborted.
    lost = [offset for key, (offset, crc, counts) in last.items() if counts and offset not in found and crc != _crc(key, None)]
    if lost:
        invariants.world.violate("S4", f"{node} {directory}: the latest records of their keys, at {lost[:5]}, are missing")


def contents(inode: Inode, batch: Batch) -> Iterator[Content]:
    """The records of a batch."""
    for found in iterate_batches(memoryview(bytes(inode.data[batch.position : batch.end]))):
        for record in found.records():
            key = bytes(record.key or b"")
            yield record.offset, key, _crc(key, None if record.value is None else bytes(record.value))


def _crc(key: bytes, value: bytes | None) -> int:
    return crc32c(key) if value is None else crc32c(value, crc32c(b"=", crc32c(key)))


def _compare(invariants: Invariants, node: SimNode, directory: str, truth: Truth, held: Iterable[Content]) -> None:
    for offset, key, crc in held:
        invariants.checked["S4"] += 1
        if truth.contents.get(offset, ())[:2] != (key, crc):
            invariants.world.violate("S4", f"{node} {directory}: the record at {offset} differs from the one committed there")
