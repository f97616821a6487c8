"""Every log directory that Apache Kafka wrote is read, and what is found agrees with an independent reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import golden_logs

from minikafka.storage.batch_scan import batches
from minikafka.storage.checkpoint import read_offset_checkpoint
from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log import Log
from minikafka.storage.producer_snapshot import decode_snapshot, encode_snapshot
from minikafka.storage.recovery import load_log
from minikafka.storage.segment import Segment

WALL_MS = 1_795_230_600_000
SOUND = [name for name in golden_logs.log_directories() if "ALTERED" not in name]
CLEAN = ("single-stopped", "replicas/authentic", "compaction/after", "kraft-static/stopped", "kraft-standalone/stopped")
NO_EXPIRY = 1 << 62


def load(name: str, tmp_path: Path, *, is_clean: bool = False, **config: int) -> Log:
    directory = golden_logs.install(name, tmp_path / Path(name).name)
    topic, _, partition = directory.name.rpartition("-")
    policy = frozenset({"compact" if topic.startswith("compact") else "delete"})
    settings = LogConfig(producer_id_expiration_ms=NO_EXPIRY, cleanup_policy=policy, **config)
    return load_log(
        OsFileSystem(), str(directory), topic, int(partition), settings, wall_ms=WALL_MS, is_clean=is_clean, log_start_offset=start_of(name)
    )


def start_of(name: str) -> int:
    """The checkpointed start of the log."""
    folder, _, partition = name.partition("/")
    file = golden_logs.ROOT / folder / "root" / "log-start-offset-checkpoint"
    topic, _, index = partition.rpartition("-")
    return read_offset_checkpoint(OsFileSystem(), str(file)).get((topic, int(index)), 0)


def facts_of(name: str, file: str) -> dict[str, object]:
    folder, _, rest = name.partition("/")
    return golden_logs.facts(folder)[f"{rest}/{file}"]


def rows(segment: Segment) -> list[list[int]]:
    found = []
    for position, size, header in batches(segment.file, 0, segment.size):
        base, _, epoch, _, crc, attributes, delta, first, largest, producer, producer_epoch, sequence, count = header
        found.append(
            [
                *(base, base + delta, position, size, epoch, crc, attributes, first, largest),
                *(producer, producer_epoch, sequence, count),
            ]
        )
    return found


@pytest.mark.parametrize("name", SOUND)
def test_batches_agree_with_the_facts(name: str, tmp_path: Path) -> None:
    log = load(name, tmp_path)
    files = sorted(path.name for path in (golden_logs.ROOT / name).glob("*.log"))
    assert [f"{base:020d}.log" for base in log.segments.bases] == files
    for segment, file in zip(log.segments, files, strict=True):
        facts = facts_of(name, file)
        assert rows(segment) == facts["rows"]
        assert segment.size == facts["valid_bytes"]


@pytest.mark.parametrize("name", SOUND)
def test_offsets_and_epochs_agree_with_the_facts(name: str, tmp_path: Path) -> None:
    log = load(name, tmp_path)
    last = facts_of(name, sorted(path.name for path in (golden_logs.ROOT / name).glob("*.log"))[-1])
    if last["rows"]:
        assert log.log_end_offset == last["rows"][-1][1] + 1
    text = facts_of(name, "leader-epoch-checkpoint")["text"].split("\n")[2:-1]
    # As in Kafka, an epoch without a record does not survive a restart.
    kept = [line for line in text if int(line.split()[1]) < log.log_end_offset]
    assert [f"{epoch} {start}" for epoch, start in log.epochs.entries] == kept


@pytest.mark.parametrize("name", [name for name in SOUND if name.startswith(CLEAN)])
def test_a_clean_directory_is_opened_without_rebuilding_its_indexes(name: str, tmp_path: Path) -> None:
    directory = golden_logs.install(name, tmp_path / "log-0")
    for path in directory.glob("*.log"):
        segment = Segment.open(OsFileSystem(), str(directory), int(path.stem), LogConfig(), WALL_MS)
        assert segment.is_indexed
        index, times = facts_of(name, f"{path.stem}.index"), facts_of(name, f"{path.stem}.timeindex")
        assert [list(entry) for entry in segment.offset_index.all_entries()] == index["relative_offset_and_position"]
        assert [list(entry) for entry in segment.time_index.all_entries()] == times["timestamp_and_relative_offset"]
        if (directory / f"{path.stem}.txnindex").exists():
            expected = facts_of(name, f"{path.stem}.txnindex")["version_pid_first_last_lso"]
            assert [[0, *entry] for entry in segment.txn_index.entries] == expected


@pytest.mark.parametrize("name", SOUND)
def test_producer_snapshots_agree_with_the_facts_and_encode_to_the_same_bytes(name: str) -> None:
    for path in (golden_logs.ROOT / name).glob("*.snapshot"):
        data = path.read_bytes()
        entries = decode_snapshot(data)
        expected = facts_of(name, path.name)["producers"]
        assert [entry._asdict() for entry in entries] == expected
        assert encode_snapshot(entries) == data


@pytest.mark.parametrize("name", [name for name in SOUND if "kraft" not in name])
def test_every_offset_is_found_where_a_scan_finds_it(name: str, tmp_path: Path) -> None:
    log = load(name, tmp_path)
    for segment in log.segments:
        for base, last, position, size, *_ in rows(segment):
            for offset in {base, last}:
                if offset >= log.log_start_offset:
                    assert segment.translate(offset) == (position, size)
                    result = log.read(offset, 1, end_offset=log.log_end_offset)
                    assert (result.slice.position, result.slice.size) == (position, size)


def test_read_committed_sees_what_kafkas_consumer_saw(tmp_path: Path) -> None:
    log = load("single-stopped/txn-0", tmp_path)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset == 18
    aborted = log.aborted_transactions(0, 18)
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted] == [
        (10, 4, 9),
        (10, 12, 13),
        (11, 14, 17),
    ]
    assert log.aborted_transactions(10, 12) == []
    assert [entry.first_offset for entry in log.aborted_transactions(8, 9)] == [4]


def test_an_open_transaction_bounds_the_last_stable_offset(tmp_path: Path) -> None:
    log = load("single-killed/txn-0", tmp_path)
    log.update_high_watermark(log.log_end_offset)
    assert log.log_end_offset == 17
    assert log.last_stable_offset == 14
    assert log.producer_state.open_transactions() == [(11, 14)]


ALTERED = {
    # log end offset after recovery: everything from the first batch that is not valid is gone
    "byte-flipped": 30,
    "byte-flipped-crc-right": 60,
    "tail-missing": 55,
    "tail-torn": 57,
    "tail-zeros": 60,
    "tail-garbage": 60,
    "batch-removed": 60,
    "batch-twice": 31,
    "batches-swapped": 33,
    "epoch-differs": 60,
    "base-offset-differs": 1031,
    "length-field-huge": 30,
    "length-field-small": 30,
    "magic-1": 30,
    "epoch-checkpoint-differs": 60,
    "epoch-checkpoint-count-wrong": 60,
    "index-wrong-position": 60,
    "index-not-multiple": 60,
    "topic-id-differs": 60,
    "producer-snapshot-crc-wrong": 60,
}


@pytest.mark.parametrize("name", ALTERED)
def test_damaged_replicas_recover_to_their_longest_valid_prefix(name: str, tmp_path: Path) -> None:
    log = load(f"replicas/ALTERED/{name}/rep-0", tmp_path)
    assert log.log_end_offset == ALTERED[name]
    authentic = (golden_logs.ROOT / "replicas/authentic/broker-1/rep-0/00000000000000000000.log").read_bytes()
    data = Path(log.segments[0].log_path).read_bytes()
    if name not in ("byte-flipped-crc-right", "batch-removed", "batches-swapped", "epoch-differs", "base-offset-differs"):
        assert authentic.startswith(data)
    if name == "epoch-checkpoint-count-wrong":
        assert log.epochs.entries == [(0, 0), (1, 24), (2, 39)]


@pytest.mark.parametrize("name", ["index-not-multiple", "producer-snapshot-crc-wrong", "epoch-checkpoint-count-wrong"])
def test_a_wrong_index_snapshot_or_checkpoint_is_rebuilt_after_a_clean_stop_too(name: str, tmp_path: Path) -> None:
    log = load(f"replicas/ALTERED/{name}/rep-0", tmp_path, is_clean=True)
    assert log.log_end_offset == 60
    assert log.epochs.entries == [(0, 0), (1, 24), (2, 39)]
    for offset in range(60):
        result = log.read(offset, 1, end_offset=60)
        first = int.from_bytes(result.slice.read()[:8], "big")
        assert first <= offset
    log.close()
    again = load_log(
        OsFileSystem(), log.directory, "rep", 0, LogConfig(producer_id_expiration_ms=NO_EXPIRY), wall_ms=WALL_MS
    )
    assert {entry.producer_id for entry in again.producer_state.entries.values()} == {
        entry.producer_id for entry in log.producer_state.entries.values()
    }


def test_kafkas_preallocated_indexes_of_a_killed_broker_are_rebuilt(tmp_path: Path) -> None:
    log = load("single-killed/plain-0", tmp_path, index_interval_bytes=300)
    assert log.segments[-1].offset_index.entries == 5
    assert Path(log.segments[-1].offset_index.path).stat().st_size == 10_485_760
    assert Path(log.segments[-1].time_index.path).stat().st_size == 10_485_756
