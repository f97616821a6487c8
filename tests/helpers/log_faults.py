"""Faults planted into copies of authentic logs: each changes bytes on disk the way real bugs, disks and people do.

A fault works on a cluster of log directories (one a broker). `expected` are the checks of which at least one must name exactly
`brokers`; a fault for which the list is empty must be found on the partition whichever brokers are named (a tie of two).
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable

from crc32c import crc32c
from helpers.log_fault_clusters import FIELDS, Cluster, number, put, seal

# ---- faults of single batches -------------------------------------------------------------------------------------------------


def flip(name: str, sealed: bool, bit: int = 1) -> Callable[[Cluster], None]:
    def plant(cluster: Cluster) -> None:
        batches = cluster.batches()
        start, size = FIELDS[name]
        batches[cluster.middle][start + size - 1] ^= bit
        if sealed:
            seal(batches[cluster.middle])
        cluster.store(batches)

    return plant


def flip_payload(sealed: bool) -> Callable[[Cluster], None]:
    def plant(cluster: Cluster) -> None:
        batches = cluster.batches()
        batches[cluster.middle][-2] ^= 0x10
        if sealed:
            seal(batches[cluster.middle])
        cluster.store(batches)

    return plant


def reorder(change: Callable[[list[bytearray], int], None]) -> Callable[[Cluster], None]:
    def plant(cluster: Cluster) -> None:
        batches = cluster.batches()
        change(batches, cluster.middle)
        cluster.store(batches)

    return plant


def swap(batches: list[bytearray], at: int) -> None:
    batches[at], batches[at + 1] = batches[at + 1], batches[at]


def undecodable(cluster: Cluster) -> None:
    """The first record's length grows by one, the CRC is made right: bytes that no consumer can read."""
    batches = cluster.batches()
    batches[cluster.middle][61] += 2
    seal(batches[cluster.middle])
    cluster.store(batches)


def wrong_record_time(cluster: Cluster) -> None:
    """The header's max timestamp is 1 s above the records'; every replica has it, so that no comparison can show it."""
    for broker in cluster.directories:
        batches = cluster.batches(broker)
        put(batches[cluster.middle], "max_timestamp", number(batches[cluster.middle], "max_timestamp") + 1000)
        seal(batches[cluster.middle])
        cluster.store(batches, broker)
        cluster.drop_caches(broker)


def everywhere(change: Callable[[Cluster], None]) -> Callable[[Cluster], None]:
    """The same fault on every replica: equal bytes, equally wrong."""

    def plant(cluster: Cluster) -> None:
        for broker, path in list(cluster.directories.items()):
            change(Cluster({1: path}, cluster.partition, cluster.middle))
            assert broker

    return plant


# ---- faults of whole logs -----------------------------------------------------------------------------------------------------


def forked_epoch(cluster: Cluster) -> None:
    """The last ten batches carry a higher leader epoch on one replica, its checkpoint agrees, all CRCs are equal."""
    batches = cluster.batches()
    for batch in batches[-10:]:
        put(batch, "epoch", number(batch, "epoch") + 2)
    start, epoch = number(batches[-10], "base_offset"), number(batches[-1], "epoch")
    cluster.store(batches)
    path = cluster.files() / "leader-epoch-checkpoint"
    lines = [line for line in path.read_text().splitlines()[2:] if int(line.split()[1]) < start] + [f"{epoch} {start}"]
    path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


def lost_tail(lowered: bool, broker: int = 1) -> Callable[[Cluster], None]:
    """The last five batches are missing; with `lowered` they are also above the replica's own high watermark."""

    def plant(cluster: Cluster) -> None:
        batches = cluster.batches(broker, -1)
        end = number(batches[-5], "base_offset")
        cluster.store(batches[:-5], broker, -1)
        cluster.drop_caches(broker)
        if lowered:
            for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
                cluster.checkpoint(name, end, broker)

    return plant


def rewritten(begin: int, end: int | None, epoch: int | None) -> Callable[[Cluster], None]:
    """Other records at the same offsets: payloads differ, CRCs are right, perhaps of another epoch."""

    def plant(cluster: Cluster) -> None:
        batches = cluster.batches()
        for batch in batches[begin:end]:
            batch[-2] ^= 0x55
            if epoch is not None:
                put(batch, "epoch", epoch)
            seal(batch)
        cluster.store(batches)
        if epoch is not None:
            path = cluster.files() / "leader-epoch-checkpoint"
            start = number(batches[begin], "base_offset")
            lines = [line for line in path.read_text().splitlines()[2:] if int(line.split()[1]) < start]
            lines += [] if any(int(line.split()[0]) == epoch for line in lines) else [f"{epoch} {start}"]
            path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")

    return plant


def stale_batch_kept(cluster: Cluster) -> None:
    """redpanda#11360: a truncation kept one batch too many, so later batches are one batch further on."""
    batches = cluster.batches()
    at = cluster.middle
    kept = bytearray(batches[at])
    kept[-2] ^= 0x33
    seal(kept)
    shift = number(kept, "last_delta") + 1
    for batch in batches[at:]:
        put(batch, "base_offset", number(batch, "base_offset") + shift)
    cluster.store([*batches[:at], kept, *batches[at:]])
    cluster.drop_caches()


def missing_segment(cluster: Cluster) -> None:
    for path in cluster.files().glob(cluster.segments()[1].stem + "*"):
        path.unlink()


def renamed_segment(cluster: Cluster) -> None:
    path = cluster.segments()[-1]
    for file in cluster.files().glob(path.stem + "*"):
        if file.suffix != ".snapshot":
            file.rename(file.with_name(f"{int(path.stem) + 1:020d}{file.suffix}"))


def tail(data: bytes) -> Callable[[Cluster], None]:
    def plant(cluster: Cluster) -> None:
        path = cluster.segments()[-1]
        path.write_bytes(path.read_bytes() + data)

    return plant


# ---- faults beside the log ----------------------------------------------------------------------------------------------------


def edit(suffix: str, position: int, change: int, segment: int = 0, partition: str = "") -> Callable[[Cluster], None]:
    """Add `change` to the big-endian int32 at `position` of a segment's side file."""

    def plant(cluster: Cluster) -> None:
        path = cluster.segments(partition=partition)[segment].with_suffix(suffix)
        data = bytearray(path.read_bytes())
        struct.pack_into(">i", data, position, struct.unpack_from(">i", data, position)[0] + change)
        path.write_bytes(data)

    return plant


def stale_snapshot(cluster: Cluster) -> None:
    older, newer = sorted(cluster.files().glob("*.snapshot"))[-2:]
    newer.write_bytes(older.read_bytes())


def edited_snapshot(position: int, change: int) -> Callable[[Cluster], None]:
    """Change a field of the newest snapshot's first producer and make its CRC right."""

    def plant(cluster: Cluster) -> None:
        path = sorted(cluster.files().glob("*.snapshot"))[-1]
        data = bytearray(path.read_bytes())
        data[10 + position] = (data[10 + position] + change) & 0xFF
        struct.pack_into(">I", data, 2, crc32c(memoryview(data)[6:]))
        path.write_bytes(data)

    return plant


def text(name: str, change: Callable[[str], str], root: bool = False) -> Callable[[Cluster], None]:
    def plant(cluster: Cluster) -> None:
        path = (cluster.directories[1] if root else cluster.files()) / name
        path.write_text(change(path.read_text()))

    return plant


def set_checkpoint(name: str, value: int) -> Callable[[Cluster], None]:
    return lambda cluster: cluster.checkpoint(name, value)


def last_epoch_line(shift: int) -> Callable[[str], str]:
    def change(content: str) -> str:
        lines = content.splitlines()
        epoch, offset = lines[-1].split()
        return "\n".join([*lines[:-1], f"{epoch} {int(offset) + shift}"]) + "\n"

    return change


def without_epoch(content: str) -> str:
    """Without the first one: the last may have no batches yet, and nobody would miss it."""
    lines = content.splitlines()
    return "\n".join(["0", str(int(lines[1]) - 1), *lines[3:]]) + "\n"


# ---- transactions (topic txn of the broker with many topics) -------------------------------------------------------------------


def in_txn(change: Callable[[Cluster], None]) -> Callable[[Cluster], None]:
    def plant(cluster: Cluster) -> None:
        cluster.partition = "txn-0"
        change(cluster)

    return plant


def abort_becomes_commit(cluster: Cluster) -> None:
    """The marker at offset 9 says COMMIT: aborted records become visible to read_committed consumers."""
    batches = cluster.batches(segment=1)
    marker = next(batch for batch in batches if number(batch, "base_offset") == 9)
    marker[61 + 8] = 1  # length, attributes, timestamp delta, offset delta, key length, version (2 bytes), then type
    seal(marker)
    cluster.store(batches, segment=1)


def no_txn_index(cluster: Cluster) -> None:
    cluster.segments()[1].with_suffix(".txnindex").unlink()


def lost_marker(cluster: Cluster) -> None:
    """The last abort marker becomes an ordinary batch without a producer: the transaction never ends."""
    batches = cluster.batches(segment=-1)
    batches.pop()
    cluster.store(batches, segment=-1)


def hanging(cluster: Cluster) -> None:
    """KIP-890: records arrive after their transaction's marker and open one that never ends; later records are an hour younger."""
    for broker in cluster.directories:
        batches = cluster.batches(broker, -1)
        late = bytearray(next(batch for batch in batches if number(batch, "attributes") & 0x30 == 0x10))
        offset = number(batches[-1], "base_offset") + 1
        plain = bytearray(next(batch for batch in batches if number(batch, "producer_id") < 0))
        for batch, time_ms in ((late, 0), (plain, 3_600_000)):
            put(batch, "base_offset", offset)
            put(batch, "epoch", number(batches[-1], "epoch"))
            put(batch, "base_timestamp", number(batches[-1], "max_timestamp") + time_ms)
            put(batch, "max_timestamp", number(batches[-1], "max_timestamp") + time_ms)
            offset += number(batch, "last_delta") + 1
        put(late, "producer_id", 77)
        cluster.store([*batches, seal(late), seal(plain)], broker, -1)
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            cluster.checkpoint(name, offset, broker)


def appended(change: Callable[[list[bytearray]], bytearray]) -> Callable[[Cluster], None]:
    """One more batch at the end of every replica, made from those that are there; checkpoints follow."""

    def plant(cluster: Cluster) -> None:
        for broker in cluster.directories:
            batches = cluster.batches(broker, -1)
            batch = bytearray(change(batches))
            put(batch, "base_offset", number(batches[-1], "base_offset") + number(batches[-1], "last_delta") + 1)
            put(batch, "epoch", number(batches[-1], "epoch"))
            cluster.store([*batches, seal(batch)], broker, -1)
            cluster.drop_caches(broker)
            for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
                cluster.checkpoint(name, number(batch, "base_offset") + number(batch, "last_delta") + 1, broker)

    return plant


def zombie(batches: list[bytearray]) -> bytearray:
    """A batch with the epoch before the last one of its producer."""
    batch = bytearray(next(one for one in batches if number(one, "producer_id") >= 0 and not number(one, "attributes") & 0x20))
    put(batch, "producer_id", number(batches[-1], "producer_id"))
    put(batch, "producer_epoch", number(batches[-1], "producer_epoch") - 1)
    return batch


def unknown_marker(cluster: Cluster) -> None:
    batches = cluster.batches(segment=1)
    marker = next(batch for batch in batches if number(batch, "base_offset") == 9)
    marker[61 + 8] = 9
    seal(marker)
    cluster.store(batches, segment=1)


# ---- the controller's word ----------------------------------------------------------------------------------------------------


def no_directory(broker: int) -> Callable[[Cluster], None]:
    return lambda cluster: shutil.rmtree(cluster.files(broker))


def snapshot_without_a_partition(cluster: Cluster) -> None:
    """A metadata snapshot that lost its last batch of records before the footer."""
    path = sorted(cluster.files(partition="__cluster_metadata-0").glob("*.checkpoint"))[-1]
    data, batches, position = path.read_bytes(), [], 0
    while position < len(data):
        size = 12 + struct.unpack_from(">i", data, position + 8)[0]
        batches.append(data[position : position + size])
        position += size
    path.write_bytes(b"".join([*batches[:-2], batches[-1]]) if len(batches) > 2 else b"".join(batches[:-1]))


def snapshot_bit(cluster: Cluster) -> None:
    path = sorted(cluster.files(partition="__cluster_metadata-0").glob("*.checkpoint"))[-1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def metadata_record(cluster: Cluster) -> None:
    """One node's metadata log has other bytes in the middle, CRC right."""
    batches = cluster.batches(partition="__cluster_metadata-0")
    batches[10][-2] ^= 1
    cluster.store([seal(batch) if number(batch, "crc") else batch for batch in batches], partition="__cluster_metadata-0")


def future_epoch(cluster: Cluster) -> None:
    """Every replica has a leader epoch that no controller assigned."""
    for broker in cluster.directories:
        forked_epoch(Cluster({1: cluster.directories[broker]}, cluster.partition))
        batches = cluster.batches(broker)
        for batch in batches[-10:]:
            put(batch, "epoch", 9)
        cluster.store(batches, broker)
        path = cluster.files(broker) / "leader-epoch-checkpoint"
        path.write_text(path.read_text().rsplit("\n", 2)[0] + f"\n9 {number(batches[-10], 'base_offset')}\n")


# ---- acknowledged records and compacted topics ---------------------------------------------------------------------------------


def ledger(cluster: Cluster, offsets: list[int]) -> None:
    import json

    topic, partition = cluster.partition.rsplit("-", 1)
    path = cluster.directories[1].parent / "acked.jsonl"
    path.write_text("".join(json.dumps({"topic": topic, "partition": int(partition), "offset": offset}) + "\n" for offset in offsets))
    cluster.acked.append(str(path))


def acked_lost_everywhere(cluster: Cluster) -> None:
    ledger(cluster, list(range(60)))
    for broker in cluster.directories:
        lost_tail(True, broker)(cluster)


def acked_lost_on_one(cluster: Cluster) -> None:
    ledger(cluster, list(range(60)))
    batches = cluster.batches()
    del batches[cluster.middle]
    cluster.store(batches)
    cluster.drop_caches()


def acked_with_another_value(cluster: Cluster) -> None:
    import json

    path = cluster.directories[1].parent / "acked.jsonl"
    entry = {"name": "producer_send_success", "topic": "rep", "partition": 0, "offset": 30, "key": None, "value": "no"}
    path.write_text(json.dumps(entry) + "\n")
    cluster.acked.append(str(path))


def cleaner_lost_a_key(cluster: Cluster) -> None:
    """The cleaned replica no longer has the one record of a key that is nowhere deleted."""
    batches = cluster.batches(broker=2)
    at = next(index for index, batch in enumerate(batches) if number(batch, "base_offset") == 21)
    del batches[at]
    cluster.store(batches, broker=2)
    cluster.drop_caches(2)


def cleaned_record_changed(cluster: Cluster) -> None:
    batches = cluster.batches(broker=2)
    batch = next(batch for batch in batches if number(batch, "base_offset") == 21)
    batch[-2] ^= 1
    cluster.store([seal(one) for one in batches], broker=2)
    cluster.drop_caches(2)
