"""Replacements of functions that several tables of mutations share. Each takes the original and returns what stands in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any


def constant(value: Any) -> Any:
    """A function that returns `value`."""
    return lambda original: lambda *_, **__: value


#: A function that does nothing.
nothing: Callable[[Any], Any] = constant(None)


def take_what_others_own(original: Any) -> Any:
    """A member of a group takes partitions, or tasks, that have an owner."""

    def take(self: Any, member: Any, kept: Any) -> bool:
        return bool(original(replace(self, owners={}), member, kept))

    return take
