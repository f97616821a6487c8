"""The data source over log directories with something wrong: every record that a query wants is handed out, or it is refused or said."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")

from helpers import partition_files as files  # noqa: E402
from helpers.batches import batch  # noqa: E402
from helpers.partition_files import OTHER_ID, high_watermarks, one_by_one, partition  # noqa: E402

from minikafka.spark import source_ranges, source_reading  # noqa: E402
from minikafka.spark.directories import SourceError  # noqa: E402
from minikafka.spark.source_listing import available  # noqa: E402
from minikafka.spark.source_loss import CorruptBatchError, DataLossError  # noqa: E402
from minikafka.spark.source_options import OptionError, SourceOptions  # noqa: E402
from minikafka.spark.source_reading import read_range  # noqa: E402

SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
BATCHES = pa.schema([("baseOffset", pa.int64()), ("crcValid", pa.bool_())])


def offsets(directory: Path, **options: str) -> list[int]:
    """The offsets of a batch query; each has the value that belongs to it."""
    found = []
    for wanted in source_ranges.batch_ranges(SourceOptions.parse({"logdirs": str(directory), **options})):
        for rows in read_range(wanted, "records", SCHEMA):
            for row in rows.to_pylist():
                assert row["value"] == files.value(row["offset"])
                found.append(row["offset"])
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """300 records of t-0 in three segments."""
    made = files.log_directory(tmp_path / "b1")
    partition(made, "t-0", {base: one_by_one(base, base + 100) for base in (0, 100, 200)})
    high_watermarks(made, t=300)
    return made


def rot(directory: Path) -> None:
    path = directory / "t-0" / f"{100:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + 70] ^= 1  # in the records of the batch in the middle
    path.write_bytes(data)


def missing(directory: Path) -> None:
    (directory / "t-0" / f"{100:020d}.log").unlink()


def cut(directory: Path) -> None:
    path = directory / "t-0" / f"{100:020d}.log"
    os.truncate(path, path.stat().st_size - 40)


def cut_between_batches(directory: Path) -> None:
    path = directory / "t-0" / f"{100:020d}.log"
    os.truncate(path, path.stat().st_size - len(one_by_one(199, 200)[0]))


def zeros_inside(directory: Path) -> None:
    path = directory / "t-0" / f"{100:020d}.log"
    size = len(one_by_one(100, 101)[0])
    data = bytearray(path.read_bytes())
    data[50 * size : 51 * size] = bytes(size)
    path.write_bytes(data)


def tail_lost(directory: Path) -> None:
    path = directory / "t-0" / f"{200:020d}.log"
    os.truncate(path, 50 * len(one_by_one(200, 201)[0]))


def test_valid_logs_are_read(directory: Path) -> None:
    assert offsets(directory) == list(range(300))
    at = {"subscribe": "t", "startingOffsets": '{"t": {"0": 150}}', "endingOffsets": '{"t": {"0": 250}}'}
    assert offsets(directory, **at) == list(range(150, 250))


@pytest.mark.parametrize(("fault", "text", "left"), [
    (missing, r"t-0: offsets 100 to 199 are missing: no batch holds them.*b1/t-0\)", {*range(100), *range(200, 300)}),
    (cut, r"t-0: offset 199 is missing: no whole batch at byte \d+ in a file of \d+ bytes \(.*/00000000000000000100.log\)",
     {*range(199), *range(200, 300)}),
    (cut_between_batches, r"t-0: offset 199 is missing: no batch holds them.*b1/t-0\)", {*range(199), *range(200, 300)}),
    (zeros_inside, r"t-0: offsets 150 to 199 are missing: no whole batch at byte \d+.*0100.log", {*range(150), *range(200, 300)}),
    (tail_lost, r"t-0: offsets 250 to 299 are missing: the high watermark of broker 1 is 300, but the log ends at 250 \(.*b1/t-0\)",
     set(range(250))),
])  # fmt: skip
def test_records_that_are_gone_are_refused_or_said(
    directory: Path, caplog: pytest.LogCaptureFixture, fault: Callable[[Path], None], text: str, left: set[int]
) -> None:
    fault(directory)
    with pytest.raises(DataLossError, match=text) as refused:
        offsets(directory)
    assert "failOnDataLoss=false" in str(refused.value), "what to do"
    with caplog.at_level(logging.WARNING, "minikafka.spark"):
        assert set(offsets(directory, failOnDataLoss="false")) == left
    assert re.search("skipped: " + text, caplog.text)


def test_rot_is_refused_whatever_is_set(directory: Path) -> None:
    rot(directory)
    for setting in ("true", "false"):
        text = r"t-0: the batch at offset 150 is corrupt: its checksum is 0x\w+, its bytes give 0x\w+ \(.*0100.log, byte \d+\)"
        with pytest.raises(CorruptBatchError, match=text) as refused:
            offsets(directory, failOnDataLoss=setting)
        assert "up to offset 150 with endingOffsets, and from 151 with startingOffsets" in str(refused.value)
    assert offsets(directory, subscribe="t", endingOffsets='{"t": {"0": 150}}') == list(range(150))
    assert offsets(directory, subscribe="t", startingOffsets='{"t": {"0": 151}}') == list(range(151, 300))
    wanted = source_ranges.batch_ranges(SourceOptions.parse({"logdirs": str(directory), "mode": "batches"}))
    rows = [row for one in wanted for rows in read_range(one, "batches", BATCHES) for row in rows.to_pylist()]
    assert [row["baseOffset"] for row in rows if not row["crcValid"]] == [150], "mode=batches shows it"


def test_rot_is_handed_out_with_check_crcs_off(directory: Path) -> None:
    rot(directory)
    (wanted,) = source_ranges.batch_ranges(SourceOptions.parse({"logdirs": str(directory), "kafka.check.crcs": "false"}))
    assert sum(rows.num_rows for rows in read_range(wanted, "records", SCHEMA)) == 300


def test_an_older_format_and_offsets_that_go_back_are_refused(directory: Path) -> None:
    old = batch(files.value(100), base_offset=100, epoch=0)
    old[16] = 1
    files.write_segment(directory / "t-0", 100, [old, *one_by_one(101, 200)])
    with pytest.raises(CorruptBatchError, match="magic byte 1, but only 2 is known"):
        offsets(directory)
    files.write_segment(directory / "t-0", 100, [*one_by_one(100, 150), *one_by_one(140, 200)])
    with pytest.raises(CorruptBatchError, match="the batch at offset 140 is corrupt: it comes after offset 149"):
        offsets(directory)


def test_a_compacted_log_has_gaps(directory: Path) -> None:
    files.write_segment(directory / "t-0", 100, one_by_one(100, 200)[::7])
    with pytest.raises(DataLossError, match=r"offsets 101 to 106 are missing.*cleaner-offset-checkpoint next to the directory"):
        offsets(directory)
    files.checkpoint(directory, "cleaner-offset-checkpoint", {"other-0": 5})
    with pytest.raises(DataLossError):
        offsets(directory)
    files.checkpoint(directory, "cleaner-offset-checkpoint", {"t-0": 200})
    assert offsets(directory) == [*range(100), *range(100, 200, 7), *range(200, 300)]
    cut(directory)
    with pytest.raises(DataLossError, match="no whole batch at byte"):
        offsets(directory)


def test_offsets_outside_of_the_log(directory: Path) -> None:
    files.checkpoint(directory, "log-start-offset-checkpoint", {"t-0": 50})
    (directory / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 50\n")
    before = {"subscribe": "t", "startingOffsets": '{"t": {"0": 10}}'}
    with pytest.raises(DataLossError, match="t-0: offsets 10 to 49 are missing: the log begins at 50"):
        offsets(directory, **before)
    assert offsets(directory, **before, failOnDataLoss="false") == list(range(50, 300))
    behind = {"subscribe": "t", "endingOffsets": '{"t": {"0": 310}}'}
    with pytest.raises(DataLossError, match="t-0: offsets 300 to 309 are missing: the log ends at 300"):
        offsets(directory, **behind)
    assert offsets(directory, **behind, failOnDataLoss="false") == list(range(50, 300))
    with pytest.raises(OptionError, match="t-0: the query begins at offset 400, after its end at 300"):
        offsets(directory, subscribe="t", startingOffsets='{"t": {"0": 400}}', failOnDataLoss="false")


def test_topics_and_partitions_that_are_not_there(directory: Path) -> None:
    with pytest.raises(SourceError, match=r"topic u does not exist in .*b1"):
        offsets(directory, subscribe="t,u")
    with pytest.raises(SourceError, match="t-1 does not exist"):
        offsets(directory, assign='{"t": [0, 1]}')


def test_retention_under_the_reader(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    for setting, fails in (("true", True), ("false", False)):
        (wanted,) = source_ranges.batch_ranges(SourceOptions.parse({"logdirs": str(directory), "failondataloss": setting}))
        for base in (0, 100):
            (directory / "t-0" / f"{base:020d}.log").rename(directory / "t-0" / f"{base:020d}.log.deleted")
        if fails:
            with pytest.raises(DataLossError, match="offsets 0 to 199 are missing: the log begins at 200"):
                list(read_range(wanted, "records", SCHEMA))
        else:
            assert sum(rows.num_rows for rows in read_range(wanted, "records", SCHEMA)) == 100
            assert "skipped: t-0: offsets 0 to 199" in caplog.text
        for base in (0, 100):
            (directory / "t-0" / f"{base:020d}.log.deleted").rename(directory / "t-0" / f"{base:020d}.log")


def test_a_topic_that_was_made_again_between_plan_and_task(directory: Path) -> None:
    (wanted,) = source_ranges.batch_ranges(SourceOptions.parse({"logdirs": str(directory)}))
    shutil.rmtree(directory / "t-0")
    with pytest.raises(DataLossError, match="offsets 0 to 299 are missing: the log ends earlier"):
        list(read_range(wanted, "records", SCHEMA))
    partition(directory, "t-0", {0: one_by_one(0, 300)}, topic_id=OTHER_ID)
    with pytest.raises(DataLossError, match=f"deleted and recreated \\(topic id {OTHER_ID}, it was {files.TOPIC_ID}"):
        list(read_range(wanted, "records", SCHEMA))


@pytest.mark.parametrize("window", [source_reading.WINDOW_BYTES, 200])
def test_a_cleaner_at_work_under_the_reader(directory: Path, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    """While the first segment is read the cleaner puts one in its place that holds what the second held."""
    monkeypatch.setattr(source_reading, "WINDOW_BYTES", window)
    files.checkpoint(directory, "cleaner-offset-checkpoint", {"t-0": 200})
    (wanted,) = source_ranges.batch_ranges(SourceOptions.parse({"logdirs": str(directory)}))
    rows = read_range(wanted, "records", SCHEMA)
    found = next(rows)["offset"].to_pylist()
    path = directory / "t-0" / f"{0:020d}.log"
    cleaned = path.with_suffix(".cleaned")
    cleaned.write_bytes(b"".join(one_by_one(0, 200)[::2]))
    cleaned.replace(path)
    (directory / "t-0" / f"{100:020d}.log").unlink()
    found += [offset for rest in rows for offset in rest["offset"].to_pylist()]
    assert found == [*range(100), *range(100, 200, 2), *range(200, 300)]


def test_a_segment_that_never_stays_ends_the_task(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LOOKS_MAX: listed, but gone when it is opened, again and again."""
    opened: list[str] = []

    def never(path: str) -> None:
        opened.append(path)
        raise FileNotFoundError(path)

    (wanted,) = source_ranges.batch_ranges(SourceOptions.parse({"logdirs": str(directory)}))
    monkeypatch.setattr(source_reading, "opened", never)
    with pytest.raises(DataLossError, match="offsets 0 to 99 are missing"):
        list(read_range(wanted, "records", SCHEMA))
    assert len(opened) == source_reading.LOOKS_MAX + 1


def test_an_index_that_lies_costs_time_not_records(directory: Path) -> None:
    index = directory / "t-0" / f"{100:020d}.index"
    at = {"subscribe": "t", "startingOffsets": '{"t": {"0": 150}}'}
    size = len(one_by_one(100, 101)[0])
    for position in (90 * size, 45 * size + 3, 1 << 30):
        index.write_bytes((40).to_bytes(4, "big") + position.to_bytes(4, "big"))
        assert offsets(directory, **at) == list(range(150, 300)), position
    last = directory / "t-0" / f"{200:020d}.index"
    for position in (90 * size + 5, 1 << 30):
        last.write_bytes((40).to_bytes(4, "big") + position.to_bytes(4, "big"))
        assert available(SourceOptions.parse({"logdirs": str(directory)})).bounds == {("t", 0): (0, 300)}, position


def test_a_copy_of_an_older_topic_of_the_name_is_not_taken(directory: Path, tmp_path: Path) -> None:
    other = files.log_directory(tmp_path / "b2", node=2)
    partition(other, "t-0", {0: one_by_one(0, 500)}, topic_id=OTHER_ID)
    high_watermarks(other, t=500)
    with pytest.raises(SourceError, match="copies of different topics with the same name"):
        available(SourceOptions.parse({"logdirs": f"{directory},{other}"}))
    (other / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {files.TOPIC_ID}\n")
    assert available(SourceOptions.parse({"logdirs": f"{directory},{other}"})).bounds == {("t", 0): (0, 500)}, "the longest committed one"


def test_records_that_a_batch_lacks_are_missed(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its checksum is right, and its offsets follow each other: only a cleaner leaves such a batch."""
    from helpers.log_clusters import Batch

    short = Batch(100, [(0, None, files.value(100)), (2, None, files.value(102))], last_delta=2).encode()
    files.write_segment(directory / "t-0", 100, [short, *one_by_one(103, 200)])
    with pytest.raises(DataLossError, match=r"100 to 102 are missing: the batch should hold 3 records and holds 2, and the cleaner"):
        offsets(directory)
    with caplog.at_level(logging.WARNING, "minikafka.spark"):
        assert offsets(directory, failondataloss="false") == [offset for offset in range(300) if offset != 101]
    assert "the batch should hold 3 records and holds 2" in caplog.text
    files.checkpoint(directory, "cleaner-offset-checkpoint", {"t-0": 200})
    assert len(offsets(directory)) == 299
