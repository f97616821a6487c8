"""Turns of requests that wait: those that share a key have theirs in the order in which they came, whatever else they name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable


class Turn:
    """One request in line. `begin` is called when it is first in all its lines; it says whether the request is done already."""

    __slots__ = ("begin", "keys", "number")

    def __init__(self, number: int, keys: tuple[Hashable, ...], begin: Callable[[Turn], bool] | None) -> None:
        self.number = number
        self.keys = keys
        self.begin = begin


class Turns:
    """The lines, one a key. A request stands in those of all its keys, so that nobody who comes later passes it in any."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[Turn]] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._lines)

    def are_taken(self, keys: Iterable[Hashable]) -> bool:
        """Whether one with these keys would have to wait."""
        return any(key in self._lines for key in keys)

    def enter(self, keys: Iterable[Hashable], begin: Callable[[Turn], bool] | None = None) -> Turn:
        """Stand in line; without `begin` for one whose turn it is, because nothing is taken."""
        self._number += 1
        turn = Turn(self._number, tuple(dict.fromkeys(keys)), begin)
        for key in turn.keys:
            self._lines.setdefault(key, deque()).append(turn)
        return turn

    def leave(self, turn: Turn) -> None:
        """It is done; whoever is first in all lines now begins, the one that came first before the others."""
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
            assert line.popleft() is turn
            if line:
                found[line[0].number] = line[0]
            else:
                del self._lines[key]
        return [found[number] for number in sorted(found) if self._is_first(found[number])]

    def _is_first(self, turn: Turn) -> bool:
        return all(self._lines[key][0] is turn for key in turn.keys)
