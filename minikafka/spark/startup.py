"""The effect of a broker's next start on a partition directory, before it reads a record.

An interrupted cleaner leaves `.cleaned` files, which are deleted, or `.swap` files, which replace the segments that they were made from
(LogLoader.load). So the broker will serve the content of the `.swap` files. Apache Kafka and minikafka behave alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_NAME = re.compile(r"^([0-9]{20})\.(log|index|timeindex|txnindex)(\.swap|\.cleaned)?\Z")
_CLEANED = re.compile(r"^([0-9]{20})\..*\.cleaned\Z")
Files = dict[tuple[int, str], str]


def at_start(names: Iterable[str], end_of: Callable[[int], int]) -> Files:
    """{(base offset, part): the extension that it has now, such as "log.swap"}. `end_of(base offset)`: the offset behind the last batch
    of that `.log.swap` file."""
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
    # Replacements at or after a `.cleaned` file belong to an unfinished split.
    first_cleaned = min(cleaned, default=1 << 63)
    valid = {key: name for key, name in swapped.items() if key[0] < first_cleaned}
    return _installed(plain, valid, {base: end_of(base) for base, part in valid if part == "log"})


def _installed(plain: Files, swapped: Files, ends: dict[int, int]) -> Files:
    """The files after the start, which removes the segments between the first replacement and the end of the last one."""
    low, high = min(ends, default=0), max(ends.values(), default=0)
    return {key: name for key, name in plain.items() if not low <= key[0] < high and key[0] not in ends} | swapped
