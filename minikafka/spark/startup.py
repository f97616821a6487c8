"""What the next start of a broker makes of a partition's directory before it reads a record.

A cleaner that was interrupted leaves `.cleaned` files, which are removed, or `.swap` files, which take the place of the segments that they
were made from (LogLoader.load). So what a `.swap` file holds is what will be served.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

_NAME = re.compile(r"^(\d{20})\.(log|index|timeindex|txnindex)(\.swap|\.cleaned)?$")
_CLEANED = re.compile(r"^(\d{20})\..*\.cleaned$")
Files = dict[tuple[int, str], str]


@dataclass(frozen=True, slots=True)
class AtStart:
    """`files`: {(base offset, part): the extension that it has now, such as "log.swap"}. `doubts`: segments of which Apache Kafka and
    minikafka would make something else."""

    files: Files
    doubts: list[int] = field(default_factory=list)


def at_start(names: Iterable[str], end_of: Callable[[int], int]) -> AtStart:
    """`end_of(base offset)`: the offset behind the last batch of that `.log.swap` file."""
    plain: Files = {}
    swapped: Files = {}
    cleaned: list[int] = []
    for name in names:
        if found := _NAME.match(name):
            base, part, suffix = int(found[1]), found[2], found[3] or ""
            if suffix != ".cleaned":
                (swapped if suffix else plain)[base, part] = part + suffix
        if found := _CLEANED.match(name):
            cleaned.append(int(found[1]))
    if not swapped:
        return AtStart(plain)
    ranges = {base: (base, end_of(base)) for base, part in swapped if part == "log"}
    theirs, ours = _kafka(plain, swapped, ranges, cleaned), _minikafka(plain, swapped, ranges)
    logs = {key for key in theirs.keys() | ours.keys() if key[1] == "log"}
    return AtStart(theirs, sorted(base for base, part in logs if theirs.get((base, part)) != ours.get((base, part))))


def _kafka(plain: Files, swapped: Files, ranges: dict[int, tuple[int, int]], cleaned: list[int]) -> Files:
    """Replacements at or behind a `.cleaned` file are of a split that was not finished, and go. What lies between the first and the end of
    the last one that is left makes room."""
    first_cleaned = min(cleaned, default=1 << 63)
    valid = {key: name for key, name in swapped.items() if key[0] < first_cleaned}
    replaced = [ranges[base] for base, part in valid if part == "log"]
    low, high = min((low for low, _ in replaced), default=0), max((high for _, high in replaced), default=0)
    return {key: name for key, name in plain.items() if not low <= key[0] < high} | valid


def _minikafka(plain: Files, swapped: Files, ranges: dict[int, tuple[int, int]]) -> Files:
    """Each replacement makes room for itself."""
    kept = dict(plain)
    for low, high in ranges.values():
        kept = {key: name for key, name in kept.items() if key[0] != low and not low < key[0] < high}
    return kept | swapped
