"""What no log can hold of a producer: a snapshot's row without a batch, records outside of an open transaction, a lost end of one."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from helpers.audited_clusters import BROKERS, audit, messages_of, registered_topic
from helpers.log_clusters import ABORT, COMMIT, TIME_MS, TRANSACTIONAL, Batch, Partition, marker, plain, write_broker

from minikafka.spark import scan

ROW = struct.Struct(">qhiqiqiq")


def data(base: int, sequence: int, producer: int = 7, attributes: int = TRANSACTIONAL, key: bytes = b"k") -> Batch:
    return Batch(base, [(0, key, b"%d" % base)], 0, TIME_MS + base, producer, 0, sequence, attributes)


def cluster(path: Path, batches: list[Batch], bases: tuple[int, ...] = (0,), start: int = 0, cleaned: int = 0) -> Path:
    log = registered_topic()
    if cleaned:
        log.config("t", "cleanup.policy", "compact")
    for broker in BROKERS:
        one = Partition("t-0", batches, bases, ((0, max(start, bases[0])),), log_start=start)
        write_broker(path / f"b{broker}", broker, [one], log.encode(), cleaned={"t-0": cleaned} if cleaned else None)
    return path


def add_row(snapshot: Path, row: tuple[int, ...]) -> None:
    """One producer more."""
    rows = snapshot.read_bytes()[10:] + ROW.pack(*row)
    body = struct.pack(">i", len(rows) // ROW.size) + rows
    snapshot.write_bytes(struct.pack(">hI", 1, crc32c(body)) + body)


@pytest.mark.parametrize(("begin", "cleaned", "is_legal"), [(0, 0, False), (10, 0, True), (0, 20, True)])
@pytest.mark.parametrize("brokers", [(1,), BROKERS])
def test_a_snapshot_knows_no_producer_of_which_a_whole_log_has_nothing(
    tmp_path: Path, begin: int, cleaned: int, is_legal: bool, brokers: tuple[int, ...]
) -> None:
    """Whoever gets this producer id would be fenced by its epoch. Retention and cleaners take a producer's last batch away."""
    cluster(tmp_path, [plain(at) for at in range(begin, 30)], (begin, 20), cleaned=cleaned)
    for broker in brokers:
        for snapshot in (tmp_path / f"b{broker}" / "t-0").glob("*.snapshot"):
            add_row(snapshot, (999, 32_000, -1, -1, 0, TIME_MS, -1, -1))
    result = audit(tmp_path)
    assert (result.exit_code, len(messages_of(result, "producer-replay"))) == ((0, 0) if is_legal else (1, 2 * len(brokers)))


@pytest.mark.parametrize(("begin", "since", "is_legal"), [(10, 5, True), (10, 11, False), (10, -1, False), (0, 0, True), (0, 1, False)])
def test_a_transaction_may_have_begun_before_the_log(tmp_path: Path, begin: int, since: int, is_legal: bool) -> None:
    """Retention deleted its first segment while it was open. The snapshots of later segments still know where it began."""
    batches = [data(at, at - begin) for at in range(begin, begin + 4)]
    cluster(tmp_path, [*batches, marker(begin + 4, COMMIT, 7)], (begin, begin + 2))
    path = tmp_path / "b1" / "t-0" / f"{begin + 2:020d}.snapshot"
    (row,) = ROW.iter_unpack(path.read_bytes()[10:])
    path.write_bytes(struct.pack(">hIi", 1, crc32c(struct.pack(">i", 0)), 0))
    add_row(path, (*row[:-1], since))
    result = audit(tmp_path)
    assert (result.exit_code, len(messages_of(result, "producer-replay"))) == ((0, 0) if is_legal else (1, 1))


OPEN = [data(0, 0), data(1, 0, 8), data(2, 1), marker(3, ABORT, 7), data(4, 1, 8, 0), marker(5, COMMIT, 8), data(6, 2, 8, 0),
        data(7, 2, 7, 0)]  # fmt: skip
CLOSED = [*OPEN[:4], data(4, 1, 8), *OPEN[5:]]


@pytest.mark.parametrize("bases", [(0,), (0, 4), (0, 4, 5), (0, 1, 2, 3, 4, 5, 6, 7)])
@pytest.mark.parametrize("window_bytes", [80, 1 << 20])
def test_nobody_writes_outside_of_an_open_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bases: tuple[int, ...], window_bytes: int
) -> None:
    """Segments and windows are cut anywhere; windows without a transaction are looked at all producers at once."""
    monkeypatch.setattr(scan, "WINDOW_BYTES", window_bytes)
    assert audit(cluster(tmp_path / "closed", CLOSED, bases)).outcome == "PASS"
    result = audit(cluster(tmp_path / "open", OPEN, bases))
    assert result.exit_code == 1
    texts = messages_of(result, "producer-transaction")
    assert texts == [f"{broker}: producer 8 wrote outside of its transaction, which is open since offset 1" for broker in BROKERS]
    assert {one.offset for one in result.findings.kept if one.check == "producer-transaction"} == {4}


@pytest.mark.parametrize(("cleaned", "is_legal"), [(0, False), (4, True)])
def test_a_snapshot_has_no_later_epoch_than_a_whole_log(tmp_path: Path, cleaned: int, is_legal: bool) -> None:
    """Of producer 7 there is but a marker, which began an epoch: it has no batch. A cleaner may have taken a later epoch's batches away."""
    cluster(tmp_path, [marker(0, COMMIT, 7, 1), *(plain(at) for at in range(1, 6))], (0, 4), cleaned=cleaned)
    path = tmp_path / "b1" / "t-0" / f"{6:020d}.snapshot"
    rows = [list(row) for row in ROW.iter_unpack(path.read_bytes()[10:])]
    path.write_bytes(struct.pack(">hIi", 1, crc32c(struct.pack(">i", 0)), 0))
    add_row(path, (rows[0][0], 8193, *rows[0][2:]))
    result = audit(tmp_path)
    assert (result.exit_code, len(messages_of(result, "producer-replay"))) == ((0, 0) if is_legal else (1, 1))


def numbered(base: int, epoch: int, sequence: int, attributes: int = 0) -> Batch:
    return replace(data(base, sequence, attributes=attributes), producer_epoch=epoch)


@pytest.mark.parametrize(("batches", "is_legal"), [
    ([numbered(0, 0, 0), numbered(1, 0, 1), numbered(2, 1, 0), numbered(3, 1, 1)], True),
    ([numbered(0, 0, 0), numbered(1, 0, 1), numbered(2, 1, 2), numbered(3, 1, 3)], False),
    ([numbered(0, 0, 0, TRANSACTIONAL), marker(1, COMMIT, 7, 1), numbered(2, 1, 0, TRANSACTIONAL), marker(3, COMMIT, 7, 2)], True),
    ([numbered(0, 0, 0, TRANSACTIONAL), marker(1, COMMIT, 7, 1), numbered(2, 1, 1, TRANSACTIONAL), marker(3, COMMIT, 7, 2)], False),
    ([numbered(0, 0, 0, TRANSACTIONAL), marker(1, COMMIT, 7), numbered(2, 0, 1, TRANSACTIONAL), marker(3, COMMIT, 7)], True),
    ([marker(0, COMMIT, 7, 3), numbered(1, 3, 9, TRANSACTIONAL), marker(2, COMMIT, 7, 3), plain(3)], True),
    ([numbered(0, 3, 9), numbered(1, 3, 10), plain(2), plain(3)], True),
])  # fmt: skip
@pytest.mark.parametrize("bases", [(0,), (0, 2), (0, 1, 2, 3)])
def test_a_producer_begins_each_epoch_with_its_first_sequence(
    tmp_path: Path, batches: list[Batch], is_legal: bool, bases: tuple[int, ...]
) -> None:
    """What a log has lost, and what a broker has forgotten, begins anywhere."""
    result = audit(cluster(tmp_path, batches, bases))
    assert (result.exit_code, len(messages_of(result, "producer-sequence"))) == ((0, 0) if is_legal else (1, 3))


END = struct.pack(">hi", 0, 0)


def key_of(kind: int, version: int = 0) -> bytes:
    return struct.pack(">hh", version, kind)


@pytest.mark.parametrize(("rows", "check"), [
    ([(0, key_of(COMMIT), END), (1, key_of(ABORT), END)], "batch-header"),
    ([(0, key_of(COMMIT, -1), END)], "txn-marker"),
    ([(0, key_of(COMMIT), END[:5])], "txn-marker"),
    ([(0, key_of(COMMIT), None)], "txn-marker"),
    ([(0, key_of(COMMIT), b"\xff\xff" + END[2:])], "txn-marker"),
    ([(0, key_of(7), END)], "txn-marker"),
    ([(0, b"\0\0", END)], "txn-marker"),
    ([(0, key_of(COMMIT, 1), END + b"more")], ""),
    ([(0, key_of(COMMIT), b"\0\1" + END[2:])], ""),
])  # fmt: skip
def test_a_marker_is_one_readable_record(tmp_path: Path, rows: list[tuple[int, bytes, bytes | None]], check: str) -> None:
    """Brokers take the first record (ControlRecordType.parse, EndTransactionMarker.deserialize): later versions can be read."""
    last = 1 + len(rows)
    good = marker(1, COMMIT, 7)
    cluster(tmp_path, [data(0, 0), replace(good, last_delta=last - 2), plain(last), plain(last + 1)])
    held = [data(0, 0), replace(good, records=rows), plain(last), plain(last + 1)]
    for broker in BROKERS:
        (tmp_path / f"b{broker}" / "t-0" / f"{0:020d}.log").write_bytes(b"".join(batch.encode() for batch in held))
    found = {one.check for one in audit(tmp_path, level="batches").findings.kept}
    assert check in found if check else not found


ENDED = [data(0, 0, key=b"a"), marker(1, COMMIT, 7), data(2, 1), marker(3, ABORT, 7), data(4, 2), marker(5, COMMIT, 7), plain(6), plain(7)]


@pytest.mark.parametrize(("gone", "lost"), [({3}, 3), ({2, 3}, -1), ({2}, -1), ({5}, -1), ({1}, 0)])
def test_a_cleaner_keeps_the_end_of_an_aborted_transaction_of_which_records_are_left(tmp_path: Path, gone: set[int], lost: int) -> None:
    """Otherwise the next commit would make them visible. Where the end of a committed one is missing, the next transaction's end counts."""
    cluster(tmp_path, ENDED, (0, 6), cleaned=6)
    log = registered_topic().config("t", "cleanup.policy", "compact").encode()
    for file in sorted((tmp_path / "b3").rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    (tmp_path / "b3").rmdir()
    held = [batch for batch in ENDED if batch.base not in gone]
    write_broker(tmp_path / "b3", 3, [Partition("t-0", held, (0, 6))], log, cleaned={"t-0": 6})
    if 3 in gone:
        (tmp_path / "b3" / "t-0" / f"{0:020d}.txnindex").unlink(missing_ok=True)
    result = audit(tmp_path)
    found = [(one.brokers, one.offset) for one in result.findings.kept if one.level == "error"]
    assert found == ([] if lost < 0 else [(("3",), lost)]), [one.message for one in result.findings.kept]
