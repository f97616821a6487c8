"""The delivery states of the records of a share partition, as ranges of offsets.

Rules: org.apache.kafka.coordinator.share.PersisterStateBatchCombiner of Apache Kafka 4.3.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import IntEnum
from operator import itemgetter
from typing import NamedTuple


class DeliveryState(IntEnum):
    """The delivery state of a record. The values are those in the log. ACQUIRED is never written. ARCHIVING: the record is given up, and
    goes to the group's dead-letter queue before it is archived (KIP-1191)."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """Records from `first_offset` to `last_offset`, both included, that were delivered `delivery_count` times."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


#: Ranges of offsets in one write of a state: as many as there are if each of the records that may be locked by default has its own. More
#: would be a long turn of the share coordinator, or a record that is longer than its log takes.
BATCHES_AT_ONCE = 2000
#: Limits of a batch: the offset after it must fit into INT64, and its deliveries into INT16, as on the wire; so must one more delivery of
#: records that are available.
LAST_OFFSET_MAX = (1 << 63) - 2
DELIVERY_COUNT_MAX = (1 << 15) - 1
_WRITTEN = frozenset({int(state) for state in DeliveryState if state is not DeliveryState.ACQUIRED})


def is_sound(batch: StateBatch) -> bool:
    """Whether a leader can continue from this batch. Any client with access may have written to the log."""
    return (
        0 <= batch.first_offset <= batch.last_offset <= LAST_OFFSET_MAX
        and batch.delivery_state in _WRITTEN
        and 0 <= batch.delivery_count <= DELIVERY_COUNT_MAX - (batch.delivery_state == DeliveryState.AVAILABLE)
    )


def combine(so_far: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Combine both into one list without overlaps, by offset. If two batches overlap, the one with more deliveries wins, then the one with
    the higher state. Everything before `start_offset` is dropped, unless that is -1."""
    batches = [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in (*so_far, *new)
        if batch.last_offset >= start_offset
    ]
    if len(batches) < 2:
        return batches
    batches.sort()
    return _sweep(batches)


_rank = itemgetter(3, 2)


def _sweep(batches: list[StateBatch]) -> list[StateBatch]:
    combined: list[StateBatch] = []
    #: The batches that cover the position, the winning one first: (-deliveries, -state, last offset).
    over: list[tuple[int, int, int]] = []
    place, position, count = 0, 0, len(batches)
    while place < count or over:
        if not over:
            batch, after = batches[place], place + 1
            while after < count and batches[after][:2] == batch[:2]:
                # The usual overlap: the same records, later.
                batch = max(batch, batches[after], key=_rank)
                after += 1
            if after == count or batches[after][0] > batch[1]:
                _add(combined, batch)
                place = after
                continue
            position = batch.first_offset
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
