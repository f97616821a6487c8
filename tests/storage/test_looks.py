"""A look at a batch, and what an append does at once, take a bounded number of steps, whatever a client has made of the stream."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from helpers.batches import T0, batch
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.broker.partitions.produce_preparation import Look
from minikafka.net.turn_share import TurnShares
from minikafka.storage.log import Log
from minikafka.storage.timestamp_lookup import TimestampCandidate
from minikafka.storage.validation import LIGHT_BYTES_MAX, Fitting, HeavyBatch
from minikafka.wire import compression
from minikafka.wire.compression import BLOCKS_MAX, PIECES_MAX, XERIAL_HEADER, CompressionType, compress, is_larger_than
from minikafka.wire.errors import ApiError
from minikafka.wire.messages.produce import ProduceRequest

GZIP, SNAPPY, LZ4, ZSTD = (CompressionType(codec) for codec in (1, 2, 3, 4))
#: Lines of Python that one look runs at most, each with one call of a library: some ten for each block that it may step over.
STEPS_MAX = 12 * BLOCKS_MAX
#: The longest streams that are not heavy for their length.
LONGEST = LIGHT_BYTES_MAX - 100
EMPTY_MEMBER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\3\0" + bytes(8)
NAMED = b"\x1f\x8b\x08\x08\0\0\0\0\0\xff"
COMMENTED = b"\x1f\x8b\x08\x10\0\0\0\0\0\xff"
ZSTD_FRAME = zstandard.ZstdCompressor().compress(b"")[:6]


def snappy_block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


#: Streams by the unit that is repeated: codec, what stands before it, the unit, what stands behind.
HOSTILE: dict[str, tuple[CompressionType, bytes, bytes, bytes]] = {
    "gzip: empty members": (GZIP, b"", EMPTY_MEMBER, b""),
    "gzip: named members": (GZIP, b"", NAMED + b"n\0" + EMPTY_MEMBER[10:], b""),
    "gzip: a long name": (GZIP, NAMED, b"n", b""),
    "gzip: a long name that ends": (GZIP, NAMED, b"n", b"\0" + EMPTY_MEMBER[10:]),
    "gzip: a long comment": (GZIP, COMMENTED, b"n", b""),
    "gzip: empty blocks": (GZIP, EMPTY_MEMBER[:10], b"\0\0\0\xff\xff", EMPTY_MEMBER[10:]),
    "snappy: empty blocks": (SNAPPY, XERIAL_HEADER, snappy_block(b"\0"), b""),
    "snappy: tiny blocks": (SNAPPY, XERIAL_HEADER, snappy_block(b"\1\0x"), b""),
    "snappy: empty streams": (SNAPPY, XERIAL_HEADER, XERIAL_HEADER, b""),
    "snappy: cut": (SNAPPY, XERIAL_HEADER, snappy_block(b"\0"), b"\0\0\0\x09"),
    "lz4: tiny blocks": (LZ4, compress(LZ4, b"")[:7], b"\1\0\0\x80x", bytes(4)),
    "lz4: tiny blocks without an end": (LZ4, compress(LZ4, b"")[:7], b"\1\0\0\x80x", b""),
    "zstd: empty blocks": (ZSTD, ZSTD_FRAME, b"\0\0\0", b"\x09\0\0x"),
    "zstd: tiny blocks": (ZSTD, ZSTD_FRAME, b"\x08\0\0x", b"\x09\0\0x"),
    "zstd: tiny blocks without an end": (ZSTD, ZSTD_FRAME, b"\x08\0\0x", b""),
    "zstd: empty frames": (ZSTD, b"", ZSTD_FRAME + b"\1\0\0", b""),
    "zstd: skippable frames": (ZSTD, b"", struct.pack("<II", 0x184D2A50, 0), b""),
}  # fmt: skip


def stream(name: str, size: int = LONGEST) -> tuple[CompressionType, bytes]:
    codec, head, unit, end = HOSTILE[name]
    return codec, head + unit * ((size - len(head) - len(end)) // len(unit)) + end


def steps_of(function: Callable[[], Any]) -> int:
    """Lines of Python that run."""
    lines = 0

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        function()
    finally:
        sys.settrace(before)
    return lines


def append(log: Log, records: memoryview) -> None:
    try:
        log.append_as_leader(records, 0, T0, fitting=Fitting.ELSEWHERE)
    except HeavyBatch:
        assert log.is_heavy(records)
    except ApiError:
        assert log.log_end_offset == 0


@pytest.mark.parametrize("size", [LONGEST, LONGEST // 2, LONGEST // 5])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_look_takes_a_bounded_number_of_steps(open_log: Callable[..., Log], name: str, size: int) -> None:
    codec, body = stream(name, size)
    configs: list[dict[str, Any]] = [{}, {"cleanup_policy": frozenset({"compact"})}, {"compression_type": "zstd"}]
    for config in configs:
        for count in (1, 5):
            log = open_log(MemoryFileSystem(), **config)
            records = memoryview(batch(payload=body, count=count, attributes=int(codec)))
            assert steps_of(lambda log=log, records=records: log.is_heavy(records)) <= STEPS_MAX
            # A look, the check itself, and what both find.
            assert steps_of(lambda log=log, records=records: append(log, records)) <= 3 * STEPS_MAX


@pytest.mark.parametrize("name", HOSTILE)
def test_a_look_up_by_time_knows_in_a_bounded_number_of_steps_whether_it_takes_long(name: str) -> None:
    for size in (LONGEST, 1 << 20):
        codec, body = stream(name, size)
        candidate = TimestampCandidate(bytes(batch(payload=body, count=5, attributes=int(codec))), 0, 0)
        assert steps_of(lambda candidate=candidate: candidate.is_heavy) <= STEPS_MAX


@pytest.mark.parametrize(("codec", "unit"), [(GZIP, EMPTY_MEMBER), (SNAPPY, snappy_block(b"\0"))])
def test_a_look_decompresses_a_bounded_number_of_pieces(codec: CompressionType, unit: bytes) -> None:
    head = XERIAL_HEADER if codec is SNAPPY else b""
    assert not is_larger_than(codec, head + unit * PIECES_MAX, LIGHT_BYTES_MAX)
    assert is_larger_than(codec, head + unit * (PIECES_MAX + 1), LIGHT_BYTES_MAX)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_look_decompresses_no_long_stream(codec: CompressionType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block of gzip or zstd may bring tables of its own, which take long to build."""
    monkeypatch.setattr(compression, "_windows", None)
    size = 8192
    longest = (size // 4 if codec in (GZIP, ZSTD) else 2 * size) + 1024
    assert is_larger_than(codec, bytes(longest + 1), size)


def test_the_name_of_a_member_of_gzip_may_be_long() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = packer.compress(b"one") + packer.flush() + struct.pack("<II", zlib.crc32(b"one"), 3)
    for length in (0, 1, compression.NAME_PIECE_BYTES - 1, compression.NAME_PIECE_BYTES, 3 * compression.NAME_PIECE_BYTES + 5):
        text = b"n" * length + b"\0"
        for head in (NAMED + text, COMMENTED + text, NAMED[:3] + b"\x18" + NAMED[4:] + text + text):
            assert compression.decompress(GZIP, head + data, 9) == b"one"
        with pytest.raises(compression.CorruptRecord):
            compression.decompress(GZIP, NAMED + text[:-1], 9)


def test_of_a_clients_batches_only_the_first_tells_whether_a_segment_begins(open_log: Callable[..., Log]) -> None:
    """A client may send very many, which are refused."""
    settings: dict[str, Any] = {"cleanup_policy": frozenset({"compact"})}
    open_log(**settings).append_as_leader(memoryview(batch(b"x")), 0, T0)
    log = open_log(recovery_point=1, **settings)
    assert log.durability.must_sync_for_roll
    records = bytes(batch(b"x")) * 900
    data = ProduceRequest.PartitionProduceData(index=0, records=memoryview(records))
    request = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[data])])
    replicas: Any = SimpleNamespace(partitions={("t", 0): SimpleNamespace(leader=True, log=log)}, partitions_by_id={})
    context: Any = SimpleNamespace(api_version=9, connection=None)
    look = Look(replicas, context, request)
    assert steps_of(lambda: look.go_on(T0, TurnShares(lambda: 0.0))) < 300
    assert look.found == []
