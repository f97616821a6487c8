"""Batches of idempotent producers that were refused for now, so that what was sent behind them is refused in the same way.

A producer has up to five batches under way. When the first is refused for a passing reason (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS)
and the reason passes before the second is looked at, the second is out of sequence through no fault of its producer. Apache Kafka answers
OUT_OF_ORDER_SEQUENCE_NUMBER then; librdkafka takes a new producer epoch for it and writes all it has under way again, on every partition,
and what had been written before and not been acknowledged is there twice. With an empty log it is worse: there the second is taken and the
first never can be.

A leader that is new may get the second first, while the answer to the one before is on its way from the former leader: librdkafka waits
for that, but may then send what comes next before what it has to send again. The first gap of a producer that has written nothing in the
epoch of the leader is therefore answered like a refusal of what is missing.

A leader that is deposed refuses what it has written and not replicated as well (`is_lost`): perhaps no other replica has it. What comes
behind that must not go to the next leader before it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from minikafka.wire.errors import ErrorCode

#: What is under way arrives within this time; a repetition comes later, and in order.
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
    """The earliest refused batch of each (partition, producer id). Empty, and so false, unless something was refused a moment ago."""

    __slots__ = ("_sweep_ms", "entries")

    def __init__(self) -> None:
        #: The same object for good: whoever must be fast looks whether it is empty.
        self.entries: dict[Hashable, _Refusal] = {}
        self._sweep_ms = 0

    def __len__(self) -> int:
        return len(self.entries)

    def note(self, key: Hashable, epoch: int, sequence: int, code: ErrorCode, now_ms: int, *, is_lost: bool = False) -> None:
        """A batch with this first sequence was refused with one of `RETRIABLE`. `is_lost`: after it had been written."""
        refusal = self.entries.get(key)
        if refusal is not None and refusal.until_ms > now_ms and refusal.epoch == epoch and is_behind(sequence, refusal.sequence):
            return
        self.entries.pop(key, None)
        if len(self.entries) >= REFUSALS_MAX:
            del self.entries[next(iter(self.entries))]
        self.entries[key] = _Refusal(epoch, sequence, code, now_ms + REMEMBERED_MS, is_lost)

    def code_for(self, key: Hashable, epoch: int, sequence: int, expected: int | None, now_ms: int) -> ErrorCode | None:
        """What a batch is to be answered because the one before it was refused; None when it may be tried.

        `expected` is the sequence that the log waits for in this epoch, None if it does not know the producer or the epoch.
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
        """Whether a batch before this one was written here and perhaps nowhere else."""
        refusal = self.entries.get(key)
        if refusal is None or not refusal.is_lost or refusal.until_ms <= now_ms or refusal.epoch != epoch:
            return False
        return sequence == refusal.sequence or is_behind(sequence, refusal.sequence)

    def sweep(self, now_ms: int) -> None:
        """Forget what is too old, from time to time: as long as there is anything every batch is looked at."""
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + REMEMBERED_MS
            for key in [key for key, refusal in self.entries.items() if refusal.until_ms <= now_ms]:
                del self.entries[key]


def is_behind(sequence: int, other: int) -> bool:
    """Whether a sequence comes after another; they run from 0 to 2^31 - 1 and begin anew."""
    return 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2
