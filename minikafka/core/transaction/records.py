"""The records of `__transaction_state`: TransactionLogKey v0, TransactionLogValue v0-1 (TransactionLog of Apache Kafka)."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.core.java_hash import by_place, indexes_in_table_order, string_hash
from minikafka.core.transaction.state import STATES_BY_NUMBER, PartitionKey, Transaction, TransactionState
from minikafka.wire.records.transaction_records import TransactionLogKey, TransactionLogValue

#: Version of transactions from which values are written in version 1, with tagged fields.
TAGGED_VERSION_MIN = 1


def by_topic(partitions: Iterable[PartitionKey]) -> list[tuple[str, list[int]]]:
    """Partitions grouped by topic, in the order in which Kafka's hash tables list them."""
    grouped: dict[str, list[int]] = {}
    count = 0
    for topic, index in partitions:
        count += 1
        indexes = grouped.get(topic)
        if indexes is None:
            grouped[topic] = [index]
        else:
            indexes.append(index)
    # Each name is hashed once: a cache of hashes may be smaller than the topics of a transaction.
    hashes = [(string_hash(topic), topic) for topic in sorted(grouped)]
    in_order = {topic: indexes_in_table_order(code, grouped[topic], count) for code, topic in hashes}
    return [(topic, in_order[topic]) for topic in by_place(hashes)]


def transaction_key(transactional_id: str) -> TransactionLogKey:
    """The key of an id's records."""
    return TransactionLogKey(transactional_id=transactional_id)


def transaction_value(transaction: Transaction, transaction_version: int) -> tuple[TransactionLogValue, int]:
    """The value that stores a transaction, and the version to write it in, for the cluster's transaction.version."""
    partitions = None
    if transaction.state is not TransactionState.EMPTY:
        partitions = [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes)
            for topic, indexes in by_topic(transaction.partitions)
        ]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.number,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if transaction_version < TAGGED_VERSION_MIN:
        return value, 0
    value.previous_producer_id = transaction.previous_producer_id
    value.next_producer_id = transaction.next_producer_id
    value.client_transaction_version = transaction.client_version
    return value, 1


def transaction_from(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    """The transaction that a record describes."""
    return Transaction(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=STATES_BY_NUMBER[value.transaction_status],
        partitions=frozenset((t.topic, index) for t in value.transaction_partitions or [] for index in t.partition_ids),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
