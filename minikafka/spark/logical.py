"""Compacted replicas by what they mean: the latest record of every key, whatever each broker's cleaner has removed so far.

Memory is bounded by passes over key hashes: a pass looks only at the keys whose hash falls to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minikafka.spark.access import open_log
from minikafka.spark.logformat import CONTROL_BIT, DELETE_HORIZON_BIT, TIMESTAMP_TYPE_BIT, Batches
from minikafka.spark.records import RecordColumns, Unread, decode_records
from minikafka.spark.scan import in_cell
from minikafka.spark.sources import SegmentTask

Column = np.ndarray[Any, Any]
RECORDS_A_PASS = 1_500_000
#: Keys are compared in so many slices, by the first bits of their hashes.
SLICE_BITS = 4
#: Held as Python's values before they are packed into columns.
ROWS_UNPACKED_MAX = 100_000
#: Records and batches of a cell, held of every replica at once.
SURVIVORS_A_PASS = 100_000
#: What a cleaner keeps of a batch besides its records and its attributes.
KEPT_FIELDS = ("base_offset", "last_delta", "magic", "epoch", "producer_id", "producer_epoch", "base_sequence")
LATEST = np.dtype([("key", "u8"), ("offset", "i8"), ("content", "u8"), ("tombstone", "?")])


def content(records: RecordColumns, index: int) -> tuple[bytes | None, int, bool]:
    """(key, 64-bit digest of timestamp, key, value and headers, whether the value is null)."""
    key, value = records.key(index), records.value(index)
    whole = repr((int(records.timestamp[index]), key, value, records.headers(index))).encode()
    return key, _digest(whole), value is None


@dataclass(slots=True)
class Surviving:
    """`held`: {("record" or "batch", offset): (leader epoch, digest)}; `wrong`: (check, offset, what) of batches that no reader
    can take."""

    held: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    wrong: list[tuple[str, int, str]] = field(default_factory=list)


def surviving(tasks: Iterable[tuple[SegmentTask, int]], key: tuple[int, int], share: tuple[int, int] = (1, 0)) -> Surviving:
    """What lies in the batches of a cell, reading each segment from the given position. A batch belongs to one cell with all its records,
    however far it reaches, for a cleaner leaves its first and last offset as they are. `share` (passes, number): only offsets that leave
    `number` when divided by `passes`.

    A cleaner copies a batch with fewer records, and changes its length, count, base and max timestamp, its delete horizon and its CRC; all
    else of it stays (MemoryRecords.filterTo), also where no record does.
    """
    found = Surviving()
    for task, position in tasks:
        with open_log(task, position, key[1] << task.cell_shift) as reader:
            for batches in reader:
                _keep(found, batches, in_cell(task, batches, key), *share)
                if int(batches.base_offset[-1]) >= (key[1] + 1) << task.cell_shift:
                    break
    return found


def _keep(found: Surviving, batches: Batches, chosen: Column, passes: int, number: int) -> None:
    records, wrong = decode_records(batches, chosen)
    stated = batches.header["max_timestamp"].astype(np.int64)
    largest = np.full(len(batches), np.iinfo(np.int64).min, np.int64)
    np.maximum.at(largest, records.batch, records.timestamp)
    for row in chosen[batches.base_offset[chosen] % passes == number].tolist():
        header = batches.header[row]
        base, attributes = int(header["base_offset"]), int(header["attributes"])
        kept = tuple(int(header[name]) for name in KEPT_FIELDS)
        whole = repr((kept, attributes & ~DELETE_HORIZON_BIT)).encode()
        found.held["batch", base] = int(header["epoch"]), _digest(whole)
        if row in wrong:
            found.wrong.append(("not-compared" if isinstance(wrong[row], Unread) else "batch-records", base, str(wrong[row])))
        elif header["count"] > 0 and not attributes & (CONTROL_BIT | TIMESTAMP_TYPE_BIT) and largest[row] != stated[row]:
            text = f"the latest record has timestamp {int(largest[row])}, the header's max timestamp is {int(stated[row])}"
            found.wrong.append(("batch-timestamps", base, text))
    for index in np.flatnonzero(records.offset % passes == number).tolist():
        epoch = int(batches.header["epoch"][records.batch[index]])
        found.held["record", int(records.offset[index])] = epoch, content(records, index)[1]


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def latest(tasks: list[SegmentTask], aborted: list[tuple[int, int, int]], passes: int, number: int, low: int, until: int) -> Column:
    """The latest record before `until` of every key of pass `number`, sorted by key hash; aborted records do not count.

    `aborted`: (producer id, first offset, marker offset).
    """
    newest: dict[int, tuple[int, int, bool]] = {}
    packed = np.empty(0, LATEST)
    by_producer: dict[int, list[tuple[int, int]]] = {}
    for producer, first, marker in aborted:
        by_producer.setdefault(producer, []).append((first, marker))
    for records, is_data, is_aborted in data_records([(task, 0) for task in tasks], low, until, by_producer):
        for index in np.flatnonzero((records.key_length >= 0) & is_data & ~is_aborted & (records.offset < until)).tolist():
            key = records.key(index) or b""
            hashed = _digest(key)
            if hashed % passes == number:
                _, digest, tombstone = content(records, index)
                newest[hashed] = int(records.offset[index]), digest, tombstone
        if len(newest) >= ROWS_UNPACKED_MAX:
            packed = _packed(packed, newest)
    return _packed(packed, newest)


def _packed(older: Column, newest: dict[int, tuple[int, int, bool]]) -> Column:
    """Both together, sorted by key hash, of each key the newer; empties `newest`."""
    rows = np.concatenate((older, np.array([(key, *rest) for key, rest in newest.items()], LATEST)))
    newest.clear()
    rows = rows[np.argsort(rows["key"], kind="stable")]
    last: Column = np.append(rows["key"][1:] != rows["key"][:-1], True)[: len(rows)]
    return rows[last]


def data_records(
    tasks: Iterable[tuple[SegmentTask, int]], low: int, high: int, aborted: dict[int, list[tuple[int, int]]] | None = None,
    undecoded: dict[int, str] | None = None,
) -> Iterator[tuple[RecordColumns, Column, Column]]:  # fmt: skip
    """Records with flags: of those that are no control records, and of those that are aborted ({producer: (first, last offset)}).
    `undecoded` gets the batches that cannot be decoded, by their offset, and why."""
    for task, position in tasks:
        with open_log(task, position, low) as reader:
            for batches in reader:
                chosen = np.flatnonzero((batches.base_offset < high) & (batches.last_offset >= low))
                records, wrong = decode_records(batches, chosen)
                if undecoded is not None:
                    undecoded |= {int(batches.base_offset[index]): text for index, text in wrong.items()}
                is_data = (batches.header["attributes"][records.batch] & CONTROL_BIT) == 0
                is_aborted = np.zeros(len(records), bool)
                if aborted:
                    producer = batches.header["producer_id"][records.batch]
                    for producer_id in np.intersect1d(producer, list(aborted)).tolist():
                        for first, marker in aborted[producer_id]:
                            is_aborted |= (producer == producer_id) & (records.offset >= first) & (records.offset <= marker)
                yield records, is_data, is_aborted
                if int(batches.base_offset[-1]) >= high:
                    break


def first_lost_key(one: Column, other: Column, fence: int, cleaned: tuple[int, int], ends: tuple[int, int]) -> tuple[int, int, str] | None:
    """Where the latest records of two replicas disagree below the fence: (offset, which of the two is behind: 0 or 1, what).

    A cleaner may remove a record only when a later one of its key is there, or when it is an old tombstone. `cleaned`: how far each
    replica's cleaner came, `ends`: where each log ends; where the one was cleaned beyond the fence and beyond the other's end, a tombstone
    that the other never had may have removed a key and gone itself.
    """
    found: list[tuple[int, int, str]] = []
    for mine, theirs in zip(_slices(one), _slices(other), strict=True):
        found += _lost_keys(mine, theirs, fence, cleaned, ends)
    return min(found, default=None)


def _slices(rows: Column) -> Iterator[Column]:
    bounds = np.arange(1, 1 << SLICE_BITS, dtype=np.uint64) << np.uint64(64 - SLICE_BITS)
    yield from np.split(rows, np.searchsorted(rows["key"], bounds))


def _lost_keys(one: Column, other: Column, fence: int, cleaned: tuple[int, int], ends: tuple[int, int]) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    _, left, right = np.intersect1d(one["key"], other["key"], assume_unique=True, return_indices=True)
    a, b = one[left], other[right]
    inside = (a["offset"] < fence) & (b["offset"] < fence)
    for behind, rows in ((0, inside & (a["offset"] < b["offset"])), (1, inside & (b["offset"] < a["offset"]))):
        ahead = b if behind == 0 else a
        for row in np.flatnonzero(rows & ~ahead["tombstone"])[:1].tolist():
            found.append((int(ahead["offset"][row]), behind, "lacks the latest record of a key but has an older one"))
        for row in np.flatnonzero(rows & ahead["tombstone"])[:1].tolist():
            found.append((int(ahead["offset"][row]), behind, "still has a key that the other replica deleted with a tombstone"))
    for row in np.flatnonzero(inside & (a["offset"] == b["offset"]) & (a["content"] != b["content"]))[:1].tolist():
        found.append((int(a["offset"][row]), 1, "has a different record there"))
    for behind, mine, theirs in ((1, one, other), (0, other, one)):
        if cleaned[behind] > max(fence, ends[1 - behind]):
            continue
        alone = ~np.isin(mine["key"], theirs["key"], assume_unique=True) & ~mine["tombstone"] & (mine["offset"] < fence)
        for row in np.flatnonzero(alone)[:1].tolist():
            found.append((int(mine["offset"][row]), behind, "has no record for a key that the other replica has"))
    return found
