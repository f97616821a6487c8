"""What became of the records of a share partition, as stretches of offsets.

Rules: org.apache.kafka.coordinator.share.PersisterStateBatchCombiner of Apache Kafka 4.3.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple


class DeliveryState(IntEnum):
    """The state of a record; the values are those of the log. ACQUIRED is never written."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """Records from `first_offset` to `last_offset`, both included, that were delivered `delivery_count` times."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


#: Ends of what a batch can hold: the offset after it is an offset, and one more delivery can be counted (INT64 and INT16 of the wire).
LAST_OFFSET_MAX = (1 << 63) - 2
DELIVERY_COUNT_MAX = (1 << 15) - 2
_WRITTEN = frozenset({DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})


def is_sound(batch: StateBatch) -> bool:
    """Whether a leader can go on from it. What the log holds may come from anybody who may write there."""
    return (
        0 <= batch.first_offset <= batch.last_offset <= LAST_OFFSET_MAX
        and batch.delivery_state in _WRITTEN
        and 0 <= batch.delivery_count <= DELIVERY_COUNT_MAX
    )


def combine(so_far: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """One list without overlaps, in the order of offsets. Where two speak of a record, the one with more deliveries holds, and of those the
    one with the higher state. What is before `start_offset` goes, unless that is -1."""
    batches = [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in (*so_far, *new)
        if batch.last_offset >= start_offset
    ]
    if len(batches) < 2:
        return batches
    batches.sort()
    return _sweep(batches)


def _sweep(batches: list[StateBatch]) -> list[StateBatch]:
    combined: list[StateBatch] = []
    #: Those that reach over the position, the one that holds first: (-deliveries, -state, last offset).
    over: list[tuple[int, int, int]] = []
    place, position, count = 0, 0, len(batches)
    while place < count or over:
        if not over:
            position = batches[place].first_offset
        while place < count and batches[place].first_offset <= position:
            batch = batches[place]
            heapq.heappush(over, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            place += 1
        negative_count, negative_state, last = over[0]
        if last < position:
            heapq.heappop(over)
            continue
        end = last if place == count else min(last, batches[place].first_offset - 1)
        _add(combined, StateBatch(position, end, -negative_state, -negative_count))
        position = end + 1
    return combined


def _add(combined: list[StateBatch], batch: StateBatch) -> None:
    if combined:
        before = combined[-1]
        if before[1] + 1 == batch[0] and before[2:] == batch[2:]:
            combined[-1] = before._replace(last_offset=batch.last_offset)
            return
    combined.append(batch)
