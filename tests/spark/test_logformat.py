"""The audit's own reader against what another reader found in real logs (facts.json), and against broken bytes."""

from __future__ import annotations

import contextlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from minikafka.spark import logformat
from minikafka.spark.logformat import FormatError, SegmentReader
from minikafka.spark.records import check_records, decode_records, decompress

GOLDEN = Path(__file__).parents[1] / "golden" / "logs"


def batches_of(path: Path, window_bytes: int = 4 << 20) -> list[logformat.Batches]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = []
        for batches in SegmentReader(descriptor, os.path.getsize(path), window_bytes=window_bytes):
            batches.window = memoryview(bytes(batches.window))
            found.append(batches)
        return found
    finally:
        os.close(descriptor)


def facts() -> list[tuple[Path, dict[str, Any]]]:
    return [
        (file.parent / name, entry)
        for file in sorted(GOLDEN.glob("*/facts.json"))
        for name, entry in json.loads(file.read_text()).items()
        if name.endswith(".log") and "rows" in entry and (file.parent / name).exists()
    ]


FACTS = facts()


@pytest.mark.parametrize("window_bytes", [1 << 22, 300])
def test_batches_agree_with_the_facts(window_bytes: int) -> None:
    assert len(FACTS) > 40
    checked = 0
    for path, entry in FACTS:
        if "ALTERED" in str(path):
            continue
        found = batches_of(path, window_bytes)
        rows = [
            [part.base_offset[n], part.last_offset[n], part.position[n], part.size[n], part.header["epoch"][n], part.header["crc"][n],
             part.header["attributes"][n], part.header["base_timestamp"][n], part.header["max_timestamp"][n], part.header["producer_id"][n],
             part.header["producer_epoch"][n], part.header["base_sequence"][n], part.header["count"][n]]
            for part in found for n in range(len(part))
        ]  # fmt: skip
        assert rows == entry["rows"], path
        assert sum(int((part.header["crc"] != part.crc).sum()) for part in found) == len(entry["bad_crc_at"])
        checked += len(rows)
    assert checked > 500


@pytest.mark.parametrize("topic", ["codec-none-0", "codec-gzip-0", "codec-snappy-0", "codec-lz4-0", "codec-zstd-0"])
def test_records_are_the_same_under_every_codec(topic: str) -> None:
    def records(name: str) -> list[Any]:
        found = []
        for batches in batches_of(GOLDEN / "single-stopped" / name / f"{0:020d}.log"):
            columns, wrong = decode_records(batches)
            assert wrong == {}
            found += [
                (int(columns.offset[n]), int(columns.timestamp[n]), columns.key(n), columns.value(n), columns.headers(n))
                for n in range(len(columns))
            ]
        return found

    plain = records("codec-none-0")
    assert len(plain) == 47 and records(topic) == plain
    names = [name.decode() for name, _ in plain[4][4]]
    assert names == ["h", "h", "empty", "null", "", "ключ"] and dict(plain[4][4])[b"null"] is None and dict(plain[4][4])[b"empty"] == b""


def test_many_blocks_and_long_varints_decode() -> None:
    for topic, count in (("blocks-0", None), ("varint-0", 8204)):
        total = 0
        for batches in batches_of(GOLDEN / "single-stopped" / topic / f"{0:020d}.log"):
            columns, wrong = decode_records(batches)
            assert wrong == {}
            total += len(columns)
        assert count is None or total == count


def test_flipped_and_cut_bytes_never_raise_anything_else() -> None:
    generator = random.Random(5)
    data = (GOLDEN / "single-stopped" / "mixed-0" / f"{0:020d}.log").read_bytes()
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(generator.randrange(1, 6)):
            broken[generator.randrange(len(broken))] = generator.randrange(256)
        batches, used, why = logformat.walk(memoryview(broken)[: generator.randrange(len(broken) + 1)])
        assert used <= len(broken) and why in {"end", "more", "length"}
        decode_records(batches)


def test_random_bytes_as_small_files_raise_only_format_errors() -> None:
    generator = random.Random(6)
    for size in range(200):
        data = generator.randbytes(size)
        for parse in (
            logformat.parse_offset_index, logformat.parse_time_index, logformat.parse_txn_index, logformat.parse_snapshot,
            logformat.parse_offset_checkpoint, logformat.parse_epoch_checkpoint, logformat.parse_partition_metadata,
        ):  # fmt: skip
            with contextlib.suppress(FormatError):
                parse(data)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_decompression_is_bounded(codec: int) -> None:
    import gzip

    import cramjam
    import lz4.frame
    import zstandard

    big = bytes(4 << 20)
    packed = {
        1: gzip.compress, 2: lambda data: bytes(cramjam.snappy.compress_raw(data)),
        3: lambda data: lz4.frame.compress(data, block_linked=False), 4: zstandard.compress,
    }[codec](big)  # fmt: skip
    with pytest.raises(FormatError, match="grows beyond"):
        decompress(codec, memoryview(packed), 1 << 20)
    assert bytes(decompress(codec, memoryview(packed), 8 << 20)) == big


def test_what_follows_a_compressed_stream_is_read_as_java_reads_it() -> None:
    """Members and frames behind the first one belong to the records. Behind gzip and lz4 anything else is passed over."""
    import gzip

    import lz4.frame
    import zstandard

    for codec, pack in ((1, gzip.compress), (4, zstandard.compress)):
        assert bytes(decompress(codec, memoryview(pack(b"one") + pack(b"two")))) == b"onetwo"
        with pytest.raises(FormatError, match="grows beyond"):
            decompress(codec, memoryview(pack(b"one") + pack(bytes(1 << 20))), 1 << 19)
    assert bytes(decompress(1, memoryview(gzip.compress(b"one") + b"rubbish"))) == b"one"
    assert bytes(decompress(1, memoryview(gzip.compress(b"") + b"rubbish"))) == b""
    assert bytes(decompress(3, memoryview(lz4.frame.compress(b"one") + b"rubbish"))) == b"one"
    with pytest.raises(FormatError):
        decompress(4, memoryview(zstandard.compress(b"one") + b"rubbish"))
    with pytest.raises(FormatError, match="checksum"):
        decompress(1, memoryview(gzip.compress(b"one") + gzip.compress(b"two")[:-2]))
    with pytest.raises(FormatError, match="truncated"):
        decompress(1, memoryview(gzip.compress(b"one") + gzip.compress(bytes(range(99)))[:-20]))
    assert bytes(decompress(1, memoryview(gzip.compress(b"one") + gzip.compress(b"two")[:-9]))) == b"one", "too short for a member"


def test_names() -> None:
    assert logformat.parse_partition_name("my-topic-3") == ("my-topic", 3)
    assert logformat.parse_partition_name("t-0.0123456789abcdef0123456789abcdef-delete") is None
    assert logformat.parse_partition_name("t-0.0123456789abcdef0123456789abcdef-future") is None
    assert logformat.parse_partition_name("root") is None
    assert logformat.parse_segment_name("00000000000000000007.log") == (7, "log")
    assert logformat.parse_segment_name("00000000000000000007.log.deleted") is None


@pytest.mark.parametrize("damage", [False, True])
def test_both_ways_of_decoding_agree(monkeypatch: pytest.MonkeyPatch, damage: bool) -> None:
    generator = random.Random(4)
    compared = 0
    for path, _ in FACTS:
        for batches in batches_of(path):
            if damage:
                window = bytearray(batches.window)
                for _ in range(1 + len(window) // 500):
                    window[generator.randrange(len(window))] ^= 1 << generator.randrange(8)
                batches.window = memoryview(bytes(window))
            outcomes = []
            for least in (0, 1 << 30):
                monkeypatch.setattr("minikafka.spark.records.LOCKSTEP_MIN", least)
                records, wrong = decode_records(batches)
                columns = [getattr(records, name).tolist() for name in records.__slots__ if name != "data"]
                largest, also_wrong = check_records(batches)
                sound = [index for index in range(len(batches)) if index not in also_wrong]
                outcomes.append((columns, wrong, also_wrong, largest[sound].tolist()))
            assert outcomes[0] == outcomes[1], path
            compared += len(outcomes[0][0][0])
    assert compared > 1000


@pytest.mark.parametrize(("entries", "size", "read"), [(0, 10 << 20, 0), (3, 10 << 20, 8192), (3, 24, 24), (3, 25, 25), (1, 0, 8)])
def test_the_unused_part_of_a_preallocated_index_is_not_read(tmp_path: Path, entries: int, size: int, read: int) -> None:
    """With an entry far behind a hole too, what is left out holds nothing."""
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(b"".join(number.to_bytes(4, "big") * 2 for number in range(1, entries + 1)))
    os.truncate(path, max(size, path.stat().st_size))
    with path.open("rb") as file:
        found = logformat.read_index(file, 8, 1 << 30)
    assert len(found) <= read
    assert path.read_bytes().startswith(found) and not path.read_bytes()[len(found) :].strip(b"\0")
    if size > 1 << 20:
        with path.open("r+b") as file:
            file.seek(5 << 20)
            file.write(b"\1" * 8)
        with path.open("rb") as file:
            assert logformat.read_index(file, 8, 1 << 30)[5 << 20 :].startswith(b"\1" * 8)


def test_many_small_members_are_unpacked_in_time_that_grows_with_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """zlib copies the rest behind a member: what it is given in all is a small multiple of the data."""
    import gzip
    import zlib

    given = 0
    make = zlib.decompressobj

    class Counted:
        def __init__(self, bits: int) -> None:
            self.inner = make(bits)

        def decompress(self, data: bytes, most: int) -> bytes:
            nonlocal given
            given += len(data)
            return self.inner.decompress(data, most)

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    monkeypatch.setattr("minikafka.spark.records.zlib.decompressobj", Counted)
    large = bytes(range(256)) * 8
    data = gzip.compress(b"x") * 3000 + gzip.compress(large, 0) * 100
    assert bytes(decompress(1, memoryview(data))) == b"x" * 3000 + large * 100
    assert given < 30 * len(data)
