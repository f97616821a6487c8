"""Offsets and ranges for the data source: what is in log directories or on brokers, and how a range of offsets is read as Arrow.

No Spark in here: everything is plain values, so that it can be tested and used without a session.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from minikafka.spark.access import open_log
from minikafka.spark.fetch_client import BrokerError, Connection, FetchReader, Place, Security, first_answer
from minikafka.spark.logformat import CODEC_MASK, CODECS, CONTROL_BIT, TIMESTAMP_TYPE_BIT, Batches, SegmentReader
from minikafka.spark.records import RecordColumns, decode_records
from minikafka.spark.source_times import in_replica, on_brokers
from minikafka.spark.source_transactions import aborted_in, hidden, last_stable_offset
from minikafka.spark.sources import UNBOUNDED, Replica, SegmentTask, SourceError, make_plan

Key = tuple[str, int]
Offsets = dict[Key, int]
#: Milliseconds for all partitions, or for each; None: offsets are not chosen by time.
Times = int | tuple[tuple[Key, int], ...] | None
Flags = np.ndarray[Any, Any]
EARLIEST, LATEST = -2, -1
SPLIT_BYTES = 256 << 20
ROWS_A_BATCH = 1 << 16
#: Tasks for log directories that only executors see.
SHARES = 16


def _times(everywhere: str | None, each: str | None) -> Times:
    """startingTimestamp or, when it is not given, startingOffsetsByTimestamp. Raises ValueError, AttributeError, TypeError."""
    if everywhere:
        return int(everywhere)
    if not each:
        return None
    return tuple(((topic, int(number)), int(time)) for topic, numbers in json.loads(each).items() for number, time in numbers.items())


class OptionError(ValueError):
    """A wrong or missing option; the text names it."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Names as in Spark's Kafka source; keys come in lower case. `share`: (i, n), only every n-th partition, the i-th of them."""

    bootstrap: str = ""
    log_dirs: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[Key, ...] = ()
    starting: str = ""
    ending: str = "latest"
    include_headers: bool = False
    mode: str = "records"
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int = 0
    min_partitions: int = 0
    security: Security = field(default_factory=Security)
    committed: bool = False
    starting_times: Times = None
    ending_times: Times = None
    latest_without_match: bool = False
    on_executors: bool = False
    share: tuple[int, int] = (0, 1)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Raises OptionError."""
        get = {key.lower(): value for key, value in options.items()}.get
        bootstrap, paths = get("kafka.bootstrap.servers", "") or "", get("logdirs") or get("path") or ""
        if bool(bootstrap) == bool(paths):
            raise OptionError("give either kafka.bootstrap.servers or logDirs (comma separated; also as load(path))")
        chosen = [name for name in ("assign", "subscribe", "subscribepattern") if get(name)]
        if len(chosen) > 1 or (bootstrap and not chosen):
            raise OptionError("give one of assign, subscribe and subscribePattern")
        isolation = (get("kafka.isolation.level") or "read_uncommitted").lower()
        if isolation not in {"read_uncommitted", "read_committed"}:
            raise OptionError(f"kafka.isolation.level {isolation}: expected read_uncommitted or read_committed")
        where = (get("logdirson") or "driver").lower()
        if where not in {"driver", "executors"} or (where == "executors" and not paths):
            raise OptionError(f"logDirsOn {where}: expected driver, or with logDirs executors")
        strategy = (get("startingoffsetsbytimestampstrategy") or "error").lower()
        if strategy not in {"error", "latest"}:
            raise OptionError(f"startingOffsetsByTimestampStrategy {strategy}: expected error or latest")
        mode = (get("mode") or "records").lower()
        if mode not in {"records", "batches"}:
            raise OptionError(f"mode {mode}: expected records or batches")
        kafka = {key.lower()[6:]: value for key, value in options.items() if key.lower().startswith("kafka.")}
        try:
            assigned = tuple((topic, int(number)) for topic, numbers in json.loads(get("assign") or "{}").items() for number in numbers)
            limits = [int(get(name) or 0) for name in ("maxoffsetspertrigger", "minpartitions")]
            security = Security.from_properties(kafka)
            starting = _times(get("startingtimestamp"), get("startingoffsetsbytimestamp"))
            ending = _times(get("endingtimestamp"), get("endingoffsetsbytimestamp"))
        except (ValueError, AttributeError, TypeError) as error:
            raise OptionError(f"an option cannot be read: {error}") from error
        return cls(
            bootstrap, tuple(part.strip() for part in paths.split(",") if part.strip()),
            tuple(part.strip() for part in (get("subscribe") or "").split(",") if part.strip()), get("subscribepattern") or "", assigned,
            get("startingoffsets") or "", get("endingoffsets") or "latest", (get("includeheaders") or "false").lower() == "true", mode,
            (get("failondataloss") or "true").lower() == "true", *limits, security,
            isolation == "read_committed", starting, ending, strategy == "latest", where == "executors",
        )  # fmt: skip

    def shares(self) -> list[SourceOptions]:
        """The work for tasks that each find out what there is: `minPartitions` of them."""
        count = self.min_partitions or SHARES
        return [replace(self, share=(number, count), min_partitions=0) for number in range(count)]

    def wants(self, key: Key) -> bool:
        number, count = self.share
        return zlib.crc32(f"{key[0]}-{key[1]}".encode()) % count == number and self._names(key)

    def _names(self, key: Key) -> bool:
        if self.assigned:
            return key in self.assigned
        if self.topics:
            return key[0] in self.topics
        if self.pattern:
            return re.fullmatch(self.pattern, key[0]) is not None
        return not key[0].startswith("__")


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [begin, end) of one partition, and the tasks that hold them. `committed`: without aborted transactions and markers;
    `aborted` are those of a log directory (see source_transactions), brokers tell them with the records."""

    topic: str
    partition: int
    begin: int
    end: int
    broker: str
    tasks: tuple[SegmentTask, ...]
    committed: bool = False
    aborted: tuple[tuple[int, int, int], ...] = ()


@dataclass(slots=True)
class Available:
    """{partition: (log start, end)} and what is needed to read them."""

    bounds: dict[Key, tuple[int, int]]
    replicas: dict[Key, Replica] = field(default_factory=dict)
    places: dict[Key, tuple[str, Place]] = field(default_factory=dict)


def available(options: SourceOptions) -> Available:
    """What can be read now. Raises BrokerError, SourceError."""
    return _on_brokers(options) if options.bootstrap else _in_directories(options)


def _on_brokers(options: SourceOptions) -> Available:
    names = sorted(set(options.topics) | {topic for topic, _ in options.assigned})
    state = first_answer(options.bootstrap, options.security, names)
    missing = [name for name in names if name in state.unknown or not any(key[0] == name for key in state.partitions)]
    if missing:
        raise BrokerError(f"topic {missing[0]} does not exist")
    found = Available({})
    by_leader: dict[int, list[Key]] = {}
    for key, partition in state.partitions.items():
        if options.wants(key):
            by_leader.setdefault(partition.leader, []).append(key)
    for leader, keys in sorted(by_leader.items()):
        if leader not in state.brokers:
            raise BrokerError(f"{keys[0][0]}-{keys[0][1]} has no leader")
        place = Place(*state.brokers[leader], options.security)
        with Connection(place.host, place.port, place.security) as connection:
            starts = {key: offset for key, (_, offset) in connection.earliest(keys).items() if offset >= 0}
            for key, answer in connection.fetch(starts, 1, partition_bytes_max=1).items():
                end = answer.last_stable if options.committed else answer.high_watermark
                found.bounds[key] = max(starts[key], answer.log_start), max(end, starts[key])
                found.places[key] = str(leader), place
    return found


def _in_directories(options: SourceOptions) -> Available:
    try:
        plan = make_plan(options.log_dirs, options.topics)
    except SourceError as error:
        unseen = not options.on_executors and not all(map(os.path.isdir, options.log_dirs))
        raise SourceError(f"{error} (where only executors see it: logDirsOn=executors)" if unseen else str(error)) from error
    found = Available({})
    for key, copies in plan.replicas.items():
        if not options.wants(key):
            continue
        ends = [(min(replica.high_watermark, _log_end(replica)), replica) for replica in copies]
        end, best = max(ends, key=lambda pair: pair[0])
        if options.committed:
            end = last_stable_offset(best, segment_tasks(best), end)
        found.bounds[key] = min(best.log_start, end), end
        found.replicas[key] = best
    return found


def _log_end(replica: Replica) -> int:
    last = replica.segments[-1]
    task = _task(replica, len(replica.segments) - 1)
    end = last.base_offset
    with open_log(task) as reader:
        for batches in reader:
            end = int(batches.last_offset[-1]) + 1
    return end


def _task(replica: Replica, number: int) -> SegmentTask:
    segment = replica.segments[number]
    following = replica.segments[number + 1].base_offset if number + 1 < len(replica.segments) else -1
    return SegmentTask(
        replica.topic, replica.partition, replica.broker, replica.path, segment.base_offset, following, segment.size, (), (), replica.clean,
        UNBOUNDED, 0, (), 20,
    )  # fmt: skip


def segment_tasks(replica: Replica) -> list[SegmentTask]:
    return [_task(replica, number) for number in range(len(replica.segments))]


def starting(options: SourceOptions, found: Available, default: str) -> Offsets:
    """Where reading begins: by time where a time is given, else by `startingOffsets`. Raises OptionError."""
    if options.starting_times is None:
        return resolve(options.starting, found.bounds, default)
    result = {}
    for key, (time, offset) in _at_times(options.starting_times, found).items():
        if offset is None and not options.latest_without_match:
            hint = "startingOffsetsByTimestampStrategy=latest begins at the end"
            raise OptionError(f"{key[0]}-{key[1]} has no record with a timestamp of {time} or later ({hint})")
        result[key] = found.bounds[key][1] if offset is None else offset
    return result


def ending(options: SourceOptions, found: Available) -> Offsets:
    """Where a batch query ends; a partition without a record at or behind the given time is read to its end. Raises OptionError."""
    if options.ending_times is None:
        result = resolve(options.ending, found.bounds, "latest")
    else:
        times = _at_times(options.ending_times, found)
        result = {key: found.bounds[key][1] if offset is None else offset for key, (_, offset) in times.items()}
    return {key: min(result[key], last) for key, (_, last) in found.bounds.items()}


def _at_times(times: Times, found: Available) -> dict[Key, tuple[int, int | None]]:
    """{partition: (time, first readable offset at or behind it, None without any)} of every partition that can be read."""
    wanted = dict(times) if isinstance(times, tuple) else {key: int(times or 0) for key in found.bounds}
    for key in found.bounds:
        if key not in wanted:
            raise OptionError(f"the timestamps do not name {key[0]}-{key[1]}")
    asked = {key: wanted[key] for key in found.bounds}
    offsets = on_brokers(found.places, {key: time for key, time in asked.items() if key in found.places})
    for key, replica in found.replicas.items():
        offsets[key] = in_replica(replica, segment_tasks(replica), asked[key])
    return {key: (asked[key], offsets[key] if 0 <= offsets[key] < found.bounds[key][1] else None) for key in found.bounds}


def resolve(text: str, bounds: dict[Key, tuple[int, int]], default: str) -> Offsets:
    """`earliest`, `latest` or JSON {"topic": {"0": 5, "1": -2}} (-2 earliest, -1 latest) as offsets of every partition."""
    text = text or default
    if text in {"earliest", "latest"}:
        return {key: begin if text == "earliest" else end for key, (begin, end) in bounds.items()}
    try:
        said = {(topic, int(number)): int(offset) for topic, numbers in json.loads(text).items() for number, offset in numbers.items()}
    except (ValueError, AttributeError) as error:
        raise OptionError(f"{text!r} is neither earliest, latest nor JSON of topics, partitions and offsets") from error
    for key in bounds:
        if key not in said:
            raise OptionError(f"the offsets do not name {key[0]}-{key[1]}")
    return {key: {EARLIEST: begin, LATEST: end}.get(said[key], said[key]) for key, (begin, end) in bounds.items()}


def batch_ranges(options: SourceOptions) -> list[Range]:
    """The work of a batch query. Raises OptionError, BrokerError, SourceError."""
    found = available(options)
    return ranges(options, found, starting(options, found, "earliest"), ending(options, found))


def ranges(options: SourceOptions, found: Available, begin: Offsets, end: Offsets) -> list[Range]:
    """The work: per partition the stretches to read, cut by bytes (directories) or by `minPartitions` (brokers).

    Raises OptionError when offsets that are asked for are gone and failOnDataLoss is true.
    """
    result: list[Range] = []
    wanted = sum(max(0, end[key] - begin.get(key, 0)) for key in end)
    for key in sorted(end):
        low, high = begin.get(key, found.bounds[key][0]), end[key]
        if low < found.bounds[key][0]:
            if options.fail_on_data_loss:
                text = f"{key[0]}-{key[1]}: offsets {low} to {found.bounds[key][0] - 1} are gone (failOnDataLoss=false reads on)"
                raise OptionError(text)
            low = found.bounds[key][0]
        if low >= high:
            continue
        pieces = 1
        if options.min_partitions and wanted:
            pieces = max(1, round(options.min_partitions * (high - low) / wanted))
        step = -(-(high - low) // pieces)
        for start in range(low, high, step):
            stop = min(start + step, high)
            result += _on_wire(found, key, start, stop) if key in found.places else _on_disk(found.replicas[key], start, stop)
    return [_committed(one, found) for one in result] if options.committed else result


def _committed(wanted: Range, found: Available) -> Range:
    replica = found.replicas.get((wanted.topic, wanted.partition))
    aborted = aborted_in(replica) if replica is not None else ()
    inside = tuple(one for one in aborted if one[1] < wanted.end and one[2] >= wanted.begin)
    return replace(wanted, committed=True, aborted=inside)


def _on_wire(found: Available, key: Key, begin: int, end: int) -> list[Range]:
    broker, place = found.places[key]
    task = SegmentTask(*key, broker, f"kafka://{place.host}:{place.port}", begin, -1, 0, (), (), False, end, 0, (), 20, place=place)
    return [Range(*key, begin, end, broker, (task,))]


def _on_disk(replica: Replica, begin: int, end: int) -> list[Range]:
    result: list[Range] = []
    held: list[SegmentTask] = []
    for number, segment in enumerate(replica.segments):
        task = _task(replica, number)
        if segment.base_offset >= end or (0 <= task.next_base <= begin):
            continue
        if held and sum(one.size for one in held) + task.size > SPLIT_BYTES:
            result.append(Range(replica.topic, replica.partition, begin, min(end, task.base_offset), replica.broker, tuple(held)))
            begin, held = task.base_offset, []
        held.append(task)
    if held:
        result.append(Range(replica.topic, replica.partition, begin, end, replica.broker, tuple(held)))
    return result


# ---- reading a range -----------------------------------------------------------------------------------------------------------


def read_range(wanted: Range, mode: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a range. Raises FormatError and OSError with the place; records that do not decode raise ValueError."""
    for task in wanted.tasks:
        with open_log(task, 0, wanted.begin, committed=wanted.committed) as reader:
            for batches in reader:
                if int(batches.base_offset[0]) >= wanted.end:
                    return
                shown = np.ones(len(batches), np.bool_)
                if wanted.committed:
                    told = ((*one, -1) for one in reader.aborted) if isinstance(reader, FetchReader) else wanted.aborted
                    shown = ~hidden(batches, told)
                if mode == "batches":
                    yield from _batch_rows(batches, wanted, schema, shown)
                else:
                    yield from _record_rows(batches, wanted, schema, shown)
        if isinstance(reader, SegmentReader) and reader.stopped == "length":
            raise ValueError(f"{wanted.topic}-{wanted.partition}: {task.path}, byte {reader.position}: no batch can be read from here on")


def _batch_rows(batches: Batches, wanted: Range, schema: pa.Schema, shown: Flags) -> Iterator[pa.RecordBatch]:
    rows = np.flatnonzero(shown & (batches.base_offset >= wanted.begin) & (batches.base_offset < wanted.end))
    if len(rows) == 0:
        return
    header = batches.header[rows]
    stored = header["crc"].astype(np.int64)
    codec = header["attributes"] & CODEC_MASK
    columns: dict[str, Any] = {
        "topic": [wanted.topic] * len(rows), "partition": np.full(len(rows), wanted.partition, np.int32),
        "broker": [wanted.broker] * len(rows), "baseOffset": header["base_offset"].astype(np.int64),
        "lastOffset": batches.last_offset[rows], "leaderEpoch": header["epoch"].astype(np.int32), "crc": stored,
        "crcValid": stored == batches.crc[rows], "attributes": header["attributes"].astype(np.int32),
        "compression": [CODECS[one] if one < len(CODECS) else str(one) for one in codec.tolist()],
        "isControl": (header["attributes"] & CONTROL_BIT) != 0,
        "baseTimestamp": header["base_timestamp"].astype(np.int64), "maxTimestamp": header["max_timestamp"].astype(np.int64),
        "producerId": header["producer_id"].astype(np.int64), "producerEpoch": header["producer_epoch"].astype(np.int32),
        "baseSequence": header["base_sequence"].astype(np.int32), "records": header["count"].astype(np.int32),
        "sizeInBytes": batches.size[rows].astype(np.int32), "position": batches.position[rows],
    }  # fmt: skip
    yield pa.RecordBatch.from_arrays([pa.array(columns[one.name], one.type) for one in schema], schema=schema)


def _record_rows(batches: Batches, wanted: Range, schema: pa.Schema, shown: Flags) -> Iterator[pa.RecordBatch]:
    control = (batches.header["attributes"] & CONTROL_BIT) != 0
    chosen = np.flatnonzero(shown & ~control & (batches.last_offset >= wanted.begin) & (batches.base_offset < wanted.end))
    if len(chosen) == 0:
        return
    records, wrong = decode_records(batches, chosen)
    if wrong:
        index, text = min(wrong.items())
        raise ValueError(f"{wanted.topic}-{wanted.partition} at offset {int(batches.base_offset[index])}: {text}")
    keys, values = key_and_value(records)
    header = batches.header[records.batch]
    appended = (header["attributes"] & TIMESTAMP_TYPE_BIT) != 0
    time_ms = np.where(appended, header["max_timestamp"].astype(np.int64), records.timestamp)
    inside = (records.offset >= wanted.begin) & (records.offset < wanted.end)
    rows = np.flatnonzero(inside)
    for start in range(0, len(rows), ROWS_A_BATCH):
        part = rows[start : start + ROWS_A_BATCH]
        whole = len(part) == len(records)
        columns: dict[str, Any] = {
            "key": keys if whole else keys.take(pa.array(part)), "value": values if whole else values.take(pa.array(part)),
            "topic": pa.array([wanted.topic] * len(part), pa.string()),
            "partition": pa.array(np.full(len(part), wanted.partition, np.int32)),
            "offset": pa.array(records.offset[part]), "timestamp": pa.array(time_ms[part] * 1000).cast(pa.timestamp("us", "UTC")),
            "timestampType": pa.array(appended[part].astype(np.int32)),
        }  # fmt: skip
        if "headers" in schema.names:
            listed = [[{"key": name.decode("utf-8", "replace"), "value": value} for name, value in records.headers(index)] or None
                     for index in part.tolist()]  # fmt: skip
            columns["headers"] = pa.array(listed, schema.field("headers").type)
        yield pa.RecordBatch.from_arrays([columns[one.name].cast(one.type) for one in schema], schema=schema)


def key_and_value(records: RecordColumns) -> tuple[pa.Array, pa.Array]:
    """Keys and values as Arrow arrays without touching a byte in Python: one array whose elements are all stretches of the data,
    of which every fourth is a key and every fourth a value."""
    count = len(records)
    edges = np.empty(4 * count + 1, np.int32)
    for place, start, length in ((0, records.key_start, records.key_length), (2, records.value_start, records.value_length)):
        edges[place:-1:4], edges[place + 1 : -1 : 4] = start, start + np.maximum(length, 0)
    edges[-1] = edges[-2] if count else 0
    stretches = pa.Array.from_buffers(pa.binary(), 4 * count, [None, pa.py_buffer(edges), pa.py_buffer(records.data)])
    rows = np.arange(count, dtype=np.int64) * 4
    return tuple(  # type: ignore[return-value]
        stretches.take(pa.array(rows + place, mask=length < 0)) for place, length in ((0, records.key_length), (2, records.value_length))
    )


def capped(begin: Offsets, end: Offsets, most: int) -> Offsets:
    """`end`, but at most about `most` offsets behind `begin`, in proportion (maxOffsetsPerTrigger)."""
    sizes = {key: max(0, end[key] - begin.get(key, end[key])) for key in end}
    total = sum(sizes.values())
    if most <= 0 or total <= most:
        return end
    shares = {key: max(1, int(most * size / total)) if size else 0 for key, size in sizes.items()}
    return {key: min(end[key], begin.get(key, end[key]) + share) for key, share in shares.items()}


def as_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        result.setdefault(topic, {})[str(number)] = offset
    return result


def from_json(said: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {(topic, int(number)): int(offset) for topic, numbers in said.items() for number, offset in numbers.items()}


def without_positions(wanted: Range) -> Range:
    """A copy that is safe to compare in tests."""
    return replace(wanted, tasks=())
