"""Files beside the log that can be read, but that no broker writes: a producer that stands in a snapshot twice."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from crc32c import crc32c
from helpers.log_fault_verbs import Place

_HEAD, _ENTRY = 10, 46


def producer_twice(place: Place) -> None:
    """The newest snapshot names its first producer once more."""
    for path in sorted(place.path.glob("*.snapshot"))[-1:]:
        data = path.read_bytes()
        if len(data) >= _HEAD + _ENTRY:
            count = int.from_bytes(data[6:_HEAD], "big") + 1
            body = struct.pack(">i", count) + data[_HEAD:] + data[_HEAD : _HEAD + _ENTRY]
            path.write_bytes(data[:2] + struct.pack(">I", crc32c(body)) + body)


WRITTEN: dict[str, Callable[..., None]] = {"producer_twice": producer_twice}


def by_written(directories: dict[int, list[Path]], name: str) -> Iterator[str]:
    """A snapshot at the end of a log whose broker was stopped in order: which entry counts depends on who reads it."""
    for broker, paths in directories.items():
        for path in paths:
            end = max((file.name for file in (path / name).glob("[0-9]*.snapshot")), default="")
            data = (path / name / end).read_bytes() if end and (path / name / end).is_file() else b""
            ids = [data[at : at + 8] for at in range(_HEAD, len(data), _ENTRY)]
            is_whole = data[2:6] == struct.pack(">I", crc32c(data[6:])) and int.from_bytes(data[6:_HEAD], "big") == len(ids)
            if is_whole and len(set(ids)) < len(ids) and (path / ".kafka_cleanshutdown").exists():
                yield f"broker {broker}: a producer stands twice in {end}"
