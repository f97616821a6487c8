"""Offsets by timestamp: the first record of a partition whose timestamp is at or behind a point in time.

Brokers are asked (ListOffsets). In a log directory the time indexes say which segment may hold it; its batches are walked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from minikafka.spark.access import open_log
from minikafka.spark.fetch_client import BrokerError, Connection, Place, name_of
from minikafka.spark.logformat import TIMESTAMP_TYPE_BIT, Batches, FormatError, parse_time_index
from minikafka.spark.records import decode_records
from minikafka.spark.sources import Replica, SegmentTask

Key = tuple[str, int]


def on_brokers(places: Mapping[Key, tuple[str, Place]], wanted: Mapping[Key, int]) -> dict[Key, int]:
    """{partition: offset, -1 none} from the leaders. Raises BrokerError."""
    found: dict[Key, int] = {}
    by_place: dict[Place, dict[Key, int]] = {}
    for key, timestamp_ms in wanted.items():
        by_place.setdefault(places[key][1], {})[key] = timestamp_ms
    for place, asked in by_place.items():
        with Connection(place.host, place.port, place.security) as connection:
            for key, (error, offset) in connection.offsets_at(asked).items():
                if error:
                    raise BrokerError(f"broker {place.host}:{place.port} does not say offsets of {key[0]}-{key[1]}: {name_of(error)}")
                found[key] = offset
    return found


def in_replica(replica: Replica, tasks: list[SegmentTask], timestamp_ms: int) -> int:
    """The offset, or -1. `tasks`: the replica's segments in order. Raises ValueError for records that do not decode."""
    for number, task in enumerate(tasks):
        if number + 1 < len(tasks) and _all_before(task, timestamp_ms):
            continue
        with open_log(task) as reader:
            for batches in reader:
                rows = (batches.header["max_timestamp"] >= timestamp_ms) & (batches.last_offset >= replica.log_start)
                for row in np.flatnonzero(rows).tolist():
                    offset = _in_batch(batches, row, replica, timestamp_ms)
                    if offset >= 0:
                        return offset
    return -1


def _all_before(task: SegmentTask, timestamp_ms: int) -> bool:
    """Whether the time index of a segment that is not appended to any more says that all of it is older. Its last entry is the newest."""
    path = os.path.join(task.path, f"{task.base_offset:020d}.timeindex")
    try:
        with open(path, "rb") as file:
            entries = parse_time_index(file.read())
    except (FileNotFoundError, FormatError):
        return False
    return len(entries) > 0 and int(entries["timestamp"].max()) < timestamp_ms


def _in_batch(batches: Batches, row: int, replica: Replica, timestamp_ms: int) -> int:
    records, wrong = decode_records(batches, np.array([row]))
    if wrong:
        raise ValueError(f"{replica.topic}-{replica.partition} at offset {int(batches.base_offset[row])}: {wrong[row]}")
    times = records.timestamp
    if int(batches.header["attributes"][row]) & TIMESTAMP_TYPE_BIT:
        times = np.full(len(records), int(batches.header["max_timestamp"][row]), np.int64)
    matching = np.flatnonzero((times >= timestamp_ms) & (records.offset >= replica.log_start))
    return int(records.offset[matching[0]]) if len(matching) else -1
