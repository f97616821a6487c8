"""Node ids that peers send as text."""

from __future__ import annotations

import re

_INTEGER = re.compile(r"[+-]?\d+")
_BITS = 32


def parse_node_id(text: str) -> int | None:
    """The number that Java's Integer.parseInt reads; None if it reads none, because of a letter or of more than 32 bits."""
    try:
        number = int(text) if _INTEGER.fullmatch(text) else None
    except ValueError:  # more digits than Python converts
        return None
    return number if number is not None and -(1 << _BITS - 1) <= number < 1 << _BITS - 1 else None
