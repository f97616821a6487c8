"""The state that a copy of the metadata log has behind each of its records, as one number: snapshots of one node are held against the logs
of others.

Nodes make snapshots at offsets of their own, and remove the log before them. The number is the sum of digests of the state's entries, so
that a record changes it by a few terms.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

Column = np.ndarray[Any, Any]
#: What an entry is: a word for its kind, and what identifies it.
EntryName = tuple[Any, ...]
_MODULUS = 1 << 64


class Image(Protocol):
    """The part of the cluster's image that this module uses. `touched`: the entries that records changed since it was emptied."""

    touched: set[EntryName] | None

    def entry(self, name: EntryName) -> object: ...
    def entry_names(self) -> Iterable[EntryName]: ...


@dataclass(slots=True)
class Trail:
    """`sums[i]` is the state of all records below `offsets[i]` (ascending), up to the next. `end`: how far the log was followed."""

    offsets: Column = field(default_factory=lambda: np.empty(0, np.int64))
    sums: Column = field(default_factory=lambda: np.empty(0, np.uint64))
    end: int = -1

    def at(self, offset: int) -> int | None:
        """The sum of the state of all records below an offset; None where the copy does not tell."""
        if not len(self.offsets) or not int(self.offsets[0]) <= offset <= self.end:
            return None
        return int(self.sums[int(np.searchsorted(self.offsets, offset, "right")) - 1])


class TrailWriter:
    """Follows an image from `offset` on."""

    def __init__(self, image: Image, offset: int) -> None:
        self._image = image
        self._digests: dict[EntryName, int] = {}
        self._sum = 0
        self._offsets, self._sums = array("q"), array("Q")
        image.touched = set(image.entry_names())
        self.note(offset)

    def note(self, offset: int) -> None:
        """Records below the offset were applied."""
        touched = self._image.touched
        if not touched and self._offsets:
            return
        for name in touched or ():
            value = self._image.entry(name)
            digest = 0 if value is None else _digest((name, value))
            self._sum = (self._sum + digest - self._digests.pop(name, 0)) % _MODULUS
            if digest:
                self._digests[name] = digest
        self._image.touched = set()
        self._offsets.append(offset)
        self._sums.append(self._sum)

    def finish(self, end: int) -> Trail:
        """The trail up to here."""
        self._image.touched = None
        return Trail(np.array(self._offsets, np.int64), np.array(self._sums, np.uint64), end)


def sum_of(image: Image) -> int:
    """The sum of one state."""
    return sum(_digest((name, image.entry(name))) for name in image.entry_names()) % _MODULUS


def _digest(value: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=8).digest(), "big")
