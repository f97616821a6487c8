"""Nothing stays of a cluster whose process ends without closing it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.testing.leftovers import TemporaryDirectory
from minikafka.testing.wait import wait_until

PROGRAM = """
import os, sys
from minikafka.testing import EmbeddedCluster
cluster = EmbeddedCluster(1, mode=sys.argv[1], topics=["t"])
cluster.start()
print(cluster.directory, flush=True)
if sys.argv[2] != "0":
    os.kill(os.getpid(), int(sys.argv[2]))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, 0])
@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_cluster_that_nobody_stops(mode: str, how: int, tmp_path: Path) -> None:
    """Killed, terminated, and ended in the middle."""
    command = [sys.executable, "-c", PROGRAM, mode, str(int(how))]
    done = subprocess.run(command, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == -how and Path(done.stdout.strip()).parent == tmp_path, done.stderr
    wait_until(lambda: not list(tmp_path.iterdir()), "the directory to be removed", 10)


def test_a_directory_is_removed_or_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    removed, kept = TemporaryDirectory("a-"), TemporaryDirectory("b-")
    removed.remove()
    removed.remove()
    kept.keep()
    assert list(tmp_path.iterdir()) == [kept.path]
