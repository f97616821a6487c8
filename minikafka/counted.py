"""Numbers with their words, for lines that people read."""

from __future__ import annotations


def counted(number: int, one: str, several: str = "") -> str:
    """`counted(1, "partition")` is "1 partition", `counted(2000, "partition changes", "partitions change")` "2,000 partitions change"."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"
