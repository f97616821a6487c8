"""Lists of message elements that are created only when they are encoded, so that a huge response is built in the steps of its encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast

Item = TypeVar("Item")
Element = TypeVar("Element")
#: Up to this many elements are created at once, as a plain list.
AT_ONCE = 256
#: How many items `resolve` looks at in one step.
STEP_ITEMS = 128


class LazyList(Sequence[Element], Generic[Element]):
    """One element for each item, created when it is read. An element holds the values of that moment; the items are fixed beforehand.

    After `filter`, call `resolve` before the first use of the length: it drops the items in steps, and `len` would do so in one go.
    """

    __slots__ = ("_conditions", "_items", "_make")

    def __init__(self, items: list[Any], make: Callable[[Any], Element]) -> None:
        self._items = items
        self._make = make
        #: Filters that `resolve` has not applied yet.
        self._conditions: list[Callable[[Element], bool]] = []

    def filter(self, keep: Callable[[Element], bool]) -> None:
        """Leave out the elements for which `keep` is false."""
        self._conditions.append(keep)

    def map(self, change: Callable[[Element], Element]) -> None:
        """Pass each element through `change` when it is created."""
        make = self._make
        self._make = lambda item: change(make(item))

    def resolve(self) -> Iterator[None]:
        """Apply the filters; yields after each bounded piece of work."""
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
        for _ in self.resolve():
            pass
        return len(self._items)

    def __iter__(self) -> Iterator[Element]:
        return map(self._make, self._items[: len(self)])

    def __getitem__(self, index: Any) -> Any:
        selected = self._items[: len(self)][index]
        return [self._make(item) for item in selected] if isinstance(index, slice) else self._make(selected)


def lazy_list(items: Iterable[Item], make: Callable[[Item], Element], at_once: int = AT_ONCE) -> list[Element]:
    """`make(item)` for each item, for a field of a message that is only encoded. More than `at_once` items give a LazyList."""
    fixed = items if isinstance(items, list) else list(items)
    if len(fixed) <= at_once:
        return [make(item) for item in fixed]
    return cast("list[Element]", LazyList(fixed, make))


def filter_elements(elements: list[Element], keep: Callable[[Element], bool]) -> list[Element]:
    """The elements of a field for which `keep` is true; a LazyList applies it later."""
    if isinstance(elements, LazyList):
        elements.filter(keep)
        return elements
    return [element for element in elements if keep(element)]


def map_elements(elements: list[Element], change: Callable[[Element], Element]) -> list[Element]:
    """The elements of a field, each passed through `change`; a LazyList applies it later."""
    if isinstance(elements, LazyList):
        elements.map(change)
        return elements
    return [change(element) for element in elements]


def unresolved_lists(message: Any) -> Iterator[LazyList[Any]]:
    """The lazy lists among a message's fields and, where a field is a short plain list, among the fields of its elements."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if isinstance(value, LazyList):
            yield value
        elif isinstance(value, list) and len(value) <= AT_ONCE:
            for element in value:
                if hasattr(element, "FIELDS"):
                    yield from unresolved_lists(element)
