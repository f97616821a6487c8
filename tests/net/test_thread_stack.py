"""The stack of another thread is read without its frame objects, which CPython 3.11 may free meanwhile."""

from __future__ import annotations

import ast
import threading
from pathlib import Path

import pytest

import minikafka
from minikafka.net import thread_stack
from minikafka.net.thread_stack import FRAMES_MAX, UNKNOWN, describe, described, parsed, stack_of

DUMP = """Thread 0x00007f0000000001 [loop-watch] (most recent call first):
  File "/a/minikafka/net/loop_watch.py", line 9 in _watch

Current thread 0x00007f0000000002 (most recent call first):
  File "/usr/lib/python3/socket.py", line 1 in recv
  File "/a/minikafka/broker/produce.py", line ??? in <lambda>
  File "/a/minikafka/net/dispatch.py", line 7 in on_frame
  File "/usr/lib/python3.11/asyncio/runners.py", line 118 in run
  File "/a/minikafka/cli/start.py", line 3 in run
"""


def test_what_faulthandler_writes_is_understood() -> None:
    assert parsed(DUMP, 0x7F0000000001) == [("/a/minikafka/net/loop_watch.py", "_watch")]
    stack = parsed(DUMP, 0x7F0000000002)
    assert [function for _, function in stack] == ["recv", "<lambda>", "on_frame", "run", "run"]
    assert described(stack) == "dispatch.on_frame > produce.<lambda>", "what runs the loop is not named"
    assert parsed(DUMP, 3) == [] and described([]) == UNKNOWN


def test_only_the_innermost_functions_are_named() -> None:
    stack = [("/a/minikafka/x.py", f"f{number}") for number in range(FRAMES_MAX + 1)]
    assert described(stack) == " > ".join(f"x.f{number}" for number in reversed(range(FRAMES_MAX)))


def test_the_stack_of_another_thread() -> None:
    begun, over = threading.Event(), threading.Event()

    def innermost() -> None:
        begun.set()
        over.wait()

    thread = threading.Thread(target=innermost)
    thread.start()
    begun.wait()
    try:
        assert thread.ident is not None
        functions = [function for _, function in stack_of(thread.ident)]
        assert "innermost" in functions and functions.index("wait") < functions.index("innermost")
    finally:
        over.set()
        thread.join()
    assert describe(thread.ident) == UNKNOWN


def test_without_descriptors_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(thread_stack, "_memory_file", fail)
    assert describe(threading.get_ident()) == UNKNOWN


def test_nothing_looks_at_the_frames_of_other_threads() -> None:
    """Brokers ended with a segmentation fault: `frame.f_code` of a function that was being left was freed memory."""
    found = [
        f"{path}:{node.lineno}"
        for path in Path(minikafka.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("_current_frames", "gi_frame", "cr_frame", "get_stack")
    ]
    assert found == []
