"""A clock for one module. `time` is one object for all threads of a process, and threads that an earlier test left behind sleep too."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest


def replace_sleep(monkeypatch: pytest.MonkeyPatch, module: ModuleType, sleep: Callable[[float], None]) -> None:
    """`time.sleep` of this module, which does `import time`, is `sleep`. All others sleep as before."""
    assert vars(module)["time"] is time
    monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), "sleep": sleep}))
