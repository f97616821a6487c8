"""The table of README.md is true: each test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_test_that_the_table_names_exists() -> None:
    table = (TESTS / "scenarios" / "README.md").read_text()
    files = list(TESTS.rglob("test_*.py"))
    defined = set(re.findall(r"def (test_\w+)", "".join(file.read_text() for file in files)))
    named = {name.rstrip("_") for name in re.findall(r"(test_\w+)[…`]", table)} - {file.stem for file in files}
    assert len(named) > 80
    assert [name for name in sorted(named) if not any(existing.startswith(name) for existing in defined)] == []
    paths = {str(file.relative_to(TESTS)) for file in files}
    mentioned = set(re.findall(r"((?:\w+/)*test_\w+\.py)", table))
    assert [path for path in mentioned if not any(existing.endswith(path) for existing in paths)] == []
