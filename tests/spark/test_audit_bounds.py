"""Every bound of the audit's readers made small and crossed: it costs time, or is said; nothing is left out in silence."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.audited_clusters import audit, messages_of, three_alike, verdicts
from helpers.golden_logs import ROOT
from helpers.log_clusters import Partition, plain, write_broker
from helpers.log_fault_bases import BASES

from minikafka.spark import (
    directories,
    ledger,
    logical,
    metadata_log,
    metadata_snapshots,
    planning,
    quorum,
    scan,
    sink_transaction,
    source_reading,
    source_times,
    sources,
)
from minikafka.spark.directories import SourceError, find_log_directories
from minikafka.spark.logformat import CODECS, FormatError
from minikafka.spark.produce_errors import ProduceFailed
from minikafka.spark.records import decompress
from minikafka.spark.sink_transaction import SinkTransaction
from minikafka.spark.sources import Segment
from minikafka.wire.compression import CompressionType, compress

VOTER = ROOT / "kraft-dynamic" / "voter-1" / "__cluster_metadata-0"


@pytest.mark.parametrize("cells_max", [4, 64])
def test_a_long_log_has_no_more_cells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cells_max: int) -> None:
    """64 GiB in 64 segments of a million offsets: larger cells, not more of them."""
    monkeypatch.setattr(sources, "CELLS_MAX", cells_max)
    write_broker(tmp_path / "b1", 1, [Partition("t-0", [plain(0)])])
    replica = planning.make_plan([str(tmp_path / "b1")]).replicas["t", 0][0]
    replica.segments = [Segment(number << 20, 1 << 30, ()) for number in range(64)]
    assert cells_max // 4 <= (64 << 20) >> sources._cell_shift([replica]) <= cells_max


@pytest.mark.parametrize("window_bytes", [1, 61, 100, 1000])
def test_batches_larger_than_a_window(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, window_bytes: int) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", window_bytes)
    monkeypatch.setattr(scan, "RECORDS_WINDOW_BYTES", window_bytes)

    def change(broker: int, one: Partition) -> None:
        if broker == 3:
            one.batches[30] = plain(30, text="w")

    batches = [plain(offset) for offset in range(40)]
    for level in ("batches", "records"):
        assert audit(three_alike(tmp_path / f"same-{level}", batches), level=level).outcome == "PASS"
        result = audit(three_alike(tmp_path / f"other-{level}", batches, change), level=level)
        assert [(one.check, one.offset) for one in result.findings.kept] == [("replica-differs", 30)]


@pytest.mark.parametrize("window_bytes", [1, 200])
def test_a_look_up_by_time_turns_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, window_bytes: int) -> None:
    monkeypatch.setattr(source_times, "WINDOW_BYTES", window_bytes)
    monkeypatch.setattr(source_reading, "WINDOW_BYTES", window_bytes)
    path = Partition("t-0", [plain(offset, time_ms=1000 + offset) for offset in range(40)]).write(tmp_path)
    held: Any = SimpleNamespace(path=str(path), topic="t", partition=0, log_start=0)
    assert [source_times.in_files(held, time) for time in (0, 1000, 1033, 2000)] == [0, 0, 33, -1]


@pytest.mark.parametrize("records", [1, 7, 10**6])
def test_keys_are_compared_in_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, records: int) -> None:
    """One key's newest value is another one on a replica."""
    monkeypatch.setattr(logical, "RECORDS_A_PASS", records)
    BASES["compacted"].write(tmp_path / "sound")
    assert audit(tmp_path / "sound").outcome == "PASS"
    BASES["compacted"].write(tmp_path / "other")
    broken = 0
    for broker in (1, 2):  # one that was never cleaned, and one that was
        segment = sorted((tmp_path / "other" / f"b{broker}" / "t-0").glob("*.log"))[-1]
        data = bytearray(segment.read_bytes())
        broken += data.count(b"v59")
        segment.write_bytes(data.replace(b"v59", b"v58") if broker == 2 else data)
    assert broken == 2 and audit(tmp_path / "other").exit_code == 1


def test_a_snapshot_larger_than_is_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(metadata_snapshots.check_snapshots(str(VOTER))) == []
    monkeypatch.setattr(metadata_log, "SNAPSHOT_BYTES_MAX", 1000)
    monkeypatch.setattr(quorum, "SNAPSHOT_BYTES_MAX", 1000)
    found = list(metadata_snapshots.check_snapshots(str(VOTER)))
    assert {one.check for one in found} == {"metadata-snapshot"} and "larger than 1000 bytes" in found[0].message
    assert any(quorum.read_node("1", str(VOTER)).voters.values()), "the voters stand at the beginning, and in smaller snapshots"


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD])
def test_records_that_decompress_to_more_than_is_held(codec: CompressionType) -> None:
    data = compress(codec, bytes(5000))
    assert bytes(decompress(int(codec), memoryview(data), 5000)) == bytes(5000)
    with pytest.raises(FormatError):
        decompress(int(codec), memoryview(data), 4999)
    assert len(CODECS) == 5


def test_log_directories_are_sought_so_deep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_broker(tmp_path / "1" / "2" / "3", 1, [Partition("t-0", [plain(0)])])
    assert find_log_directories([str(tmp_path / "1")]) == [str(tmp_path / "1" / "2" / "3")]
    with pytest.raises(SourceError, match="no log directory"):
        find_log_directories([str(tmp_path)])
    monkeypatch.setattr(directories, "DEPTH_MAX", 3)
    assert find_log_directories([str(tmp_path)]) == [str(tmp_path / "1" / "2" / "3")]


@pytest.mark.parametrize("kept", [1, 3, 100])
def test_more_records_differ_from_the_ledger_than_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: int) -> None:
    """Those that differ are counted; those that are missing are told as stretches, all of them."""
    monkeypatch.setattr(ledger, "KEPT_MAX", kept)
    three_alike(tmp_path / "cluster", [plain(offset) for offset in range(10)])
    rows = [{"topic": "t", "partition": 0, "offset": offset, "value": "another"} for offset in range(20)]
    (tmp_path / "acked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = audit(tmp_path / "cluster", acked=(str(tmp_path / "acked.jsonl"),))
    assert (result.exit_code, verdicts(result)["t-0"]) == (1, "LOST")
    assert any("10" in text for text in messages_of(result, "acked-differs"))
    assert any("10..19" in text for text in messages_of(result, "acked-missing"))


def test_a_failed_task_gives_its_abort_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that does not answer holds nobody up for longer."""
    monkeypatch.setattr(sink_transaction, "ABORT_MS", 10)
    sink = SinkTransaction("127.0.0.1:1", "t", "name", 0)
    monkeypatch.setattr(sink.producer, "abort", lambda: asyncio.Event().wait())
    try:
        with pytest.raises((TimeoutError, ProduceFailed)):
            sink.loop.run(sink._abort())
    finally:
        sink.close()
