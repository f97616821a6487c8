"""Opens standard streams that are closed, before anything else is imported or opened.

A command that a shell starts with `>&-` has no file 1. The next file that it opens would get this number, and libuv ends a process that
closes it.
"""

from __future__ import annotations

import os
import sys


def open_missing() -> None:
    """Open the null device where standard input, output or error are closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one.
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 - lives as long as the process
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
