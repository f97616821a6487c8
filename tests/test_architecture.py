"""The packages and the only direction of imports between them, as import-linter contracts; and what a core may not import."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("wire", "storage", "minikafka", "tests", "docs", "packaging")


def test_imports_keep_the_direction() -> None:
    run = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--config", str(ROOT / "pyproject.toml"), "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_no_imports_go_in_a_circle() -> None:
    """Those under TYPE_CHECKING and those inside functions count too."""
    assert not [sorted(circle) for circle in circles(import_graph(ROOT / "minikafka"))]


@functools.cache
def import_graph(package: Path) -> dict[str, set[str]]:
    """Module -> the modules of the same package that it imports, in whatever place."""
    files = {_module_name(path, package.parent): path for path in _python_files(package)}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        graph[name] = set()
        for imported in read(path.resolve()).imported:
            parts = imported.split(".")
            found = next((candidate for end in range(len(parts), 0, -1) if (candidate := ".".join(parts[:end])) in files), None)
            if found is not None and found != name:
                graph[name].add(found)
    return graph


class Source(NamedTuple):
    """What the rules are about: the names that a file imports, its functions with their lines."""

    imported: list[str]
    functions: list[tuple[str, int]]


@functools.cache
def read(path: Path) -> Source:
    """Of a path without links, so that each file is parsed once."""
    statements = list(_statements(ast.parse(path.read_text())))
    functions = [node for node in statements if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return Source(
        [name for node in statements for name in _imported_names(node)],
        [(node.name, (node.end_lineno or 0) - node.lineno + 1) for node in functions],
    )


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Those in it, at any depth, and the clauses that hold some: what may be an import or a function, without walking the expressions."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from _statements(inner)


def _python_files(folder: Path) -> Iterator[Path]:
    """Links to folders are followed, which rglob does not do in every version of Python."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _python_files(path)
        elif path.suffix == ".py":
            yield path


def _module_name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of more than one module: sets of which each module reaches every other."""
    left = graph
    while leaves := {module for module, imported in left.items() if left.keys().isdisjoint(imported)}:
        left = {module: imported for module, imported in left.items() if module not in leaves}
    reached = {module: _reachable(left, module) for module in left}
    found = {frozenset({module} | {other for other in reached[module] if module in reached.get(other, ())}) for module in left}
    return [set(component) for component in found if len(component) > 1]


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        module = ahead.pop()
        if module not in seen:
            seen.add(module)
            ahead += graph.get(module, ())
    return seen


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}
    assert circles(graph) == [{"a", "b", "c"}]
    assert "minikafka.wire.errors" in import_graph(ROOT / "minikafka")["minikafka.broker.front.dispatch"]


def test_ruff_finds_nothing() -> None:
    run = subprocess.run([sys.executable, "-m", "ruff", "check", str(ROOT)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]


@pytest.mark.timeout(300)
def test_mypy_strict_finds_nothing() -> None:
    run = subprocess.run([sys.executable, "-m", "mypy"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stdout[-4000:]


def test_no_file_grows_beyond_what_a_reader_can_hold() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {lines}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if (lines := path.read_text().count("\n")) > 600
    ]
    assert not long


def test_no_function_grows_beyond_a_page() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {name} has {lines}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for name, lines in read(path.resolve()).functions
        if lines > 50
    ]
    assert not long


def test_only_the_projects_own_files_are_kept() -> None:
    """A commit of everything once took the log directories of an experiment along."""
    run = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode or not run.stdout:
        return  # a source distribution: MANIFEST.in chose its files
    assert {name.partition("/")[0] for name in run.stdout.splitlines()} == {
        ".ci", ".dockerignore", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "MANIFEST.in", "README.md",
        "constraints.txt", "docker", "docker-compose.yml", "docs", "examples", "minikafka", "mkdocs.yml", "packaging", "pyproject.toml",
        "pyspark_minikafka", "storage", "tests", "wire",
    }  # fmt: skip
