"""Producers and transactions of a whole replica: the segments' facts in order, against its snapshots and its transaction indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from minikafka.spark.findings import Finding
from minikafka.spark.producers import ABORT, COMMIT, DATA, NOTHING_KNOWN, ProducerPart, continuity, outside_transaction

Column = np.ndarray[Any, Any]
Snapshot = tuple[int, Column]
TRANSACTION_TIMEOUT_MS = 900_000  # transaction.max.timeout.ms


@dataclass(slots=True)
class ProducerState:
    """What a broker knows of a producer (ProducerStateEntry); -1 where nothing is known."""

    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    coordinator_epoch: int = -1
    timestamp: int = -1
    open_since: int = -1
    #: Whether the log tells of the epoch's beginning, or of a batch of it.
    is_known: bool = False


@dataclass(slots=True)
class SegmentFacts:
    """One segment's part in the replay: where it begins and ends, its producers, its snapshots and aborted transactions by the index."""

    base_offset: int
    end_offset: int
    pieces: list[tuple[int, dict[int, ProducerPart]]]
    events: list[tuple[int, int, int, int]]
    last_timestamp: int
    aborts: Column
    name: str
    snapshots: list[Snapshot] = field(default_factory=list)
    #: A replica on the wire shows its batches, not its indexes.
    has_index: bool = True


@dataclass(slots=True)
class Replay:
    """The outcome: `aborted` are (producer id, first offset, marker offset) of every aborted transaction, `committed` those of committed
    ones that begin where a cleaner was, `open` those without an end, `ended` (producer id, epoch, COMMIT or ABORT, marker offset) of the
    last one of each producer that has none open."""

    findings: list[Finding] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    committed: list[tuple[int, int, int]] = field(default_factory=list)
    open: dict[int, tuple[int, int]] = field(default_factory=dict)
    ended: list[tuple[int, int, int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """`cleaned_to`: below this offset a cleaner may have removed records. `live`: the broker was running or crashed, its newest index
    entries may be ahead. `in_sequence`: producers number what they write.

    `transaction_timeout_ms`: a transaction open for longer than twice this is reported (0: transaction.max.timeout.ms's default).
    """

    log_start: int
    cleaned_to: int
    live: bool
    transaction_timeout_ms: int = 0
    in_sequence: bool = True


class Replayer:
    """Everything that needs more than one segment. Fed with the segments in order; keeps the producers and what is open, not the past."""

    def __init__(self, begin: int, options: ReplayOptions) -> None:
        self.begin, self.options = begin, options
        self.outcome = Replay()
        self._states: dict[int, ProducerState] = {}
        self._times: list[tuple[int, int]] = []
        #: producer id -> (offset, kind) of its latest marker
        self._ended: dict[int, tuple[int, int]] = {}
        self._unsettled: list[_Unsettled] = []

    def feed(self, segment: SegmentFacts) -> None:
        """The next segment."""
        self.outcome.findings += self._producers(segment)
        self.outcome.findings += self._transactions(segment)
        self._times.append((segment.end_offset, segment.last_timestamp))

    def finish(self) -> Replay:
        """After the last segment."""
        for one in self._unsettled:
            self.outcome.findings += one.findings_at(None)
        for producer, (offset, kind) in self._ended.items():
            if producer not in self.outcome.open and producer in self._states:
                self.outcome.ended.append((producer, self._states[producer].epoch, kind, offset))
        limit_ms = 2 * (self.options.transaction_timeout_ms or TRANSACTION_TIMEOUT_MS)
        self.outcome.findings += _hanging(self._times, self.outcome.open, limit_ms)
        return self.outcome

    def _producers(self, segment: SegmentFacts) -> Iterator[Finding]:
        cleaned_to, states = self.options.cleaned_to, self._states
        snapshots = {offset: entries for offset, entries in segment.snapshots}
        for end, parts in segment.pieces:
            for producer, part in parts.items():
                earlier = states.get(producer)
                if earlier is not None and part.plain_at >= 0 and earlier.open_since >= max(0, cleaned_to) and self.options.in_sequence:
                    yield replace(outside_transaction(producer, earlier.open_since, part.plain_at), file=segment.name + ".log")
                if earlier is not None and self.options.in_sequence and not (cleaned_to and earlier.last_offset < cleaned_to):
                    before = earlier.last_sequence if earlier.is_known else NOTHING_KNOWN
                    problem = continuity(producer, earlier.epoch, before, part.first_epoch, part.first_sequence, part.first_offset)
                    if problem is not None:
                        problem.file = segment.name + ".log"
                        yield problem
                states[producer] = advance(earlier, part)
            if end in snapshots:
                yield from _snapshot(snapshots.pop(end), end, states, self.begin, self.options.log_start, cleaned_to)

    def _transactions(self, segment: SegmentFacts) -> Iterator[Finding]:
        """Markers against open transactions, and each segment's index of aborted ones against both.

        A cleaner keeps a marker, and its entry, for as long as it meets any batch of the transaction (CleanedTransactionMetadata): so also
        below what it cleaned an entry has its marker, and an aborted transaction of which something is left has its entry.
        """
        options, opened = self.options, self.outcome.open
        entries = {int(row["last_offset"]): row for row in segment.aborts}
        file = segment.name + ".txnindex"
        yield from _rising(segment.aborts, file)
        explained = set()
        for offset, producer, kind, timestamp in segment.events:
            if kind == DATA:
                opened.setdefault(producer, (offset, timestamp))
                yield from self._settle(producer, offset)
                continue
            since = opened.pop(producer, None)
            (ended, _), self._ended[producer] = self._ended.get(producer, (-1, DATA)), (offset, kind)
            entry = entries.get(offset)
            if kind != ABORT:
                if kind == COMMIT and since is not None and since[0] < options.cleaned_to:
                    self.outcome.committed.append((producer, since[0], offset))
                if entry is not None:
                    explained.add(offset)
                    text = f"the index says producer {producer}'s transaction was aborted at {offset}, but the log committed it there"
                    yield Finding("txn-index-target", text, offset=offset, file=file)
                continue
            if since is not None:
                self.outcome.aborted.append((producer, since[0], offset))
            if entry is None:
                if segment.has_index and since is not None:
                    text = f"producer {producer} aborted its transaction at {offset}, but the index has no entry for it"
                    yield Finding("txn-index-target", text, offset=offset, file=file)
                continue
            explained.add(offset)
            yield from self._entry(entry, producer, (ended, since[0] if since else -1, offset), file)
        for offset, row in sorted(entries.items()):
            if offset not in explained and not (options.live and offset >= segment.end_offset):
                text = f"the index says producer {int(row['producer_id'])} aborted {int(row['first_offset'])}..{offset}, "
                yield Finding("txn-index-target", text + f"but the log has no marker at {offset}", offset=offset, file=file)

    def _entry(self, row: Any, producer: int, seen: tuple[int, int, int], file: str) -> Iterator[Finding]:
        """One entry of the index against its marker. `seen`: the producer's marker before it and the first batch behind that, each -1 where
        the log has none, and the marker.

        The log may have lost the transaction's beginning, but not a marker between: an entry that covers one hides committed records. Its
        last stable offset is the first offset of any other transaction that was open then, else the one behind the marker
        (ProducerStateManager.lastStableOffset). A follower that copies several transactions at once takes all of them for open: where
        the leader had none open it may name the first transaction of another producer behind the marker. So does Apache Kafka's.
        """
        ended, first, offset = seen
        floor = max(self.begin, self.options.log_start, self.options.cleaned_to)  # what began below it the log may not tell
        said, said_first, said_stable = int(row["producer_id"]), int(row["first_offset"]), int(row["stable_offset"])
        wrong = []
        if int(row["version"]) != 0:
            wrong.append(f"version {int(row['version'])}, expected 0")
        if said != producer:
            wrong.append(f"producer {said}, but the marker is producer {producer}'s")
        if not ended < said_first < offset:
            wrong.append(f"first offset {said_first}, but the previous transaction ended at {ended}")
        elif said_first != first and not (said_first < floor and (first < 0 or said_first < first)):
            wrong.append(f"first offset {said_first}, but the log says {first}")
        stable = min([begin for begin, _ in self.outcome.open.values()] + [offset + 1])
        if said_stable != stable and not said_stable < floor:
            text = f"last stable offset {said_stable}, but the log says {stable}"
            if not wrong and stable == offset + 1 and said_stable > stable:
                self._unsettled.append(_Unsettled(producer, offset, said_stable, text, file))
            else:
                wrong.append(text)
        if wrong:
            text = f"the index entry of the transaction aborted at {offset} says " + "; ".join(wrong)
            yield Finding("txn-index-target", text, offset=offset, file=file)

    def _settle(self, producer: int, offset: int) -> Iterator[Finding]:
        """A transaction begins: the first one of another producer behind a marker is what a follower may have named."""
        left = []
        for one in self._unsettled:
            if one.producer == producer:
                left.append(one)
            else:
                yield from one.findings_at(offset)
        self._unsettled = left


@dataclass(frozen=True, slots=True)
class _Unsettled:
    """An index entry whose last stable offset only a transaction behind it can explain."""

    producer: int
    marker: int
    said: int
    text: str
    file: str

    def findings_at(self, begins: int | None) -> list[Finding]:
        if begins == self.said:
            return []
        text = f"the index entry of the transaction aborted at {self.marker} says {self.text}"
        return [Finding("txn-index-target", text, offset=self.marker, file=self.file)]


def _rising(aborts: Column, file: str) -> Iterator[Finding]:
    """Entries stand in the order of their markers (TransactionIndex.append): a reader stops where a stable offset is far enough."""
    for index in np.flatnonzero(np.diff(aborts["last_offset"].astype(np.int64)) <= 0).tolist():
        before, offset = (int(aborts["last_offset"][at]) for at in (index, index + 1))
        text = f"the index's entry of the transaction aborted at {offset} comes after the one of {before}"
        yield Finding("txn-index-target", text, offset=offset, file=file)


def replay(segments: list[SegmentFacts], options: ReplayOptions) -> Replay:
    """All segments of a replica, in order."""
    replayer = Replayer(segments[0].base_offset if segments else 0, options)
    for segment in segments:
        replayer.feed(segment)
    return replayer.finish()


def advance(state: ProducerState | None, part: ProducerPart) -> ProducerState:
    """The state behind a piece of log, from the state in front of it (ProducerStateEntry.update)."""
    if state is None:
        state = ProducerState(part.first_epoch)
    elif part.first_epoch != state.epoch:
        state = replace(state, epoch=part.first_epoch, last_sequence=-1, last_offset=-1, offset_delta=0, is_known=True)
    if part.data:
        last = part.last_sequence, part.last_offset, part.offset_delta
        state = replace(state, last_sequence=last[0], last_offset=last[1], offset_delta=last[2], is_known=True)
    open_since = part.open_after if part.closed else (state.open_since if state.open_since >= 0 else part.opens_at)
    coordinator = max(state.coordinator_epoch, part.coordinator_epoch)
    return replace(state, epoch=part.epoch, open_since=open_since, coordinator_epoch=coordinator, timestamp=part.timestamp)


def _snapshot(
    entries: Column, offset: int, states: dict[int, ProducerState], begin: int, log_start: int, cleaned_to: int
) -> Iterator[Finding]:
    """A snapshot against the log below it; of what lies below `cleaned_to` a cleaner may have left less.

    Producers may be missing: they expire by the time of their last batch. But not with an open transaction, and not while the
    snapshot still has a producer that was silent for longer.
    """
    seen = set()
    oldest_kept = min((int(row["timestamp"]) for row in entries if int(row["first_offset"]) < 0), default=None)
    for row in range(len(entries)):
        numbers = (int(entries[name][row]) for name in entries.dtype.names)
        producer, epoch, last_sequence, last_offset, delta, timestamp, coordinator, first = numbers
        seen.add(producer)
        replayed = states.get(producer)
        wrong = []
        if replayed is None:
            if last_offset >= max(begin, cleaned_to) or not (begin or cleaned_to):  # a whole log has something of each producer
                wrong.append(f"last offset {last_offset}, but the log has nothing from it from {begin} on")
        else:
            # Where a cleaner was, also the batches of its newest epoch may be gone.
            is_cleaned = cleaned_to > 0 and max(last_offset, replayed.last_offset) < cleaned_to
            found = {"epoch": (epoch, max(epoch, replayed.epoch) if is_cleaned else replayed.epoch)}
            if not cleaned_to or replayed.last_offset >= cleaned_to:
                found["timestamp"] = timestamp, replayed.timestamp
                if replayed.last_offset < 0 and last_offset >= begin:
                    found["last offset"] = last_offset, -1
            if replayed.last_offset >= 0 and max(replayed.last_offset, last_offset) >= cleaned_to:
                found["last sequence"], found["last offset"] = (last_sequence, replayed.last_sequence), (last_offset, replayed.last_offset)
                found["offset delta"] = (delta, replayed.offset_delta)
            # What began below `kept` may have lost its first batches: retention ends in the midst of a transaction.
            kept = max(begin, cleaned_to)
            if max(first, replayed.open_since) >= kept and not 0 <= first < kept:
                found["open transaction since"] = (first, replayed.open_since)
            if (replayed.coordinator_epoch >= 0 or begin == 0) and not cleaned_to:
                found["coordinator epoch"] = (coordinator, replayed.coordinator_epoch)
            wrong += [f"{name} {said}, but the log says {true}" for name, (said, true) in found.items() if said != true]
        if wrong:
            yield Finding("producer-replay", f"snapshot {offset}, producer {producer}: " + "; ".join(wrong), offset=offset)
    for producer, replayed in sorted(states.items()):
        if producer in seen or (replayed.last_offset < cleaned_to and replayed.open_since < cleaned_to):
            continue
        if oldest_kept is not None and replayed.timestamp > oldest_kept and replayed.last_offset >= max(begin, log_start):
            text = f"snapshot {offset} does not know producer {producer}, which wrote up to offset {replayed.last_offset}, "
            yield Finding("producer-replay", text + "although it knows one that has been silent for longer", offset=offset)
        elif replayed.open_since >= 0:
            text = f"snapshot {offset} does not know producer {producer}, with a transaction open since offset {replayed.open_since}"
            yield Finding("producer-replay", text, offset=offset)


def _hanging(times: list[tuple[int, int]], opened: dict[int, tuple[int, int]], limit_ms: int) -> Iterator[Finding]:
    for producer, (offset, timestamp) in sorted(opened.items(), key=lambda item: item[1]):
        newest = max((last for end, last in times if end > offset), default=-1)
        if timestamp >= 0 and newest - timestamp > limit_ms:
            age = (newest - timestamp) // 1000
            text = f"producer {producer}'s transaction has been open since offset {offset}, {age} s before the newest records"
            yield Finding("txn-open", text, offset=offset)
