"""Compressed batches of more than a few records, whose checksum is right and whose stream is cut, goes on or has an unusual form.

`golden/storage/compressed_batches.jsonl` holds such batches of 12 records, and how many records kafka-clients 4.3.0 read, or its error."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard
from helpers.batches import T0, batch, record
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.storage import validation
from minikafka.storage.config import LogConfig
from minikafka.storage.log import Log
from minikafka.storage.validation import (
    LIGHT_STREAM_BYTES_MAX,
    RAW_SNAPPY_BYTES_MAX,
    RAW_SNAPPY_LOOK_BYTES_MAX,
    Fitting,
    HeavyBatch,
    check_records,
    ends_with_its_stream,
    is_heavy,
)
from minikafka.wire import compression
from minikafka.wire.batch import HEADER
from minikafka.wire.compression import BLOCKS_MAX, CompressionType, compress, decompress, is_whole_stream
from minikafka.wire.errors import ApiError, ErrorCode

CASES = [
    json.loads(line) for line in (Path(__file__).parents[1] / "golden/storage/compressed_batches.jsonl").read_text().splitlines()
]
#: What only decompressing shows: another number of records than the header's, wrong checksums, damage inside of a block.
UNSEEN = ("declared", "wrong", "random damage", "gzip: followed by 360")
CODECS = [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]


def is_read_by_kafka(case: dict[str, str]) -> bool:
    return case["kafka"].startswith("OK")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_records_are_read_where_kafka_reads_them(case: dict[str, str]) -> None:
    """The complete check, which decides on streams that are not of the usual form."""
    records = memoryview(bytes.fromhex(case["records"]))
    try:
        check_records(records, HEADER.unpack_from(records), need_key=False, name="t-0", message_bytes_max=1 << 20)
    except ApiError as error:
        assert error.code is ErrorCode.INVALID_RECORD and not is_read_by_kafka(case)
    else:
        assert is_read_by_kafka(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_a_stream_that_is_cut_or_goes_on_is_refused_where_kafka_refuses_it(open_log: Callable[..., Log], case: dict[str, str]) -> None:
    log = open_log()
    try:
        log.append_as_leader(memoryview(bytearray(bytes.fromhex(case["records"]))), 0, T0)
    except ApiError as error:
        assert error.code is ErrorCode.INVALID_RECORD and not is_read_by_kafka(case)
        assert (log.log_end_offset, log.size) == (0, 0)
    else:
        assert is_read_by_kafka(case) or any(words in case["case"] for words in UNSEEN)


def records_of(count: int, size: int = 40, seed: int = 1) -> bytes:
    generator = random.Random(seed)
    return b"".join(record(number, generator.randbytes(size // 2).hex().encode()) for number in range(count))


def packed(codec: int, data: bytes, count: int) -> memoryview:
    return memoryview(batch(payload=data, count=count, attributes=codec))


def streams(data: bytes) -> list[tuple[int, bytes]]:
    """As clients write them, with all options."""
    frames = [(int(codec), compress(codec, data)) for codec in CODECS]
    frames += [(1, gzip.compress(data, level)) for level in (0, 1, 9)]
    frames += [(2, bytes(cramjam.snappy.compress_raw(data)))]
    for options in range(8):
        has_sum, has_sums, has_size = bool(options & 1), bool(options & 2), bool(options & 4)
        frame = lz4.frame.compress(
            data, block_size=4 + options % 4, block_linked=False, content_checksum=has_sum, block_checksum=has_sums, store_size=has_size,
        )  # fmt: skip
        frames += [(3, frame), (4, zstandard.ZstdCompressor(write_checksum=has_sum, write_content_size=has_size).compress(data))]
    pieces = zstandard.ZstdCompressor().compressobj()
    parts = [pieces.compress(data[at : at + 4096]) + pieces.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for at in range(0, len(data), 4096)]
    return [*frames, (4, b"".join(parts) + pieces.flush())]


@pytest.mark.parametrize("count", [5, 6, 50, 1000, 20_000])
@pytest.mark.parametrize("size", [0, 40])
def test_what_clients_write_is_of_the_usual_form(count: int, size: int) -> None:
    """Else it would be decompressed on another thread."""
    data = records_of(count, size)
    for codec, frame in streams(data):
        assert ends_with_its_stream(memoryview(frame), codec, count, 1 << 30)
        header = HEADER.unpack_from(packed(codec, frame, count))
        is_raw_snappy = codec == 2 and not frame.startswith(compression.XERIAL_MAGIC)
        assert is_heavy(packed(codec, frame, count), header, LogConfig()) == (is_raw_snappy and len(data) > RAW_SNAPPY_LOOK_BYTES_MAX)


def test_every_cut_and_whatever_follows_is_seen() -> None:
    data = records_of(40)
    for codec, frame in streams(data):
        for cut in range(1, len(frame)):
            # Of a cut gzip, four bytes out of the middle may pass for its size, one in several thousand times.
            assert not is_whole_stream(codec, memoryview(frame)[:-cut], len(data) // 2, 1 << 30) or (codec == 1 and cut > 4)
        for extra in (b"\0", bytes(4), bytes(30), b"rubbish!", frame):
            is_whole = is_whole_stream(codec, memoryview(frame + extra), len(data) // 2, 1 << 30)
            # Two streams of snappy, or of gzip, are one.
            assert not is_whole or (codec == 1 and extra == frame)


def test_no_stream_is_walked_over_for_long() -> None:
    for codec, head, block, end in (
        (2, compression.XERIAL_HEADER, b"\0\0\0\1\0", b""),
        (3, compress(CompressionType.LZ4, b"")[:7], b"\1\0\0\x80x", bytes(4)),
        (4, zstandard.ZstdCompressor().compress(b"")[:6], b"\x08\0\0x", b"\x09\0\0x"),
    ):
        for blocks in (BLOCKS_MAX - 1, BLOCKS_MAX + 1):
            is_whole = is_whole_stream(codec, memoryview(head + block * (blocks - bool(end)) + end), 0, 0)
            assert is_whole == (blocks < BLOCKS_MAX)


@pytest.mark.parametrize("codec", CODECS)
def test_a_small_stream_of_an_unusual_form_is_read_by_the_append_and_a_large_one_elsewhere(
    open_log: Callable[..., Log], codec: CompressionType
) -> None:
    for count, is_large in ((100, False), (2000, True)):
        log, data = open_log(MemoryFileSystem()), records_of(count)
        assert (len(data) > LIGHT_STREAM_BYTES_MAX) == is_large
        whole = compress(codec, data)
        behind = compress(codec, b"") if codec in (CompressionType.SNAPPY, CompressionType.ZSTD) else bytes(9)
        for frame, is_allowed in ((whole + behind, True), (whole[:-1], False)):
            records = packed(codec, frame, count)
            assert log.is_heavy(records) == is_large
            if is_large:
                with pytest.raises(HeavyBatch):
                    log.append_as_leader(records, 0, T0, fitting=Fitting.ELSEWHERE)
            end = log.log_end_offset
            try:
                ready = log.prepare(records, T0) if is_large else records
                log.append_as_leader(ready, 0, T0, fitting=Fitting.DONE if is_large else Fitting.ELSEWHERE)
            except ApiError as error:
                assert error.code is ErrorCode.INVALID_RECORD and not is_allowed and log.log_end_offset == end
            else:
                assert is_allowed and log.log_end_offset == end + count
        assert decompress(codec, log.read(0, 1 << 20, end_offset=count).slice.read()[61:], 1 << 20) == data


def test_a_large_block_of_raw_snappy_is_decompressed_elsewhere_and_its_records_are_not_walked_over(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, data = open_log(max_message_bytes=4 << 20), records_of(25_000)
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert len(data) > RAW_SNAPPY_BYTES_MAX and log.is_heavy(packed(2, raw, 25_000))
    monkeypatch.setattr(validation, "scan_records", None)
    ready = log.prepare(packed(2, raw, 25_000), T0)
    # What has been prepared is not decompressed another time.
    monkeypatch.setattr(compression, "_decompress_snappy_block", None)
    log.append_as_leader(ready, 0, T0, fitting=Fitting.DONE)
    assert log.log_end_offset == 25_000
    monkeypatch.undo()
    with pytest.raises(ApiError, match="snappy"):
        log.prepare(packed(2, raw[:-9], 25_000), T0)


@pytest.mark.parametrize("bound", [RAW_SNAPPY_BYTES_MAX, RAW_SNAPPY_LOOK_BYTES_MAX])
def test_raw_snappy_as_librdkafka_writes_it_is_appended_at_once_up_to_a_bound(open_log: Callable[..., Log], bound: int) -> None:
    log = open_log()
    for more in (0, 1):
        count = 1000
        data = records_of(count)
        data += record(count, b"x" * (bound + more - len(data) - 12))
        data += bytes(bound + more - len(data))
        packet = packed(2, bytes(cramjam.snappy.compress_raw(data)), count + 1)
        is_look = bound == RAW_SNAPPY_LOOK_BYTES_MAX
        assert log.is_heavy(packet) == (more == 1 or not is_look)
        if more and not is_look:
            with pytest.raises(HeavyBatch):
                log.append_as_leader(packet, 0, T0, fitting=Fitting.ELSEWHERE)
        else:
            end = log.log_end_offset
            log.append_as_leader(packet, 0, T0, fitting=Fitting.ELSEWHERE)
            assert log.log_end_offset == end + count + 1


def test_raw_snappy_that_is_longer_than_what_it_holds_is_not_decompressed_to_find_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 6000
    raw = bytes(cramjam.snappy.compress_raw(random.Random(1).randbytes(size)))
    assert is_whole_stream(2, memoryview(raw), 0, size)
    # Copies of one byte each take longer than all others.
    long = b"\xf0\x2e" + b"\0a" + b"\2\1\0" * (size - 17)
    monkeypatch.setattr(compression, "_decompress_snappy_block", None)
    assert not is_whole_stream(2, memoryview(long), 0, size)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_of_the_usual_form_is_not_decompressed(
    open_log: Callable[..., Log], codec: CompressionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = packed(codec, compress(codec, records_of(5000)), 5000)
    monkeypatch.setattr(validation, "scan_records", None)
    monkeypatch.setattr(validation, "is_larger_than", None)
    monkeypatch.setattr(compression, "_windows", None)
    log = open_log(MemoryFileSystem())
    assert not log.is_heavy(records)
    log.append_as_leader(records, 0, T0, fitting=Fitting.ELSEWHERE)
    assert log.log_end_offset == 5000
