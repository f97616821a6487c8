"""Offsets by timestamp: the first record of a partition whose timestamp is at or behind a point in time.

Brokers are asked (ListOffsets). In a log directory the time indexes say which segment may hold it and from where on, as in
LogSegment.findOffsetByTimestamp of Apache Kafka; the batches from there on are walked.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from minikafka.addresses import host_port
from minikafka.spark.fetch_client import BrokerError, Connection, Place, name_of
from minikafka.spark.logformat import TIMESTAMP_TYPE_BIT, Batches, SegmentReader
from minikafka.spark.records import decode_records
from minikafka.spark.source_files import Held, newest_time, offset_before, opened, position_of, segment_bases, segment_path

Key = tuple[str, int]
WINDOW_BYTES = 1 << 20


def on_brokers(places: Mapping[Key, tuple[str, Place]], timestamps: Mapping[Key, int]) -> dict[Key, int]:
    """{partition: offset, -1 none} from the leaders. Raises BrokerError."""
    found: dict[Key, int] = {}
    by_place: dict[Place, dict[Key, int]] = {}
    for key, timestamp_ms in timestamps.items():
        by_place.setdefault(places[key][1], {})[key] = timestamp_ms
    for place, asked in by_place.items():
        with Connection(place.host, place.port, place.security) as connection:
            for key, (error, offset) in connection.offsets_at(asked).items():
                if error:
                    raise BrokerError(f"broker {host_port(place.host, place.port)} does not report the offsets of {key[0]}-{key[1]}: "
                                      f"{name_of(error)}")
                found[key] = offset
    return found


def in_files(held: Held, timestamp_ms: int) -> int:
    """The offset, or -1. Raises ValueError for records that do not decode."""
    bases = segment_bases(held.path)
    for number, base in enumerate(bases):
        newest = newest_time(held.path, base) if number + 1 < len(bases) else None
        if newest is not None and newest < timestamp_ms:
            continue
        with opened(segment_path(held.path, base)) as (descriptor, size):
            offset = _in_segment(held, descriptor, size, _position(held, base, timestamp_ms), timestamp_ms)
        if offset >= 0:
            return offset
    return -1


def _position(held: Held, base: int, timestamp_ms: int) -> int:
    offset = offset_before(held.path, base, timestamp_ms)
    return position_of(held.path, base, offset) if offset > base else 0


def _in_segment(held: Held, descriptor: int, size: int, position: int, timestamp_ms: int) -> int:
    for batches in SegmentReader(descriptor, size, position, WINDOW_BYTES):
        rows = (batches.header["max_timestamp"] >= timestamp_ms) & (batches.last_offset >= held.log_start)
        for row in np.flatnonzero(rows).tolist():
            offset = _in_batch(batches, row, held, timestamp_ms)
            if offset >= 0:
                return offset
    return -1


def _in_batch(batches: Batches, row: int, held: Held, timestamp_ms: int) -> int:
    records, wrong = decode_records(batches, np.array([row]))
    if wrong:
        raise ValueError(f"{held.topic}-{held.partition} at offset {int(batches.base_offset[row])}: {wrong[row]}")
    times = records.timestamp
    if int(batches.header["attributes"][row]) & TIMESTAMP_TYPE_BIT:
        times = np.full(len(records), int(batches.header["max_timestamp"][row]), np.int64)
    matching = np.flatnonzero((times >= timestamp_ms) & (records.offset >= held.log_start))
    return int(records.offset[matching[0]]) if len(matching) else -1
