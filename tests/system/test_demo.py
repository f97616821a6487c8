"""`minikafka demo` as a user runs it: it passes, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROWS = 5000
pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("has_pyarrow", [True, False])
def test_the_demo_passes_and_cleans_up(has_pyarrow: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without pyarrow, too: that is what `uvx minikafka demo` has."""
    tmp_path, path = tmp_path_factory.mktemp("temporary"), tmp_path_factory.mktemp("path")
    environment = {**os.environ, "TMPDIR": str(tmp_path), "MINIKAFKA_DEMO_MARK": str(tmp_path)}
    if not has_pyarrow:
        (path / "sitecustomize.py").write_text("import sys\nsys.modules.update(dict.fromkeys(('pyarrow', 'pandas', 'pyspark')))\n")
        environment["PYTHONPATH"] = os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])
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


def test_a_machine_that_lacks_something_is_named(tmp_path: Path) -> None:
    """No file may be larger than 100 kB here: brokers end while they run, as on a full disk. It ended with a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "minikafka", "demo", "--engine", "local", "--rows", "500"],
        capture_output=True, text=True, timeout=100, check=False, env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    assert re.search(r"broker \d has ended: .*File too large", done.stdout), done.stdout
    assert list(tmp_path.iterdir()) == [], "directories are left behind"


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
