"""The pages that are made are up to date, what they rest on exists, and the site builds without a warning."""

from __future__ import annotations

import builtins
import collections.abc
import re
import sys
import typing
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from helpers.site import build_site

import minikafka

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "docs"))
reference = __import__("reference")


@pytest.mark.parametrize("page", reference.PAGES)
def test_made_pages_are_up_to_date(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == reference.PAGES[page](), "python tests/docs/reference.py makes it anew"


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_each_row_of_a_table_has_the_cells_of_its_head(page: str) -> None:
    cells = 0
    outside_of_code = re.sub(r"^```.*?^```", "", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    for line in outside_of_code.splitlines():
        found = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (found and cells) or found == cells, line
        cells = found


def test_the_api_page_explains_itself() -> None:
    """Types that users meet are on the page or Python's; nothing points into the sources; no text is one that dataclasses make."""
    page = (ROOT / "docs" / "api.md").read_text()
    entries = re.findall(r"^### `?(\w+)`?\n\n((?:`.*`\n\n)?)(.*)$", page, re.MULTILINE)
    names = {name for name, _, _ in entries}
    assert len(names) > 50
    assert not [name for name, _, text in entries if text.startswith((f"{name}(", "|", "#")) or not text]
    signatures = re.findall(r"^(?:\| )?(`.*?`)(?: \||$)", page, re.MULTILINE)
    types = {word for one in signatures for word in re.findall(r"\b[A-Z][A-Za-z]*[a-z][A-Za-z]*\b", re.sub(r"'[^']*'", "", one))}
    python = {*dir(builtins), *dir(typing), *dir(collections.abc)}
    assert types - names - python == {"Future", "Path"}, types - names - python
    assert not re.findall(r"[\w/]+\.py\b|README|[Ss]ee `?(?:[a-z_]+\.\w+|[A-Z]\w+)|For this package", page)


TESTED = [row for kind, rows in reference.data().items() for row in rows if kind not in ("tool", "suite")]


@pytest.mark.parametrize("row", TESTED, ids=lambda row: row["what"][:40])
def test_each_line_rests_on_tests(row: dict[str, Any]) -> None:
    for test in row["tests"]:
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text()
        assert re.search(rf"^\s*(async )?def {name or 'test_'}", text, re.MULTILINE), test
    if "package" in row:
        installed = [int(part) for part in metadata.version(row["package"]).split(".")[:2]]
        assert installed >= [int(part) for part in row["version"].split(".")], f"{row['package']} {installed} is older than the page says"


def test_the_site_builds(tmp_path: Path) -> None:
    site = build_site(tmp_path)
    # The site takes a fence with words that it does not know for text, and the page goes on in it.
    assert not [page.parent.name for page in site.glob("*/index.html") if "```" in page.read_text()]
    # In code within a table it shows the backslash that other renderers want before a bar.
    assert not [page.parent.name for page in site.glob("*/index.html") if r"\|" in page.read_text()]
    page = (site / "replication" / "index.html").read_text()
    assert "prefers-color-scheme: light" in page and "prefers-color-scheme: dark" in page
    assert f"minikafka {minikafka.__version__}, Apache License 2.0" in page
    assert "EmbeddedCluster" in (site / "search.json").read_text()
    assert not (site / "compatibility.toml").exists() and not list(site.glob("*.py"))
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f"- {page.name}\n" in navigation, f"{page.name} is not in the navigation of mkdocs.yml"
