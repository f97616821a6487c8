"""Quorums in the midst of legal lives: voters that joined and elected a leader without the first one, and a leader that went down with
records that nobody copied."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from helpers.log_clusters import Batch, MetadataLog, Partition, directory_id, lines, plain, quorum_state, write_broker

TOPIC, BROKERS, METADATA = bytes(range(16)), (1, 2, 3), "__cluster_metadata-0"
CONTENT = tuple(plain(offset) for offset in range(40))
PARTITION = Partition("t-0", list(CONTENT), (0, 20), ((0, 0),), TOPIC)


def registered(log: MetadataLog) -> MetadataLog:
    """Brokers, the topic and its partition."""
    for broker in BROKERS:
        log.broker(broker)
    return log.topic("t", TOPIC).partition(TOPIC, BROKERS, BROKERS, 1, 1)


def copy_of(log: MetadataLog) -> MetadataLog:
    """The same log, to be continued otherwise."""
    return MetadataLog(list(log.values), dict(log.controls))


def write_copy(root: Path, log: MetadataLog, epochs: Sequence[tuple[int, int]], state: dict[str, object], begin: int = 0) -> None:
    """A node's metadata log from `begin` on, whose epochs begin at these offsets."""
    path = root / METADATA
    (path / f"{0:020d}.log").unlink(missing_ok=True)
    (path / f"{begin:020d}.log").write_bytes(b"".join(batch.encode() for batch in _of_epochs(log.batches(), epochs)[begin:]))
    (path / "leader-epoch-checkpoint").write_text(lines(f"{epoch} {max(begin, first)}" for epoch, first in epochs))
    (path / "quorum-state").write_text(json.dumps(state))


def write_snapshot(root: Path, log: MetadataLog, end: int, epoch: int) -> None:
    """A node's snapshot of the records below `end`, and of the last voters among them."""
    (root / METADATA / f"{end:020d}-{epoch:010d}.checkpoint").write_bytes(MetadataLog(log.values[:end], log.controls).snapshot())


def _of_epochs(batches: Iterable[Batch], epochs: Sequence[tuple[int, int]]) -> list[Batch]:
    found = list(batches)
    for batch in found:
        batch.epoch = max(epoch for epoch, begin in epochs if begin <= batch.base)
    return found


def write_brokers(folder: Path, clean: bool = True) -> None:
    """A directory for each broker, with an empty metadata log."""
    for broker in BROKERS:
        root = write_broker(folder / f"b{broker}", broker, [PARTITION], b"", clean)
        (root / METADATA).mkdir()
        (root / METADATA / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")


def added_voters(folder: Path) -> None:
    """Node 1 began alone, 2 and 3 were added in epoch 1; node 1 was killed, and the others elected 2 in epoch 2 (KIP-853)."""
    log = registered(MetadataLog().voters((1,))).voters((1, 2)).voters(BROKERS)
    went = copy_of(log).change(TOPIC, isr=(2, 3), leader=2)
    write_brokers(folder, clean=False)
    write_copy(folder / "b1", log, [(1, 0)], quorum_state(1, 1))
    for broker in (2, 3):
        epochs = [(1, 0), (2, len(log.values))]
        write_copy(folder / f"b{broker}", went, epochs, quorum_state(2, 2, 2, directory_id(2)))


def removed_voters(folder: Path) -> None:
    """Of three voters the leader removed 3 and then 2, and was elected again by itself."""
    log = registered(MetadataLog().voters(BROKERS)).voters((1, 2)).voters((1,))
    went = copy_of(log).change(TOPIC, isr=(1, 2), leader=1)
    write_brokers(folder, clean=False)
    write_copy(folder / "b1", went, [(1, 0), (2, len(log.values))], quorum_state(1, 2, 1, directory_id(1)))
    for broker in (2, 3):
        write_copy(folder / f"b{broker}", log, [(1, 0)], quorum_state(1, 1))


def uncopied_tail(folder: Path) -> None:
    """Node 3 led epoch 1 and went down with records that nobody copied. The others went on in epoch 2, and took snapshots: one ends in the
    midst of node 3's records."""
    log = registered(MetadataLog().voters(BROKERS))
    common = len(log.values)
    left, went = copy_of(log), copy_of(log)
    for number in range(5):
        left.config("t", "retention.ms", str(number))
        went.config("t", "max.message.bytes", str(number))
    write_brokers(folder)
    write_copy(folder / "b3", left, [(1, 0)], quorum_state(3, 1))
    write_snapshot(folder / "b3", left, common, 1)
    for broker in (1, 2):
        epochs, end = [(1, 0), (2, common)], common + 1 + broker
        write_copy(folder / f"b{broker}", went, epochs, quorum_state(1, 2, 1, directory_id(1)), begin=common if broker == 2 else 0)
        write_snapshot(folder / f"b{broker}", went, common, 1)
        write_snapshot(folder / f"b{broker}", went, end, 2)


def late_observers(folder: Path) -> None:
    """Node 2 came when the others had a snapshot, and began with it. Node 1 has cut its leader epochs there, but not its log, and node 3
    neither."""
    log = registered(MetadataLog())
    for number in range(5):
        log.config("t", "retention.ms", str(number))
    end = len(log.values) - 2
    write_brokers(folder)
    state = quorum_state(1, 2) | {"data_version": 0, "clusterId": "", "appliedOffset": 0, "currentVoters": [{"voterId": 1}]}
    for broker in BROKERS:
        write_copy(folder / f"b{broker}", log, [(1, 0), (2, end - 3)], state, begin=end if broker == 2 else 0)
        write_snapshot(folder / f"b{broker}", log, end, 2)
        if broker != 3:
            (folder / f"b{broker}" / METADATA / "leader-epoch-checkpoint").write_text(lines([f"2 {end}"]))
