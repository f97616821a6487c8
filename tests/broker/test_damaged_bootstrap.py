"""A node whose bootstrap.checkpoint is damaged says which file that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.broker.quorum.format import bootstrap_records, read_bootstrap
from minikafka.broker.quorum.snapshots import BOOTSTRAP, encode_snapshot, write_snapshot_file
from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import OsFileSystem


@pytest.mark.parametrize(("damage", "says"), [(lambda data: data[:-80], "cut short"), (lambda data: data[:-1] + b"\xff", "not valid")])
def test_the_file_is_named(tmp_path: Path, damage: object, says: str) -> None:
    path = tmp_path / BOOTSTRAP
    pieces = encode_snapshot(bootstrap_records({"metadata.version": 29}), epoch=0, wall_ms=0, last_timestamp_ms=0)
    write_snapshot_file(OsFileSystem(), str(path), pieces)
    assert read_bootstrap(OsFileSystem(), str(tmp_path))
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(CorruptFile, match=f"{BOOTSTRAP}: the snapshot is .*{says}"):
        read_bootstrap(OsFileSystem(), str(tmp_path))
