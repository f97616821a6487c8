"""The code of groups is imported with the first leadership of one of their partitions, in a thread."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.coordinators.late_import import LateImport
from minikafka.broker.supervise import Supervisor

NAME = "late_for_tests"


class Blocking:
    """Runs what blocks when the test says so."""

    def __init__(self) -> None:
        self.may_go = asyncio.Event()
        self.calls = 0

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        await self.may_go.wait()
        return function(*arguments)


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{NAME}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, NAME, raising=False)


@pytest.mark.asyncio
@pytest.mark.usefixtures("on_path")
async def test_leaderships_wait_for_the_import_and_the_last_one_counts() -> None:
    blocking, changes = Blocking(), list[tuple[int, int, bool]]()
    supervisor = Supervisor(asyncio.get_running_loop())
    environment: Any = SimpleNamespace(run_blocking=blocking.run, supervisor=supervisor)
    late = LateImport(NAME, environment)
    changed = late.before(lambda *change: changes.append(change))
    changed(0, 5, True)
    changed(1, 2, True)
    changed(0, 6, False)
    await asyncio.sleep(0)
    assert blocking.calls == 1 and not changes
    blocking.may_go.set()
    while not changes:
        await asyncio.sleep(0)
    assert changes == [(0, 6, False), (1, 2, True)] and NAME in sys.modules
    changed(0, 7, True)
    assert changes[2:] == [(0, 7, True)] and blocking.calls == 1, "passed on at once"


@pytest.mark.asyncio
@pytest.mark.usefixtures("on_path")
async def test_an_import_that_has_begun_is_not_begun_again() -> None:
    blocking, changes = Blocking(), list[tuple[int, int, bool]]()
    environment: Any = SimpleNamespace(run_blocking=blocking.run, supervisor=Supervisor(asyncio.get_running_loop()))
    late = LateImport(NAME, environment)
    changed = late.before(lambda *change: changes.append(change))
    late.begin()
    late.begin()
    changed(3, 1, True)
    await asyncio.sleep(0)
    assert blocking.calls == 1 and not changes
    blocking.may_go.set()
    while not changes:
        await asyncio.sleep(0)
    assert changes == [(3, 1, True)]
