"""What a leader refuses: the batches that were sent to Apache Kafka 4.3, with its answers, and the limits."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c
from helpers.batches import T0, batch, record
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage import log_append
from minikafka.storage.config import LogConfig
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log
from minikafka.wire.batch import assemble_batch, build_batch
from minikafka.wire.compression import CompressionType
from minikafka.wire.errors import ApiError, ErrorCode

WALL_MS = 1_795_225_745_149
CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "golden/storage/produce_batches.jsonl").read_text().splitlines()
]
# Where Kafka answers UNKNOWN_SERVER_ERROR, and what the request handler decides.
OURS = {
    **{f"compression codec {codec}": ErrorCode.UNSUPPORTED_COMPRESSION_TYPE for codec in (5, 6, 7)},
    **{f"{codec}: payload is garbage": ErrorCode.INVALID_RECORD for codec in ("gzip", "snappy", "lz4", "zstd")},
    "transactional bit, no transactional id": ErrorCode.NONE,
}


def append(log: Log, records: bytes, wall_ms: int = WALL_MS) -> tuple[ErrorCode, int]:
    end, size = log.log_end_offset, log.size
    try:
        info = log.append_as_leader(memoryview(bytearray(records)), 0, wall_ms)
    except ApiError as error:
        assert (log.log_end_offset, log.size) == (end, size)
        return error.code, -1
    return ErrorCode.NONE, info.first_offset


def test_kafkas_answers_in_order() -> None:
    disk = MemoryFileSystem()
    plain = load_log(disk, "/d/t-0", "t", 0, LogConfig(), wall_ms=WALL_MS)
    compacted = load_log(disk, "/d/c-0", "c", 0, LogConfig(cleanup_policy=frozenset({"compact"})), wall_ms=WALL_MS)
    ours, kafkas = [], []
    answers = {}
    for case in CASES:
        log = plain if case["topic"] == "t" else compacted
        code, answers[case["case"]] = append(log, bytes.fromhex(case["records"]))
        ours.append((case["case"], code))
        kafkas.append((case["case"], OURS.get(case["case"], case["error"])))
    assert ours == kafkas
    assert answers["idempotent, sequence 0 again"] == answers["idempotent, sequence 0"]
    assert answers["idempotent, sequence 2 again (within the last 5)"] == answers["idempotent, sequence 2"]


def test_the_log_holds_whole_valid_batches_after_all_of_that() -> None:
    disk = MemoryFileSystem()
    log = load_log(disk, "/d/t-0", "t", 0, LogConfig(), wall_ms=WALL_MS)
    for case in CASES:
        append(log, bytes.fromhex(case["records"]))
    again = load_log(disk.kill(), "/d/t-0", "t", 0, LogConfig(), wall_ms=WALL_MS, is_clean=False)
    assert (again.log_end_offset, again.size) == (log.log_end_offset, log.size)


def test_size_limits(open_log: Callable[..., Log]) -> None:
    whole = batch(b"x" * 1000)
    assert append(open_log(max_message_bytes=len(whole)), whole)[0] == ErrorCode.NONE
    small = open_log(MemoryFileSystem(), max_message_bytes=len(whole) - 1)
    assert append(small, whole)[0] == ErrorCode.MESSAGE_TOO_LARGE
    short = open_log(MemoryFileSystem(), segment_bytes=len(whole) - 1)
    assert append(short, whole)[0] == ErrorCode.RECORD_LIST_TOO_LARGE


def test_the_client_s_offsets_epoch_and_trailing_bytes_are_replaced(open_log: Callable[..., Log]) -> None:
    log = open_log()
    log.append_as_leader(memoryview(batch(b"a", b"b")), 3, T0)
    info = log.append_as_leader(memoryview(batch(b"c", epoch=77) + b"12345"), 3, T0)
    assert (info.first_offset, info.last_offset, info.batches, info.leader_epoch) == (2, 2, 1, 3)
    stored = log.read(2, 1000, end_offset=3).slice.read()
    assert stored == batch(b"c", base_offset=2, epoch=3)


def test_timestamp_bounds(open_log: Callable[..., Log]) -> None:
    log = open_log(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    values = [b"%d" % i for i in range(9)]
    assert append(log, batch(*values, timestamp=T0 - 1000), T0)[0] == ErrorCode.NONE
    assert append(log, batch(*values, timestamp=T0 + 1000), T0)[0] == ErrorCode.NONE
    assert append(log, batch(*values, timestamp=-1), T0)[0] == ErrorCode.NONE
    assert append(log, batch(*values, timestamp=T0 - 1001), T0)[0] == ErrorCode.INVALID_TIMESTAMP
    assert append(log, batch(*values, timestamp=T0 + 1001), T0)[0] == ErrorCode.INVALID_TIMESTAMP


def test_a_largest_timestamp_that_is_wrong_is_corrected_in_small_batches(open_log: Callable[..., Log]) -> None:
    log = open_log()
    payload = record(0, b"a") + record(1, b"b", timestamp_delta=500)
    info = log.append_as_leader(memoryview(batch(payload=payload, count=2)), 0, T0)
    assert info.max_timestamp == T0 + 500
    stored = log.read(0, 1000, end_offset=2).slice.read()
    assert struct.unpack_from(">q", stored, 35)[0] == T0 + 500
    assert struct.unpack_from(">I", stored, 17)[0] == crc32c(stored[21:])


def test_every_cut_and_every_flipped_bit_is_refused_or_harmless(open_log: Callable[..., Log]) -> None:
    whole = bytes(batch(b"value", b"more", producer=(5, 0, 0)))
    for cut in range(len(whole)):
        assert append(open_log(MemoryFileSystem()), whole[:cut])[0] != ErrorCode.NONE
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        code, _ = append(open_log(MemoryFileSystem()), damaged)
        # The leader's epoch is not covered by the CRC and replaced anyway.
        assert (code == ErrorCode.NONE) == (12 <= position < 16)


def test_a_compacted_topic_requires_keys_in_large_batches_too(open_log: Callable[..., Log]) -> None:
    log = open_log(cleanup_policy=frozenset({"compact"}))
    payload = b"".join(record(i, b"v", key=None if i == 19 else b"k") for i in range(20))
    assert append(log, batch(payload=payload, count=20), T0)[0] == ErrorCode.INVALID_RECORD
    payload = b"".join(record(i, b"v", key=b"k") for i in range(20))
    assert append(log, batch(payload=payload, count=20), T0)[0] == ErrorCode.NONE


@pytest.mark.parametrize("origin", ["coordinator", "raft"])
def test_the_broker_s_own_appends_may_hold_several_batches(origin: str, open_log: Callable[..., Log]) -> None:
    log = open_log()
    both = memoryview(batch(b"a", producer=(-1, -1, 0)) + batch(b"b", b"c", attributes=0x20))
    info = log.append_as_leader(both, 4, T0, origin=origin)
    assert (info.first_offset, info.last_offset, info.batches) == (0, 2, 2)
    assert log.read(0, 1000, end_offset=3).slice.read() == bytes(both)
    with pytest.raises(ApiError) as refused:
        log.append_as_leader(memoryview(bytearray(b"short")), 4, T0, origin=origin)
    assert refused.value.code == ErrorCode.INVALID_RECORD


def counted(count: int, payload: bytes, codec: int = 0) -> bytes:
    """A batch whose header claims `count` records."""
    return bytes(assemble_batch(bytes(payload), count=count, base_timestamp=WALL_MS, max_timestamp=WALL_MS, attributes=codec))


@pytest.mark.parametrize(
    ("count", "payload", "codec"),
    [
        (2**31 - 1, 8, 0),
        (6, 35, 0),
        (2**31 - 1, 8, 1),
        (2**31 - 1, 100_000, 3),
        (100_000_000, 1000, 4),
        (1000 * 1100 // 7, 1000, 1),
        (1000 * 30 // 7, 1000, 2),
    ],
)
def test_a_header_that_claims_more_records_than_can_be_there_is_refused(count: int, payload: int, codec: int) -> None:
    """69 bytes must not take 2^31 - 1 offsets."""
    log = load_log(MemoryFileSystem(), "/d/t-0", "t", 0, LogConfig(), wall_ms=WALL_MS)
    assert append(log, counted(count, bytes(payload), codec)) == (ErrorCode.INVALID_RECORD, -1)


@pytest.mark.parametrize("codec", list(CompressionType))
def test_a_batch_of_the_least_that_records_can_be_is_taken(codec: CompressionType) -> None:
    log = load_log(MemoryFileSystem(), "/d/t-0", "t", 0, LogConfig(), wall_ms=WALL_MS)
    records = [(offset, WALL_MS, None, None, ()) for offset in range(20_000)]
    assert append(log, bytes(build_batch(records, compression=codec))) == (ErrorCode.NONE, 0)
    assert log.log_end_offset == 20_000


@pytest.mark.parametrize("origin", ["client", "follower", "coordinator"])
def test_a_checksum_is_computed_once(open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, origin: str) -> None:
    log, sizes = open_log(), list[int]()
    real = log_append.crc32c
    monkeypatch.setattr(log_append, "crc32c", lambda data, *crc: (sizes.append(len(data)), real(data, *crc))[1])
    if origin == "client":
        data = batch(b"v" * 100, timestamp=T0)
        log.append_as_leader(memoryview(data), 0, T0)
    else:
        data = batch(b"v" * 100, epoch=0) + batch(b"w" * 200, base_offset=1, epoch=0)
        if origin == "follower":
            log.append_as_follower(memoryview(data), 0)
        else:
            log.append_as_leader(memoryview(data), 0, T0, origin="coordinator")
    assert sum(sizes) == len(data) - 21 * len(sizes) and log.log_end_offset == len(sizes)
