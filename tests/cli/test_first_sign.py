"""What `cluster up` and `demo` print first, and what they have imported by then: on a cold disk each module takes its time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.cli import first_sign

#: A disk that gives the command line only after something was written to standard error. Tells what was imported by then.
SLOW_DISK = """
import _thread, sys
said, loaded = _thread.allocate_lock(), []
said.acquire()

class Errors:
    def write(self, text):
        loaded.append([text, sorted(sys.modules)])
        said.release()
    def flush(self):
        pass

class SlowDisk:
    def find_spec(self, name, path, target=None):
        if name == "minikafka.cli.main":
            assert said.acquire(timeout=50)

sys.stderr = Errors()
sys.meta_path.insert(0, SlowDisk())
sys.argv = ["minikafka", *sys.argv[1:]]
import minikafka.__main__
import json
print(json.dumps(loaded))
"""
#: The command until it says something itself.
OWN_LINE = """
import json, os, sys
import click
def first(text, **_):
    print(json.dumps([text, sorted(sys.modules)]), flush=True)
    os._exit(0)
click.echo = first
sys.argv = ["minikafka", *sys.argv[1:]]
from minikafka.__main__ import main
main()
"""
#: A command with a process of its own, which imports the script again, as the demo's audit has.
WITH_A_WORKER = """
import multiprocessing, sys
from minikafka.__main__ import main
from minikafka.cli import first_sign

def waits(answers):
    answers.put([sys.argv[1:], first_sign._pending.locked()])

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    worker = context.Process(target=waits, args=(answers,))
    worker.start()
    arguments, is_pending = answers.get(timeout=50)
    worker.join()
    told = (arguments, is_pending, first_sign._pending.locked())
    assert told == (["demo"], False, True), told
"""
COMMANDS = [["demo"], ["cluster", "up", "-n", "1"]]
HEAVY = {"asyncio", "rich", "uvloop", "ssl", "subprocess", "multiprocessing", "pyarrow", "pyspark", "crc32c", "logging"}
HEAVY_PARTS = ("minikafka.broker", "minikafka.client", "minikafka.core", "minikafka.net", "minikafka.spark", "minikafka.testing")


def told(program: str, *arguments: str) -> list[object]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True, timeout=100)
    found: list[object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_slow_disk_is_named_before_anything_is_imported(command: list[str]) -> None:
    ((line, loaded),) = told(SLOW_DISK, *command)  # type: ignore[misc]
    assert line == first_sign.LINE
    own = {"minikafka.__main__", "minikafka.cli", "minikafka.cli.first_sign", "minikafka.cli.missing_streams"}
    assert {name for name in loaded if name.startswith("minikafka.")} == own
    assert not {"click", "json", "threading"} & set(loaded)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_first_line_comes_before_the_heavy_modules(command: list[str]) -> None:
    line, loaded = told(OWN_LINE, *command)
    assert str(line).startswith("starting")
    assert isinstance(loaded, list)
    assert [name for name in loaded if name in HEAVY or name.startswith(HEAVY_PARTS)] == []


def test_other_commands_say_nothing_of_the_disk(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["topics", "--list"], ["cluster", "status"], []):
        first_sign.begin(arguments)
        assert not first_sign._pending.locked()
    first_sign.end()


def test_the_processes_of_a_command_say_nothing_of_the_disk(tmp_path: Path) -> None:
    script = tmp_path / "minikafka"
    script.write_text(WITH_A_WORKER)
    done = subprocess.run([sys.executable, str(script), "demo"], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
