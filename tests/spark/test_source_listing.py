"""What a driver reads to know what there is, in bytes: the end of an index and the batches behind it, not the log."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from helpers import partition_files as files  # noqa: E402
from helpers.batches import batch, marker  # noqa: E402
from helpers.log_clusters import Partition, plain, write_broker  # noqa: E402
from helpers.partition_files import high_watermarks, one_by_one, partition  # noqa: E402

from minikafka.spark import source_files, source_listing, source_ranges, source_reading, source_rows  # noqa: E402
from minikafka.spark.logformat import Batches  # noqa: E402
from minikafka.spark.source_listing import available  # noqa: E402
from minikafka.spark.source_loss import DataLossError  # noqa: E402
from minikafka.spark.source_options import SourceOptions  # noqa: E402
from minikafka.spark.source_reading import read_range  # noqa: E402
from minikafka.spark.source_transactions import StableOffsets  # noqa: E402

SCHEMA = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
RECORDS = 20_000


class Bytes:
    """What this process read from files, by the kernel's count."""

    read = 0


@contextmanager
def counted() -> Iterator[Bytes]:
    def now() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    found = Bytes()
    overhead = -now() + now()
    before = now()
    yield found
    found.read = now() - before - overhead


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20,000 records in one segment of 23 MB, a batch each."""
    made = files.log_directory(tmp_path_factory.mktemp("large") / "b1")
    batches = [batch(b"x" * 1000, base_offset=n, epoch=0, timestamp=1_000_000 + n) for n in range(RECORDS)]
    partition(made, "t-0", {0: batches})
    with (made / "t-0" / f"{0:020d}.index").open("ab") as index:
        index.truncate(10 << 20)  # as an active segment's, preallocated
    high_watermarks(made, t=RECORDS)
    few = parsed(made, subscribe="t", endingoffsets='{"t": {"0": 1}}')
    read = [rows for one in source_ranges.batch_ranges(few) for rows in read_range(one, "records", SCHEMA)]
    assert [rows.num_rows for rows in read] == [1], "all that is needed is imported"
    return made


def parsed(directory: Path, **options: str) -> SourceOptions:
    return SourceOptions.parse({"logdirs": str(directory), **options})


def test_the_end_of_a_log_costs_its_last_piece(large: Path) -> None:
    with counted() as bytes_:
        assert available(parsed(large)).bounds == {("t", 0): (0, RECORDS)}
    assert 0 < bytes_.read < 64 << 10


def test_a_range_is_read_from_where_it_begins(large: Path) -> None:
    options = parsed(large, minpartitions="8")
    work = source_ranges.batch_ranges(options)
    assert [one.begin for one in work] == [*range(0, RECORDS, RECORDS // 8)]
    size = (large / "t-0" / f"{0:020d}.log").stat().st_size
    for wanted in work:
        with counted() as bytes_:
            found = [offset for rows in read_range(wanted, "records", SCHEMA) for offset in rows["offset"].to_pylist()]
        assert found == [*range(wanted.begin, wanted.end)]
        assert bytes_.read < size // 8 + source_reading.WINDOW_BYTES + (64 << 10)


def test_large_segments_are_cut_by_their_index(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_ranges, "SPLIT_BYTES", 1 << 20)
    with counted() as bytes_:
        work = source_ranges.batch_ranges(parsed(large))
    size = (large / "t-0" / f"{0:020d}.log").stat().st_size
    assert len(work) == round(size / (1 << 20)) and bytes_.read < 256 << 10
    assert [one.end for one in work[:-1]] == [one.begin for one in work[1:]]
    assert (work[0].begin, work[-1].end) == (0, RECORDS)
    each = [one.end - one.begin for one in work]
    assert max(each) < 1.6 * min(each)
    found = [offset for one in work for rows in read_range(one, "records", SCHEMA) for offset in rows["offset"].to_pylist()]
    assert found == [*range(RECORDS)]


def test_small_segments_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = files.log_directory(tmp_path / "b1")
    partition(made, "t-0", {base: one_by_one(base, base + 100) for base in range(0, 1000, 100)})
    high_watermarks(made, t=1000)
    assert len(source_ranges.batch_ranges(parsed(made))) == 1
    size = (made / "t-0" / f"{0:020d}.log").stat().st_size
    monkeypatch.setattr(source_ranges, "SPLIT_BYTES", 3 * size)
    assert [(one.begin, one.end) for one in source_ranges.batch_ranges(parsed(made))] == [(0, 300), (300, 600), (600, 900), (900, 1000)]


def test_a_point_in_time_is_found_by_the_time_index(large: Path) -> None:
    for time in (1_000_000, 1_000_000 + 10_000, 1_000_000 + 19_999):
        with counted() as bytes_:
            options = parsed(large, startingtimestamp=str(time))
            assert source_ranges.starting(options, available(options), "earliest") == {("t", 0): time - 1_000_000}
        assert bytes_.read < 2 << 20


def test_without_an_index_the_headers_are_walked(large: Path, tmp_path: Path) -> None:
    made = files.log_directory(tmp_path / "b1")
    batches = [batch(b"x" * 100_000, base_offset=n, epoch=0) for n in range(100)]
    partition(made, "t-0", {0: batches})
    (made / "t-0" / f"{0:020d}.index").unlink()
    (made / "t-0" / f"{0:020d}.timeindex").unlink()
    high_watermarks(made, t=100)
    with counted() as bytes_:
        assert available(parsed(made)).bounds == {("t", 0): (0, 100)}
    assert bytes_.read < 100 * source_files.PIECE_BYTES + (64 << 10), "10 MB of log: batches larger than a piece are not read"
    work = source_ranges.batch_ranges(parsed(made, subscribe="t", startingoffsets='{"t": {"0": 50}}'))
    assert [o for one in work for rows in read_range(one, "records", SCHEMA) for o in rows["offset"].to_pylist()] == [*range(50, 100)]
    at = parsed(made, startingtimestamp="1")
    assert source_ranges.starting(at, available(at), "earliest") == {("t", 0): 0}


def test_a_preallocated_index_without_entries(tmp_path: Path) -> None:
    made = files.log_directory(tmp_path / "b1")
    partition(made, "t-0", {0: one_by_one(0, 10)})
    for name in ("index", "timeindex"):
        (made / "t-0" / f"{0:020d}.{name}").write_bytes(bytes(1 << 20))
    high_watermarks(made, t=10)
    with counted() as bytes_:
        assert available(parsed(made)).bounds == {("t", 0): (0, 10)}
    assert bytes_.read < 16 << 10


def test_an_index_that_points_behind_a_log_that_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENTRIES_TRIED_MAX: a few of its last entries are tried, then the segment is walked."""
    made = files.log_directory(tmp_path / "b1")
    path = partition(made, "t-0", {0: one_by_one(0, 1000)}, interval_bytes=80) / f"{0:020d}.log"
    size = len(one_by_one(0, 1)[0])
    high_watermarks(made, t=300)
    os.truncate(path, 300 * size + 11)
    for tried in (1, 5, 1000):
        monkeypatch.setattr(source_files, "ENTRIES_TRIED_MAX", tried)
        assert available(parsed(made)).bounds == {("t", 0): (0, 300)}


@pytest.mark.parametrize("piece", [61, 100, source_files.PIECE_BYTES])
def test_open_transactions_are_followed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(source_files, "PIECE_BYTES", piece)
    made = files.log_directory(tmp_path / "b1")
    opened = batch(b"a", base_offset=500, epoch=0, producer=(7, 0, 0), attributes=0x10)
    batches = [*one_by_one(0, 500), opened, *one_by_one(501, 2000)]
    path = partition(made, "t-0", {0: batches})
    high_watermarks(made, t=2000)
    options, stable = parsed(made, **{"kafka.isolation.level": "read_committed"}), StableOffsets()
    assert available(options, stable).bounds == {("t", 0): (0, 500)}
    files.write_segment(path, 0, [*batches, *one_by_one(2000, 2010), marker(7, 0, abort=False, base_offset=2010, epoch=0)])
    high_watermarks(made, t=2010)
    with counted() as bytes_:
        assert available(options, stable).bounds == {("t", 0): (0, 500)}
    assert bytes_.read < 64 << 10, "only what is new"
    high_watermarks(made, t=2011)
    assert available(options, stable).bounds == available(options).bounds == {("t", 0): (0, 2011)}
    high_watermarks(made, t=1000)
    assert available(options, stable).bounds == {("t", 0): (0, 500)}, "an end that went back is followed anew"


def test_many_rows_come_in_batches_of_at_most_so_many(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_rows, "ROWS_A_BATCH", 1000)
    (wanted,) = source_ranges.batch_ranges(parsed(large))
    rows = list(read_range(wanted, "records", SCHEMA))
    assert max(one.num_rows for one in rows) == 1000 and sum(one.num_rows for one in rows) == RECORDS
    assert [offset for one in rows for offset in one["offset"].to_pylist()] == [*range(RECORDS)]


def test_partitions_are_asked_for_in_requests_of_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    from minikafka.spark.fetch_client import ClusterState, PartitionState

    asked: list[int] = []

    class Broker:
        place = "b:1"

        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> Broker:
            return self

        def __exit__(self, *_: object) -> None: ...

        def earliest(self, keys: list[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
            asked.append(len(keys))
            return {key: (0, 5) for key in keys}

        def latest(self, keys: list[tuple[str, int]], committed: bool) -> dict[tuple[str, int], tuple[int, int]]:
            return {key: (0, 9 + key[1]) for key in keys}

        def topic_ids(self, topics: list[str]) -> dict[str, str]:
            return dict.fromkeys(topics, "id")

    count = 2 * source_listing.PARTITIONS_A_REQUEST + 7
    state = ClusterState("c", {1: ("b", 1)}, {("t", number): PartitionState(1, 0, [1], [1]) for number in range(count)}, [])
    monkeypatch.setattr(source_listing, "first_answer", lambda *_: state)
    monkeypatch.setattr(source_listing, "Connection", Broker)
    found = available(SourceOptions.parse({"kafka.bootstrap.servers": "b:1", "subscribe": "t"}))
    assert found.bounds == {("t", number): (5, 9 + number) for number in range(count)} and found.topic_ids == {"t": "id"}
    assert asked == [source_listing.PARTITIONS_A_REQUEST] * 2 + [7]


@pytest.mark.parametrize("at_once", [1, 5000, source_rows.COMPRESSED_BYTES])
def test_compressed_batches_are_decoded_a_few_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    from minikafka.spark.records import decode_records
    from minikafka.wire.batch import build_batch, set_base_offset, set_partition_leader_epoch
    from minikafka.wire.compression import CompressionType
    from minikafka.wire.record import Record

    batches = []
    for base in range(0, 2000, 20):
        records = [Record(n, 1_000_000 + n, None, files.value(base + n) * 20, ()) for n in range(20)]
        made = build_batch(records, compression=CompressionType.GZIP)
        set_base_offset(made, 0, base)
        set_partition_leader_epoch(made, 0, 0)
        batches.append(made)
    sizes = [len(one) for one in batches]
    directory = files.log_directory(tmp_path / "b1")
    partition(directory, "t-0", {0: batches})
    high_watermarks(directory, t=2000)
    together: list[int] = []

    def decode(of: Batches, chosen: Any) -> Any:
        together.append(int(of.size[chosen].sum()))
        return decode_records(of, chosen)

    monkeypatch.setattr(source_rows, "COMPRESSED_BYTES", at_once)
    monkeypatch.setattr(source_rows, "decode_records", decode)
    (wanted,) = source_ranges.batch_ranges(parsed(directory))
    assert [offset for rows in read_range(wanted, "records", SCHEMA) for offset in rows["offset"].to_pylist()] == [*range(2000)]
    assert sum(together) == sum(sizes) and max(together) <= max(at_once, *sizes)
    assert (len(together) == 1) == (at_once > sum(sizes))


STOPPED = "its broker was stopped in order, but its checkpoint of high watermarks leaves the partition out"


def lose(root: Path, lost: str) -> None:
    """Take something of t-0 away."""
    if "segment" in lost:
        for file in (root / "t-0").glob(f"{0:020d}.*"):
            file.rename(f"{file}.deleted") if "waits" in lost else file.unlink()
    if "line" in lost:
        (root / "replication-offset-checkpoint").write_text("0\n0\n")
    if "cut" in lost:
        (root / "t-0" / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {5 if 'log start' in lost else 10}\n")
    if "log start" in lost:
        (root / "log-start-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    if "records" in lost:
        for base in (10, 20):
            (root / "t-0" / f"{base:020d}.log").unlink()
        (root / "t-0" / f"{0:020d}.log").write_bytes(b"")


@pytest.mark.parametrize(("lost", "is_clean", "why"), [
    ("first segment", True, "offsets 0 to 9 are missing: the first segment begins at 10, the first leader epoch at 0"),
    ("line", True, "offsets 0 to 29 are missing: " + STOPPED), ("first segment and line", True, "offsets 10 to 29 are missing: " + STOPPED),
    ("nothing", True, ""), ("first segment", False, ""), ("line", False, ""), ("first segment, epochs are cut", True, ""),
    ("first segment, which waits to be removed", True, ""), ("records and line", True, ""),
    ("log start", True, "offsets 0 to 4 are missing: by log-start-offset-checkpoint the log begins at 5, the first leader epoch at 0"),
    ("log start, epochs are cut", True, ""), ("log start", False, ""),
])  # fmt: skip
def test_what_a_broker_that_was_stopped_in_order_must_have(tmp_path: Path, lost: str, is_clean: bool, why: str) -> None:
    """A killed one may have moved its log start, or not written its first high watermark. An orderly stop may come between the deletion of
    a segment and the write of the epochs."""
    one = Partition("t-0", [plain(at) for at in range(30)], (0, 10, 20))
    root = write_broker(tmp_path / "b1", 1, [one], clean=is_clean)
    lose(root, lost)
    options = parsed(root, subscribe="t")
    if not why:
        source_ranges.batch_ranges(options)
        return
    with pytest.raises(DataLossError, match=why):
        source_ranges.batch_ranges(options)
    read = source_ranges.batch_ranges(parsed(root, subscribe="t", failondataloss="false"))
    assert [(one.begin, one.end) for one in read] == ([] if "line" in lost else [(5 if "log start" in lost else 10, 30)])


def test_more_leader_epochs_than_a_mebibyte_hide_no_lost_beginning(tmp_path: Path) -> None:
    entries = 200_000
    root = write_broker(tmp_path / "b1", 1, [Partition("t-0", [plain(at) for at in range(entries, entries + 30)], (entries,))], clean=True)
    lines = "\n".join(f"{number} {number}" for number in range(entries))
    (root / "t-0" / "leader-epoch-checkpoint").write_text(f"0\n{entries}\n{lines}\n")
    with pytest.raises(DataLossError, match=f"the first segment begins at {entries}, the first leader epoch at 0"):
        source_ranges.batch_ranges(parsed(root, subscribe="t"))


@pytest.mark.parametrize(("starting", "is_lost"), [
    ({"startingoffsets": "earliest"}, True),
    ({"startingoffsets": '{"t": {"0": -2}}'}, True),
    ({"startingoffsets": '{"t": {"0": 3}}'}, True),
    ({"startingtimestamp": "0"}, True),
    ({"startingoffsets": '{"t": {"0": 10}}'}, False),
    ({"startingoffsets": '{"t": {"0": 15}}'}, False),
    ({"startingtimestamp": "1015"}, False),
])  # fmt: skip
def test_a_lost_beginning_fails_those_who_want_it(tmp_path: Path, starting: dict[str, str], is_lost: bool) -> None:
    root = files.log_directory(tmp_path / "b1")
    partition(root, "t-0", {base: one_by_one(base, base + 10) for base in (0, 10, 20)})
    high_watermarks(root, t=30)
    lose(root, "first segment")
    options = parsed(root, subscribe="t", **{name: value.replace("1015", str(1_000_015)) for name, value in starting.items()})
    if is_lost:
        with pytest.raises(DataLossError, match="missing"):
            source_ranges.batch_ranges(options)
    else:
        assert {(one.begin, one.end) for one in source_ranges.batch_ranges(options)} <= {(10, 30), (15, 30)}


def test_another_replica_has_the_beginning(tmp_path: Path) -> None:
    for broker in (1, 2):
        lose(write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(at) for at in range(30)], (0, 10, 20))], clean=True),
             "first segment" if broker == 1 else "nothing")  # fmt: skip
    read = source_ranges.batch_ranges(SourceOptions.parse({"logdirs": str(tmp_path), "subscribe": "t"}))
    assert [(one.broker, one.begin, one.end) for one in read] == [("2", 0, 30)]


def test_aborted_transactions_behind_an_entry_of_a_kafka_follower_are_found(tmp_path: Path) -> None:
    """The follower appended at once what one producer aborted, the beginning of its next transaction, and another producer's at 100: as
    last stable offset it noted 100. The next one ends in the next segment, and was read as committed."""
    entries = {0: (7, 0, 5, 100), 200: (7, 6, 203, 100)}
    for base, fields in entries.items():
        (tmp_path / f"{base:020d}.log").touch()
        (tmp_path / f"{base:020d}.txnindex").write_bytes(struct.pack(">hqqqq", 0, *fields))
    assert source_files.aborted_transactions(str(tmp_path), 0, 50) == ((7, 0, 5), (7, 6, 203))
    assert source_files.aborted_transactions(str(tmp_path), 0, 6) == ((7, 0, 5),)
