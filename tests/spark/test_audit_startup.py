"""A directory is judged as the next start of its broker would load it: interrupted replacements (`.swap`) are read."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.audited_clusters import BROKERS, TOPIC, audit, messages_of, registered_topic, verdicts
from helpers.log_clusters import Batch, MetadataLog, Partition, directory_id, plain, write_broker

from minikafka.spark.audit import AuditResult
from minikafka.spark.startup import at_start
from minikafka.storage import recovery
from minikafka.storage.filesystem import OsFileSystem

KEYED = [Batch(at, [(0, b"k%d" % (at % 7), b"v%d" % at)]) for at in range(60)]
LATER = {batch.records[0][1] for batch in KEYED[40:]}
CLEANED = [batch for batch in KEYED if batch.base >= 40 or batch.base % 3 == 0]


def crashed(tmp_path: Path, clean: bool = False, batches: dict[int, list[Batch]] | None = None) -> Path:
    """A compacted topic of three segments; broker 3 is in the midst of replacing the first one, or both closed ones."""
    log = registered_topic().config("t", "cleanup.policy", "compact")
    for broker in BROKERS:
        one = Partition("t-0", (batches or {}).get(broker, CLEANED), (0, 20, 40), topic_id=TOPIC)
        cleaned = {"t-0": 40}
        write_broker(tmp_path / f"b{broker}", broker, [one], log.encode(), clean=clean or broker < 3, cleaned=cleaned)
    return tmp_path / "b3" / "t-0"


def swap(place: Path, base: int, suffix: str = ".swap") -> None:
    for name in ("log", "index", "timeindex"):
        path = place / f"{base:020d}.{name}"
        path.rename(path.with_name(path.name + suffix))


def test_a_segment_of_which_only_the_replacement_is_left_is_read(tmp_path: Path) -> None:
    place = crashed(tmp_path)
    swap(place, 0)
    result = audit(tmp_path)
    assert (result.outcome, verdicts(result)["t-0"]) == ("PASS", "MATCH")
    rows = next(one for one in result.partitions if one.topic == "t").replicas
    assert len({row["batches"] for row in rows}) == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_replacement_with_other_records_is_found(tmp_path: Path, clean: bool) -> None:
    place = crashed(tmp_path, clean)
    swap(place, 0)
    path = place / f"{0:020d}.log.swap"
    path.write_bytes(b"".join(Batch(one.base, [(0, one.records[0][1], b"other")]).encode() for one in CLEANED if one.base < 20))
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)["t-0"]) == (1, "DIVERGENT")


@pytest.mark.parametrize("text", ["other", "the same"])
def test_a_replacement_is_judged_instead_of_its_segment(tmp_path: Path, text: str) -> None:
    """The old segment is still there, and is sound."""
    place = crashed(tmp_path, batches={3: KEYED})
    held = [one for one in CLEANED if one.base < 40]
    if text == "other":
        held[3] = Batch(held[3].base, [(0, held[3].records[0][1], b"other")])
    (place / f"{0:020d}.log.swap").write_bytes(b"".join(one.encode() for one in held))
    result = audit(tmp_path)
    assert result.exit_code == (1 if text == "other" else 0), messages_of(result, "replica-differs")
    assert next(one for one in result.partitions if one.topic == "t").replicas[2]["segments"] == 2


def test_a_wrong_index_of_a_replacement_is_found(tmp_path: Path) -> None:
    place = crashed(tmp_path)
    swap(place, 0)
    path = place / f"{0:020d}.index.swap"
    path.write_bytes(path.read_bytes()[:-4] + bytes(3) + b"\x05")
    result = audit(tmp_path)
    assert result.exit_code == 1 and messages_of(result, "index-target") and path.name in str([one.file for one in result.findings.kept])


def test_a_replacement_in_a_topic_that_is_not_compacted_is_installed_too(tmp_path: Path) -> None:
    for broker in BROKERS:
        one = Partition("t-0", [plain(at) for at in range(30)], (0, 10, 20), topic_id=TOPIC)
        write_broker(tmp_path / f"b{broker}", broker, [one], registered_topic().encode())
    assert audit(tmp_path).outcome == "PASS"
    (tmp_path / "b2" / "t-0" / f"{10:020d}.log.swap").write_bytes(b"".join(plain(at, text="w").encode() for at in range(10, 20)))
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)["t-0"]) == (1, "DIVERGENT")


@pytest.mark.parametrize("suffix", [".cleaned", ".deleted"])
def test_files_that_a_start_removes_are_no_logs(tmp_path: Path, suffix: str) -> None:
    place = crashed(tmp_path, batches={3: KEYED, 1: KEYED, 2: KEYED})
    for base in (0, 40):
        (place / f"{base:020d}.log{suffix}").write_bytes(b"left over")
    assert audit(tmp_path).outcome == "PASS"
    swap(place, 40, suffix)
    assert audit(tmp_path).exit_code == 1


def test_a_replacement_of_a_split_that_did_not_end_is_not_read(tmp_path: Path) -> None:
    """A `.cleaned` file at or before it tells that: the start removes both."""
    place = crashed(tmp_path)
    (place / f"{20:020d}.log.swap").write_bytes(Batch(21, [(0, b"k0", b"other")]).encode())
    (place / f"{20:020d}.index.cleaned").write_bytes(b"")
    assert audit(tmp_path).outcome == "PASS"
    (place / f"{20:020d}.index.cleaned").unlink()
    assert audit(tmp_path).exit_code == 1


def test_a_start_of_minikafka_makes_of_it_what_the_audit_reads(tmp_path: Path) -> None:
    """Directories with every mixture of files at rest, replacements and leftovers, against the code that loads them."""
    chance = random.Random(5)
    for number in range(300):
        place = tmp_path / str(number)
        place.mkdir()
        ends = {base: chance.choice([0, 10, 15, 20, 30]) for base in chance.sample([0, 10, 20], chance.randint(0, 3))}
        for base in (0, 10, 20):
            for part in ("log", "index", "timeindex"):
                name = f"{base:020d}.{part}"
                data = plain(base).encode() if part == "log" else b"old"
                if chance.random() < 0.8:
                    (place / name).write_bytes(data)
                if base in ends and chance.random() < 0.6:
                    new = b"".join(plain(at, text="n").encode() for at in range(base, ends[base])) if part == "log" else b"new"
                    (place / f"{name}.swap").write_bytes(new)
                if chance.random() < 0.1:
                    (place / f"{name}.cleaned").write_bytes(b"left over")
        files = at_start([path.name for path in place.iterdir()], lambda base, ends=ends: max(base, ends[base]))
        bases = {base for base, part in files if part == "log"}
        held = {key: (place / f"{key[0]:020d}.{name}").read_bytes() for key, name in files.items() if key[0] in bases}
        assert set(recovery._clean_directory(OsFileSystem(), str(place))) == bases
        left = {(int(path.stem), path.suffix[1:]): path.read_bytes() for path in place.iterdir()}
        assert left == held


@pytest.mark.parametrize(("names", "logs"), [
    (["0.log", "10.log", "0.log.swap"], {0: "log.swap", 10: "log"}),
    (["0.log", "5.log", "10.log", "0.log.swap"], {0: "log.swap", 10: "log"}),
    (["0.log", "10.log", "10.log.swap", "5.index.cleaned"], {0: "log", 10: "log"}),
    (["0.log", "10.log", "10.log.swap", "10.index.cleaned"], {0: "log", 10: "log"}),
    (["0.log", "10.log", "0.log.swap", "20.log.cleaned"], {0: "log.swap", 10: "log"}),
    (["0.log", "0.log.swap", "5.log", "5.log.swap", "12.log", "15.log"], {0: "log.swap", 5: "log.swap", 15: "log"}),
    (["0.log.swap", "10.log", "20.log.swap"], {0: "log.swap", 20: "log.swap"}),
])  # fmt: skip
def test_a_start_of_apache_kafka(names: list[str], logs: dict[int, str]) -> None:
    """LogLoader.load and removeTempFilesAndCollectSwapFiles of 4.3, read."""
    found = at_start([f"{int(name.partition('.')[0]):020d}.{name.partition('.')[2]}" for name in names], lambda base: base + 10)
    assert {base: name for (base, part), name in found.items() if part == "log"} == logs


@pytest.mark.parametrize(("name", "effect"), [
    ("x.log", "does not start"), (".log", "does not start"), ("x.index", "does not start"), ("x.snapshot", "does not start"),
    ("x.log.swap", "does not start"), (f"{'9' * 20}0.log", "does not start"), ("12.log", "opens an empty segment at offset 12"),
    (f"{12:020d}.old.log", "opens an empty segment at offset 12"), (f"{12:020d}.old.log.swap", "opens an empty segment at offset 12"),
    (f"{12:020d}.old.index.swap", ""), ("9" * 20 + ".log", "does not start"),
    ("12.snapshot", "takes it for a snapshot of producers at offset 12"), (f"{30:020d}.x.snapshot", "at offset 30"),
    ("+0.log", ""), (f"{0:020d}.old.log", ""),
    (f"{12:020d}.old.index", ""), ("x.txt", ""), ("x.log.bak", ""), (f"{0:020d}.log.deleted", ""), ("log", ""),
])  # fmt: skip
def test_a_file_that_a_start_of_apache_kafka_takes_for_a_segments(tmp_path: Path, name: str, effect: str) -> None:
    """Seen on 4.3: with x.index or x.snapshot it does not start; with 12.log it opens a segment, and its log ends at offset 12."""
    for broker in BROKERS:
        log = registered_topic().encode()
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", [plain(at) for at in range(30)], topic_id=TOPIC)], log)
    (tmp_path / "b2" / "t-0" / name).write_bytes(b"")
    result = audit(tmp_path)
    found = messages_of(result, "foreign-file")
    assert (result.exit_code, len(found)) == (int(bool(effect)), int(bool(effect))) and all(effect in one for one in found)


def test_a_directory_is_taken_for_no_segment(tmp_path: Path) -> None:
    assert being_moved(tmp_path, [plain(offset) for offset in range(30)], False).exit_code == 0
    (tmp_path / "b2" / "t-0" / "x.log").mkdir()
    assert audit(tmp_path).exit_code == 0


# ---- copies in another log directory (KIP-113) --------------------------------------------------------------------------------------


def being_moved(tmp_path: Path, batches: list[Batch], named: bool, end: int = 30, **more: Any) -> AuditResult:
    """Broker 2 moves t-0 from its first log directory into its second; the controller may name that already."""
    log = MetadataLog().broker(1).broker(2, directories=2).broker(3).topic("t", TOPIC)
    places = (directory_id(1), directory_id(2, 1 if named else 0), directory_id(3))
    log.partition(TOPIC, BROKERS, BROKERS, 1, directories=places)
    held = [plain(at) for at in range(30)]
    for broker in BROKERS:
        write_broker(tmp_path / f"b{broker}", broker, [Partition("t-0", held, (0, 10, 20), topic_id=TOPIC)], log.encode())
    future = Partition("t-0", batches, (0, 10, 20), topic_id=TOPIC, **more)
    path = write_broker(tmp_path / "b2-1", 2, [future], number=1)
    (path / "t-0").rename(path / f"t-0.{'0' * 31}7-future")
    return audit(tmp_path)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(("at", "code"), [(None, 0), (3, 1), (25, 1)])
def test_a_copy_that_will_take_the_logs_place_is_compared(tmp_path: Path, named: bool, at: int | None, code: int) -> None:
    result = being_moved(tmp_path, [plain(offset, text="w" if offset == at else "v") for offset in range(30)], named)
    blamed = {broker for one in result.findings.kept if one.check == "replica-differs" for broker in one.brokers}
    assert result.exit_code == code and ("2 (future)" in blamed) == bool(code) and blamed <= {"1", "2 (future)"}


@pytest.mark.parametrize(("named", "code"), [(False, 0), (True, 1)])
def test_a_copy_may_be_short_until_the_controller_names_it(tmp_path: Path, named: bool, code: int) -> None:
    """Apache Kafka puts it in place at the next start, however long it is."""
    result = being_moved(tmp_path, [plain(offset) for offset in range(25)], named)
    assert (result.exit_code, bool(messages_of(result, "isr-claim"))) == (code, named)


@pytest.mark.parametrize(("at", "length", "code"), [(None, 30, 0), (None, 25, 0), (3, 25, 1)])
def test_a_copy_beside_the_log_in_the_directory_that_the_controller_names_is_no_replica(
    tmp_path: Path, at: int | None, length: int, code: int
) -> None:
    being_moved(tmp_path, [plain(offset, text="w" if offset == at else "v") for offset in range(length)], False)
    (copy,) = (tmp_path / "b2-1").glob("*-future")
    copy.rename(tmp_path / "b2" / copy.name)
    result = audit(tmp_path)
    assert result.exit_code == code and {one.check for one in result.findings.kept if one.level == "error"} <= {"replica-differs"}


@pytest.mark.parametrize(("named", "length", "said"), [
    (True, 30, set()), (True, 25, {"isr-claim"}), (False, 30, {"replica-missing"}), (False, 25, {"replica-missing"}),
])  # fmt: skip
def test_where_the_log_is_gone_only_a_copy_that_the_controller_names_answers(
    tmp_path: Path, named: bool, length: int, said: set[str]
) -> None:
    being_moved(tmp_path, [plain(offset) for offset in range(length)], named)
    shutil.rmtree(tmp_path / "b2" / "t-0")
    result = audit(tmp_path)
    assert {one.check for one in result.findings.kept if one.level == "error"} == said
    assert result.exit_code == bool(said)


@pytest.mark.parametrize("named", [False, True])
def test_an_orderly_stop_leaves_a_snapshot_at_the_end_of_a_copy_that_answers(tmp_path: Path, named: bool) -> None:
    """Apache Kafka closes copies as it closes logs; of those that only grow the audit asks no more than the records."""
    assert being_moved(tmp_path, [plain(offset) for offset in range(30)], named).exit_code == 0
    (snapshot,) = (tmp_path / "b2-1").glob(f"*-future/{30:020d}.snapshot")
    snapshot.unlink()
    result = audit(tmp_path)
    assert (result.exit_code, bool(messages_of(result, "producer-snapshot"))) == (int(named), named)


def test_records_of_another_leader_epoch_in_a_copy_are_cut(tmp_path: Path) -> None:
    batches = [plain(offset, epoch=1 if offset >= 20 else 0, text="w" if offset >= 20 else "v") for offset in range(25)]
    result = being_moved(tmp_path, batches, False, epochs=((0, 0), (1, 20)))
    assert result.outcome == "PASS" and messages_of(result, "replica-tail")


def test_a_copy_is_no_second_replica(tmp_path: Path) -> None:
    being_moved(tmp_path, [plain(offset) for offset in range(30)], False)
    for broker in (1, 3):
        shutil.rmtree(tmp_path / f"b{broker}")
    result = audit(tmp_path)
    assert (result.exit_code, verdicts(result)["t-0"]) == (3, "INCOMPLETE")


def test_an_unreadable_copy_is_reported(tmp_path: Path) -> None:
    being_moved(tmp_path, [plain(offset) for offset in range(30)], False)
    (segment,) = (tmp_path / "b2-1").glob(f"*-future/{0:020d}.log")
    segment.unlink()
    segment.symlink_to("nowhere")
    assert audit(tmp_path).exit_code == 3


def test_a_copy_without_a_partitions_name_is_reported(tmp_path: Path) -> None:
    being_moved(tmp_path, [plain(offset) for offset in range(30)], False)
    (tmp_path / "b2-1" / f"{'x' * 200}.{'0' * 32}-future").mkdir()
    assert audit(tmp_path).exit_code == 3
