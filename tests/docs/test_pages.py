"""What docs/ says can be pasted: the commands work and print what the page shows."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers.pages import FIRST_TERMINAL, Reader, blocks, indented_blocks, normal

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.timeout(60)
def test_the_test_of_the_top_readme_passes(tmp_path: Path) -> None:
    text = (DOCS.parent / "README.md").read_text()
    code = textwrap.dedent(text[text.index("    import confluent_kafka\n") : text.index("[Testing](docs/testing.md)")])
    (tmp_path / "test_orders.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(DOCS.parent)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", ["quickstart.md", pytest.param("replication.md", marks=pytest.mark.docs)])
def test_the_page_can_be_pasted(page: str, tmp_path: Path) -> None:
    """The quick start as its readers come to it: after the commands of the top README, in the same terminals."""
    found = blocks((DOCS / page).read_text())
    assert found and found[0].note == FIRST_TERMINAL
    with Reader(tmp_path) as reader:
        if page == "quickstart.md":
            paste_the_top_readme(reader)
        for block in found:
            printed = reader.run(block)
            if block.expected is not None:
                assert normal(printed) == normal(block.expected), f"{page}, after:\n{block.code}\n{printed}"


def paste_the_top_readme(reader: Reader) -> None:
    terminal, *commands = indented_blocks((DOCS.parent / "README.md").read_text(), "Start a cluster")
    assert terminal.note == FIRST_TERMINAL and len(commands) == 2
    reader.run(terminal)
    broken, repaired = (reader.run(block) for block in commands)
    assert normal(broken)[-2:] == normal(commands[0].expected or "")
    assert "AUDIT PASS" in repaired
    reader.end_terminals()


def test_a_page_that_lies_is_found_out(tmp_path: Path) -> None:
    page = (
        "```bash\necho 3 apples\n```\n\n```text\n4 apples\n```\n\n```bash\necho pears\n```\n\n```text\nplums\n```\n\n```bash\nfalse\n```\n"
    )
    true, lie, failure = blocks(page)
    with Reader(tmp_path) as reader:
        assert normal(reader.run(true)) == normal(true.expected or "")
        assert normal(reader.run(lie)) != normal(lie.expected or "")
        with pytest.raises(AssertionError, match="false"):
            reader.run(failure)
