"""The file that marks a log that lost segments before others, until it has their records again."""

from __future__ import annotations

import contextlib

from minikafka.storage.checkpoint import INT64_MAX
from minikafka.storage.filesystem import FileSystem, write_atomically

#: In the log's directory: the first and the end of the offsets among which records are missing.
MARK = ".lost"


def write_mark(filesystem: FileSystem, directory: str, lost: tuple[int, int]) -> None:
    """Mark a log, durably. Raises OSError."""
    write_atomically(filesystem, f"{directory}/{MARK}", b"%d %d\n" % lost)


def read_mark(filesystem: FileSystem, directory: str) -> tuple[int, int] | None:
    """The mark of a log; None without a valid one. Raises OSError."""
    if not filesystem.exists(f"{directory}/{MARK}"):
        return None
    words = filesystem.read(f"{directory}/{MARK}").split()
    if len(words) != 2 or not all(word.isdigit() and int(word) <= INT64_MAX for word in words):
        return None
    return int(words[0]), int(words[1])


def remove_mark(filesystem: FileSystem, directory: str) -> None:
    """Remove the mark of a log, if it has one. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        filesystem.unlink(f"{directory}/{MARK}")
