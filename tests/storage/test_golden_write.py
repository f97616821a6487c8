"""The same client batches give the same files, byte for byte, through a kill, a recovery and a clean stop.

The story of tests/golden/logs/single-*: a broker takes batches in epoch 0 and is killed; it recovers, becomes leader in
epoch 2, takes some more and stops cleanly.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from helpers import golden_logs

from minikafka.storage.checkpoint import PARTITION_METADATA
from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log

STARTED_MS = 1_795_230_480_000
RESTARTED_MS = 1_795_230_540_000
STOPPED_MS = 1_795_230_570_000

CONFIGS = {
    "plain-0": LogConfig(segment_bytes=12288, index_interval_bytes=300, retention_ms=-1),
    "varint-0": LogConfig(message_timestamp_after_max_ms=2**63 - 1, max_message_bytes=4_000_000),
    "logappend-0": LogConfig(message_timestamp_type="LogAppendTime"),
    "uncompress-0": LogConfig(compression_type="uncompressed"),
}
TOPICS = sorted(
    path.name for path in (golden_logs.ROOT / "single-stopped").iterdir() if (path / PARTITION_METADATA).exists()
)


def epoch_of(batch: bytes) -> int:
    return int.from_bytes(batch[12:16], "big", signed=True)


def append(log: Log, stored: bytes) -> None:
    """Append as the leader of that batch did: client batches as the client sent them, others as their coordinator."""
    attributes, max_timestamp = int.from_bytes(stored[21:23], "big"), int.from_bytes(stored[35:43], "big")
    is_client = not attributes & 0x20 and not log.topic.startswith("__")
    batch = golden_logs.as_client_sent(stored)
    info = log.append_as_leader(
        memoryview(batch),
        epoch_of(stored),
        max_timestamp if attributes & 0x08 else STOPPED_MS,
        origin="client" if is_client else "coordinator",
    )
    assert info.first_offset == int.from_bytes(stored[:8], "big")
    log.update_high_watermark(log.log_end_offset)


def start(directory: Path, wall_ms: int, *, recovery_point: int = 0) -> Log:
    topic, _, partition = directory.name.rpartition("-")
    return load_log(
        OsFileSystem(),
        str(directory),
        topic,
        int(partition),
        CONFIGS.get(directory.name, LogConfig()),
        wall_ms=wall_ms,
        is_clean=False,
        recovery_point=recovery_point,
    )


def first_life(directory: Path) -> tuple[Log, list[bytearray]]:
    """Up to the kill; the log as it was then, and the batches still to come."""
    name = directory.name
    topic_id = golden_logs.ROOT / "single-stopped" / name / PARTITION_METADATA
    log = start(directory, STARTED_MS)
    (directory / PARTITION_METADATA).write_bytes(topic_id.read_bytes())
    log.assign_epoch_start(0, 0)
    stored = golden_logs.stored_batches(f"single-stopped/{name}")
    for batch in stored:
        if epoch_of(batch) == 0:
            append(log, batch)
    return log, [batch for batch in stored if epoch_of(batch) != 0]


def assert_same_files(directory: Path, golden: str) -> None:
    expected = golden_logs.ROOT / golden
    names = {path.name for path in expected.iterdir()} - {"sizes.json"}
    assert {path.name for path in directory.iterdir()} == names
    sizes = golden_logs.preallocated_sizes(golden)
    for name in sorted(names):
        data, wanted = (directory / name).read_bytes(), (expected / name).read_bytes()
        assert data == wanted + bytes(sizes.get(name, len(wanted)) - len(wanted)), name


@pytest.mark.parametrize("name", ["plain-0", "txn-0", "txn2-0", "__consumer_offsets-0", "__transaction_state-1"])
def test_a_killed_broker_leaves_kafkas_bytes(name: str, tmp_path: Path) -> None:
    log, _ = first_life(tmp_path / name)
    log.flush()
    log.close_files()
    assert_same_files(tmp_path / name, f"single-killed/{name}")


@pytest.mark.parametrize("name", ["plain-0", "txn-0"])
def test_recovery_leaves_kafkas_bytes(name: str, tmp_path: Path) -> None:
    golden = golden_logs.install(f"single-killed/{name}", tmp_path / name)
    log = start(golden, RESTARTED_MS, recovery_point=max(int(path.stem) for path in golden.glob("*.log")))
    log.assign_epoch_start(2, log.log_end_offset)
    log.flush()
    assert_same_files(golden, f"single-recovered/{name}")


@pytest.mark.parametrize("name", TOPICS)
def test_kill_recovery_and_a_clean_stop_leave_kafkas_bytes(name: str, tmp_path: Path) -> None:
    if name == "recompress-zstd-0":
        return
    directory = tmp_path / name
    log, rest = first_life(directory)
    recovery_point = log.active_segment_base_offset
    log.close_files()
    log = start(directory, RESTARTED_MS, recovery_point=recovery_point)
    log.update_high_watermark(log.log_end_offset)
    log.assign_epoch_start(2, log.log_end_offset)
    if name == "plain-0":
        log.increment_log_start_offset(101)
    for batch in rest:
        append(log, batch)
    log.close()
    assert_same_files(directory, f"single-stopped/{name}")


def test_recompression_keeps_everything_but_the_compressed_bytes(tmp_path: Path) -> None:
    config = LogConfig(compression_type="zstd")
    log = load_log(OsFileSystem(), str(tmp_path / "r-0"), "r", 0, config, wall_ms=STARTED_MS)
    for batch in golden_logs.stored_batches("single-stopped/codec-none-0"):
        log.append_as_leader(memoryview(golden_logs.as_client_sent(batch)), 0, STARTED_MS)
    log.close()
    ours = list(golden_logs.split_batches((tmp_path / "r-0" / "00000000000000000000.log").read_bytes()))
    theirs = golden_logs.stored_batches("single-stopped/recompress-zstd-0")
    for mine, kafkas in zip(ours, theirs, strict=True):
        skip_length_and_crc = [slice(0, 8), slice(12, 17), slice(21, 61)]
        assert [mine[part] for part in skip_length_and_crc] == [kafkas[part] for part in skip_length_and_crc]


def test_uncompression_gives_kafkas_bytes(tmp_path: Path) -> None:
    config = LogConfig(compression_type="uncompressed")
    log = load_log(OsFileSystem(), str(tmp_path / "u-0"), "u", 0, config, wall_ms=STARTED_MS)
    for batch in golden_logs.stored_batches("single-stopped/codec-gzip-0"):
        log.append_as_leader(memoryview(golden_logs.as_client_sent(batch)), 0, STARTED_MS)
    log.close()
    expected = golden_logs.ROOT / "single-stopped/uncompress-0/00000000000000000000.log"
    assert (tmp_path / "u-0" / expected.name).read_bytes() == expected.read_bytes()


def test_log_append_time_changes_only_attributes_largest_timestamp_and_crc(tmp_path: Path) -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime")
    log = load_log(OsFileSystem(), str(tmp_path / "l-0"), "l", 0, config, wall_ms=STARTED_MS)
    stored = golden_logs.stored_batches("single-stopped/logappend-0")
    sent = [
        *golden_logs.stored_batches("single-stopped/codec-none-0"),
        *golden_logs.stored_batches("single-stopped/codec-gzip-0"),
    ]
    for client, kafkas in zip(sent, stored, strict=True):
        (now,) = struct.unpack_from(">q", kafkas, 35)
        info = log.append_as_leader(memoryview(golden_logs.as_client_sent(client)), 0, now)
        assert info.log_append_time_ms == info.max_timestamp == now
    log.close()
    expected = golden_logs.ROOT / "single-stopped/logappend-0/00000000000000000000.log"
    assert (tmp_path / "l-0" / expected.name).read_bytes() == expected.read_bytes()
