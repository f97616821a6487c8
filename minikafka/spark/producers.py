"""What a segment says of its producers: sequences, epochs, transactions. Gathered by the worker that scans it, put together in replay.py.

A segment is cut at the offsets of the producer snapshots inside it. For each piece and producer one ProducerPart says how the
state before the piece becomes the state behind it (ProducerStateManager, ProducerAppendInfo in Apache Kafka), so that pieces scanned
on different machines compose exactly.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minikafka.spark.findings import Finding
from minikafka.spark.logformat import CONTROL_BIT, TRANSACTIONAL_BIT, Batches
from minikafka.spark.records import decode_records

Column = np.ndarray[Any, Any]
PRODUCERS_MAX = 20_000
EVENTS_MAX = 65_536
#: One task holds the summaries of all segments of a partition, so these numbers are shared by the segments.
PRODUCERS_A_PARTITION = 200_000
EVENTS_A_PARTITION = 300_000
ABORT, COMMIT, DATA = 0, 1, 2
UNKNOWN_KIND = -1
NOTHING_KNOWN = -2
SEQUENCES = 1 << 31


@dataclass(slots=True)
class ProducerPart:
    """One producer in one piece of a log.

    `first_*` describe its first batch (first_sequence -2: a marker). `data`: the last_* fields were set in this piece, by a batch
    or by a marker that cleared them; else they are what they were before, provided the epoch did not change. `opens_at`: first
    transactional batch before any marker, `open_after`: first one behind the last marker; -1 none.
    """

    first_epoch: int
    first_sequence: int
    first_offset: int
    epoch: int
    data: bool = False
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    coordinator_epoch: int = -1
    timestamp: int = -1
    opens_at: int = -1
    closed: bool = False
    open_after: int = -1
    #: The first batch outside of a transaction, if nothing of a transaction comes before it.
    plain_at: int = -1

    @property
    def open_since(self) -> int:
        """Where the transaction that is open now began; -1: none, or it began before this piece."""
        return self.open_after if self.closed else self.opens_at


@dataclass(slots=True)
class ProducerFacts:
    """`pieces`: (end offset, {producer id: part}); `events`: (offset, producer id, kind, timestamp ms) of transactions' first batches
    and markers. `limited`: more producers or events than are kept; a replay would be wrong."""

    pieces: list[tuple[int, dict[int, ProducerPart]]] = field(default_factory=list)
    events: list[tuple[int, int, int, int]] = field(default_factory=list)
    limited: bool = False
    last_timestamp: int = -1


def is_of_group_coordinator(path: str) -> bool:
    """Whether a log is of `__consumer_offsets`: its transactional batches come from the coordinator, each with sequence 0."""
    return path.rstrip("/").rpartition("/")[2].startswith("__consumer_offsets-")


def share_of(most: int, segments: int) -> int:
    """One segment's share of what is kept of a partition."""
    return max(1, most // max(1, segments))


class ProducerScan:
    """Fed with the batches of a segment in file order. `cuts`: snapshot offsets inside the segment, ascending. `in_sequence_from`: the
    offset from which on no cleaner took batches away. `is_bounded`: keep only so
    many producers and events that the summaries of the partition's `segments` stay small together, and say when there are more."""

    def __init__(self, cuts: list[int], in_sequence_from: int = 0, is_bounded: bool = True, segments: int = 1) -> None:
        self.producers_max = self.events_max = sys.maxsize
        if is_bounded:
            self.producers_max = min(PRODUCERS_MAX, share_of(PRODUCERS_A_PARTITION, segments))
            self.events_max = min(EVENTS_MAX, share_of(EVENTS_A_PARTITION, segments))
        self.facts = ProducerFacts()
        self.cuts = list(cuts)
        self.parts: dict[int, ProducerPart] = {}
        self.in_transaction: set[int] = set()
        self.in_sequence_from = in_sequence_from

    def feed(self, batches: Batches) -> Iterator[Finding]:
        header = batches.header
        self.facts.last_timestamp = int(header["max_timestamp"][-1])
        has_producer = header["producer_id"] >= 0
        if not has_producer.any() and not self.cuts:
            return
        base = batches.base_offset
        start = 0
        while self.cuts and int(batches.last_offset[-1]) >= self.cuts[0]:
            split = int(np.searchsorted(base, self.cuts[0]))
            yield from self._rows(batches, np.flatnonzero(has_producer[start:split]) + start)
            self._close_piece(self.cuts.pop(0))
            start = max(start, split)
        yield from self._rows(batches, np.flatnonzero(has_producer[start:]) + start)

    def finish(self, end_offset: int) -> ProducerFacts:
        """Close the last piece; snapshots named beyond the segment's end speak of the state at its end."""
        self._close_piece(end_offset)
        for cut in self.cuts:
            if cut > end_offset:
                self._close_piece(cut)
        return self.facts

    def _close_piece(self, offset: int) -> None:
        self.facts.pieces.append((offset, self.parts))
        self.parts = {}

    def _rows(self, batches: Batches, rows: Column) -> Iterator[Finding]:
        if len(rows) == 0:
            return
        header = batches.header[rows]
        special = (header["attributes"] & (CONTROL_BIT | TRANSACTIONAL_BIT)) != 0
        if special.any():
            yield from self._one_by_one(batches, rows)
            return
        order = np.argsort(header["producer_id"], kind="stable")
        producer = header["producer_id"][order].astype(np.int64)
        epoch, base = header["producer_epoch"][order].astype(np.int64), header["base_offset"][order].astype(np.int64)
        first, delta = header["base_sequence"][order].astype(np.int64), header["last_delta"][order].astype(np.int64)
        last = (first + delta) % SEQUENCES
        times = header["max_timestamp"][order].astype(np.int64)
        same = np.concatenate(([False], producer[1:] == producer[:-1]))
        same[1:] &= base[:-1] >= self.in_sequence_from
        if same.any():
            wrong = same.copy()
            expected = np.where(epoch[1:] == epoch[:-1], (last[:-1] + 1) % SEQUENCES, 0)
            wrong[1:] &= (epoch[1:] < epoch[:-1]) | (first[1:] != expected)
            for row in np.flatnonzero(wrong).tolist():
                yield sequence_finding(int(producer[row]), int(epoch[row]), int(first[row]), int(base[row]), int(epoch[row - 1]),
                                       int(last[row - 1]), int(batches.position[rows[order[row]]]), int(expected[row - 1]))  # fmt: skip
        ends = np.flatnonzero(np.append(producer[1:] != producer[:-1], True))
        starts = np.concatenate(([0], ends[:-1] + 1))
        for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
            part, problem = self._part(int(producer[begin]), int(epoch[begin]), int(first[begin]), int(base[begin]))
            outside = self._outside(part, int(producer[begin]), int(base[begin]))
            for found in (one for one in (problem, outside) if one is not None):
                found.position = int(batches.position[rows[order[begin]]])
                yield found
            if part is not None:
                part.epoch, part.data, part.timestamp = int(epoch[end]), True, int(times[end])
                part.last_sequence, part.last_offset, part.offset_delta = int(last[end]), int(base[end] + delta[end]), int(delta[end])

    def _part(self, producer: int, epoch: int, sequence: int, offset: int) -> tuple[ProducerPart | None, Finding | None]:
        """The producer's part, made when missing; and what is wrong between its last batch and this one."""
        part = self.parts.get(producer)
        if part is not None:
            return part, self._between(producer, part, epoch, sequence, offset)
        if len(self.parts) >= self.producers_max:
            self.facts.limited = True
            return None, None
        part = self.parts[producer] = ProducerPart(epoch, sequence, offset, epoch)
        return part, None

    def _between(self, producer: int, part: ProducerPart, epoch: int, sequence: int, offset: int) -> Finding | None:
        if self.in_sequence_from and part.last_offset < self.in_sequence_from:
            return None
        before = self.before(part)
        return continuity(producer, part.epoch, before, epoch, sequence, offset)

    @staticmethod
    def before(part: ProducerPart) -> int:
        """The last sequence before a batch, as continuity wants it."""
        return part.last_sequence if part.data else NOTHING_KNOWN

    def _outside(self, part: ProducerPart | None, producer: int, offset: int) -> Finding | None:
        """A batch outside of a transaction: what is wrong if one is open."""
        if part is None or (part.closed and part.open_after < 0):
            return None
        if part.open_since < 0:
            part.plain_at = offset if part.plain_at < 0 else part.plain_at
            return None
        return outside_transaction(producer, part.open_since, offset) if part.open_since >= self.in_sequence_from else None

    def _one_by_one(self, batches: Batches, rows: Column) -> Iterator[Finding]:
        header = batches.header
        control = (header["attributes"][rows] & CONTROL_BIT) != 0
        kinds = marker_kinds(batches, rows[control])
        for row in rows.tolist():
            attributes, producer = int(header["attributes"][row]), int(header["producer_id"][row])
            epoch, base = int(header["producer_epoch"][row]), int(header["base_offset"][row])
            is_marker = bool(attributes & CONTROL_BIT)
            first = -2 if is_marker else int(header["base_sequence"][row])
            part, problem = self._part(producer, epoch, first, base)
            outside = None if attributes & (CONTROL_BIT | TRANSACTIONAL_BIT) else self._outside(part, producer, base)
            for found in (one for one in (problem, outside) if one is not None):
                found.position = int(batches.position[row])
                yield found
            if is_marker:
                kind, coordinator = kinds.get(row, (UNKNOWN_KIND, -1))
                if kind not in {ABORT, COMMIT}:
                    if int(header["count"][row]):
                        what = f"is neither a commit nor an abort (type {kind})" if kind >= 0 else "cannot be read"
                        text = f"producer {producer}: a control batch that {what}"
                        yield Finding("txn-marker", text, offset=base, position=int(batches.position[row]))
                    continue
                self._event(base, producer, kind, int(header["max_timestamp"][row]))
                self.in_transaction.discard(producer)
            elif attributes & TRANSACTIONAL_BIT and producer not in self.in_transaction:
                self.in_transaction.add(producer)
                self._event(base, producer, DATA, int(header["max_timestamp"][row]))
            if part is None:
                continue
            part.timestamp = int(header["max_timestamp"][row])
            if is_marker:
                if part.coordinator_epoch > coordinator >= 0:
                    text = f"producer {producer}: a marker of coordinator epoch {coordinator} follows one of epoch {part.coordinator_epoch}"
                    yield Finding("txn-marker", text, offset=base, position=int(batches.position[row]))
                if epoch != part.epoch:
                    part.data, part.last_sequence, part.last_offset, part.offset_delta = True, -1, -1, 0
                part.epoch, part.coordinator_epoch, part.closed, part.open_after = epoch, coordinator, True, -1
                continue
            delta = int(header["last_delta"][row])
            part.epoch, part.data, part.offset_delta = epoch, True, delta
            part.last_sequence, part.last_offset = (first + delta) % SEQUENCES, base + delta
            if attributes & TRANSACTIONAL_BIT:
                if part.closed:
                    part.open_after = base if part.open_after < 0 else part.open_after
                elif part.opens_at < 0:
                    part.opens_at = base

    def _event(self, offset: int, producer: int, kind: int, timestamp: int) -> None:
        if len(self.facts.events) >= self.events_max:
            self.facts.limited = True
        else:
            self.facts.events.append((offset, producer, kind, timestamp))


def continuity(producer: int, before_epoch: int, before_sequence: int, epoch: int, sequence: int, offset: int) -> Finding | None:
    """What a leader refuses (ProducerAppendInfo.checkSequence): an older epoch, in the same epoch not the next sequence, in a new epoch
    another one than 0.

    `sequence` -2 is a marker. `before_sequence` -1: a marker has begun the epoch, NOTHING_KNOWN: the log may have lost its data.
    """
    if epoch < before_epoch:
        return sequence_finding(producer, epoch, sequence, offset, before_epoch, before_sequence)
    expected = (before_sequence + 1) % SEQUENCES if epoch == before_epoch else 0
    if sequence >= 0 and sequence != expected and (epoch > before_epoch or before_sequence != NOTHING_KNOWN):
        return sequence_finding(producer, epoch, sequence, offset, before_epoch, before_sequence, expected=expected)
    return None


def outside_transaction(producer: int, begin: int, offset: int) -> Finding:
    """What a leader refuses (ProducerAppendInfo.appendDataBatch). Readers would take the records for committed."""
    text = f"producer {producer} wrote outside of its transaction, which is open since offset {begin}"
    return Finding("producer-transaction", text, offset=offset)


def sequence_finding(
    producer: int, epoch: int, first: int, offset: int, before_epoch: int, before_last: int, position: int = -1, expected: int | None = None
) -> Finding:
    if epoch < before_epoch:
        text = f"producer {producer} wrote with epoch {epoch} after epoch {before_epoch}: a fenced producer got through"
        return Finding("producer-epoch", text, offset=offset, position=position)
    expected = (before_last + 1) % SEQUENCES if expected is None else expected
    behind = (expected - first) % SEQUENCES
    if behind < SEQUENCES // 2:
        text = f"producer {producer} (epoch {epoch}) repeats sequence {first} (expected {expected}): its records are in the log twice"
    else:
        text = f"producer {producer} (epoch {epoch}) jumps to sequence {first} (expected {expected}): the batches in between are missing"
    return Finding("producer-sequence", text, offset=offset, position=position)


def marker_kinds(batches: Batches, chosen: Column) -> dict[int, tuple[int, int]]:
    """{batch index: (0 abort, 1 commit, another control type or UNKNOWN_KIND, coordinator epoch)}, by the first record of each batch.

    Key of a control record: int16 version, int16 type; value of a marker: int16 version, int32 coordinator epoch. Later versions may have
    more behind that; there is none before 0 (ControlRecordType.parse, EndTransactionMarker.deserialize).
    """
    if len(chosen) == 0:
        return {}
    records, _ = decode_records(batches, chosen)
    found: dict[int, tuple[int, int]] = {}
    for index in range(len(records)):
        key, value = records.key(index) or b"", records.value(index) or b""
        kind = int.from_bytes(key[2:4], "big", signed=True) if len(key) >= 4 and key[0] < 0x80 else UNKNOWN_KIND
        if kind in {ABORT, COMMIT} and (len(value) < 6 or value[0] >= 0x80):
            kind = UNKNOWN_KIND
        found.setdefault(int(records.batch[index]), (kind, int.from_bytes(value[2:6], "big", signed=True) if len(value) >= 6 else -1))
    return found
