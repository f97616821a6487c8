"""Log directories written batch by batch, with the indexes that a broker would have written, for tests of readers."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from helpers.batches import batch

TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"
OTHER_ID = "BBECAwQFBgcICQoLDA0ODw"


def value(offset: int) -> bytes:
    return b"value-%04d" % offset


def one_by_one(begin: int, end: int, **fields: int) -> list[bytearray]:
    """A batch for each offset, its value its offset, its time too."""
    return [batch(value(offset), base_offset=offset, epoch=0, timestamp=1_000_000 + offset, **fields) for offset in range(begin, end)]


def log_directory(path: Path, node: int = 1) -> Path:
    path.mkdir(parents=True)
    (path / "meta.properties").write_text(f"version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id={node}\n")
    (path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    return path


def checkpoint(directory: Path, name: str, entries: Mapping[str, int]) -> None:
    """`entries`: {"topic-0": offset}."""
    lines = [f"{key.rpartition('-')[0]} {key.rpartition('-')[2]} {offset}" for key, offset in entries.items()]
    (directory / name).write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


def high_watermarks(directory: Path, **entries: int) -> None:
    """`t=300` for t-0."""
    checkpoint(directory, "replication-offset-checkpoint", {f"{topic}-0": offset for topic, offset in entries.items()})


def partition(
    directory: Path, name: str, segments: Mapping[int, Iterable[bytes | bytearray]], *, topic_id: str = TOPIC_ID, interval_bytes: int = 4096
) -> Path:
    """A partition's directory; `segments`: base offset -> batches. An index entry at least every `interval_bytes`."""
    path = directory / name
    path.mkdir()
    for base, batches in segments.items():
        write_segment(path, base, list(batches), interval_bytes)
    (path / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {min(segments, default=0)}\n")
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return path


def write_segment(path: Path, base: int, batches: list[bytes | bytearray], interval_bytes: int = 4096) -> None:
    offsets, times = bytearray(), bytearray()
    position = since = 0
    newest = -1
    for one in batches:
        first, delta, newest_here = (
            int.from_bytes(one[:8], "big"), int.from_bytes(one[23:27], "big"), int.from_bytes(one[35:43], "big"),
        )  # fmt: skip
        newest = max(newest, newest_here)
        last = first + delta - base
        if since > interval_bytes:
            offsets += struct.pack(">ii", last, position)
            times += struct.pack(">qi", newest, last)
            since = 0
        since += len(one)
        position += len(one)
    (path / f"{base:020d}.log").write_bytes(b"".join(batches))
    (path / f"{base:020d}.index").write_bytes(offsets)
    (path / f"{base:020d}.timeindex").write_bytes(times)
