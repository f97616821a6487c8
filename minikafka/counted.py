"""Numbers with their words, for lines that people read."""

from __future__ import annotations

from collections.abc import Sequence

#: The most names in one line.
NAMED_MAX = 10


def counted(number: int, one: str, several: str = "") -> str:
    """`counted(1, "partition")` is "1 partition", `counted(2000, "partition changes", "partitions change")` "2,000 partitions change"."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def named(names: Sequence[str]) -> str:
    """The names, of very many only the first."""
    return ", ".join(names[:NAMED_MAX]) + (", …" if len(names) > NAMED_MAX else "")
