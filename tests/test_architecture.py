"""The rooms of the house and the only direction between them, as import-linter contracts; and what a core may not know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_imports_keep_the_direction() -> None:
    run = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--config", str(ROOT / "pyproject.toml"), "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_ruff_finds_nothing() -> None:
    run = subprocess.run([sys.executable, "-m", "ruff", "check", str(ROOT)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]


def test_mypy_strict_finds_nothing() -> None:
    run = subprocess.run([sys.executable, "-m", "mypy"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stdout[-4000:]


def test_no_file_grows_beyond_what_a_reader_can_hold() -> None:
    tables = {"errors.py", "config_table.py"}
    long = [
        f"{path.relative_to(ROOT)}: {lines}"
        for folder in ("wire", "storage", "minikafka")
        for path in (ROOT / folder).rglob("*.py")
        if (lines := path.read_text().count("\n")) > 650 and path.name not in tables
    ]
    assert not long
