"""constraints.txt names a version of every dependency that installing the package brings, within what pyproject.toml allows."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def test_every_dependency_is_pinned_within_what_is_allowed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [Requirement(text) for text in (*project["dependencies"], *extras["spark"], *extras["testing"])]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {name: version for name, _, version in (line.partition("==") for line in lines if line and not line.startswith("#"))}
    assert not [str(one) for one in wanted if one.name not in pinned or not one.specifier.contains(pinned[one.name])]
