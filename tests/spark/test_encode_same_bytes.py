"""Batches are, byte for byte, those of the encoder that was written first, for any table; partitions too."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

from helpers import encode_reference  # noqa: E402

from minikafka.spark import encode, framing  # noqa: E402
from minikafka.wire.compression import CompressionType, compress  # noqa: E402

KEY_LENGTHS: list[list[int | None]] = [[None], [0], [12], [7], [0, 1, 5, 70, 200], [None, 3, 4], [16, 8]]
VALUE_LENGTHS: list[list[int | None]] = [[None], [0], [100], [0, 3, 64, 130, 900], [None, 63, 64, 65, 8191, 8192, 8193], [1 << 20, 3]]
TIME_SPREADS = [0, 1, 63, 100, 10**7, 10**12, 2**62]


def column(generator: random.Random, lengths: list[int | None], rows: int) -> Any:
    chosen = [generator.choice(lengths) for _ in range(rows)]
    return pa.array([None if length is None else generator.randbytes(length) for length in chosen], pa.binary())


def same(batches: Any, reference: Any) -> None:
    found = [(batch.partition, batch.records, bytes(batch.data)) for batch in batches]
    assert found == [(batch.partition, batch.records, bytes(batch.data)) for batch in reference]


@pytest.mark.parametrize("seed", range(120))
def test_random_tables_give_the_same_bytes(seed: int) -> None:
    generator = random.Random(seed)
    values_of = generator.choice(VALUE_LENGTHS)
    rows = generator.choice([1, 2, 7, 100, 3000]) if 1 << 20 not in values_of else 9
    cut = generator.choice([0, 0, 1, rows // 2]) if rows > 2 else 0
    keys = column(generator, generator.choice(KEY_LENGTHS), rows).slice(cut) if generator.random() < 0.8 else None
    values = column(generator, values_of, rows).slice(cut)
    spread = generator.choice(TIME_SPREADS)
    times = np.array([1_700_000_000_000 + generator.randrange(-spread, spread + 1) for _ in range(len(values))], np.int64)
    headers = [(name, column(generator, lengths, rows).slice(cut)) for name, lengths in (("a", [None, 0, 5]), ("länge", [3]))]
    partitions, first_row = generator.choice([1, 4, 8, 100]), generator.choice([0, 12345])
    partition = encode.partitions_of(keys, len(values), partitions, first_row)
    assert partition.tolist() == encode_reference.partitions_of(keys, len(values), partitions, first_row).tolist()
    options: dict[str, Any] = {
        "batch_bytes": generator.choice([100, 5000, 50_000, 1 << 19]), "now_ms": 5, "codec": generator.randrange(5),
        "timestamps": times if generator.random() < 0.6 else None, "headers": headers if generator.random() < 0.4 else None,
        "compress": lambda kind, data: bytes(compress(CompressionType(kind), data)),
    }  # fmt: skip
    same(encode.encode_rows(keys, values, partition, **options), encode_reference.encode_rows(keys, values, partition, **options))


def test_the_table_of_the_bench_in_one_pass() -> None:
    rows = 1 << 15
    keys = pa.array([b"key-%08d" % number for number in range(rows)], pa.binary())
    values = pa.array([random.Random(number).randbytes(100) for number in range(rows)], pa.binary())
    partition = encode.partitions_of(keys, rows, 8)
    batches = list(encode.encode_rows(keys, values, partition, batch_bytes=512 << 10, now_ms=7))
    same(batches, encode_reference.encode_rows(keys, values, partition, batch_bytes=512 << 10, now_ms=7))
    assert len(batches) >= 8 and sum(batch.records for batch in batches) == rows


def test_bytes_behind_a_null_and_rows_without_any_byte() -> None:
    offsets, data = pa.py_buffer(np.array([0, 3, 6, 9], np.int32)), pa.py_buffer(b"abcXYZdef")
    keys = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\x05"), offsets, data])
    assert keys.to_pylist() == [b"abc", None, b"def"]
    partition = np.zeros(3, np.int64)
    same(encode.encode_rows(keys, keys, partition, batch_bytes=1000, now_ms=1),
         encode_reference.encode_rows(pa.array(keys.to_pylist(), pa.binary()), pa.array(keys.to_pylist(), pa.binary()), partition,
                                      batch_bytes=1000, now_ms=1))  # fmt: skip
    nothing = pa.array([None, None], pa.binary())
    same(encode.encode_rows(nothing, nothing, partition[:2], batch_bytes=10, now_ms=1),
         encode_reference.encode_rows(nothing, nothing, partition[:2], batch_bytes=10, now_ms=1))  # fmt: skip
    assert list(encode.encode_rows(nothing[:0], nothing[:0], partition[:0], batch_bytes=10, now_ms=1)) == []


def test_varints_at_every_bound() -> None:
    edges = sorted({max(0, (1 << bits) + step) for bits in range(0, 35) for step in (-1, 0, 1)})
    values = np.array(edges, np.uint64)
    found = framing.varint_words(values)
    assert found is not None
    for value, word, length in zip(edges, found[0].tolist(), found[1].tolist(), strict=True):
        wanted = bytearray()
        rest = value
        while rest >= 0x80:
            wanted.append(rest & 0x7F | 0x80)
            rest >>= 7
        wanted.append(rest)
        assert word.to_bytes(8, "little")[:length] == bytes(wanted) and word >> (8 * length) == 0
    assert framing.varint_words(np.array([1 << 35], np.uint64)) is None
