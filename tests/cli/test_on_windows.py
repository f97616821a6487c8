"""On Windows: a sentence that says what to do, in place of a traceback. Clients and the pytest plugin can be imported there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
log.dirs=data
"""
#: Windows has none of these modules.
WINDOWS = """
import sys

class Lacking:
    def find_spec(self, name, *_):
        if name in {"fcntl", "grp", "pwd", "resource", "termios", "uvloop"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

import asyncio, subprocess  # The standard library needs the true platform,
asyncio.new_event_loop().close()  # since Python 3.14 at the first event loop.
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Lacking())
import click, minikafka.client, minikafka.testing.pytest_plugin
sys.platform = "win32"
"""
COMMAND = """
from minikafka.cli.main import main
main(sys.argv[1:])
"""
FIXTURE = """
try:
    from minikafka.testing import EmbeddedCluster
except ImportError as error:
    sys.exit(f"error: {error}")
"""


@pytest.mark.parametrize(
    ("program", "words"),
    [(COMMAND, ("cluster", "up", "--port", "0")), (COMMAND, ("start", "--config", "server.properties")), (FIXTURE, ())],
    ids=["cluster up", "start", "fixtures"],
)
def test_what_needs_unix_names_wsl_and_containers(program: str, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text(PROPERTIES)
    command = [sys.executable, "-c", WINDOWS + program, *words]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ") and "Brokers of minikafka do not run on Windows" in last and "WSL" in last and "container" in last
