"""Clusters written by `load --to-files`, and checks of their contents."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition
from helpers.apache_kafka import wait_until
from helpers.mixed_cluster import MixedCluster
from pyarrow import parquet

NOW_MS = 1_700_000_000_000


def write_table(path: Path, rows: int) -> list[dict[str, Any]]:
    """A Parquet file with keys (some null), values, a header, ascending times, partitions; its rows."""
    found = [
        {
            "id": None if n % 17 == 0 else f"key-{n % 997}",
            "body": f"{n}:" + "x" * (n % 150),
            "source": f"s{n % 3}",
            "at": NOW_MS + n * 10,
            "place": n % 5,
        }
        for n in range(rows)
    ]
    parquet.write_table(pa.Table.from_pylist(found), path, row_group_size=max(1, rows // 7))
    return found


def adopt(cluster: MixedCluster, target: Path) -> list[str]:
    """Let the cluster's nodes live in `target`, which is still to be written; their server.properties, to be given with --node."""
    given = []
    for node in cluster.nodes.values():
        node.directory = target / f"node-{node.node_id}"
        path = cluster.directory / f"given-{node.node_id}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in cluster.properties(node).items()))
        given.append(str(path))
    # From now on the nodes run on the directories that the load has written.
    cluster.write_properties = lambda node: None  # type: ignore[method-assign]
    return given


def read_topic(bootstrap: str, topic: str, partitions: int, timeout_s: float = 60.0) -> dict[int, list[tuple[Any, ...]]]:
    """Per partition (offset, key, value, timestamp, headers) of every record, CRCs checked, read with librdkafka."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "check.crcs": True, "enable.auto.commit": False})
    try:
        places = [TopicPartition(topic, number, 0) for number in range(partitions)]
        ends: dict[int, int] = {}

        def has_ends() -> bool:
            with contextlib.suppress(KafkaException):  # the broker asked may not know yet who leads
                for place in places:
                    ends[place.partition] = consumer.get_watermark_offsets(place, timeout=5)[1]
            return len(ends) == partitions

        wait_until(has_ends, timeout_s, f"the leaders of {topic} to tell its ends")
        left = sum(ends.values())
        consumer.assign(places)
        found: dict[int, list[tuple[Any, ...]]] = {number: [] for number in range(partitions)}
        while left:
            messages = consumer.consume(min(left, 10_000), timeout_s)
            assert messages, f"{left} records of {topic} did not come within {timeout_s} s"
            for message in messages:
                assert message.error() is None, message.error()
                entry = (message.offset(), message.key(), message.value(), message.timestamp()[1], message.headers())
                found[message.partition()].append(entry)
            left -= len(messages)
        return found
    finally:
        consumer.close()


def check_records(found: Mapping[int, Sequence[tuple[Any, ...]]], rows: Sequence[Mapping[str, Any]], *, by_column: bool = False) -> None:
    """Every row is there once, with everything that belongs to it, in the order of the table within its partition."""
    seen = 0
    for partition, records in found.items():
        assert [record[0] for record in records] == list(range(len(records))), "offsets without gaps"
        numbers = [int(record[2].partition(b":")[0]) for record in records]
        assert numbers == sorted(set(numbers)), "the order of the table"
        for number, (_, key, value, timestamp, headers) in zip(numbers, records, strict=True):
            row = rows[number]
            assert key == (None if row["id"] is None else row["id"].encode())
            assert value == row["body"].encode()
            assert timestamp == row["at"]
            assert headers == [("from", row["source"].encode())]
            assert not by_column or row["place"] == partition
        seen += len(records)
    assert seen == len(rows)


def manifest(target: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((target / "manifest.json").read_text())
    return found
