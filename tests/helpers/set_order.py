"""Finds code whose result may depend on the order of a set, which for strings and bytes differs from process to process.

mypy tells the type of every expression that is iterated over, so that no list of names has to be kept: it is given copies of the modules
in which each such expression stands in a reveal_type().
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

#: Types of sets in mypy's output, except for sets of numbers, which have the same order in every process.
_NO_ORDER = re.compile(r"^(?:[\w.]+\.)?(?:set|frozenset|AbstractSet|MutableSet)\[(?!(?:builtins\.)?(?:int|bool)\])")
#: Around an expression, which may be a yield.
_OPEN, _CLOSE = b"reveal_type((", b"))"
_REVEALED = re.compile(r'^(.+?):(\d+):.* Revealed type is "(.*)"$')
#: Functions whose result does not depend on the order of what they are given.
_ORDERLESS = frozenset({"sorted", "set", "frozenset", "len", "any", "all", "sum", "bool", "isinstance"})
#: Methods, of sets, for which the same holds.
_ORDERLESS_METHODS = frozenset({
    "union", "intersection", "difference", "symmetric_difference", "issubset", "issuperset", "isdisjoint", "update",
    "intersection_update", "difference_update", "symmetric_difference_update",
})  # fmt: skip
#: Functions and methods that iterate over an argument, in its order.
_ITERATING = frozenset({
    "list", "tuple", "dict", "iter", "map", "filter", "zip", "enumerate", "chain", "from_iterable", "fromkeys", "join", "extend", "deque",
    "min", "max", "OrderedDict", "Counter",
})  # fmt: skip


def places(root: Path, folders: list[str], scratch: Path) -> list[str]:
    """"file:line: type" of each iteration over a set whose order differs from process to process, in all modules of these folders."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", str(scratch / "cache"), "--follow-imports", "silent"]
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    for number, path in enumerate(paths):
        copy = scratch / f"{number}.py"
        copy.write_bytes(revealing(path.read_bytes()))
        command += ["--shadow-file", str(path.relative_to(root)), str(copy)]
    for folder in folders:
        command += ["-p", folder.replace("/", ".")]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    revealed = [match.groups() for line in run.stdout.splitlines() if (match := _REVEALED.match(line))]
    assert revealed, run.stdout + run.stderr
    return sorted({f"{path}:{line}: {kind}" for path, line, kind in revealed if _NO_ORDER.match(kind)})


def revealing(source: bytes) -> bytes:
    """The source with a reveal_type() around each expression that is iterated over in its order."""
    visitor = _Iterations()
    visitor.visit(ast.parse(source))
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    inserted: list[tuple[int, int, bytes]] = []
    for node in visitor.found:
        assert node.end_lineno is not None and node.end_col_offset is not None
        first, last = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        inserted += [(first, last, _OPEN), (last, -first, _CLOSE)]
    pieces, position = [], 0
    for at, _, text in sorted(inserted, key=lambda entry: (entry[0], entry[2] == _OPEN, -entry[1])):
        pieces += [source[position:at], text]
        position = at
    return b"".join([*pieces, source[position:]])


class _Iterations(ast.NodeVisitor):
    """Visits one module. `found`: the expressions that are iterated over."""

    def __init__(self) -> None:
        self.found: list[ast.expr] = []
        self._orderless: set[int] = set()

    def visit_For(self, node: ast.For) -> None:
        """for x in a set."""
        self.found.append(node.iter)
        self.generic_visit(node)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> None:
        if id(node) not in self._orderless:
            for clause in node.generators:
                self.found.append(clause.iter)
        self.generic_visit(node)

    visit_ListComp = visit_GeneratorExp = visit_DictComp = _comprehension

    def visit_Call(self, node: ast.Call) -> None:
        """A function that is given a set."""
        is_method = isinstance(node.func, ast.Attribute)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        for argument in node.args:
            if name in (_ORDERLESS_METHODS if is_method else _ORDERLESS):
                self._orderless.add(id(argument))
            elif name in _ITERATING:
                self.found.append(argument)
        if isinstance(node.func, ast.Attribute) and name == "pop" and not node.args:
            self.found.append(node.func.value)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        """[*a set]."""
        if isinstance(node.ctx, ast.Load):
            self.found.append(node.value)
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        """yield from a set."""
        self.found.append(node.value)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """x, y = a set."""
        if any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            self.found.append(node.value)
        self.generic_visit(node)
