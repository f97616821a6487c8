"""Records walked over in windows, compared with the decoder that holds them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.wire.batch import OVERHEAD, RecordBatch, build_batch
from minikafka.wire.compression import CompressionType, TooLarge, compress
from minikafka.wire.errors import CorruptRecord
from minikafka.wire.record import encode_record
from minikafka.wire.record_scan import scan_records

_contents = st.one_of(st.none(), st.binary(max_size=40), st.integers(0, 200_000).map(bytes))
_headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=70_000 // 4))), max_size=3)
_records = st.lists(st.tuples(st.just(0), st.integers(0, 1 << 50), _contents, _contents, _headers), min_size=1, max_size=6)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(list(CompressionType)), _records)
def test_outlines_are_those_of_the_records(codec: CompressionType, records: list) -> None:
    batch = RecordBatch(build_batch(records, compression=codec))
    outlines = list(scan_records(codec, batch.view[OVERHEAD:], len(records), 1 << 30))
    base = batch.base_timestamp
    assert outlines == [(r.offset, r.timestamp - base, -1 if r.key is None else len(r.key)) for r in batch.records()]


@settings(max_examples=150, deadline=None)
@given(_records, st.integers(0, 1 << 20), st.integers(0, 255), st.integers(-2, 2))
def test_damaged_records_are_refused_by_both_or_walked_alike(records: list, at: int, byte: int, more: int) -> None:
    body = bytearray(b"".join(encode_record(n, r[1] - records[0][1], r[2], r[3], r[4]) for n, r in enumerate(records)))
    body[at % min(len(body), 64)] = byte
    count = max(len(records) + more, 0)
    found = []
    for codec in (CompressionType.NONE, CompressionType.LZ4):
        try:
            found.append(list(scan_records(codec, compress(codec, body), count, 1 << 30)))
        except CorruptRecord:
            found.append(None)
    assert found[0] == found[1]


@pytest.mark.parametrize("codec", list(CompressionType)[1:])
def test_stopping_early_does_not_decompress_the_rest(codec: CompressionType) -> None:
    body = compress(codec, b"".join(encode_record(n, n, b"k", bytes(8 << 20), ()) for n in range(4)))
    scan = scan_records(codec, body, 4, 1 << 20)
    with pytest.raises(TooLarge):
        next(scan)
    scan = scan_records(codec, body, 4, 9 << 20)
    assert next(scan) == (0, 0, 1)
    with pytest.raises(TooLarge):
        list(scan)
