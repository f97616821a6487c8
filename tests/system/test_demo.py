"""`minikafka demo` as a user runs it: it passes, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROWS = 5000
pytestmark = pytest.mark.timeout(120)


def test_the_demo_passes_and_cleans_up(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "MINIKAFKA_DEMO_MARK": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "minikafka", "demo", "--engine", "local", "--rows", str(ROWS)],
        capture_output=True, text=True, timeout=100, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout and "no acknowledged record is missing" in done.stdout
    assert f"{ROWS:,} records acknowledged by every in-sync replica" in done.stdout
    assert done.stdout.count("SIGKILL") == 2 and "is the active controller" in done.stdout and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [], "directories are left behind"
    assert marked(str(tmp_path)) == [], "processes are left behind"


def marked(value: str) -> list[str]:
    """The processes that were started, directly or not, with our environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MINIKAFKA_DEMO_MARK") == value:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found
