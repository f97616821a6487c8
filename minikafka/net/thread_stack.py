"""What another thread runs, without its frame objects: CPython 3.11 reads freed memory when one thread looks at the frames of another that
goes on meanwhile, and the process may crash. `faulthandler` walks the stacks in one call of C, in which no other thread runs Python.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import re
from typing import IO

#: (file, function), innermost first.
Stack = list[tuple[str, str]]
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+) .*\(most recent call first\):$")
_FRAME = re.compile(r'^  File "(.*)", line \S+ in (.*)$')
_PACKAGE = f"{os.sep}minikafka{os.sep}"
#: What runs a loop: its callers say nothing about the turn.
_RUNNERS = (f"{os.sep}asyncio{os.sep}base_events.py", f"{os.sep}asyncio{os.sep}runners.py")
#: Functions that are named of one stack.
FRAMES_MAX = 3
UNKNOWN = "unknown"


def stack_of(thread: int) -> Stack:
    """The stack of a thread (`threading.get_ident`); empty if it has ended or runs no Python. Raises OSError without descriptors."""
    with _memory_file() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        text = file.read().decode(errors="replace")
    return parsed(text, thread)


def parsed(text: str, thread: int) -> Stack:
    """The stack of a thread in what `faulthandler.dump_traceback` wrote."""
    found: Stack = []
    is_it = False
    for line in text.splitlines():
        header = _THREAD.match(line)
        if header is not None:
            is_it = int(header[1], 16) == thread
        elif is_it and (frame := _FRAME.match(line)) is not None:
            found.append((frame[1], frame[2]))
    return found


def described(stack: Stack) -> str:
    """The innermost minikafka functions that a loop runs, outermost first: "dispatch.on_frame > produce_run._append"."""
    turn = itertools.takewhile(lambda frame: not frame[0].endswith(_RUNNERS), stack)
    names = [f"{os.path.basename(path).removesuffix('.py')}.{function}" for path, function in turn if _PACKAGE in path]
    return " > ".join(reversed(names[:FRAMES_MAX])) or UNKNOWN


def describe(thread: int) -> str:
    """What a thread runs now, as `described` says it; UNKNOWN if that cannot be found out."""
    try:
        return described(stack_of(thread))
    except OSError:
        return UNKNOWN


def _memory_file() -> IO[bytes]:
    # Where there are none, on macOS, a file on disk does.
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("stacks"), "w+b")
    import tempfile

    return tempfile.TemporaryFile()
