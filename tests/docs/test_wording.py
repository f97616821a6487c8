"""Pages stay readable: short sentences, short cells of tables, a README of one screen and a bit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = sorted((ROOT / "docs").glob("*.md"))
ALL = [*SITE, ROOT / "CONTRIBUTING.md", *sorted(path for path in ROOT.glob("**/README.md") if ".venv" not in path.parts)]
SENTENCE_WORDS_MAX = 40
CELL_WORDS_MAX = 60
#: A third of what it once was.
README_WORDS_MAX = 774


def _blocks(path: Path) -> list[str]:
    return re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE).split("\n\n")


def sentences(path: Path) -> Iterator[str]:
    """Those of running text and lists."""
    for block in _blocks(path):
        if not block.startswith(("    ", "#", "|")):
            for part in re.split(r"\n(?= *- | *\d\. )", block):
                yield from re.split(r"(?<=[.!?:;])\s+", " ".join(part.split()))


def cells(path: Path) -> Iterator[str]:
    """Those of tables."""
    for block in _blocks(path):
        for line in block.splitlines():
            if line.startswith("|"):
                yield from re.split(r"(?<!\\)\|", line)


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_are_short(path: Path) -> None:
    assert [one for one in sentences(path) if len(one.split()) > SENTENCE_WORDS_MAX] == []


@pytest.mark.parametrize("path", SITE, ids=lambda path: path.name)
def test_cells_of_tables_are_short(path: Path) -> None:
    """Whole signatures stand in those of the API."""
    found = [one for one in cells(path) if len(one.split()) > CELL_WORDS_MAX and not one.strip().startswith("`")]
    assert found == [], "what needs so many words belongs below the table"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= README_WORDS_MAX
