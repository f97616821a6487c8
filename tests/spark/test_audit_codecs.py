"""Compressed batches: the audit unpacks them as Kafka's clients do, and as an oracle that shares no code with it."""

from __future__ import annotations

import random
from collections import Counter

import lz4.frame
import pytest
from helpers.log_oracle_codecs import GZIP, LZ4, SNAPPY, XERIAL, ZSTD, packed, unpacked

from minikafka.spark.logformat import FormatError
from minikafka.spark.records import decompress

CASES = 4000


def by_audit(codec: int, data: bytes) -> bytes | None:
    try:
        return bytes(decompress(codec, memoryview(data)))
    except FormatError:
        return None


def damaged(chance: random.Random, codec: int, whole: bytes) -> tuple[str, bytes]:
    """What became of a stream, and its bytes."""
    how = chance.choice(["cut", "rubbish", "bit", "twice"])
    if how == "cut":
        return how, whole[: -chance.randrange(1, min(12, len(whole)))]
    if how == "rubbish":
        return how, whole + chance.randbytes(chance.randrange(1, 9))
    if how == "twice":
        return how, whole + packed(codec, b"more" * chance.randrange(1, 9))
    changed = bytearray(whole)
    changed[chance.choice([chance.randrange(len(whole)), chance.randrange(min(20, len(whole)))])] ^= 1 << chance.randrange(8)
    return how, bytes(changed)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_whatever_a_consumer_cannot_unpack_is_no_pass(codec: int) -> None:
    chance = random.Random(codec)
    outcomes: Counter[tuple[str, bool]] = Counter()
    for _ in range(CASES // 4):
        records = bytes(chance.choice(b"abcd") for _ in range(chance.randrange(1, 300))) * chance.choice([1, 1, 3])
        whole = packed(codec, records)
        assert by_audit(codec, whole) == unpacked(codec, whole) == records
        how, data = damaged(chance, codec, whole)
        expected, found = unpacked(codec, data), by_audit(codec, data)
        # liblz4 takes a distance of 0, and what Java makes of the reserved flags of gzip differs between versions.
        if found != expected and (codec, how) not in {(LZ4, "bit"), (GZIP, "bit")}:
            pytest.fail(f"codec {codec}, {how}: {data.hex()}")
        outcomes[how, expected is None] += 1
    assert outcomes["cut", True] > 100 and outcomes["twice", False] > 100


def test_blocks_of_lz4_that_depend_on_each_other_are_refused() -> None:
    """Kafka's clients do not read them (Lz4BlockOutputStream.FLG)."""
    data = lz4.frame.compress(bytes(200_000), block_linked=True)
    assert unpacked(LZ4, data) is by_audit(LZ4, data) is None


@pytest.mark.parametrize("header", [XERIAL + bytes(8), XERIAL + b"\xff\xff\xff\xff\0\0\0\1", XERIAL])
def test_a_header_of_snappy_that_java_refuses_is_refused(header: bytes) -> None:
    data = header + packed(SNAPPY, b"x" * 9)[16:]
    assert unpacked(SNAPPY, data) is by_audit(SNAPPY, data) is None
