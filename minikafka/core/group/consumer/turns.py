"""One change of a group at a time.

What a group is changes when its records are committed. Who decides before that on what is there would give a partition twice, so whoever
comes meanwhile waits for his turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from minikafka.wire.errors import ErrorCode

#: (now, ms) -> whether it has begun a change that is not committed yet.
Work = Callable[[int], bool]
#: (error, now in ms): it will not be done.
Refusal = Callable[[ErrorCode, int], None]

#: Who waits longer than this many others is refused.
WAITING_MAX = 10_000


@dataclass(slots=True)
class _Line:
    waiting: deque[tuple[Work, Refusal | None]] = field(default_factory=deque)
    #: Nobody knows when the change under way will be committed.
    is_stalled: bool = False


class Turns:
    """Work by group. A group is in `_lines` while a change of it is under way."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def is_busy(self, group_id: str) -> bool:
        """Whether a change of the group is under way."""
        return group_id in self._lines

    def run(self, group_id: str, work: Work, refuse: Refusal | None, now_ms: int) -> None:
        """Do it now, or in its turn. Work with a refusal is somebody's request: it is refused while the group is stalled."""
        line = self._lines.get(group_id)
        if line is None:
            if work(now_ms):
                self._lines[group_id] = _Line()
        elif refuse is not None and (line.is_stalled or len(line.waiting) >= WAITING_MAX):
            refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms)
        else:
            line.waiting.append((work, refuse))

    def settled(self, group_id: str, now_ms: int) -> None:
        """The change under way is committed, or was not written: who is next?"""
        line = self._lines.get(group_id)
        if line is None:
            return
        line.is_stalled = False
        while line.waiting:
            if line.waiting.popleft()[0](now_ms):
                return
        del self._lines[group_id]

    def stalled(self, group_id: str, now_ms: int) -> None:
        """The change under way takes too long: whoever waits is told so."""
        line = self._lines.get(group_id)
        if line is None:
            return
        line.is_stalled = True
        waiting, line.waiting = line.waiting, deque()
        for work, refuse in waiting:
            if refuse is None:
                line.waiting.append((work, None))
            else:
                refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms)

    def shutdown(self, now_ms: int) -> None:
        """Nothing will be done any more."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            for _, refuse in line.waiting:
                if refuse is not None:
                    refuse(ErrorCode.NOT_COORDINATOR, now_ms)
