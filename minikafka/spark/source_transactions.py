"""read_committed: finds the batches of aborted transactions, and the start of the first open transaction.

Brokers report both in a Fetch response. In a log directory, aborted transactions are in the segments' `.txnindex` files. Open ones follow
from the newest producer snapshot and the headers of the batches after it (ProducerStateManager in Apache Kafka).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minikafka.spark.logformat import CONTROL_BIT, TRANSACTIONAL_BIT, Batches, FormatError, parse_segment_name, parse_snapshot
from minikafka.spark.regular_files import open_regular
from minikafka.spark.source_files import Headers, Held, headers, opened, position_of, segment_bases, segment_path

Column = np.ndarray[Any, Any]
#: Aborted transactions: (producer id, first offset, offset of the marker or -1: the producer's next marker).
Aborted = Iterable[tuple[int, int, int]]


def hidden(batches: Batches, aborted: Aborted) -> Column:
    """Flags of the batches that a read_committed consumer does not see: markers, and batches of aborted transactions."""
    header = batches.header
    control = (header["attributes"] & CONTROL_BIT) != 0
    transactional = (header["attributes"] & TRANSACTIONAL_BIT) != 0
    result: Column = control.copy()
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


@dataclass(slots=True)
class _Followed:
    """The transactions that are open at `offset`, up to which headers were read: first offset by producer id."""

    topic_id: str
    offset: int
    opened: dict[int, int]


@dataclass(slots=True)
class StableOffsets:
    """Last stable offsets of partitions in log directories. It caches its progress, because a stream asks again and again."""

    followed: dict[str, _Followed] = field(default_factory=dict)

    def last_stable_offset(self, held: Held, end: int) -> int:
        """The first offset of a transaction that is open at `end` (the high watermark); `end` if there is none."""
        state = self.followed.get(held.path)
        if state is None or state.topic_id != held.topic_id or state.offset > end:
            state = _Followed(held.topic_id, *_newest_snapshot(held.path, end))
        bases = segment_bases(held.path)
        for number, base in enumerate(bases):
            if base >= end or (number + 1 < len(bases) and bases[number + 1] <= state.offset):
                continue
            _follow_segment(held.path, base, state, end)
        self.followed[held.path] = state
        return min([end, *state.opened.values()])


def _newest_snapshot(path: str, end: int) -> tuple[int, dict[int, int]]:
    """(offset, {producer id: first offset of its open transaction}) of the newest readable producer snapshot at or below `end`."""
    parsed = (parse_segment_name(name) for name in os.listdir(path))
    for offset in sorted((found[0] for found in parsed if found and found[1] == "snapshot" and found[0] <= end), reverse=True):
        try:
            with open_regular(segment_path(path, offset, "snapshot")) as file:
                entries = parse_snapshot(file.read())
        except (FileNotFoundError, FormatError):
            continue  # deleted meanwhile or damaged: use an older snapshot and more batches
        return offset, {int(one["producer_id"]): int(one["first_offset"]) for one in entries if one["first_offset"] >= 0}
    return 0, {}


def _follow_segment(path: str, base: int, state: _Followed, end: int) -> None:
    position = position_of(path, base, state.offset) if state.offset > base else 0
    with opened(segment_path(path, base)) as (descriptor, size):
        for found, _ in headers(descriptor, size, position):
            if int(found["base_offset"][0]) >= end:
                return
            _follow(found, state, end)


def _follow(found: Headers, state: _Followed, end: int) -> None:
    base = found["base_offset"].astype(np.int64)
    inside = (base >= state.offset) & (base < end)
    special = (found["attributes"] & TRANSACTIONAL_BIT) != 0
    for row in np.flatnonzero(special & inside).tolist():
        producer = int(found["producer_id"][row])
        if found["attributes"][row] & CONTROL_BIT:
            state.opened.pop(producer, None)
        else:
            state.opened.setdefault(producer, int(base[row]))
    behind = (base + found["last_delta"].astype(np.int64) + 1)[inside]
    if len(behind):
        state.offset = int(behind[-1])
