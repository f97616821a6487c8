"""`minikafka demo` as a user runs it: it passes, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys

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
