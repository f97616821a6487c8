"""What a broker keeps beside its log: complete time indexes, the snapshot of an orderly stop, the file that says whose log it is."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c
from helpers.audited_clusters import audit, messages_of, three_alike, verdicts
from helpers.log_clusters import COMMIT, TRANSACTIONAL, Batch, Partition, lines, marker, plain
from helpers.log_fault_bases import BASES

TIME_MS = 1_700_000_000_000


def later_and_later() -> list[Batch]:
    """Batches of which each is younger than the one before."""
    return [plain(offset, time_ms=TIME_MS + offset) for offset in range(40)]


def without_last(data: bytes) -> bytes:
    return data[:-12]


def too_early(data: bytes) -> bytes:
    return data[:-12] + struct.pack(">qi", *struct.unpack_from(">qi", data, len(data) - 24))


def too_late(data: bytes) -> bytes:
    time, offset = struct.unpack_from(">qi", data, len(data) - 12)
    return data[:-12] + struct.pack(">qi", time + 1000, offset)


def with_one_behind(data: bytes) -> bytes:
    time, offset = struct.unpack_from(">qi", data, len(data) - 12)
    return data + struct.pack(">qi", time + 1000, offset)


@pytest.mark.parametrize("segment", [0, 20])
@pytest.mark.parametrize("change", [without_last, too_early, too_late, with_one_behind, lambda data: b""])
def test_a_time_index_covers_its_segment(tmp_path: Path, segment: int, change: Callable[[bytes], bytes]) -> None:
    """Look-ups by time go by the last entry of each segment."""
    paths = three_alike(tmp_path, later_and_later(), lambda broker, one: setattr(one, "bases", (0, 20)))
    for path in paths.iterdir():
        file = path / "t-0" / f"{segment:020d}.timeindex"
        file.write_bytes(change(file.read_bytes()))
    result = audit(paths)
    assert (result.exit_code, verdicts(result)) == (1, {"t-0": "CORRUPT"})
    assert "time-index-target" in {one.check for one in result.findings.kept}


def test_a_time_index_that_is_gone_beside_an_offset_index_is_not_made_again(tmp_path: Path) -> None:
    """A broker makes both again where the offset index is missing, and only then."""
    paths = three_alike(tmp_path, later_and_later(), lambda broker, one: setattr(one, "bases", (0, 20)))
    for path in paths.iterdir():
        (path / "t-0" / f"{0:020d}.timeindex").unlink()
    assert [one.check for one in audit(paths).findings.kept] == ["time-index-target"] * 3
    for path in paths.iterdir():
        (path / "t-0" / f"{0:020d}.index").unlink()
    assert audit(paths).outcome == "PASS"


def test_the_newest_segment_of_a_killed_broker_has_no_last_entry_yet(tmp_path: Path) -> None:
    paths = three_alike(tmp_path, later_and_later(), lambda broker, one: setattr(one, "bases", (0, 20)))
    for path in paths.iterdir():
        (path / ".kafka_cleanshutdown").unlink()
        file = path / "t-0" / f"{20:020d}.timeindex"
        file.write_bytes(file.read_bytes()[:-12])
    assert audit(paths).outcome == "PASS"


def test_records_without_a_time_need_no_entry(tmp_path: Path) -> None:
    assert audit(three_alike(tmp_path, [plain(offset, time_ms=-1) for offset in range(9)])).outcome == "PASS"


@pytest.mark.parametrize("brokers", [(1,), (1, 2, 3)])
@pytest.mark.parametrize("pattern", ["*.snapshot", f"{40:020d}.snapshot"])
def test_an_orderly_stop_leaves_a_snapshot_at_the_end(tmp_path: Path, brokers: tuple[int, ...], pattern: str) -> None:
    def write(name: str, is_clean: bool) -> Path:
        folder = three_alike(tmp_path / name, later_and_later(), lambda broker, one: setattr(one, "bases", (0, 20)))
        for broker in brokers:
            for file in (folder / f"b{broker}" / "t-0").glob(pattern):
                file.unlink()
        for path in folder.iterdir() if not is_clean else ():
            (path / ".kafka_cleanshutdown").unlink()
        return folder

    result = audit(write("stopped", True))
    assert (result.exit_code, verdicts(result)) == (1, {"t-0": "CORRUPT"})
    assert [(one.check, one.offset) for one in result.findings.kept] == [("producer-snapshot", 40)] * len(brokers)
    assert audit(write("killed", False)).outcome == "PASS"


@pytest.mark.parametrize(("position", "size"), [(40, 1), (8, 2), (10, 4), (14, 8), (22, 4), (26, 8), (34, 4), (38, 8)])
def test_each_field_of_a_snapshot_is_held_against_the_log(tmp_path: Path, position: int, size: int) -> None:
    """Producer 7 wrote a transaction and goes on; one field of what is kept of it is off by one, on every replica."""
    batches = [Batch(0, [(0, None, b"a")], 0, TIME_MS, 7, 0, 0, TRANSACTIONAL), marker(1, COMMIT, 7)]
    batches.append(Batch(2, [(0, None, b"b")], 0, TIME_MS + 5, 7, 0, 1, TRANSACTIONAL))
    paths = three_alike(tmp_path, batches)
    for path in paths.iterdir():
        file = path / "t-0" / f"{3:020d}.snapshot"
        data = bytearray(file.read_bytes())
        at = 10 + position
        value = int.from_bytes(data[at : at + size], "big", signed=True) + 1
        data[at : at + size] = value.to_bytes(size, "big", signed=True)
        struct.pack_into(">I", data, 2, crc32c(memoryview(data)[6:]))
        file.write_bytes(data)
    result = audit(paths)
    assert result.exit_code == 1 and {one.check for one in result.findings.kept} <= {"producer-replay", "producer-snapshot"}


@pytest.mark.parametrize("brokers", [(2,), (1, 2, 3)])
def test_a_log_that_does_not_say_whose_it_is(tmp_path: Path, brokers: tuple[int, ...]) -> None:
    """A broker takes it for a stray one; the file is written before the first record."""
    BASES["plain"].write(tmp_path / "cluster")
    for broker in brokers:
        (tmp_path / "cluster" / f"b{broker}" / "t-0" / "partition.metadata").unlink()
    result = audit(tmp_path / "cluster")
    found = [(one.check, one.brokers) for one in result.findings.kept]
    assert result.exit_code == 1 and found == [("partition-metadata", (str(broker),)) for broker in brokers]


def test_an_empty_log_may_not_know_it_yet(tmp_path: Path) -> None:
    """A broker was killed between making the directory and writing the file."""

    def change(broker: int, one: Partition) -> None:
        if broker == 3:
            one.batches, one.high_watermark = [], 0

    paths = three_alike(tmp_path, later_and_later(), change)
    for path in paths.iterdir():
        (path / ".kafka_cleanshutdown").unlink()
    (paths / "b3" / "t-0" / "partition.metadata").unlink()
    assert "partition-metadata" not in {one.check for one in audit(paths).findings.kept}


@pytest.mark.parametrize("segment", [0, 20])
@pytest.mark.parametrize(("suffix", "entry"), [(".index", 8), (".timeindex", 12), (".txnindex", 34)])
def test_a_closed_index_ends_with_its_last_entry(tmp_path: Path, segment: int, suffix: str, entry: int) -> None:
    """A broker takes zeros behind it for entries: the segment's latest time would be 1970, so that retention removes it, and look-ups by
    time pass over it. Written or left out as a hole is the same."""
    paths = three_alike(tmp_path, later_and_later(), lambda broker, one: setattr(one, "bases", (0, 20)))
    file = paths / "b2" / "t-0" / f"{segment:020d}{suffix}"
    size = file.stat().st_size if file.exists() else 0
    with file.open("ab") as opened:
        opened.truncate(size + 100 * entry)
    result = audit(paths)
    assert result.exit_code == 1
    assert f"{100 * entry} zero bytes" in messages_of(result, "index-format")[0]
    for path in paths.iterdir():
        (path / ".kafka_cleanshutdown").unlink()
    assert audit(paths).outcome == ("FAIL" if segment == 0 else "PASS"), "the newest one of a broker that goes on is preallocated"


@pytest.mark.parametrize(("segment", "found"), [(0, True), (20, False)])
@pytest.mark.parametrize("change", [without_last, lambda data: data + bytes(1200)])
def test_the_newest_index_of_a_metadata_log_may_be_that_of_a_log_that_goes_on(
    tmp_path: Path, change: Callable[[bytes], bytes], segment: int, found: bool
) -> None:
    """Apache Kafka 4.4.0 leaves it so when it is stopped in good order: preallocated, and without its last entry."""
    paths = three_alike(tmp_path, later_and_later(), lambda broker, one: setattr(one, "bases", (0, 20)))
    for path in paths.iterdir():
        (path / "t-0").rename(path / "__cluster_metadata-0")
    file = paths / "b2" / "__cluster_metadata-0" / f"{segment:020d}.timeindex"
    file.write_bytes(change(file.read_bytes()))
    checks = {one.check for one in audit(paths).findings.kept}
    assert bool(checks & {"index-format", "time-index-target"}) == found


def test_the_first_record_may_be_of_1970(tmp_path: Path) -> None:
    """Its entry in the time index is all zeros."""
    batches = [plain(offset, time_ms=0) for offset in range(40)]
    assert audit(three_alike(tmp_path, batches, lambda broker, one: setattr(one, "bases", (0, 20)))).outcome == "PASS"


@pytest.mark.parametrize(("recovery_point", "outcome"), [(20, "FAIL"), (19, "PASS"), (0, "PASS"), (None, "PASS")])
@pytest.mark.parametrize("change", [without_last, lambda data: data[:-5], lambda data: data + bytes(1200), lambda data: bytes(len(data))])
def test_indexes_beyond_the_recovery_point_of_a_killed_broker_are_made_anew(
    tmp_path: Path, change: Callable[[bytes], bytes], recovery_point: int | None, outcome: str
) -> None:
    """After a power failure they may be torn, or not on disk at all."""
    paths = three_alike(tmp_path, later_and_later(), lambda broker, one: setattr(one, "bases", (0, 20)))
    for path in paths.iterdir():
        (path / ".kafka_cleanshutdown").unlink()
        point = path / "recovery-point-offset-checkpoint"
        point.unlink() if recovery_point is None else point.write_text(lines([f"t 0 {recovery_point}"]))
    file = paths / "b2" / "t-0" / f"{0:020d}.timeindex"
    file.write_bytes(change(file.read_bytes()))
    assert audit(paths).outcome == outcome
