"""Records of `__transaction_state`: what Apache Kafka 4.3 wrote, the coordinator writes too when it is asked the same at the same times."""

from __future__ import annotations

import pytest
from helpers import golden_logs

from minikafka.core.java_hash import string_hash
from minikafka.core.transaction import records
from minikafka.core.transaction.coordinator import TransactionShard
from minikafka.core.transaction.effects import TransactionConfig
from minikafka.core.transaction.records import transaction_from, transaction_key, transaction_value
from minikafka.core.transaction.state import Transaction, TransactionState
from minikafka.wire.batch import RecordBatch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.records.frame import decode_transaction_key, decode_transaction_value, encode_coordinator_key, encode_coordinator_value

S = TransactionState
STORED = [
    record
    for index in (0, 1)
    for batch in golden_logs.stored_batches(f"single-stopped/__transaction_state-{index}")
    for record in RecordBatch(batch).records()
]


def _decoded(record: object) -> Transaction:
    key = decode_transaction_key(bytes(record.key))  # type: ignore[attr-defined]
    return transaction_from(key, decode_transaction_value(key, bytes(record.value)))  # type: ignore[attr-defined]


def test_every_stored_record_is_written_again_byte_for_byte() -> None:
    assert len(STORED) == 34
    for record in STORED:
        value, version = transaction_value(_decoded(record), 2)
        assert encode_coordinator_key(transaction_key(_decoded(record).transactional_id)) == bytes(record.key)
        assert encode_coordinator_value(value, version) == bytes(record.value)


def test_transaction_version_0_writes_values_without_tags() -> None:
    value, version = transaction_value(_decoded(STORED[1]), 0)
    assert version == 0 and len(encode_coordinator_value(value, version)) < len(bytes(STORED[1].value))


@pytest.mark.parametrize("name", ["tx-compact", "tx-compact2", "tx-commit", "tx-abort", "tx-open"])
def test_the_same_requests_make_the_same_records(name: str) -> None:
    """The requests are read from the states; times and producer id are those of the log."""
    expected = [record for record in STORED if _decoded(record).transactional_id == name]
    shard = TransactionShard(TransactionConfig(), 0, lambda: 2)
    made: list[bytes] = []

    def carry_out(now_ms: int) -> None:
        while effects := shard.take_effects():
            for give in effects.ids:
                give(ErrorCode.NONE, _decoded(expected[0]).producer_id, now_ms)
            for append in effects.appends:
                made.extend(encode_coordinator_value(r.value, r.version) for r in append.records)
                for r in append.records:
                    shard.replay(r.key, r.value)
                done_ms = _decoded(expected[min(len(made), len(expected) - 1)]).update_ms
                append.on_settled(True, done_ms)
                append.on_done(ErrorCode.NONE, done_ms)
            for markers in effects.markers:
                shard.markers_answered(markers, dict.fromkeys(sorted(markers.partitions), ErrorCode.NONE), 0)

    for record in expected:
        wanted = _decoded(record)
        found = shard.find(name)
        if wanted.state is S.EMPTY:
            shard.init_producer_id(name, wanted.timeout_ms, None, _ignore, wanted.update_ms)
        elif wanted.state is S.ONGOING:
            assert found is not None
            shard.add_partitions(name, found.producer_id, found.producer_epoch, wanted.partitions, 2, _ignore, wanted.update_ms)
        elif wanted.state.is_prepared and name == "tx-open":
            shard.abort_timed_out(wanted.update_ms)
        elif wanted.state.is_prepared:
            assert found is not None
            commit = wanted.state is S.PREPARE_COMMIT
            shard.end_transaction(name, found.producer_id, found.producer_epoch, commit, 2, _ignore, wanted.update_ms)
        carry_out(wanted.update_ms)
    assert made == [bytes(record.value) for record in expected]


def _ignore(*answer: object) -> None:
    """The records are looked at."""


def test_each_topic_is_hashed_once_however_many_partitions_and_topics_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of hashes holds 256 names: 300 long ones, each in turn, took a tenth of a second."""
    hashed: list[str] = []
    monkeypatch.setattr(records, "string_hash", lambda name: hashed.append(name) or string_hash(name))  # type: ignore[func-returns-value]
    names = [f"t{number}" for number in range(300)]
    found = records.by_topic((name, index) for index in range(4) for name in names)
    assert len(hashed) == len(names) == len(found) and all(sorted(indexes) == [0, 1, 2, 3] for _, indexes in found)
