"""Turns of waiting requests. Requests that share a key run in order of arrival, whatever other keys they have."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable


class Turn:
    """One request in line. `begin` is called when the request is first in all its lines. It returns True if the request is already done."""

    __slots__ = ("begin", "keys", "number")

    def __init__(self, number: int, keys: tuple[Hashable, ...], begin: Callable[[Turn], bool] | None) -> None:
        self.number = number
        self.keys = keys
        self.begin = begin


class Turns:
    """The lines, one per key. A request stands in the lines of all its keys, so that no later request can pass it in any of them."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[Turn]] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._lines)

    def are_taken(self, keys: Iterable[Hashable]) -> bool:
        """Whether a request with these keys would have to wait."""
        return any(key in self._lines for key in keys)

    def enter(self, keys: Iterable[Hashable], begin: Callable[[Turn], bool] | None = None) -> Turn:
        """Put a request in line. `begin` is None if no key is taken, so that the request may run at once."""
        self._number += 1
        turn = Turn(self._number, tuple(dict.fromkeys(keys)), begin)
        for key in turn.keys:
            self._lines.setdefault(key, deque()).append(turn)
        return turn

    def leave(self, turn: Turn) -> None:
        """The request is done. Requests that are now first in all their lines begin, in order of arrival."""
        done = [turn]
        while done:
            for ready in self._left(done.pop(0)):
                assert ready.begin is not None
                if ready.begin(ready):
                    done.append(ready)

    def _left(self, turn: Turn) -> list[Turn]:
        found: dict[int, Turn] = {}
        for key in turn.keys:
            line = self._lines[key]
            first = line.popleft()
            assert first is turn
            if line:
                found[line[0].number] = line[0]
            else:
                del self._lines[key]
        return [found[number] for number in sorted(found) if self._is_first(found[number])]

    def _is_first(self, turn: Turn) -> bool:
        return all(self._lines[key][0] is turn for key in turn.keys)
