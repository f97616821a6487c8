"""One change of a group at a time.

A group changes only when its records are committed. A request that used the state before that might assign a partition twice, so requests
that arrive meanwhile wait for their turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field

from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ErrorCode

#: (now_ms) -> whether it has begun a change that is not committed yet.
Work = Callable[[int], bool]
#: (error, now_ms): called if the work will not be done.
Refusal = Callable[[ErrorCode, int], None]

#: Most works that may wait for one group; further ones are refused.
WAITING_MAX = 10_000


@dataclass(slots=True)
class _Line:
    waiting: deque[tuple[Work, Refusal | None]] = field(default_factory=deque)
    #: The change in progress has timed out; when it will be committed is unknown.
    is_stalled: bool = False


class Turns:
    """Work by group. A group is in `_lines` while a change of it is in progress."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def is_busy(self, group_id: str) -> bool:
        """Whether a change of the group is in progress."""
        return group_id in self._lines

    def run(self, group_id: str, work: Work, refuse: Refusal | None, now_ms: int) -> None:
        """Do the work now or in its turn. Work with a `refuse` callback is a client's request: it is refused while the group is stalled."""
        line = self._lines.get(group_id)
        if line is None:
            if work(now_ms):
                self._lines[group_id] = _Line()
        elif refuse is not None and (line.is_stalled or len(line.waiting) >= WAITING_MAX):
            refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms)
        else:
            line.waiting.append((work, refuse))

    def settled(self, group_id: str, now_ms: int) -> None:
        """The change in progress is committed or was not written: continue with the next work."""
        line = self._lines.get(group_id)
        if line is None:
            return
        line.is_stalled = False
        while line.waiting:
            if line.waiting.popleft()[0](now_ms):
                return
        del self._lines[group_id]

    def stalled(self, group_id: str, now_ms: int) -> None:
        """The change in progress takes too long: refuse the waiting requests."""
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
        """Refuse all waiting work; nothing more will be done."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            for _, refuse in line.waiting:
                if refuse is not None:
                    refuse(ErrorCode.NOT_COORDINATOR, now_ms)
