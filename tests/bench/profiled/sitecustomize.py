"""Loaded by the brokers that `tests/bench/hot_path.py` observes (this directory is in their PYTHONPATH): SIGUSR1 begins and ends a profile,
SIGUSR2 a count of bytecode instructions.

It serves any version. With MINIKAFKA_SLOWED no turn of the loop is over because of its time: whatever is counted is counted slowly.
"""

from __future__ import annotations

import contextlib
import cProfile
import importlib
import json
import os
import signal
import sys
from collections import Counter
from types import CodeType, FrameType
from typing import Any

_profiles: list[cProfile.Profile] = []
_instructions: Counter[CodeType] = Counter()


def _name(code: CodeType | str) -> str:
    return f"{os.path.basename(code.co_filename)}:{code.co_qualname}" if isinstance(code, CodeType) else code


def _write(found: dict[str, tuple[int, float]]) -> None:
    path = f"{os.environ['MINIKAFKA_PROFILE']}.{os.getpid()}"
    with open(path + ".new", "w") as file:
        json.dump(found, file)
    os.rename(path + ".new", path)


def _profile(signum: int, frame: object) -> None:
    if not _profiles:
        _profiles.append(cProfile.Profile(builtins=True))
        _profiles[0].enable()
        return
    profile = _profiles.pop()
    profile.disable()
    found: dict[str, tuple[int, float]] = {}
    for entry in profile.getstats():
        calls, seconds = found.get(_name(entry.code), (0, 0.0))
        found[_name(entry.code)] = calls + entry.callcount, seconds + entry.inlinetime
    _write(found)


def _instruction(frame: FrameType, event: str, argument: object) -> Any:
    if event == "opcode":
        _instructions[frame.f_code] += 1
    return _instruction


def _call(frame: FrameType, event: str, argument: object) -> Any:
    frame.f_trace_opcodes, frame.f_trace_lines = True, False
    return _instruction


def _count_instructions(signum: int, frame: object) -> None:
    if sys.gettrace() is None:
        _instructions.clear()
        sys.settrace(_call)
        return
    sys.settrace(None)
    found: Counter[str] = Counter()
    for code, count in _instructions.items():
        found[_name(code)] += count
    _write({name: (count, count / 1e6) for name, count in found.items()})


def _without_turns() -> None:
    for name in ("connection:TURN_S_MAX", "turn_share:SHARE_S", "turn_share:SERVING_S"):
        module, _, constant = name.partition(":")
        with contextlib.suppress(ImportError):
            setattr(importlib.import_module(f"minikafka.net.{module}"), constant, 1e9)


signal.signal(signal.SIGUSR1, _profile)
signal.signal(signal.SIGUSR2, _count_instructions)
if os.environ.get("MINIKAFKA_SLOWED"):
    _without_turns()
