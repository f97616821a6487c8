"""The stories of docs/stories.md: what they claim, that their pictures are what is played, and the notebook, cell by cell."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
TEACHING = ROOT / "examples" / "teaching"
LOST = {
    "log-truncation": [],
    "fast-failover": [],
    "kafka-7128": ["m2", "m3", "m4"],
    "kafka-7128-mended": [],
    "unclean-election": ["m2", "m3", "m4"],
    "hanging-transaction": [],
}


@pytest.fixture
def stories(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(TEACHING))
    import stories

    yield stories
    sys.modules.pop("stories")


@pytest.mark.parametrize("name", LOST)
def test_a_story_loses_what_it_says(stories: Any, name: str) -> None:
    played = stories.play(name)
    leader = next(view for view in played.frames[-1][1] if view.state.startswith("leads"))
    assert [value for value in played.acknowledged if value not in {record.value for record in leader.records}] == LOST[name]


def test_readers_of_committed_data_stand_still_while_a_transaction_hangs(stories: Any) -> None:
    frames = stories.play("hanging-transaction").frames
    assert [(views[0].stable, views[0].high_watermark) for _, views, _ in frames] == [(0, 2), (3, 3), (3, 4), (3, 6), (7, 7), (7, 7)]
    assert [refused for _, _, refused in frames] == ["", "", "", "", "", "INVALID_TXN_STATE"]


def test_there_is_a_story_for_each_of_these(stories: Any) -> None:
    assert set(stories.STORIES) == set(LOST)
    shown = set(re.findall(r"pictures/story-(.*?)\.svg", (ROOT / "docs" / "stories.md").read_text()))
    assert shown == set(LOST)


@pytest.mark.parametrize("name", LOST)
def test_pictures_are_up_to_date(stories: Any, name: str) -> None:
    """`python examples/teaching/stories.py --pictures docs/pictures` makes them."""
    picture = (ROOT / "docs" / "pictures" / f"story-{name}.svg").read_text()
    assert picture == stories.svg(stories.play(name))
    assert ElementTree.fromstring(picture).tag.endswith("svg")


async def test_the_notebook_runs(stories: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """With an event loop running around it, as in Jupyter. The last expression of a cell is what it shows."""
    assert asyncio.get_running_loop()
    cells = [cell for cell in json.loads((TEACHING / "replication.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    pictures = 0
    for cell in cells:
        assert cell["outputs"] == []
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            pictures += hasattr(shown, "_repr_svg_") and shown._repr_svg_().startswith("<svg")
    assert pictures == 8
    assert "kafka-7128 lost: ['m2', 'm3', 'm4']\nkafka-7128-mended lost: []" in capsys.readouterr().out
