"""Counting lines doubles the time that Python takes: tests that measure, or play much, do without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import coverage


@contextmanager
def without_coverage() -> Iterator[None]:
    """No line is counted meanwhile."""
    running = coverage.Coverage.current()
    if running is not None:
        running.stop()
    try:
        yield
    finally:
        if running is not None:
            running.start()
