"""What a group shard asks its host to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wire.errors import ErrorCode
from wire.message import Response

#: The opaque handle with which the host finds the waiting request again.
Reply = Any


@dataclass(slots=True)
class CoordinatorRecord:
    """One record for the coordinator's partition: a declared key, and a declared value or None for a tombstone."""

    key: Any
    value: Any | None
    value_version: int = 0


@dataclass(slots=True)
class Append:
    """Write `records` as one batch and call `on_done(error, now_ms)` when they are committed or have failed."""

    records: list[CoordinatorRecord]
    on_done: Callable[[ErrorCode, int], None]
    #: (id, epoch) of the producer whose transaction the batch belongs to.
    producer: tuple[int, int] | None = None


@dataclass(slots=True)
class Effects:
    """Appends are carried out before answers are sent, so that nothing is answered before it is handed to the log."""

    appends: list[Append] = field(default_factory=list)
    answers: list[tuple[Reply, Response]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.appends or self.answers)
