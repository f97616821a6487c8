"""Recipes with requirements of their own: each passes in a virtual environment made as docs/recipes.md says.

    pytest -n 0 -m docs tests/docs/test_recipe_environments.py        # a quarter of an hour and two gigabytes, or -k quix
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/requirements.txt"))


def test_the_page_names_every_recipe() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text()
    assert RECIPES and all(f"`examples/{name}`" in page for name in RECIPES)


@pytest.mark.docs
@pytest.mark.java
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_passes_in_an_environment_of_its_own(name: str, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    recipe = shutil.copytree(ROOT / "examples" / name, checkout / "examples" / name, ignore=shutil.ignore_patterns("target", "__pycache__"))
    for file in ("pyproject.toml", "examples/pytest.ini"):
        shutil.copy(ROOT / file, checkout / file)
    python = tmp_path / "environment" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in (
        [sys.executable, "-m", "venv", str(tmp_path / "environment")],
        [str(python), "-m", "pip", "install", "--quiet", str(ROOT), "-r", str(recipe / "requirements.txt")],
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"examples/{name}"],
    ):
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout and "skipped" not in done.stdout
