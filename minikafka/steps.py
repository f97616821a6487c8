"""Work on very many things, in steps: the caller chooses when the event loop gets its next turn.

The work is a generator that yields after every bounded piece of it and returns its result. It must find the state as it was at its
beginning, so whoever runs it lets nothing else change the state meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]

#: Items of one step, at some tens of microseconds each.
STEP_ITEMS = 64


def at_once(steps: Steps[T]) -> T:
    """Run all steps; the result."""
    while True:
        try:
            next(steps)
        except StopIteration as over:
            result: T = over.value
            return result


def paced(items: Iterable[T], step: int = STEP_ITEMS) -> Iterator[tuple[T, bool]]:
    """The items, each with whether a step ends behind it."""
    for number, item in enumerate(items, 1):
        yield item, number % step == 0
