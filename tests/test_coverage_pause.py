"""Lines are not counted while a test measures, nor after its share of time, and are counted again afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import sys, time
import coverage
import pytest
from helpers.coverage_pause import coverage_at_first, without_coverage


@pytest.mark.parametrize("turn", range(2))
def test_pauses(turn):
    assert sys.gettrace() is not None
    with without_coverage():
        assert sys.gettrace() is None
    assert sys.gettrace() is not None
    with coverage_at_first(0.02):
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass
        assert sys.gettrace() is None
        with without_coverage():
            pass
        assert sys.gettrace() is None
    assert sys.gettrace() is not None
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_lines_are_counted_again_after_a_pause(tmp_path: Path, workers: str) -> None:
    """In a process of its own, and in a worker, which has two counters."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {Path(__file__).parent}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider", f"--cov={tmp_path}", "--cov-report="]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
