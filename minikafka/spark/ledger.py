"""Checks the replicas against a ledger of the records that were acknowledged to producers.

A ledger has JSON lines with topic, partition and offset, and optionally key and value as text. The `producer_send_success` lines of
kafka-verifiable-producer.sh have this format; other lines are skipped.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minikafka.counted import counted
from minikafka.spark.access import open_log
from minikafka.spark.findings import Finding
from minikafka.spark.logformat import CONTROL_BIT
from minikafka.spark.records import Unread, decode_records
from minikafka.spark.sources import SegmentTask

Column = np.ndarray[Any, Any]
KEPT_MAX = 100
RANGES_SHOWN = 5


class LedgerError(Exception):
    """A ledger cannot be used; the text names the file and the line."""


@dataclass(slots=True)
class Acknowledged:
    """The acknowledged records of one partition: sorted offsets, digests of key and value (0: not in the ledger). `conflicts`: offsets that
    were acknowledged for different records."""

    offsets: Column
    digests: Column
    conflicts: list[int] = field(default_factory=list)


def digest(key: bytes | None, value: bytes | None) -> int:
    return int.from_bytes(hashlib.blake2b(repr((key, value)).encode(), digest_size=8).digest(), "big") | 1


def read_ledgers(paths: Iterable[str]) -> tuple[dict[tuple[str, int], Acknowledged], list[str]]:
    """(all ledgers together, by topic and partition; the paths of those that name no record). Raises LedgerError."""
    empty = []
    by_partition: dict[tuple[str, int], dict[int, int]] = {}
    conflicts: dict[tuple[str, int], list[int]] = {}
    for path in paths:
        is_empty = True
        try:
            with open(path, encoding="utf-8-sig") as file:
                for number, line in enumerate(file, 1):
                    entry = _entry(line, path, number)
                    if entry is None:
                        continue
                    key, offset, found = entry
                    is_empty = False
                    by_offset = by_partition.setdefault(key, {})
                    known = by_offset.setdefault(offset, found)
                    if not known:  # that line did not say what the record holds
                        by_offset[offset] = found
                    elif found not in {0, known}:
                        conflicts.setdefault(key, []).append(offset)
        except OSError as error:
            raise LedgerError(f"{path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise LedgerError(f"{path}: not UTF-8 text") from error
        empty += [path] if is_empty else []
    result = {}
    for key, by_offset in by_partition.items():
        offsets = np.array(sorted(by_offset), np.int64)
        digests = np.array([by_offset[offset] for offset in offsets.tolist()], np.uint64)
        result[key] = Acknowledged(offsets, digests, sorted(conflicts.get(key, ())))
    return result, empty


def _entry(line: str, path: str, number: int) -> tuple[tuple[str, int], int, int] | None:
    if not line.strip():
        return None
    try:
        row = json.loads(line)
        if row.get("name", "producer_send_success") != "producer_send_success":
            return None
        key = str(row["topic"]), _number(row["partition"], 31)
        offset = _number(row["offset"], 63)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LedgerError(f"{path}, line {number}: not a JSON object with topic, partition and offset") from error
    if "value" not in row:
        return key, offset, 0
    try:
        texts = [None if row.get(name) is None else str(row[name]).encode() for name in ("key", "value")]
    except UnicodeEncodeError as error:
        raise LedgerError(f"{path}, line {number}: its key or value is not text") from error
    return key, offset, digest(texts[0], texts[1])


def _number(value: Any, bits: int) -> int:
    """A non-negative integer of at most this many bits. Raises ValueError for anything else."""
    number = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,19}", value) else value
    if type(number) is not int or not 0 <= number < 1 << bits:
        raise ValueError(value)
    return number


@dataclass(slots=True)
class Held:
    """The result of looking up the ledger in one replica: the first missing and different offsets, and their numbers."""

    broker: str
    missing: list[int] = field(default_factory=list)
    missing_count: int = 0
    different: list[int] = field(default_factory=list)
    different_count: int = 0
    missing_all: Column = field(default_factory=lambda: np.empty(0, np.int64))
    unread: str = ""


def look_up(item: tuple[str, list[SegmentTask], Acknowledged]) -> Held:
    """Look for every acknowledged record of a partition in one replica's segments."""
    broker, tasks, acknowledged = item
    held = Held(broker)
    seen = np.zeros(len(acknowledged.offsets), bool)
    for task in tasks:
        try:
            with open_log(task) as reader:
                for batches in reader:
                    _compare(batches, acknowledged, seen, held)
        except OSError as error:
            held.unread = f"segment {task.base_offset} of broker {broker} cannot be read: {error.strerror}"
    held.missing_all = acknowledged.offsets[~seen] if not held.unread else acknowledged.offsets[:0]
    held.missing, held.missing_count = held.missing_all[:KEPT_MAX].tolist(), len(held.missing_all)
    return held


def _compare(batches: Any, acknowledged: Acknowledged, seen: Column, held: Held) -> None:
    first = np.searchsorted(acknowledged.offsets, batches.base_offset)
    last = np.searchsorted(acknowledged.offsets, batches.last_offset, "right")
    sound = batches.header["crc"].astype(np.uint32) == batches.crc
    is_control = (batches.header["attributes"] & CONTROL_BIT) != 0  # nobody was told that a marker is a record
    chosen = np.flatnonzero((last > first) & sound & ~is_control)
    if len(chosen) == 0:
        return
    records, wrong = decode_records(batches, chosen)
    for text in (text for text in wrong.values() if isinstance(text, Unread)):
        held.unread = f"a batch of broker {held.broker} was not decoded: {text}"
    at = np.searchsorted(acknowledged.offsets, records.offset)
    at = np.minimum(at, len(acknowledged.offsets) - 1)
    for index in np.flatnonzero(acknowledged.offsets[at] == records.offset).tolist():
        row = int(at[index])
        seen[row] = True
        expected = int(acknowledged.digests[row])
        if expected and digest(records.key(index), records.value(index)) != expected:
            held.different_count += 1
            if len(held.different) < KEPT_MAX:
                held.different.append(int(records.offset[index]))


def ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Sorted offsets as ranges of consecutive offsets: (first, last)."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] + 1 == offset:
            found[-1] = found[-1][0], offset
        else:
            found.append((offset, offset))
    return found


def in_words(found: list[tuple[int, int]]) -> str:
    """The first few ranges of offsets in words."""
    shown = ", ".join(f"{first}" if first == last else f"{first}..{last}" for first, last in found[:RANGES_SHOWN])
    more = f" and {len(found) - RANGES_SHOWN} more ranges" if len(found) > RANGES_SHOWN else ""
    return f"offset{'s' if len(found) > 1 or found[0][0] != found[0][1] else ''} {shown}{more}"


def _conflicts(offsets: list[int], elections: list[tuple[int, str]]) -> Iterator[Finding]:
    """One finding for each unclean election that explains conflicts, and one for conflicts that no election explains."""
    left = offsets
    for number, (begin, words) in enumerate(elections):
        end = elections[number + 1][0] if number + 1 < len(elections) else 1 << 62
        explained = [offset for offset in left if begin <= offset < max(end, begin + 1)]
        left = [offset for offset in left if offset not in set(explained)]
        if explained:
            text = f"different records were acknowledged at {in_words(ranges(explained))}, one after the other: the first were lost in "
            yield Finding("acked-conflict", text + words, offset=explained[0], cause="an unclean election")
    if left:
        text = f"different records were acknowledged at {in_words(ranges(left))}"
        cause = "two leaders acknowledged at once, or the earlier records were lost before the later ones were written"
        yield Finding("acked-conflict", text, offset=left[0], cause=cause)


def judge_ledger(
    acknowledged: Acknowledged, held: list[Held], log_starts: dict[str, int], promises: dict[str, int], cleaned_below: int,
    elections: list[tuple[int, str]],
) -> list[Finding]:  # fmt: skip
    """Findings of one partition. `promises`: {broker: offset below which it must hold every record} (committed, or its in-sync claim);
    `elections`: where the leaders of unclean elections began, and the election in words.

    Records below a log start were deleted by retention, those below `cleaned_below` perhaps by the cleaner.
    """
    findings = list(_conflicts(acknowledged.conflicts, sorted(elections)))
    findings += [Finding("not-compared", f"acknowledged records: {one.unread}", brokers=(one.broker,)) for one in held if one.unread]
    held = [one for one in held if not one.unread]
    nowhere = np.array([], np.int64)
    if held:
        start = max(cleaned_below, *log_starts.values())
        common = held[0].missing_all
        for one in held[1:]:
            common = np.intersect1d(common, one.missing_all, assume_unique=True)
        nowhere = common[common >= start]
        if len(nowhere):
            text = f"{counted(len(nowhere), 'acknowledged record')} on no replica: {in_words(ranges(nowhere.tolist()))}"
            cause = "records were lost after they were acknowledged (unclean election, lost log tails)"
            findings.append(Finding("acked-missing", text, brokers=tuple(one.broker for one in held), offset=int(nowhere[0]), cause=cause))
    for one in held:
        start = max(cleaned_below, log_starts[one.broker])
        lost = one.missing_all[(one.missing_all >= start) & (one.missing_all < promises[one.broker])]
        lost = np.setdiff1d(lost, nowhere, assume_unique=True)
        if len(lost):
            records = counted(len(lost), "acknowledged record")
            text = f"broker {one.broker} lacks {records} that it must have: {in_words(ranges(lost.tolist()))}"
            findings.append(Finding("acked-missing", text, brokers=(one.broker,), offset=int(lost[0])))
        if one.different_count:
            records = counted(one.different_count, "record")
            text = f"broker {one.broker} holds {records} other than acknowledged: {in_words(ranges(one.different))}"
            findings.append(Finding("acked-differs", text, brokers=(one.broker,), offset=one.different[0]))
    return findings
