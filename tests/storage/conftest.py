from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage.config import LogConfig
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log

WALL_MS = 1_700_000_100_000


@pytest.fixture
def disk() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def open_log(disk: MemoryFileSystem) -> Callable[..., Log]:
    """open_log(disk=..., is_clean=..., **LogConfig fields) -> a log on the disk in memory."""

    def opened(
        on: MemoryFileSystem = disk,
        *,
        is_clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        **config: object,
    ) -> Log:
        settings = LogConfig(**{"segment_index_bytes": 1200, **config})
        return load_log(
            on,
            "/data/t-0",
            "t",
            0,
            settings,
            wall_ms=WALL_MS,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )

    return opened
