"""Batches of metadata records: what fits into one, and what is divided."""

from __future__ import annotations

import pytest

from minikafka.broker.quorum import metadata_batch
from minikafka.broker.quorum.metadata_batch import MetadataBatch, batch_of, batches_of
from minikafka.wire.batch import OVERHEAD, iterate_batches
from minikafka.wire.errors import ApiError, ErrorCode


def test_a_batch_larger_than_the_log_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of([b"a" * 100, b"b" * 100])
    monkeypatch.setattr(metadata_batch, "BATCH_BYTES_MAX", batch.size)
    written = batch.assembled(1_000)
    assert len(written) == batch.size
    (read,) = iterate_batches(memoryview(written))
    assert read.records_count == 2 and [bytes(record.value or b"") for record in read.records()] == batch.values
    batch.add(b"")
    with pytest.raises(ApiError) as refused:
        batch.assembled(1_000)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_records_that_need_not_be_atomic_are_divided(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(metadata_batch, "RECORDS_MAX", 3)
    records = [bytes([number]) for number in range(count)]
    divided = batches_of(records, atomic=False)
    assert [value for batch in divided for value in batch.values] == records
    assert all(0 < len(batch) <= 3 for batch in divided) and len(divided) == -(-count // 3)
    assert [batch.values for batch in batches_of(records, atomic=True)] == [records]


def test_an_empty_batch_has_a_header_only() -> None:
    batch = MetadataBatch()
    assert len(batch) == 0 and batch.size == OVERHEAD and batches_of(batch, atomic=False) == [batch]
