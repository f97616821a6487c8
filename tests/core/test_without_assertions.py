"""python -O and PYTHONOPTIMIZE leave out assertions: what they do besides would not happen."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("minikafka", "wire", "storage", "pyspark_minikafka")
#: Functions that only look.
LOOKS = frozenset({"all", "any", "callable", "hasattr", "isinstance", "issubclass", "len", "max", "min", "set", "sorted", "type"})


def acting(source: str) -> list[int]:
    """Lines of assertions that call anything else, assign or wait."""
    return [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert) and any(map(_acts, ast.walk(node.test)))]


def _acts(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return not (isinstance(node.func, ast.Name) and node.func.id in LOOKS)
    return isinstance(node, ast.NamedExpr | ast.Await | ast.Yield)


def test_assertions_only_look() -> None:
    assert acting("assert a.pop() is b\nassert (n := 1)\nassert isinstance(a, B) and len(b) < 3") == [1, 2]
    found = {str(path): acting(path.read_text()) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert not {path: lines for path, lines in found.items() if lines}


def test_a_cluster_does_the_same_without_assertions() -> None:
    """Transactional requests stood in line for ever, and their coordinator ended."""

    assert digests("2") == digests("")


def digests(optimize: str) -> str:
    """A line for each seed, without its real time."""
    command = [sys.executable, "-m", "minikafka", "sim", "--seeds", "1..4", "--verbose"]
    done = subprocess.run(command, env={**os.environ, "PYTHONOPTIMIZE": optimize}, capture_output=True, text=True, check=True)
    found = re.findall(r"seed \d+ .* digest \w{24}", done.stdout)
    assert len(found) == 3
    return "\n".join(found)
