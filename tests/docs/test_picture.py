"""The picture at the top of the README: it shows the kill, weighs little, and asks for nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
PICTURE = "docs/pictures/kill-the-leader.svg"


def look_at(picture: Path) -> None:
    text = picture.read_text()
    ElementTree.fromstring(text)
    frames = re.findall(r'<g id="f(\d+)">', text)
    assert len(frames) > 10 and text.count("@keyframes") == len(frames)
    shown = text.replace("&#160;", " ")
    assert "minikafka cluster kill" in shown and "minikafka cluster start" in shown and "failed 0" in shown
    assert "under-replicated 6" in shown and "under-replicated 0" in shown
    assert picture.stat().st_size < 300_000
    assert set(re.findall(r"https?://[^\"' )]+", text)) <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}


def test_the_picture_is_what_it_should_be() -> None:
    look_at(ROOT / PICTURE)
    assert f"]({PICTURE})" in (ROOT / "README.md").read_text()


@pytest.mark.docs
@pytest.mark.timeout(60)
def test_the_picture_can_be_regenerated(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "docs/pictures/kill_the_leader.py", str(tmp_path / "made.svg")], cwd=ROOT, check=True)
    look_at(tmp_path / "made.svg")
