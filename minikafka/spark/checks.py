"""The checks on one replica: pure functions over columns of batches and the entries of the small files.

A function yields Findings without topic, partition, broker and file, which the caller adds. Columns are in file order and may be part
of a segment; arguments carry what a check needs from the part before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from minikafka.counted import counted
from minikafka.spark.findings import ERROR, Finding
from minikafka.spark.logformat import CODEC_MASK, CODECS, CONTROL_BIT, MAGIC, TIME_ENTRY, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, Batches
from minikafka.spark.records import Unread, has_delete_horizon

Column = np.ndarray[Any, Any]
RESERVED_BITS = 0xFF80 - 0x10000  # bits 7-15 of the signed attributes


def batch_crc(batches: Batches) -> Iterator[Finding]:
    """CRC-32C over bytes [21, end) equals the stored one (DefaultRecordBatch.isValid)."""
    stored = batches.header["crc"].astype(np.uint32)
    for index in np.flatnonzero(stored != batches.crc).tolist():
        yield _at(batches, index, "batch-crc", f"stored CRC {int(stored[index])} but the bytes give {int(batches.crc[index])}")


def batch_magic(batches: Batches) -> Iterator[Finding]:
    for index in np.flatnonzero(batches.header["magic"] != MAGIC).tolist():
        yield _at(batches, index, "batch-magic", f"magic {int(batches.header['magic'][index])}, expected {MAGIC}")


def compacted(batches: Batches) -> Column:
    """Flags the batches that only a log cleaner can have written: with removed records or a delete horizon."""
    header = batches.header
    found: Column = (header["count"] < header["last_delta"].astype(np.int64) + 1) | has_delete_horizon(batches)
    return found


def sparse(batches: Batches, flags: Column, never: bool) -> Iterator[Finding]:
    """Reports flagged batches where no cleaner has run: `never`, or not as far as its checkpoint says."""
    header = batches.header
    for index in np.flatnonzero(flags).tolist():
        records, spans = int(header["count"][index]), int(header["last_delta"][index]) + 1
        text = f"{counted(records, 'record')} over {counted(spans, 'offset')}, or a delete horizon, "
        if never:
            yield _at(batches, index, "batch-sparse", text + "in a topic that was never compacted")
        else:
            yield _at(batches, index, "not-compared", text + "above what the cleaners' checkpoints explain")


def batch_header(batches: Batches, is_metadata: bool = False) -> Iterator[Finding]:
    """The header fields of format v2 are consistent (rules: DefaultRecordBatch). Only the quorum writes control batches without a producer
    (`is_metadata`); consumers pass over the records of any."""
    header = batches.header
    count, last_delta = header["count"].astype(np.int64), header["last_delta"].astype(np.int64)
    control = (header["attributes"] & CONTROL_BIT) != 0
    rules = (
        (header["base_offset"] < 0, "base offset {base_offset} is negative"),
        (last_delta < 0, "last offset delta {last_delta} is negative"),
        ((count < 0) | (count > last_delta + 1), "{count} records cannot have a last offset delta of {last_delta}"),
        ((header["attributes"] & CODEC_MASK) >= len(CODECS), "attributes {attributes:#x} name no known compression"),
        ((header["attributes"] & RESERVED_BITS) != 0, "attributes {attributes:#x} set bits without meaning"),
        (header["epoch"] < 0, "partition leader epoch {epoch} is negative: no leader stamped it"),
        ((header["producer_id"] < -1) | ((header["producer_id"] >= 0) & (header["producer_epoch"] < 0)),
         "producer id {producer_id} with producer epoch {producer_epoch}"),
        ((header["producer_id"] >= 0) & ~control & (header["base_sequence"] < 0),
         "producer id {producer_id} with base sequence {base_sequence}"),
        (((header["attributes"] & TRANSACTIONAL_BIT) != 0) & (header["producer_id"] < 0), "transactional without a producer id"),
        (control & (header["producer_id"] >= 0) & ((header["attributes"] & TRANSACTIONAL_BIT) == 0),
         "a control batch of producer {producer_id} that is not transactional"),
        (control & (header["producer_id"] < 0) & (not is_metadata), "a control batch without a producer"),
        (control & (header["base_sequence"] != -1), "a control batch with base sequence {base_sequence}"),
        (control & (header["producer_id"] >= 0) & (count > 1), "{count} records in a marker, of which brokers read the first"),
    )  # fmt: skip
    good = header["magic"] == MAGIC
    for broken, text in rules:
        for index in np.flatnonzero(broken & good).tolist():
            yield _at(batches, index, "batch-header", text.format(**{name: int(header[name][index]) for name in header.dtype.names}))


def offsets(batches: Batches, expected: int, cleaned_to: int, never: bool = True) -> Iterator[Finding]:
    """Each batch begins where the previous one ended. `expected`: base offset of the first batch (-1 unknown).

    Gaps are normal below `cleaned_to` (a compacted log); going back never is. `never`: no cleaner can explain a gap above `cleaned_to`.
    Otherwise the cleaner of a replica that no longer exists may have run further.
    """
    base, last = batches.base_offset, batches.last_offset
    if len(base) == 0:
        return
    expected_offsets = np.concatenate(([expected if expected >= 0 else base[0]], last[:-1] + 1))
    for index in np.flatnonzero(base != expected_offsets).tolist():
        here, next_offset = int(base[index]), int(expected_offsets[index])
        if here < next_offset:
            yield _at(
                batches,
                index,
                "offset-order",
                f"batch {here}..{int(last[index])} where offset {next_offset} was expected: offsets go back or repeat",
            )
        elif here > cleaned_to:
            text = f"offsets {next_offset}..{here - 1} are missing before the batch {here}..{int(last[index])}"
            if never:
                yield _at(batches, index, "offset-gap", text, offset=next_offset)
            else:
                yield _at(batches, index, "not-compared", f"{text}, above what the cleaners' checkpoints explain", offset=next_offset)


def epochs(batches: Batches, previous: int) -> Iterator[Finding]:
    """Partition leader epochs never decrease. `previous`: the epoch before the first batch (-1 none)."""
    epoch = batches.header["epoch"].astype(np.int64)
    before = np.concatenate(([previous], epoch))[:-1]
    for index in np.flatnonzero(epoch < before).tolist():
        yield _at(batches, index, "epoch-order", f"leader epoch {int(epoch[index])} follows epoch {int(before[index])}")


def segment_bounds(batches: Batches, base_offset: int, next_base: int) -> Iterator[Finding]:
    """Batches lie in [`base_offset`, `next_base`), which are the offsets in the names of this segment and the next (-1: no next)."""
    base, last = batches.base_offset, batches.last_offset
    for index in np.flatnonzero(base < base_offset).tolist():
        yield _at(batches, index, "segment-name", f"batch {int(base[index])}..{int(last[index])} in a segment that begins at {base_offset}")
    if next_base >= 0:
        for index in np.flatnonzero(last >= next_base).tolist():
            yield _at(
                batches,
                index,
                "segment-name",
                f"batch {int(base[index])}..{int(last[index])} although the next segment begins at {next_base}",
            )


def record_level(batches: Batches, largest: Column, wrong: dict[int, str]) -> Iterator[Finding]:
    """Records decode (see records.check_records), and their largest timestamp is the header's max timestamp. LogValidator sets it, and
    a cleaner that removes records sets it again for the remaining ones (MemoryRecords.filterTo)."""
    for index, text in sorted(wrong.items()):
        yield _at(batches, index, "not-compared" if isinstance(text, Unread) else "batch-records", text)
    header = batches.header
    stated = header["max_timestamp"].astype(np.int64)
    create = ((header["attributes"] & (TIMESTAMP_TYPE_BIT | CONTROL_BIT)) == 0) & (header["count"] > 0)
    for index in np.flatnonzero(create & (largest != stated)).tolist():
        if index not in wrong:
            text = f"the latest record has timestamp {int(largest[index])}, the header's max timestamp is {int(stated[index])}"
            yield _at(batches, index, "batch-timestamps", text)


def _at(batches: Batches, index: int, check: str, message: str, offset: int | None = None, level: str = "") -> Finding:
    base = int(batches.header["base_offset"][index])
    return Finding(check, message, offset=base if offset is None else offset, position=int(batches.position[index]), level=level)


# ---- indexes: each against its own log, never against another replica's ------------------------------------------------------


def index_sorted(entries: Column, key: str, strictly: bool = True) -> Iterator[Finding]:
    """Entries are in ascending order of `key` (OffsetIndex and TimeIndex append in order)."""
    values = entries[key].astype(np.int64)
    falls = np.diff(values) <= 0 if strictly else np.diff(values) < 0
    for index in np.flatnonzero(falls).tolist():
        yield Finding("index-order", f"entry {index + 1} has {key} {int(values[index + 1])} after {int(values[index])}")


class OffsetIndexCheck:
    """Each entry points at the start of a batch that begins at or before the entry's offset. Fed with batches in file order.

    One append may write several batches, and the entry then names the last offset of them all (LogSegment.append). So the entry's offset
    can lie beyond the batch at its position, and a reader only scans a little more. An offset before that batch would make readers skip
    records. The offset is always the last one of some batch, unless a cleaner rewrote the log (below `cleaned_to`).
    """

    def __init__(self, entries: Column, base_offset: int, cleaned_to: int = 0) -> None:
        self.cleaned_to = cleaned_to
        self.unplaced = np.empty(0, np.int64)
        self.offset = entries["offset"].astype(np.int64) + base_offset
        self.position = entries["position"].astype(np.int64)
        self.seen = 0

    def feed(self, batches: Batches) -> Iterator[Finding]:
        if len(batches) == 0:
            return
        end = int(batches.position[-1] + batches.size[-1])
        last = self.seen + int(np.searchsorted(self.position[self.seen :], end))
        entries = np.arange(self.seen, last)
        self.seen = last
        at = np.searchsorted(batches.position, self.position[entries], "right") - 1
        start = batches.position[np.maximum(at, 0)]
        misplaced = (at < 0) | (start != self.position[entries])
        skips = ~misplaced & (batches.base_offset[np.maximum(at, 0)] > self.offset[entries])
        yield from self._between(batches, np.concatenate((self.unplaced, entries[~misplaced & ~skips])))
        for entry in entries[misplaced].tolist():
            yield self._finding(entry, f"points at byte {int(self.position[entry])}, which is not the start of a batch")
        for entry in entries[skips].tolist():
            row = int(at[entry - int(entries[0])])
            yield self._finding(entry, f"points at the batch that begins at offset {int(batches.base_offset[row])}, after its own offset")

    def _between(self, batches: Batches, entries: Column) -> Iterator[Finding]:
        last_offset = batches.last_offset
        here = self.offset[entries] <= last_offset[-1]
        self.unplaced, entries = entries[~here], entries[here]
        at = np.minimum(np.searchsorted(last_offset, self.offset[entries]), len(last_offset) - 1)
        inside = (last_offset[at] != self.offset[entries]) & (self.offset[entries] >= self.cleaned_to)
        for entry in entries[inside].tolist():
            yield self._finding(entry, "names an offset inside a batch instead of a batch's last offset")

    def finish(self, end_position: int, end_offset: int, growing: bool) -> Iterator[Finding]:
        """Entries beyond the last batch. `growing`: the broker is running and ahead of this reader, or will rebuild the index."""
        if growing:
            return
        level = ERROR
        for entry in range(self.seen, len(self.position)):
            yield self._finding(entry, f"points at byte {int(self.position[entry])}, the log ends at {end_position}", level)
        for entry in np.flatnonzero(self.offset[: self.seen] >= end_offset).tolist():
            yield self._finding(entry, f"names offset {int(self.offset[entry])}, the segment ends before {end_offset}", level)

    def _finding(self, entry: int, text: str, level: str = ERROR) -> Finding:
        return Finding(
            "index-target", f"entry {entry} (offset {int(self.offset[entry])}) {text}", offset=int(self.offset[entry]), level=level
        )


class TimeIndexCheck:
    """For each entry (timestamp, offset): no batch up to the offset has a later timestamp, and the batch with the offset is the first one
    with that timestamp, unless a cleaner rewrote the log (below `cleaned_to`).

    The last entry of a closed segment has the segment's largest timestamp (LogSegment.onBecomeInactiveSegment, close). A lookup by time
    skips a segment whose last entry is too early, and stops in one whose last entry is too late.
    `entries` None: the file is missing although there is an offset index; a broker that starts creates an empty one.
    """

    def __init__(self, entries: Column | None, base_offset: int, cleaned_to: int = 0) -> None:
        self.is_there = entries is not None
        entries = np.empty(0, TIME_ENTRY) if entries is None else entries
        self.timestamp = entries["timestamp"].astype(np.int64)
        self.offset = entries["offset"].astype(np.int64) + base_offset
        self.seen = 0
        self.running = np.int64(np.iinfo(np.int64).min)
        self.cleaned_to = cleaned_to

    def feed(self, batches: Batches) -> Iterator[Finding]:
        if len(batches) == 0:
            return
        stated = batches.header["max_timestamp"].astype(np.int64)
        running = np.maximum(np.maximum.accumulate(stated), self.running)
        before = np.concatenate(([self.running], running[:-1]))
        self.running = running[-1]
        last_offset = batches.last_offset
        last = self.seen + int(np.searchsorted(self.offset[self.seen :], last_offset[-1], "right"))
        entries = np.arange(self.seen, last)
        self.seen = last
        at = np.minimum(np.searchsorted(last_offset, self.offset[entries]), len(last_offset) - 1)
        wrong = (running[at] > self.timestamp[entries]) | (before[at] >= self.timestamp[entries])
        elsewhere = (stated[at] != self.timestamp[entries]) | (batches.base_offset[at] > self.offset[entries])
        wrong |= elsewhere & (self.offset[entries] >= self.cleaned_to)
        for entry in entries[wrong].tolist():
            row = int(at[entry - int(entries[0])])
            text = f"says {int(self.timestamp[entry])}; the batch there has {int(stated[row])}, "
            text += f"the latest up to it is {int(running[row])}, before it {int(before[row])}"
            yield self._finding(entry, text)

    def finish(self, end_offset: int, growing: bool) -> Iterator[Finding]:
        if growing:
            return
        for entry in range(self.seen, len(self.offset)):
            # Even behind what a cleaner rewrote: a look-up of that time would pass a record over.
            if int(self.offset[entry]) >= self.cleaned_to or int(self.running) >= int(self.timestamp[entry]):
                yield self._finding(entry, f"names an offset beyond the segment's end {end_offset}", ERROR)
        newest, latest = int(self.timestamp[-1]) if len(self.timestamp) else -1, int(self.running)
        if latest >= 0 and newest != latest:
            said = f"the last entry says {newest}" if len(self.timestamp) else "no entry" if self.is_there else "the file is missing"
            yield Finding("time-index-target", f"{said}; the latest timestamp of the segment is {latest}", offset=end_offset, level=ERROR)

    def _finding(self, entry: int, text: str, level: str = ERROR) -> Finding:
        return Finding(
            "time-index-target", f"entry {entry} (offset {int(self.offset[entry])}) {text}", offset=int(self.offset[entry]), level=level
        )


def producer_snapshot(states: Column, name_offset: int) -> Iterator[Finding]:
    """Producer states name only offsets below the snapshot's own offset. One without a batch has no sequence and no delta, either
    (ProducerStateEntry)."""
    for index in range(len(states)):
        producer, last, first = (int(states[name][index]) for name in ("producer_id", "last_offset", "first_offset"))
        if last >= name_offset or first >= name_offset or first < -1:
            text = f"producer {producer}: last offset {last}, open since {first}, in a snapshot of offsets below {name_offset}"
            yield Finding("producer-snapshot", text, offset=name_offset)
        sequence, delta = int(states["last_sequence"][index]), int(states["offset_delta"][index])
        if last < 0 and (last, sequence, delta) != (-1, -1, 0):
            text = f"producer {producer}: no batch, but last offset {last}, last sequence {sequence}, offset delta {delta}"
            yield Finding("producer-snapshot", text, offset=name_offset)


def stop_snapshot(names: Iterable[str], log_start: int, log_end: int) -> Iterator[Finding]:
    """A clean shutdown writes a snapshot at the log's end, even without producers (UnifiedLog.close). A broker that restarts after a clean
    shutdown and finds no snapshot assumes that there were no producers (UnifiedLog.rebuildProducerState)."""
    if log_end > log_start and f"{log_end:020d}.snapshot" not in set(names):
        text = f"the snapshot at the log's end {log_end}, which a clean shutdown writes, is missing"
        yield Finding("producer-snapshot", text, offset=log_end)


# ---- leader epochs and checkpoints --------------------------------------------------------------------------------------------


def epoch_checkpoint(
    entries: list[tuple[int, int]], runs: list[tuple[int, int, int]], log_start: int, log_end: int, clean: bool, cleaned: int
) -> Iterator[Finding]:
    """The checkpoint agrees with the batches. runs: (epoch, first offset, last offset) of adjacent batches with the same epoch, in order.

    The leader stores (epoch, log end) when it is elected, a follower when it receives the first batch of the epoch. So an epoch with
    batches begins exactly at the first of them; only the first run may have lost its beginning to retention (LeaderEpochFileCache).
    A running follower raises its log start, and truncates the checkpoint, long before it deletes segments or stores the log start. So
    without a `clean` shutdown the checkpoint's first entry counts as the log start. Entries beyond the end of such a log prove nothing: a
    power failure may leave them, and the next start removes them. Compaction may have removed an epoch's first batches: then it begins
    somewhere between the batches that are left.
    """
    for before, after in pairwise(entries):
        if after[0] <= before[0] or after[1] < before[1]:
            yield Finding(
                "epoch-checkpoint",
                f"entry `{after[0]} {after[1]}` after `{before[0]} {before[1]}`: epochs and offsets must increase",
                offset=after[1],
            )
    if not clean:
        entries = [entry for entry in entries if entry[1] <= log_end]
    if entries and not clean:
        log_start = max(log_start, entries[0][1])
    runs = [run for run in runs if run[2] >= log_start]
    start_by_epoch = dict(entries)
    for number, (epoch, first, last) in enumerate(runs):
        if epoch < 0:
            continue
        start = start_by_epoch.get(epoch)
        if start is None:
            yield Finding(
                "epoch-checkpoint", f"batches {first}..{last} have epoch {epoch}, which the checkpoint does not contain", offset=first
            )
        elif (number == 0 and start > max(first, log_start)) or (number > 0 and not runs[number - 1][2] < start <= first):
            yield Finding(
                "epoch-checkpoint",
                f"epoch {epoch} starts at {start} according to the checkpoint but at {first} according to the batches",
                offset=min(start, first),
            )
    yield from _between_runs(entries, runs, log_start)
    for epoch, start in entries:
        if start > log_end:
            yield Finding("epoch-checkpoint", f"epoch {epoch} starts at {start}, beyond the log's end {log_end}", offset=start)


def _between_runs(entries: list[tuple[int, int]], runs: list[tuple[int, int, int]], log_start: int) -> Iterator[Finding]:
    """An epoch's start divides the log: batches before it have older epochs, batches from it on have this epoch or newer ones.

    A leader that wrote nothing also has an entry, at the log end of that time. An entry inside another epoch's batches would make a
    follower that asks where that epoch ends truncate committed records (KIP-101). An entry at or below the log start says nothing about
    the batches there, which cannot be read, but it also ends every older epoch.
    """
    runs = [run for run in runs if run[0] >= 0]
    firsts = np.array([run[1] for run in runs], np.int64)
    lasts = np.array([run[2] for run in runs], np.int64)
    for epoch, start in entries:
        readable = start > log_start
        before = int(np.searchsorted(lasts, start))  # the first run that reaches to the start or beyond
        inside = readable and before < len(runs) and firsts[before] < start and runs[before][0] != epoch
        older_behind = before < len(runs) and not inside and runs[before][0] < epoch
        newer_before = readable and before > 0 and runs[before - 1][0] > epoch
        if inside or older_behind or newer_before:
            run = runs[before - 1 if newer_before and not inside else before]
            text = f"epoch {epoch} starts at {start} according to the checkpoint, but batches {run[1]}..{run[2]} have epoch {run[0]}"
            yield Finding("epoch-checkpoint", text, offset=start)


def bounds(high_watermark: int | None, recovery_point: int | None, cleaned: int, log_start: int, log_end: int) -> Iterator[Finding]:
    """The log directory's checkpoints lie inside [log start, log end]."""
    if high_watermark is not None and high_watermark > log_end:
        missing = f"offsets {log_end}..{high_watermark - 1} are missing"
        text = f"high watermark checkpoint {high_watermark}, but the log ends at {log_end}: {missing}"
        yield Finding("committed-missing", text, offset=log_end)
    if recovery_point is not None and recovery_point > log_end:
        yield recovery_point_beyond(recovery_point, log_end)
    if cleaned > log_end:
        yield Finding("checkpoint-bounds", f"the cleaner's checkpoint {cleaned} is beyond the log's end {log_end}", offset=log_end)
    if log_start > log_end:
        yield Finding("checkpoint-bounds", f"log start {log_start} is beyond the log's end {log_end}", offset=log_end)


def recovery_point_beyond(recovery_point: int, log_end: int) -> Finding:
    """What was once synced is gone."""
    return Finding("checkpoint-bounds", f"recovery point {recovery_point} is beyond the log's end {log_end}", offset=log_end)
