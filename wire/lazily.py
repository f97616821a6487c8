"""Lists of messages whose elements are made when they are encoded: an answer about very much is made in the steps of its encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

Item = TypeVar("Item")
Element = TypeVar("Element")
#: So many elements are made at once, and are a plain list.
AT_ONCE = 256
#: So many are looked at in one step.
STEP_ITEMS = 128


class Lazily(Sequence[Element], Generic[Element]):
    """An element for each item. What an element says is what holds when it is made; which ones there are is settled.

    Whoever has `only` said of it which elements there are to be settles that in steps, before anybody counts them.
    """

    __slots__ = ("_conditions", "_items", "_make")

    def __init__(self, items: list[Any], make: Callable[[Any], Element]) -> None:
        self._items = items
        self._make = make
        self._conditions: list[Callable[[Element], bool]] = []

    def only(self, keep: Callable[[Element], bool]) -> None:
        """Leave out what `keep` does not hold of."""
        self._conditions.append(keep)

    def each(self, change: Callable[[Element], Element]) -> None:
        """What becomes of each element when it is made."""
        make = self._make
        self._make = lambda item: change(make(item))

    def settle(self) -> Iterator[None]:
        """Find out which elements there are, a bounded piece of work between two yields."""
        conditions, self._conditions = self._conditions, []
        if conditions:
            kept = []
            for number, item in enumerate(self._items, 1):
                element = self._make(item)
                if all(holds(element) for holds in conditions):
                    kept.append(item)
                if number % STEP_ITEMS == 0:
                    yield
            self._items = kept

    def __len__(self) -> int:
        for _ in self.settle():
            pass
        return len(self._items)

    def __iter__(self) -> Iterator[Element]:
        return map(self._make, self._items[: len(self)])

    def __getitem__(self, index: Any) -> Any:
        held = self._items[: len(self)][index]
        return [self._make(item) for item in held] if isinstance(index, slice) else self._make(held)


def lazily(items: Iterable[Item], make: Callable[[Item], Element], at_once: int = AT_ONCE) -> list[Element]:
    """`make` of each item, as a list for a field of a message that is only encoded. `at_once`: how many may be made in one go."""
    settled = items if isinstance(items, list) else list(items)
    if len(settled) <= at_once:
        return [make(item) for item in settled]
    return cast("list[Element]", Lazily(settled, make))


def only(elements: list[Element], keep: Callable[[Element], bool]) -> list[Element]:
    """Those of a field that `keep` holds of; of a lazy one they are found later."""
    if isinstance(elements, Lazily):
        elements.only(keep)
        return elements
    return [element for element in elements if keep(element)]


def each(elements: list[Element], change: Callable[[Element], Element]) -> list[Element]:
    """What `change` makes of each of a field's elements."""
    if isinstance(elements, Lazily):
        elements.each(change)
        return elements
    return [change(element) for element in elements]


def unsettled(message: Any) -> Iterator[Lazily[Any]]:
    """The lazy lists at a message's top, and in the elements of its short ones."""
    for field in message.FIELDS:
        held = getattr(message, field.name)
        if isinstance(held, Lazily):
            yield held
        elif isinstance(held, list) and len(held) <= AT_ONCE:
            for inner in held:
                if hasattr(inner, "FIELDS"):
                    yield from unsettled(inner)
