"""Recently refused batches of idempotent producers. Batches sent behind a refused one are refused in the same way.

A producer has up to five batches in flight. If the first is refused for a temporary reason (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS)
that passes before the second is handled, the second is out of sequence through no fault of its producer. Apache Kafka then answers
OUT_OF_ORDER_SEQUENCE_NUMBER. In response, librdkafka takes a new producer epoch and writes all its batches in flight again, on every
partition, which duplicates batches that had been written but not acknowledged. With an empty log it is worse: the log accepts the second
batch and can never accept the first.

A new leader may receive the second batch first, while the former leader's answer to the first is still on its way. librdkafka waits for
that answer, but may then send the next batch before the one that it has to repeat. So the first gap of a producer that has written nothing
in the leader's epoch is answered as if the missing batch had been refused.

A deposed leader also refuses batches that it has written but not replicated (`is_lost`), because perhaps no other replica has them. Batches
behind such a batch must not reach the next leader before it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from minikafka.wire.errors import ErrorCode

#: Batches in flight arrive within this time; retries come later, and in order.
REMEMBERED_MS = 2000
REFUSALS_MAX = 1000
RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    }
)  # fmt: skip
_SEQUENCES = 1 << 31


class _Refusal(NamedTuple):
    epoch: int
    sequence: int
    code: ErrorCode
    until_ms: int
    is_lost: bool


class Refusals:
    """The earliest refused batch of each (partition, producer id). Empty, and therefore false, unless a batch was refused recently."""

    __slots__ = ("_sweep_ms", "entries")

    def __init__(self) -> None:
        #: Never replaced by another object, so that fast paths can keep a reference and check whether it is empty.
        self.entries: dict[Hashable, _Refusal] = {}
        self._sweep_ms = 0

    def __len__(self) -> int:
        return len(self.entries)

    def note(self, key: Hashable, epoch: int, sequence: int, code: ErrorCode, now_ms: int, *, is_lost: bool = False) -> None:
        """A batch with this first sequence was refused with an error of `RETRIABLE`. `is_lost`: it had been written before."""
        refusal = self.entries.get(key)
        if refusal is not None and refusal.until_ms > now_ms and refusal.epoch == epoch and is_behind(sequence, refusal.sequence):
            return
        self.entries.pop(key, None)
        if len(self.entries) >= REFUSALS_MAX:
            del self.entries[next(iter(self.entries))]
        self.entries[key] = _Refusal(epoch, sequence, code, now_ms + REMEMBERED_MS, is_lost)

    def code_for(self, key: Hashable, epoch: int, sequence: int, expected: int | None, now_ms: int) -> ErrorCode | None:
        """The error to answer a batch with because an earlier one was refused; None if the batch may be appended.

        `expected` is the next sequence of the producer in the log in this epoch, None if the log has none.
        """
        refusal = self.entries.get(key)
        if refusal is None:
            return None
        is_about = refusal.until_ms > now_ms and refusal.epoch == epoch and expected in (None, refusal.sequence)
        if is_about and is_behind(sequence, refusal.sequence):
            return refusal.code
        del self.entries[key]
        return None

    def is_behind_lost(self, key: Hashable, epoch: int, sequence: int, now_ms: int) -> bool:
        """Whether an earlier batch was written here and perhaps on no other replica."""
        refusal = self.entries.get(key)
        if refusal is None or not refusal.is_lost or refusal.until_ms <= now_ms or refusal.epoch != epoch:
            return False
        return sequence == refusal.sequence or is_behind(sequence, refusal.sequence)

    def sweep(self, now_ms: int) -> None:
        """Drop expired entries. Call it from time to time: while there are entries, every batch is checked against them."""
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + REMEMBERED_MS
            for key in [key for key, refusal in self.entries.items() if refusal.until_ms <= now_ms]:
                del self.entries[key]


def is_behind(sequence: int, other: int) -> bool:
    """Whether a sequence comes after `other`. Sequences run from 0 to 2^31 - 1 and wrap around."""
    return 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2
