"""The demo says which records a broker that comes back discards, and how many of them it had written itself with acks=1."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.cli.demo_discarded import LeftLogs
from minikafka.wire.batch import build_batch
from minikafka.wire.record import Record

LINE = (
    "2026-01-01 INFO  minikafka.fetcher: flights-3: in epoch 1 truncated from {end} to {first}, because epoch 0 ends at {first} on leader"
)


def left(tmp_path: Path, *batches: list[str]) -> LeftLogs:
    """What is left of flights-3, which begins at offset 10; the last batch is cut short."""
    data, offset = b"", 10
    for values in batches:
        records = [Record(number, 1, None, value.encode(), ()) for number, value in enumerate(values)]
        data += bytes(build_batch(records, base_offset=offset))
        offset += len(values)
    directory = tmp_path / "flights-3"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"of an earlier segment")
    (directory / f"{10:020}.log").write_bytes(data + b"\0" * 70)
    return LeftLogs(tmp_path, "flights")


def test_all_that_was_discarded_is_told_apart(tmp_path: Path) -> None:
    found = left(tmp_path, ["a,b", "live-1"], ["warm-up"], ["orphan-0", "orphan-1"], ["live-2"])
    whole = "6 records that only this broker had: 2 written with acks=1, 1 sent to prepare those, "
    live = "2 live, not acknowledged, which their producer sends again, 1 loaded"
    assert found.explain(LINE.format(end=16, first=10)) == whole + live
    assert found.explain(LINE.format(end=16, first=15)) == (
        "1 record that only this broker had: 1 live, not acknowledged, which its producer sends again"
    )


@pytest.mark.parametrize("line", [LINE.format(end=17, first=10), LINE.replace("flights", "others").format(end=16, first=15), "x"])
def test_nothing_is_said_of_what_cannot_be_read(tmp_path: Path, line: str) -> None:
    assert left(tmp_path, ["live-1"] * 6).explain(line) == ""
