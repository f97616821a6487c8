"""How long one piece of work may go on in a turn of the event loop before it gives the loop back."""

from __future__ import annotations

from collections.abc import Callable

#: The time of a piece of work in a turn, without its last step.
SHARE_S = 0.005


class TurnShares:
    """Begins shares of turns by a monotonic clock."""

    __slots__ = ("_monotonic_s",)

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s

    def begin(self) -> Callable[[], bool]:
        """Begin some work. The returned function tells after each step whether the rest must wait for another turn."""
        monotonic_s = self._monotonic_s
        over_s = monotonic_s() + SHARE_S
        return lambda: monotonic_s() >= over_s
