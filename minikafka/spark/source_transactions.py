"""read_committed: which batches belong to aborted transactions, and where the first open one begins.

Brokers say both in a Fetch answer. In a log directory the aborted ones are in the segments' `.txnindex` files, and the open ones come from
the newest producer snapshot and the batches behind it (ProducerStateManager in Apache Kafka).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from minikafka.spark.access import open_log
from minikafka.spark.logformat import CONTROL_BIT, TRANSACTIONAL_BIT, Batches, FormatError, parse_snapshot, parse_txn_index
from minikafka.spark.sources import Replica, SegmentTask

Column = np.ndarray[Any, Any]
#: Aborted transactions: (producer id, first offset, offset of the marker or -1: the producer's next marker).
Aborted = Iterable[tuple[int, int, int]]


def hidden(batches: Batches, aborted: Aborted) -> Column:
    """Flags of the batches that a read_committed consumer does not see: markers, and batches of aborted transactions."""
    header = batches.header
    control = (header["attributes"] & CONTROL_BIT) != 0
    transactional = (header["attributes"] & TRANSACTIONAL_BIT) != 0
    result = control.copy()
    if not transactional.any():
        return result
    producer, base = header["producer_id"], batches.base_offset
    begin, end = int(base[0]), int(batches.last_offset[-1])
    for one, first, marker in aborted:
        if first > end or 0 <= marker < begin:
            continue
        rows = np.flatnonzero((producer == one) & (base >= first) & transactional)
        if marker < 0:
            markers = rows[control[rows]]
            marker = int(base[markers[0]]) if len(markers) else end
        result[rows[base[rows] <= marker]] = True
    return result


def aborted_in(replica: Replica) -> tuple[tuple[int, int, int], ...]:
    """All that the transaction indexes of a replica list. Raises FormatError with the file."""
    found: list[tuple[int, int, int]] = []
    for segment in replica.segments:
        path = os.path.join(replica.path, f"{segment.base_offset:020d}.txnindex")
        try:
            with open(path, "rb") as file:
                entries = parse_txn_index(file.read())
        except FileNotFoundError:
            continue
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from error
        found += [(int(entry["producer_id"]), int(entry["first_offset"]), int(entry["last_offset"])) for entry in entries]
    return tuple(found)


def last_stable_offset(replica: Replica, tasks: list[SegmentTask], end: int) -> int:
    """The first offset below `end` (the high watermark) of a transaction whose marker is not below `end`; `end` without any.

    `tasks`: the replica's segments in order.
    """
    begin, opened = _newest_snapshot(replica, end)
    for task in tasks:
        if 0 <= task.next_base <= begin:
            continue
        with open_log(task) as reader:
            for batches in reader:
                if int(batches.base_offset[0]) >= end:
                    break
                _follow(batches, begin, end, opened)
    return min([end, *opened.values()])


def _newest_snapshot(replica: Replica, end: int) -> tuple[int, dict[int, int]]:
    """(offset, {producer id: first offset of its open transaction}) of the newest readable producer snapshot at or below `end`."""
    offsets = sorted((int(name.partition(".")[0]) for name in replica.snapshots), reverse=True)
    for offset in offsets:
        if offset > end:
            continue
        try:
            with open(os.path.join(replica.path, f"{offset:020d}.snapshot"), "rb") as file:
                entries = parse_snapshot(file.read())
        except (FileNotFoundError, FormatError):
            continue  # gone meanwhile or damaged: an older one and more batches say the same
        return offset, {int(one["producer_id"]): int(one["first_offset"]) for one in entries if one["first_offset"] >= 0}
    return 0, {}


def _follow(batches: Batches, begin: int, end: int, opened: dict[int, int]) -> None:
    header, base = batches.header, batches.base_offset
    special = (header["attributes"] & TRANSACTIONAL_BIT) != 0
    for row in np.flatnonzero(special & (base >= begin) & (base < end)).tolist():
        producer = int(header["producer_id"][row])
        if header["attributes"][row] & CONTROL_BIT:
            opened.pop(producer, None)
        else:
            opened.setdefault(producer, int(base[row]))
