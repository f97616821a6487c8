"""Numbers that people type: whole ones in a range, and finite ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

INT_MAX = (1 << 31) - 1


def whole(low: int, high: int = INT_MAX) -> Callable[[str], int]:
    """A parser that raises ValueError, which says what the number must be."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"must be from {low} to {high}")
        return number

    return parse


def not_negative(text: str) -> float:
    """A number that may have a fraction. Raises ValueError, which says what it must be."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    if not (math.isfinite(number) and number >= 0):
        raise ValueError("must be a finite number, 0 or more")
    return number


class _Finite(click.types.FloatParamType):
    """A float without nan and inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As in click."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


FINITE = _Finite()
