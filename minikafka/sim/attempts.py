"""What members of the share group try, and with which records."""

from __future__ import annotations

from dataclasses import dataclass

#: Partition and offset.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Attempt:
    """An acknowledgement of one record at its `count`-th delivery. `is_final`: it accepts or rejects, as `kind` says; otherwise it
    releases."""

    place: Place
    count: int
    is_final: bool
    kind: int
