"""The codecs: each against its library, and what a peer can make of them."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import tracemalloc
import zlib

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.wire.compression import (
    WINDOW_BYTES,
    CompressionType,
    CorruptRecord,
    TooLarge,
    compress,
    decompress,
    decompressed_windows,
    is_larger_than,
)

CODECS = list(CompressionType)
COMPRESSING = CODECS[1:]
MIB = 1 << 20
# Runs, chance and text: what compresses well, not at all, and somewhat.
PAYLOADS = [
    b"",
    b"a",
    bytes(300_000),
    random.Random(1).randbytes(200_000),
    b"".join(b'{"number": %d}' % n for n in range(20_000)),
    random.Random(2).randbytes(70_000) + bytes(500_000) + random.Random(3).randbytes(70_000),
]


def by_library(codec: CompressionType, data: bytes) -> bytes:
    if codec is CompressionType.GZIP:
        return gzip.compress(data)
    if codec is CompressionType.SNAPPY:
        return snappy.compress(data)
    if codec is CompressionType.LZ4:
        return lz4.frame.compress(data, block_linked=False)
    return zstandard.ZstdCompressor().compress(data) if codec is CompressionType.ZSTD else data


def streamed(codec: CompressionType, data: bytes) -> bytes:
    """As Java's output streams write it: nothing says how much there is."""
    if codec is CompressionType.ZSTD:
        encoder = zstandard.ZstdCompressor().compressobj()
        return encoder.compress(data) + encoder.flush()
    if codec is CompressionType.LZ4:
        return lz4.frame.compress(data, store_size=False, block_linked=False)
    return compress(codec, data)


def unpacked_by_library(codec: CompressionType, data: bytes) -> bytes:
    if codec is CompressionType.GZIP:
        return gzip.decompress(data)
    if codec is CompressionType.SNAPPY:
        out, position = b"", 16
        while position < len(data):
            (size,) = struct.unpack_from(">i", data, position)
            out += snappy.decompress(data[position + 4 : position + 4 + size])
            position += 4 + size
        return out
    if codec is CompressionType.LZ4:
        return lz4.frame.decompress(data)
    return zstandard.ZstdDecompressor().decompress(data) if codec is CompressionType.ZSTD else data


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: str(len(payload)))
@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_agrees_with_its_library(codec: CompressionType, payload: bytes) -> None:
    assert decompress(codec, by_library(codec, payload), len(payload)) == payload
    assert decompress(codec, streamed(codec, payload), len(payload)) == payload
    assert decompress(codec, memoryview(bytearray(compress(codec, payload))), len(payload)) == payload
    assert unpacked_by_library(codec, compress(codec, payload)) == payload


@pytest.mark.parametrize("codec", CODECS)
def test_windows_are_bounded_and_join_to_the_whole(codec: CompressionType) -> None:
    for payload in PAYLOADS:
        windows = list(decompressed_windows(codec, compress(codec, payload), len(payload)))
        assert b"".join(windows) == payload
        assert all(0 < len(window) <= WINDOW_BYTES for window in windows)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CODECS), st.binary(max_size=3000), st.integers(1, 60))
def test_compression_round_trip(codec: CompressionType, unit: bytes, times: int) -> None:
    data = unit * times
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_the_bound_is_exact(codec: CompressionType) -> None:
    for size in (1, WINDOW_BYTES - 1, WINDOW_BYTES, WINDOW_BYTES + 1, 3 * WINDOW_BYTES):
        packed = compress(codec, bytes(size))
        assert len(decompress(codec, packed, size)) == size
        assert not is_larger_than(codec, packed, size)
        assert is_larger_than(codec, packed, size - 1)
        with pytest.raises(TooLarge):
            decompress(codec, packed, size - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_costs_no_more_than_its_bound(codec: CompressionType) -> None:
    bomb = streamed(codec, bytes(64 * MIB))
    tracemalloc.start()
    with pytest.raises(TooLarge):
        decompress(codec, bomb, MIB)
    assert is_larger_than(codec, bomb, MIB)
    # The windows alone, until somebody has had enough.
    taken = decompressed_windows(codec, bomb, 1 << 40)
    assert sum(len(next(taken)) for _ in range(4)) <= 4 * WINDOW_BYTES
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * MIB + 2 * len(bomb)


def test_a_raw_snappy_block_that_claims_more_than_it_can_hold_is_damaged() -> None:
    claimed = b"\xff\xff\xff\xff\x07" + bytes(100)
    with pytest.raises(CorruptRecord, match="claims to contain"):
        decompress(CompressionType.SNAPPY, claimed, 1 << 40)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_cut_input_is_damaged(codec: CompressionType) -> None:
    payload = random.Random(4).randbytes(5000) + bytes(200_000)
    packed = compress(codec, payload)
    for cut in (*range(1, 40), len(packed) // 2, len(packed) - 9, len(packed) - 1):
        if codec is CompressionType.SNAPPY and cut < 20:
            continue  # the header alone is an empty stream, and less than a length ends it
        with pytest.raises(CorruptRecord):
            decompress(codec, packed[:cut], 1 << 30)


@pytest.mark.parametrize("payload", [b"", b"x", random.Random(4).randbytes(300), bytes(300_000)], ids=len)
@pytest.mark.parametrize("checksum", [False, True])
def test_the_first_frame_of_zstd_is_whole_to_its_last_byte(payload: bytes, checksum: bool) -> None:
    """The library gives what a cut frame holds; Java's refuses it, but only if it is the first."""
    frame = zstandard.ZstdCompressor(write_checksum=checksum).compress(payload)
    skipped = struct.pack("<II", 0x184D2A50, 5) + b"other"
    for whole, expected in ((frame, payload), (frame + frame, payload * 2), (skipped + frame, payload), (frame + skipped, payload)):
        assert decompress(CompressionType.ZSTD, whole, 1 << 30) == expected
    for cut in (1, 2, 3, 4, 5):
        with pytest.raises(CorruptRecord):
            decompress(CompressionType.ZSTD, frame[:-cut], 1 << 30)
        assert decompress(CompressionType.ZSTD, frame + skipped[:-cut], 1 << 30) == payload
        assert (payload * 2).startswith(decompress(CompressionType.ZSTD, frame + frame[:-cut], 1 << 30))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(COMPRESSING), st.binary(max_size=200), st.integers(0, 10_000), st.integers(0, 255))
def test_damaged_input_is_a_corrupt_record_or_other_bytes(codec: CompressionType, data: bytes, at: int, byte: int) -> None:
    packed = bytearray(compress(codec, data * 3))
    packed[at % len(packed)] = byte
    for candidate in (bytes(packed), data):
        with contextlib.suppress(CorruptRecord):
            assert len(decompress(codec, candidate, 4096)) <= 4096


def test_an_unknown_codec_is_a_corrupt_record() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(CorruptRecord, match="unknown"):
            decompress(codec, b"abc", 100)


# ---- what Kafka's Java code reads, and what it refuses (checked against kafka-clients 4.3.1 on Java 17) ---------------------------


def stored(data: bytes) -> bytes:
    """A member of gzip that takes 28 bytes more than its data."""
    encoder = zlib.compressobj(0, zlib.DEFLATED, 31)
    return encoder.compress(data) + encoder.flush()


@pytest.mark.parametrize(
    "behind",
    [b"", b"rubbish", gzip.compress(b"", mtime=0)[:18], bytes(40), b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 30],
    ids=["nothing", "rubbish", "a cut member", "zeros", "a header without an end"],
)
def test_members_of_gzip_are_read_on(behind: bytes) -> None:
    assert decompress(CompressionType.GZIP, gzip.compress(b"one") + gzip.compress(b"") + gzip.compress(b"two") + behind, 99) == b"onetwo"


def test_a_cut_member_of_gzip_is_damaged() -> None:
    for cut in range(1, 8):
        with pytest.raises(CorruptRecord):
            decompress(CompressionType.GZIP, gzip.compress(b"one") + gzip.compress(b"second")[:-cut], 99)


@pytest.mark.parametrize("size", [8170, 8187, 8188, 8192, 20_000])
def test_members_of_gzip_end_anywhere(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert decompress(CompressionType.GZIP, stored(data) + stored(b"second"), 1 << 20) == data + b"second"


@pytest.mark.parametrize(("flag", "field"), [(4, b"\3\0abc"), (8, b"name\0"), (16, b"words\0")])
def test_fields_of_a_gzip_header(flag: int, field: bytes) -> None:
    packed = bytearray(gzip.compress(b"x" * 99))
    packed[3] |= flag | 2
    head = bytes(packed[:10]) + field
    checksum = struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    assert decompress(CompressionType.GZIP, head + checksum + packed[10:], 99) == b"x" * 99
    with pytest.raises(CorruptRecord, match="header"):
        decompress(CompressionType.GZIP, head + b"\0\0" + packed[10:], 99)


@pytest.mark.parametrize(("at", "bits", "text"), [(4, 0x20, "depend on each"), (4, 1, "refuses"), (4, 2, "refuses"), (5, 1, "refuses")])
def test_descriptors_of_lz4_that_kafka_refuses(at: int, bits: int, text: str) -> None:
    packed = bytearray(compress(CompressionType.LZ4, b"x" * 99))
    packed[at] ^= bits
    with pytest.raises(CorruptRecord, match=text):
        decompress(CompressionType.LZ4, packed, 99)


def test_blocks_of_lz4_that_depend_on_each_other_are_refused() -> None:
    with pytest.raises(CorruptRecord, match="depend"):
        decompress(CompressionType.LZ4, lz4.frame.compress(bytes(200_000), block_linked=True, block_size=4), 1 << 20)


def test_streams_of_snappy_are_read_on() -> None:
    one, two = compress(CompressionType.SNAPPY, b"one"), compress(CompressionType.SNAPPY, b"two")
    assert decompress(CompressionType.SNAPPY, one + two + b"abc", 99) == b"onetwo"
    with pytest.raises(CorruptRecord, match="header"):
        decompress(CompressionType.SNAPPY, one + two[:11] + b"\0" + two[12:], 99)
