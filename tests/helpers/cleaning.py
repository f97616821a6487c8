"""Rounds of the log cleaner, at once."""

from __future__ import annotations

from typing import Any

from minikafka.steps import at_once
from minikafka.storage.cleaner import Cleaning, cleaning_need
from minikafka.storage.log import Log

WALL_MS = 1_700_000_100_000
DEDUPE_BYTES = 1 << 20


def clean(log: Log, checkpoint: int | None = None, wall_ms: int = WALL_MS, dedupe_bytes: int = DEDUPE_BYTES) -> int:
    """A whole round; the new checkpoint."""
    cleaning = Cleaning(cleaning_need(log, checkpoint, wall_ms), wall_ms, dedupe_bytes)
    read(cleaning)
    for group in cleaning.groups:
        write(cleaning, group)
        assert cleaning.swap(group, wall_ms)
    return cleaning.end_offset


def read(cleaning: Cleaning) -> None:
    at_once(cleaning.find_aborted())
    for window in cleaning.windows():
        with cleaning.pinned(window) as are_there:
            assert are_there
            cleaning.build_map(window)
    cleaning.plan()


def write(cleaning: Cleaning, group: Any) -> None:
    with cleaning.pinned(group) as are_there:
        assert are_there
        cleaning.write(group)
