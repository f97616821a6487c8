"""The log directories that Apache Kafka 4.3.0 wrote (tests/golden/logs) and what is known about them."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1] / "golden" / "logs"


@cache
def facts(folder: str) -> dict[str, dict[str, Any]]:
    """facts.json of a top folder: file name -> what is in it."""
    return json.loads((ROOT / folder / "facts.json").read_text())


def log_directories() -> list[str]:
    """Every directory with a `.log`, relative to ROOT."""
    return sorted({str(path.parent.relative_to(ROOT)) for path in ROOT.rglob("*.log")})


def install(name: str, target: Path) -> Path:
    """Copy a directory, with preallocated files at their real size; returns the copy."""
    shutil.copytree(ROOT / name, target)
    sizes = target / "sizes.json"
    if sizes.exists():
        for file, size in json.loads(sizes.read_text()).items():
            if (target / file).exists():
                with (target / file).open("r+b") as opened:
                    opened.truncate(size["file_size"])
        sizes.unlink()
    return target


def preallocated_sizes(name: str) -> dict[str, int]:
    sizes = ROOT / name / "sizes.json"
    return {file: size["file_size"] for file, size in json.loads(sizes.read_text()).items()} if sizes.exists() else {}


def split_batches(data: bytes) -> Iterator[bytearray]:
    """Whole batches of a `.log`, by their length fields alone."""
    position = 0
    while position + 61 <= len(data):
        size = 12 + struct.unpack_from(">i", data, position + 8)[0]
        if size < 61 or position + size > len(data):
            return
        yield bytearray(data[position : position + size])
        position += size


def stored_batches(name: str) -> list[bytearray]:
    """All batches of a directory, in order."""
    return [batch for path in sorted((ROOT / name).glob("*.log")) for batch in split_batches(path.read_bytes())]


def as_client_sent(batch: bytes) -> bytearray:
    """A stored batch with base offset 0 and no epoch, as it came from the client."""
    sent = bytearray(batch)
    struct.pack_into(">q", sent, 0, 0)
    struct.pack_into(">i", sent, 12, -1)
    return sent
