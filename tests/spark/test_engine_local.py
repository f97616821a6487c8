"""The engine of processes lives in other people's programs: what they do with signals and threads is theirs."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.spark import engine_local
from minikafka.spark.engine_local import LocalEngine, ProcessKilledError

pytestmark = pytest.mark.timeout(20)


@pytest.fixture
def deaf() -> Iterator[None]:
    """A program with a handler for SIGTERM of its own, which forked processes inherit."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.usefixtures("deaf")
def test_the_engine_ends_its_processes_even_if_the_program_handles_sigterm(threads: int) -> None:
    ended = threading.Event()
    others = [threading.Thread(target=ended.wait) for _ in range(threads)]
    for other in others:
        other.start()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    try:
        for _ in range(10):
            engine = LocalEngine(2)
            assert sorted(engine.map(operator.neg, [1, 2, 3])) == [-3, -2, -1]
            engine.close()
            engine.close()
        engine.open()
        engine.close()
    finally:
        ended.set()
        for other in others:
            other.join()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == mask


def test_work_left_undone_is_dropped() -> None:
    engine = LocalEngine(2)
    first = next(iter(engine.map(operator.neg, list(range(1000)))))
    engine.close()
    assert first <= 0


KILLED = """
import os, signal, threading
from minikafka.spark.engine_local import LocalEngine

if __name__ == "__main__":
    if {threads}:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    engine = LocalEngine(2)
    next(iter(engine.map(bytes, [1 << 20] * 64)))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("threads", [0, 1])
def test_processes_say_nothing_when_their_program_is_killed(threads: int, tmp_path: Path) -> None:
    """They hold its standard error open, so its end is theirs. Python's own process that removes what a fork server left says one line."""
    program = tmp_path / "program.py"
    program.write_text(KILLED.format(threads=threads))
    ended = subprocess.run([sys.executable, str(program)], stderr=subprocess.PIPE, check=False)
    assert ended.returncode == -signal.SIGKILL and b"Traceback" not in ended.stderr
    assert threads or not ended.stderr


def _killed_once(item: tuple[str, int]) -> int:
    """Ends its process without a word the first time that it sees 5."""
    folder, number = item
    if number == 5:
        try:
            (Path(folder) / "was here").touch(exist_ok=False)
        except FileExistsError:
            return number
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def _killed_always(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_tasks_of_a_killed_process_are_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_local, "LOOK_SECONDS", 0.02)
    engine = LocalEngine(2)
    assert list(engine.map(_killed_once, [(str(tmp_path), number) for number in range(40)])) == list(range(40))
    monkeypatch.setattr(engine_local, "KILLED_MAX", 1)
    with pytest.raises(ProcessKilledError, match="was killed"):
        list(engine.map(_killed_always, [1, 2]))
    engine.close()


def _values(number: int) -> list[int]:
    return [number, number]


def _key(value: int) -> tuple[str, int]:
    return "t", value // 10


def _sum(item: tuple[str, list[int]]) -> tuple[str, int]:
    return item[0], sum(item[1])


@pytest.mark.parametrize("processes", [1, 2])
def test_groups_are_finished_as_soon_as_they_are_whole(processes: int) -> None:
    """Group 7 lacks values, group 9 has none: they come last. What has come in is never much ahead of what is finished."""
    engine, seen, ahead = LocalEngine(processes), [], []
    groups = {("t", number): (str(number), 20 if number != 7 else 99) for number in range(10)}
    found = {}
    for name, total in engine.gather(_values, list(range(90)), _key, groups, _sum, seen.extend, lambda _: []):
        found[name] = total
        ahead.append(len(seen) - 20 * len(found))
    assert found == {str(group): 2 * sum(range(10 * group, 10 * group + 10)) for group in range(9)} | {"9": 0}
    assert list(found)[-2:] == ["7", "9"] and max(ahead) <= 20 * (engine_local.AHEAD * processes + 1)
    engine.close()
