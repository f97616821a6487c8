"""Log directories that every user of the machine can read are named at a start."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.cli.private_directories import warnings


@pytest.mark.parametrize(("mode", "is_named"), [(0o700, False), (0o750, False), (0o755, True), (0o711, True), (0o2770, False)])
def test_a_directory_is_named_if_others_can_enter_it(mode: int, is_named: bool, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(mode)
    lines = list(warnings([str(directory), f"{directory}/", str(tmp_path / "none")]))
    assert len(lines) == is_named
    if is_named:
        assert str(directory) in lines[0] and f"mode {mode:04o}" in lines[0] and "chmod" in lines[0]
    assert directory.stat().st_mode & 0o7777 == mode, "it is the operator's"
