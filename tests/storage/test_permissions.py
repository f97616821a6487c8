"""What is stored is the user's own: records, and in the metadata log the verifiers of passwords."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from minikafka.storage.filesystem import OsFileSystem


def test_directories_and_files_are_for_their_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        directory = tmp_path / "a" / "b"
        OsFileSystem().mkdir(str(directory))
        OsFileSystem().open(str(directory / "0.log"), create=True).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "0.log").stat().st_mode) == 0o600
