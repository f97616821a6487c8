"""Loaded by the brokers that `tests/bench/hot_path.py` profiles (this directory is in their PYTHONPATH): SIGUSR1 begins and ends a profile.

It imports nothing of the broker, so that it serves any version.
"""

from __future__ import annotations

import cProfile
import json
import os
import signal
from types import CodeType

_profiles: list[cProfile.Profile] = []


def _toggle(signum: int, frame: object) -> None:
    if not _profiles:
        _profiles.append(cProfile.Profile(builtins=True))
        _profiles[0].enable()
        return
    profile = _profiles.pop()
    profile.disable()
    found: dict[str, tuple[int, float]] = {}
    for entry in profile.getstats():
        code = entry.code
        name = f"{os.path.basename(code.co_filename)}:{code.co_qualname}" if isinstance(code, CodeType) else str(code)
        calls, seconds = found.get(name, (0, 0.0))
        found[name] = calls + entry.callcount, seconds + entry.inlinetime
    path = f"{os.environ['MINIKAFKA_PROFILE']}.{os.getpid()}"
    with open(path + ".new", "w") as file:
        json.dump(found, file)
    os.rename(path + ".new", path)


signal.signal(signal.SIGUSR1, _toggle)
