"""Opens files of log directories. A pipe or a device in the place of a file would block the reader, or never end."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO


def open_regular(path: str) -> BinaryIO:
    """Open a file for reading. Raises OSError, also if it is not a regular file."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes it
    if not _is_regular(file.fileno()):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_regular(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)
