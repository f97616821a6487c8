"""Why a broker has ended: what its log says last, or what the file system says that the log could not."""

from __future__ import annotations

import shutil
from pathlib import Path

LOG_END_BYTES = 64 << 10
#: A file system with less is full: a log cannot grow by a segment's index.
FREE_BYTES_MIN = 1 << 20


def last_error(log: Path) -> str:
    """The last error message near the end of a broker's log; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - LOG_END_BYTES, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    errors = (line.partition(" ERROR ")[2] for line in reversed(lines) if " ERROR " in line)
    return next(errors, "").partition(": ")[2]


def full(directory: Path) -> str:
    """What to do about the file system of `directory`, if it is full; else empty."""
    try:
        free_bytes = shutil.disk_usage(directory).free
    except OSError:
        return ""
    return f"The disk of {directory} is full: free some space, or use another directory" if free_bytes < FREE_BYTES_MIN else ""
