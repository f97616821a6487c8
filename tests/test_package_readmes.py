"""The README of a package is its map: it names every module beside it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = sorted(path.parent for top in ("minikafka", "storage", "wire") for path in (ROOT / top).rglob("README.md"))


def is_command(module: Path) -> bool:
    """Whether it implements commands, which `minikafka --help` lists."""
    return (ast.get_docstring(ast.parse(module.read_text())) or "").startswith("`minikafka ")


def modules(package: Path) -> set[str]:
    """Names without `.py`."""
    return {path.stem for path in package.glob("*.py") if path.stem != "__init__" and not (package.name == "cli" and is_command(path))}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_readme_names_every_module(package: Path) -> None:
    named = set(re.findall(r"`(?:[a-z_.]+/)*([a-z_0-9]+)(?:\.py)?`", (package / "README.md").read_text()))
    assert modules(package) - named == set()


def test_packages_are_found() -> None:
    assert len(PACKAGES) > 25 and all(modules(package) for package in PACKAGES if package.name in {"net", "cli", "raft", "wire"})
