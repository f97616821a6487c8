"""What each broker has drawn itself, named in requests before anybody knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Known:
    """A topic's id, a member's id, a producer's id, or a batch of records with one."""

    kind: str
    which: Any
