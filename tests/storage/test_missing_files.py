"""A log starts whatever files are missing: a power cut may take the name of any file, and people remove some."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage.log import Log

DIRECTORY = "/data/t-0/"


@pytest.fixture
def written(open_log: Callable[..., Log], disk: MemoryFileSystem) -> MemoryFileSystem:
    """Three segments in two epochs, and a checkpoint of epochs that begins behind deleted records."""
    log = open_log(segment_bytes=300)
    for epoch in (1, 2):
        for _ in range(4):
            log.append_as_leader(memoryview(batch(b"x" * 20, timestamp=T0)), epoch, T0)
    log.update_high_watermark(log.log_end_offset)
    assert log.increment_log_start_offset(2)
    log.flush()
    assert len(log.segments.bases) == 3
    return disk


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("start", [0, 2, 6, 8, 20])
def test_a_log_starts_without_any_of_its_files(
    open_log: Callable[..., Log], written: MemoryFileSystem, start: int, is_clean: bool
) -> None:
    """Without a segment, but with epochs that begin behind the start, no start succeeded any more."""
    names = sorted(name for name in written.names if name.startswith(DIRECTORY))
    kinds = sorted({name.rpartition("/")[2] if name.endswith(".log") else name.rpartition(".")[2] for name in names})
    assert {"index", "timeindex"} < set(kinds) and len(kinds) >= 6
    for count in range(1, len(kinds) + 1):
        for missing in itertools.combinations(kinds, count):
            disk = written.kill()
            for name in names:
                if name.endswith(missing):
                    disk.unlink(name)
            log = open_log(disk, is_clean=is_clean, recovery_point=5, log_start_offset=start, segment_bytes=300)
            assert log.log_start_offset <= log.log_end_offset and log.segments.bases
            entries = log.epochs.entries
            assert all(log.log_start_offset <= first <= log.log_end_offset for _, first in entries), (missing, entries)
            end = log.log_end_offset
            log.append_as_leader(memoryview(batch(b"y", timestamp=T0)), 3, T0)
            assert log.log_end_offset == end + 1
