"""Offsets and ranges for the data source: where a query begins and ends, what of it is gone, and the pieces of work.

No Spark in here: everything is plain values, so that it can be tested and used without a session.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from minikafka.addresses import host_port
from minikafka.spark.fetch_client import Place
from minikafka.spark.source_files import Held, cuts, segment_path
from minikafka.spark.source_listing import OTHER_REPLICAS, Available, available
from minikafka.spark.source_loss import Loss, LossPolicy
from minikafka.spark.source_options import (
    EARLIEST,
    LATEST,
    TOPIC_ID,
    Key,
    OptionError,
    SourceOptions,
    Times,
    offsets_of,
)
from minikafka.spark.source_times import in_files, on_brokers

Offsets = dict[Key, int]
SPLIT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [begin, end) of one partition, and where a task reads them: in the directory `path`, or from `place`, the leader when this
    was planned, of the cluster at `bootstrap`. `committed`: without aborted transactions and markers."""

    topic: str
    partition: int
    begin: int
    end: int
    broker: str
    path: str = ""
    place: Place | None = None
    bootstrap: str = ""
    topic_id: str = ""
    committed: bool = False
    check_crcs: bool = True
    fail_on_data_loss: bool = True


def starting(options: SourceOptions, found: Available, default: str) -> Offsets:
    """Where reading begins: by time where a time is given, else by `startingOffsets`. Raises OptionError, DataLossError."""
    result = {}
    if options.starting_times is None:
        result = resolve(options, options.starting or default, found.bounds)
        asked = resolve(options, options.starting or default, dict.fromkeys(found.bounds, (EARLIEST, LATEST)))
        first = [key for key, offset in asked.items() if offset == EARLIEST]
    else:
        for key, (time, offset) in _at_times(options, options.starting_times, found).items():
            if offset is None and not options.latest_without_match:
                hint = "startingOffsetsByTimestampStrategy=latest begins at the end"
                raise OptionError(f"{key[0]}-{key[1]} has no record with a timestamp of {time} or later ({hint})")
            result[key] = found.bounds[key][1] if offset is None else offset
        first = [key for key, offset in result.items() if offset == found.bounds[key][0]]
    _begin_whole(options, found, first)
    return result


def _begin_whole(options: SourceOptions, found: Available, keys: list[Key]) -> None:
    """Report logs that are read from their beginning and have lost it. A query that names a later offset does not ask for what is gone."""
    for held in (found.files[key] for key in sorted(keys) if key in found.files and found.files[key].first_epoch >= 0):
        what = "the first segment" if held.log_start == held.bases[0] else "by log-start-offset-checkpoint the log"
        why = f"{what} begins at {held.log_start}, the first leader epoch at {held.first_epoch}, and a broker that deletes "
        why += "records moves both, unless tiered storage has them"
        remedy = f"{OTHER_REPLICAS}, or begin at {held.log_start} with startingOffsets"
        LossPolicy(options.fail_on_data_loss).report(
            Loss(held.topic, held.partition, held.first_epoch, held.log_start, why, held.path, remedy)
        )


def ending(options: SourceOptions, found: Available) -> Offsets:
    """Where a batch query ends; a partition without a record at or behind the given time is read to its end. Raises OptionError."""
    if options.ending_times is None:
        result = resolve(options, options.ending or "latest", found.bounds)
    else:
        times = _at_times(options, options.ending_times, found)
        result = {key: found.bounds[key][1] if offset is None else offset for key, (_, offset) in times.items()}
    return result


def _at_times(options: SourceOptions, times: Times, found: Available) -> dict[Key, tuple[int, int | None]]:
    """{partition: (time, first readable offset at or behind it, None without any)} of every partition that can be read."""
    timestamps = dict(times) if isinstance(times, tuple) else {key: int(times or 0) for key in found.bounds}
    for key in found.bounds:
        if key not in timestamps:
            raise OptionError(f"the timestamps do not include {key[0]}-{key[1]}")
    _only_these(options, "timestamps", timestamps, found.bounds)
    asked = {key: timestamps[key] for key in found.bounds}
    offsets = on_brokers(found.places, {key: time for key, time in asked.items() if key in found.places})
    for key, held in found.files.items():
        offsets[key] = in_files(held, asked[key])
    return {key: (asked[key], offsets[key] if 0 <= offsets[key] < found.bounds[key][1] else None) for key in found.bounds}


def resolve(options: SourceOptions, text: str, bounds: dict[Key, tuple[int, int]]) -> Offsets:
    """`earliest`, `latest` or JSON {"topic": {"0": 5, "1": -2}} (-2 earliest, -1 latest) as offsets of every partition."""
    said = offsets_of(text)
    if isinstance(said, str):
        return {key: begin if said == "earliest" else end for key, (begin, end) in bounds.items()}
    for key in bounds:
        if key not in said:
            raise OptionError(f"the offsets do not include {key[0]}-{key[1]}")
    _only_these(options, "offsets", said, bounds)
    return {key: {EARLIEST: begin, LATEST: end}.get(said[key], said[key]) for key, (begin, end) in bounds.items()}


def _only_these(options: SourceOptions, what: str, said: Iterable[Key], bounds: Mapping[Key, tuple[int, int]]) -> None:
    """Refuse offsets of partitions that the query does not read: a wrong name, or a partition that is gone with its records. Another
    share of the query may read them."""
    for key in sorted(said):
        if key not in bounds and (options.share == (0, 1) or not options.names(key)):
            raise OptionError(f"the {what} include {key[0]}-{key[1]}, which the query does not read, or which does not exist")


def batch_ranges(options: SourceOptions) -> list[Range]:
    """The work of a batch query. Raises OptionError (also for one that begins behind its end), BrokerError, SourceError, DataLossError."""
    options.check_batch()
    found = available(options)
    begin, end = starting(options, found, "earliest"), ending(options, found)
    for (topic, number), offset in begin.items():
        if offset > end[topic, number]:
            raise OptionError(f"{topic}-{number}: the query begins at offset {offset}, after its end at {end[topic, number]}")
    return ranges(options, found, begin, end)


def ranges(options: SourceOptions, found: Available, begin: Offsets, end: Offsets) -> list[Range]:
    """The work: per partition the stretches to read, cut by bytes (directories) and by `minPartitions`. Raises DataLossError."""
    policy = LossPolicy(options.fail_on_data_loss)
    bounds = {key: there for key in sorted(end) if (there := _there(found, key, begin, end[key], policy)) is not None}
    total = sum(high - low for low, high in bounds.values())
    result: list[Range] = []
    for key, (low, high) in bounds.items():
        pieces = max(1, round(options.min_partitions * (high - low) / total)) if options.min_partitions else 1
        step = -(-(high - low) // pieces)
        for start in range(low, high, step):
            result += _pieces(options, found, key, start, min(start + step, high))
    return result


def _there(found: Available, key: Key, begin: Offsets, high: int, policy: LossPolicy) -> tuple[int, int] | None:
    """What of [begin, high) can be read; None where nothing is to be read."""
    place = place_of(found, key)
    low = begin.get(key, 0)
    if key not in found.bounds:
        if low < high:
            policy.report(Loss(*key, low, high, "the partition no longer exists", place, "Start again with a new checkpoint"))
        return None
    first, last = found.bounds[key]
    if low < first and low < high:
        why = f"the log begins at {first}: retention or DeleteRecords removed what came before"
        why = f"the partition is new to the query and its log begins at {first} already" if key not in begin else why
        policy.report(Loss(*key, low, min(first, high), why, place, f"Begin at {first}"))
        low = first
    if high > last and low < high:
        why = f"the log ends at {last}: the offsets are too large, or the topic was recreated"
        policy.report(Loss(*key, max(low, last), high, why, place, f"End at {last} or before"))
        high = last
    return (low, high) if low < high else None


def place_of(found: Available, key: Key) -> str:
    """Where a partition is, or was looked for, for a person."""
    if key in found.files:
        return found.files[key].path
    if key in found.places:
        broker, place = found.places[key]
        return f"broker {broker} at {host_port(place.host, place.port)}"
    return found.where


def _pieces(options: SourceOptions, found: Available, key: Key, begin: int, end: int) -> list[Range]:
    whole = Range(
        *key, begin, end, "", topic_id=found.topic_ids.get(key[0], ""), committed=options.committed, check_crcs=options.check_crcs,
        fail_on_data_loss=options.fail_on_data_loss,
    )  # fmt: skip
    if key in found.places:
        broker, place = found.places[key]
        return [replace(whole, broker=broker, place=place, bootstrap=options.bootstrap)]
    held = found.files[key]
    edges = [begin, *_cuts(held, begin, end), end]
    return [replace(whole, begin=low, end=high, broker=held.broker, path=held.path) for low, high in pairwise(edges)]


def _cuts(held: Held, begin: int, end: int) -> list[int]:
    """Offsets inside [begin, end) at which work is cut, so that a piece is of about SPLIT_BYTES: between segments and inside large ones."""
    chosen = [base for base in held.bases[max(0, bisect.bisect_right(held.bases, begin) - 1) :] if base < end]
    found: list[int] = []
    held_bytes = 0
    for base in chosen:
        try:
            size = os.stat(segment_path(held.path, base)).st_size
        except FileNotFoundError:
            continue  # whoever reads the range says so
        if held_bytes and held_bytes + size > SPLIT_BYTES:
            found.append(base)
            held_bytes = 0
        inside = cuts(held.path, base, SPLIT_BYTES) if size > SPLIT_BYTES else []
        found += inside
        held_bytes += size - len(inside) * SPLIT_BYTES
    return [offset for offset in found if begin < offset < end]


# ---- streams -------------------------------------------------------------------------------------------------------------------


def went_on(found: Available, start: Offsets, end: Offsets, ids: Mapping[str, str], policy: LossPolicy) -> Offsets:
    """Where a micro-batch begins: `start`, after a look at what happened to the topics since. `ids`: the topics' ids when the stream was
    at `start`. Raises DataLossError for topics made again, partitions that vanished or were cut."""
    begin = dict(start)
    for key, offset in sorted(start.items()):
        before, now = ids.get(key[0], ""), found.topic_ids.get(key[0], "")
        place = place_of(found, key)
        restart = "Start again with a new checkpoint"
        if key not in end or key not in found.bounds:
            policy.report(Loss(*key, offset, -1, "the partition no longer exists", place, restart))
            begin.pop(key)
        elif before and now and before != now:
            why = f"the topic was deleted and recreated (topic id {now}, it was {before})"
            policy.report(Loss(*key, offset, -1, why, place, restart))
            begin[key] = found.bounds[key][0]
        elif end[key] < offset:
            why = f"the log's end went back from {offset} to {end[key]}: the topic was recreated, or records were lost"
            policy.report(Loss(*key, end[key], offset, why, place, restart))
    return begin


def capped(begin: Offsets, end: Offsets, most: int) -> Offsets:
    """`end`, but at most about `most` offsets behind `begin`, in proportion (maxOffsetsPerTrigger)."""
    sizes = {key: max(0, end[key] - begin.get(key, end[key])) for key in end}
    total = sum(sizes.values())
    if most <= 0 or total <= most:
        return end
    shares = {key: max(1, int(most * size / total)) if size else 0 for key, size in sizes.items()}
    return {key: min(end[key], begin.get(key, end[key]) + share) for key, share in shares.items()}


def as_json(offsets: Offsets, ids: Mapping[str, str]) -> dict[str, dict[str, int | str]]:
    """{topic: {"id": topic id, if it is known, partition: offset}}."""
    result: dict[str, dict[str, int | str]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        id_entry = {TOPIC_ID: ids[topic]} if ids.get(topic) else {}
        result.setdefault(topic, {**id_entry})[str(number)] = offset
    return result


def ids_in(said: Mapping[str, Mapping[str, int | str]]) -> dict[str, str]:
    return {topic: str(each[TOPIC_ID]) for topic, each in said.items() if TOPIC_ID in each}
