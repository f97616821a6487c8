"""Arrow batches with the columns of Spark's Kafka sink, written to topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minikafka.counted import counted
from minikafka.spark.encode import encode_rows, partitions_of
from minikafka.spark.load import COMPRESSIONS
from minikafka.spark.produce_client import LoadProducer, ProduceFailed
from minikafka.spark.security import PLAIN_TEXT, Security
from minikafka.spark.sink_transaction import SinkTransaction
from minikafka.spark.tables import TableError, as_binary


def write_batches(
    batches: Iterator[Any],
    bootstrap: str,
    topic: str,
    compression: str = "none",
    security: Security = PLAIN_TEXT,
    transaction: SinkTransaction | None = None,
) -> int:
    """Write all rows; returns how many. With a transaction that has begun, which is committed at the end, or aborted.

    Raises ProduceFailed, TableError.
    """
    producers: dict[str, LoadProducer] = {}
    rows = 0
    try:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            for name, part in _by_topic(table, topic):
                producer = producers.get(name)
                if producer is None:
                    producer = producers[name] = LoadProducer(bootstrap, name, security=security, transaction=transaction)
                    if producer.partition_count() == 0:
                        raise ProduceFailed(f"topic {name} does not exist")
                    if transaction is None:
                        producer.start()
                _send(part, producer, compression, rows)
                rows += part.num_rows
        for producer in producers.values():
            producer.flush()
        if transaction is not None:
            transaction.commit()
        return rows
    except BaseException:
        if transaction is not None:
            transaction.abort()
        raise
    finally:
        for producer in producers.values():
            producer.close()
        if transaction is not None:
            transaction.close()


def _by_topic(table: pa.Table, topic: str) -> Iterator[tuple[str, pa.Table]]:
    if topic:
        yield topic, table
        return
    if "topic" not in table.column_names:
        raise TableError("give the option topic, or a column topic")
    column = table.column("topic")
    if column.null_count:
        raise TableError("the column topic contains nulls")
    for name in pc.unique(column).to_pylist():
        yield name, table.filter(pc.equal(column, name))


def _send(table: pa.Table, producer: LoadProducer, compression: str, first_row: int) -> None:
    from minikafka.wire.compression import CompressionType, compress

    if "value" not in table.column_names:
        raise TableError(f"the sink needs a column value (columns: {', '.join(table.column_names)})")
    values = as_binary(table.column("value"))
    keys = as_binary(table.column("key")) if "key" in table.column_names else None
    count = producer.partition_count()
    partition = partitions_of(keys, len(values), count, first_row)
    if "partition" in table.column_names:
        said = table.column("partition").cast(pa.int64())
        partition = np.where(said.is_null().to_numpy(), partition, said.fill_null(0).to_numpy())
        if len(partition) and not (partition.min() >= 0 and partition.max() < count):
            raise TableError(f"the column partition ranges from {partition.min()} to {partition.max()}, "
                             f"but the topic has {counted(int(count), 'partition')}")
    codec = COMPRESSIONS.index(compression)
    tail = _tails(table) if "headers" in table.column_names else None
    producer.send(encode_rows(
        keys, values, partition, batch_bytes=512 << 10, now_ms=time.time_ns() // 1_000_000, codec=codec, tail=tail, checksum=False,
        compress=(lambda kind, data: bytes(compress(CompressionType(kind), data))) if codec else None,
    ))  # fmt: skip


def _tails(table: pa.Table) -> pa.Array:
    """Header count and headers of each row, from array<struct<key, value>>."""
    from minikafka.spark.encode import varint_bytes

    found, column = [], table.column("headers")
    if not (pa.types.is_null(column.type) or (pa.types.is_list(column.type) and _is_header(column.type.value_type))):
        raise TableError(f"the column headers must be an array of structs with key (text) and value (bytes), not {column.type}")
    for row in column.to_pylist():
        piece = bytearray(varint_bytes(len(row or ())))
        for header in row or ():
            name, value = header["key"].encode(), header["value"]
            piece += varint_bytes(len(name)) + name
            piece += varint_bytes(-1) if value is None else varint_bytes(len(value)) + value
        found.append(bytes(piece))
    return pa.array(found, pa.binary())


def _is_header(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind) or {field.name for field in kind} != {"key", "value"}:
        return False
    return bool(pa.types.is_string(kind.field("key").type) and pa.types.is_binary(kind.field("value").type))
