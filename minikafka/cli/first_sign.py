"""A sign of life from commands that start a cluster, while their modules are still read from a slow disk: that alone may take a second.

It comes before anything else is imported; what this module needs is built into the interpreter.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

#: Of the process's life. Where the files are in memory, the command's own first line comes sooner.
AFTER_S = 0.2
LINE = "reading minikafka from disk ...\n"
_pending = _thread.allocate_lock()


def begin(arguments: list[str]) -> None:
    """Print the line soon, unless the command says something before.

    A process that multiprocessing starts imports the command's script again, with the same arguments, and is silent."""
    if getattr(sys.modules.get("__mp_main__"), "__name__", None) == "__mp_main__":
        return
    if (arguments[:1] == ["demo"] or arguments[:2] == ["cluster", "up"]) and _pending.acquire(False):
        _thread.start_new_thread(_wait, ())


def end() -> None:
    """The command says something itself now."""
    if _pending.locked():
        _pending.release()


def _wait() -> None:
    if _pending.acquire(timeout=max(AFTER_S - _age_s(), 0.0)):
        _pending.release()
    elif sys.stderr is not None:
        sys.stderr.write(LINE)
        sys.stderr.flush()


def _age_s() -> float:
    """For how long the process lives: the interpreter itself was read from the disk, too. 0 where the system does not tell."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError, IndexError):
        return 0.0
