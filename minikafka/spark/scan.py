"""One segment judged: what a worker runs. Returns a summary of constant size, whatever the segment holds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from minikafka.spark import checks, logformat
from minikafka.spark.access import open_log
from minikafka.spark.fetch_reader import FetchReader
from minikafka.spark.findings import ERROR, NOTE, Finding, FindingList
from minikafka.spark.logformat import Batches, FormatError, SegmentReader
from minikafka.spark.metadata_log import METADATA_TOPIC
from minikafka.spark.producers import EVENTS_A_PARTITION, ProducerFacts, ProducerScan, is_of_group_coordinator, share_of
from minikafka.spark.records import check_records
from minikafka.spark.regular_files import open_regular
from minikafka.spark.sources import COMPACT, DELETE, UNBOUNDED, UNKNOWN, SegmentTask

Column = np.ndarray[Any, Any]
INDEX_BYTES_MAX = 256 << 20
RUNS_MAX = 4096
ABORTS_MAX = 65_536
DETAIL_BATCHES_MAX = 65_536
INDEXES = {".index", ".timeindex"}
HELD_CHECKS = {"offset-gap", "producer-sequence", "producer-epoch"}
WINDOW_BYTES = 4 << 20
RECORDS_WINDOW_BYTES = 16 << 20  # decoding in lockstep wants many batches at once
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(slots=True)
class Cell:
    """Batches whose base offset lies in one stretch of offsets. Two replicas agree there if `digest` and `batches` are equal.

    `offsets`: how many they span together; `first` and `end`: between which they lie.
    """

    digest: int
    batches: int
    records: int
    bytes: int
    position: int
    offsets: int = 0
    first: int = -1
    end: int = -1


@dataclass(slots=True)
class SegmentSummary:
    """`cells`: {(zone, offset >> cell_shift): Cell}. `runs`: (epoch, first offset, last offset). `stopped`: see SegmentReader, and
    "failed" where the scan itself broke. `goes_on`: a replica on the wire sent batches behind the fence.

    `taken_up`: where a stretch of a replica on the wire begins, behind the last batch of the one before (FetchReader). `unread_from`:
    nobody knows what the segment holds from this offset on, because reading it failed; -1 if it did not.

    `compacted`: batches lack records, as only a cleaner leaves them, and nobody knows whether one was there. `gaps` are missing offsets
    that this explains: the caller, who sees all segments, decides. `limits`: what there was more of than is kept, so that checks of it
    would be wrong.
    """

    task: SegmentTask
    first_offset: int = -1
    end_offset: int = -1
    end_position: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    stopped: str = ""
    vanished: bool = False
    compacted: bool = False
    limits: list[str] = field(default_factory=list)
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    findings: FindingList = field(default_factory=FindingList)
    gaps: list[Finding] = field(default_factory=list)
    producers: ProducerFacts = field(default_factory=ProducerFacts)
    aborts: Column = field(default_factory=lambda: np.empty(0, logformat.TXN_ENTRY))
    snapshots: list[tuple[int, Column]] = field(default_factory=list)
    taken_up: int = -1
    unread_from: int = -1
    goes_on: bool = False


def scan_segments(tasks: list[SegmentTask]) -> list[SegmentSummary]:
    return [scan_segment(task) for task in tasks]


def scan_segment(task: SegmentTask, is_bounded: bool = True) -> SegmentSummary:
    """Walk a segment once: every check of checks.py, and the digests for the comparison. Never raises: a scan that breaks says so in its
    summary, and costs only what it was to prove.

    `is_bounded`: keep no more of producers and transactions than a summary may hold; else all of it.
    """
    try:
        return _Scan(task, is_bounded).run()
    except Exception as error:
        summary = SegmentSummary(task, end_offset=task.base_offset, stopped="failed", unread_from=task.base_offset)
        text = f"the scan of segment {task.base_offset} failed: {type(error).__name__}: {error}"
        summary.findings.add(Finding("not-compared", text, task.topic, task.partition, (task.broker,), task.base_offset, task.path))
        return summary


class _Scan:
    def __init__(self, task: SegmentTask, is_bounded: bool = True) -> None:
        self.task, self.is_bounded = task, is_bounded
        self.summary = SegmentSummary(task)
        self.name = os.path.join(task.path, f"{task.base_offset:020d}")
        self.begin = self.expected = task.base_offset
        self.cleaned_to = task.cleaned_to
        self.epoch = -1
        self.offset_index: checks.OffsetIndexCheck | None = None
        self.time_index: checks.TimeIndexCheck | None = None
        names = [int(name[:20]) for name in task.snapshots]
        in_sequence_from = UNBOUNDED if is_of_group_coordinator(task.path) else task.cleaned_to
        cuts = sorted(offset for offset in names if offset > task.base_offset)
        self.producers = ProducerScan(cuts, in_sequence_from, is_bounded, task.segments)
        self.held_back: list[Finding] = []
        self.limited = False

    def run(self) -> SegmentSummary:
        task, summary = self.task, self.summary
        try:
            self._open_indexes()
            with open_log(task, window_bytes=RECORDS_WINDOW_BYTES if task.level == "records" else WINDOW_BYTES) as reader:
                for batches in reader:
                    if self._is_older(batches):
                        break
                    self._begin_at(batches, reader)
                    self._batches(batches)
                summary.stopped = summary.stopped or reader.stopped
                summary.end_position = reader.position
                if summary.stopped == "unreadable":
                    pass
                elif isinstance(reader, SegmentReader):
                    self._tail(reader.descriptor, reader)
                else:
                    self._wire_tail(reader)
        except FileNotFoundError:
            summary.vanished = True
            return summary
        except OSError as error:
            self.add([Finding("unreadable", f"cannot be read: {error.strerror}", position=summary.end_position)], ".log")
            summary.stopped, summary.unread_from = "unreadable", max(summary.end_offset, task.base_offset)
        self._finish()
        return summary

    def add(self, findings: Iterable[Finding], extension: str) -> None:
        for finding in findings:
            # The next start makes the contents anew, but it opens what bears the name.
            if self.task.is_made_anew and extension in INDEXES and finding.level == ERROR and finding.check != "unreadable":
                finding.level = NOTE
            self.summary.findings.add(self._placed(finding, extension))

    def _placed(self, finding: Finding, extension: str) -> Finding:
        task = self.task
        file = finding.file or (f"{self.name}{self._on_disk(extension)}" if task.place is None else task.path)
        return replace(finding, topic=task.topic, partition=task.partition, brokers=(task.broker,), file=file)

    def _on_disk(self, extension: str) -> str:
        """What a file that the next start calls so is called now."""
        return extension + ".swap" if extension[1:] + ".swap" in self.task.extensions else extension

    def _is_older(self, batches: Batches) -> bool:
        """Whether messages of an older format are among these: then nothing is said of the rest of the segment."""
        for row in np.flatnonzero(batches.header["magic"] < logformat.MAGIC).tolist():
            version = logformat.older_format(batches.whole(row))
            if version is not None:
                self._leave_older(version, int(batches.base_offset[row]), int(batches.position[row]))
                return True
        return False

    def _leave_older(self, version: int, offset: int, position: int) -> None:
        self.summary.stopped = "unreadable"
        text = f"the message at offset {offset} is of format v{version}, which brokers read and the audit does not"
        self.add([Finding("not-compared", text, offset=offset, position=position)], ".log")

    def _open_indexes(self) -> None:
        base = self.task.base_offset
        entries = self._entries("index", logformat.parse_offset_index, logformat.OFFSET_ENTRY.itemsize)
        if entries is not None:
            self.add(checks.index_sorted(entries, "offset"), ".index")
            self.add(checks.index_sorted(entries, "position"), ".index")
            self.offset_index = checks.OffsetIndexCheck(entries, base, self.cleaned_to)
        entries = self._entries("timeindex", logformat.parse_time_index, logformat.TIME_ENTRY.itemsize)
        if entries is not None:
            self.add(checks.index_sorted(entries, "timestamp"), ".timeindex")
            self.add(checks.index_sorted(entries, "offset", strictly=False), ".timeindex")
            self.time_index = checks.TimeIndexCheck(entries, base, self.cleaned_to)
        elif not {"timeindex", "timeindex.swap"} & set(self.task.extensions) and {"index", "index.swap"} & set(self.task.extensions):
            self.time_index = checks.TimeIndexCheck(None, base, self.cleaned_to)
        if self.task.is_rebuilt:
            return
        entries = self._entries("txnindex", logformat.parse_txn_index, logformat.TXN_ENTRY.itemsize)
        if entries is not None:
            kept = min(ABORTS_MAX, share_of(EVENTS_A_PARTITION, self.task.segments)) if self.is_bounded else len(entries)
            self.summary.aborts = entries[:kept].copy()
            self.limited |= len(entries) > kept

    def _entries(self, extension: str, parse: Any, entry_bytes: int) -> Column | None:
        if not {extension, extension + ".swap"} & set(self.task.extensions):
            return None
        try:
            with open_regular(f"{self.name}{self._on_disk('.' + extension)}") as file:
                size = os.fstat(file.fileno()).st_size
                data = logformat.read_index(file, entry_bytes, INDEX_BYTES_MAX + 1)
                if len(data) > INDEX_BYTES_MAX:
                    raise OSError(None, f"it is larger than {INDEX_BYTES_MAX} bytes", file.name)
                return self._trimmed(extension, parse(data), size)
        except FormatError as error:
            self.add([Finding("index-format", str(error))], "." + extension)
        except FileNotFoundError:
            self.add(_dead_link(f"{self.name}{self._on_disk('.' + extension)}"), "." + extension)
        except OSError as error:
            self.add([Finding("unreadable", f"cannot be read: {error.strerror}")], "." + extension)
        return None

    @property
    def _goes_on(self) -> bool:
        """Whether the segment is the newest of a log that was not closed. Apache Kafka 4.4 does not close its metadata log when it stops in
        good order: the newest indexes stay preallocated, without their last entries."""
        return self.task.next_base < 0 and (self.task.clean is not True or self.task.topic == METADATA_TOPIC)

    def _trimmed(self, extension: str, entries: Column, size: int) -> Column:
        """Of a log that goes on, an index is preallocated; a broker cuts it when the segment is closed, and takes what it finds behind the
        last entry of a closed one for entries (AbstractIndex)."""
        if self._goes_on:
            return entries
        if extension == "timeindex" and not len(entries) and size == logformat.TIME_ENTRY.itemsize:
            entries = np.zeros(1, logformat.TIME_ENTRY)  # the record at the segment's first offset, of 1970
        behind = size - entries.nbytes
        if behind:
            text = f"{behind} zero bytes follow its last entry: a broker takes them for entries"
            self.add([Finding("index-format", text)], "." + extension)
        return entries

    def _begin_at(self, batches: Batches, reader: SegmentReader | FetchReader) -> None:
        """Over the wire a log begins with the batch that holds its first offset, where records were deleted up to the midst of one; a
        stretch begins behind the last batch of the one before."""
        if self.summary.first_offset >= 0 or isinstance(reader, SegmentReader):
            return
        base, begin = int(batches.base_offset[0]), self.task.base_offset
        if self.task.follows:
            self.expected = reader.taken_up
        elif base < begin <= int(batches.last_offset[0]):
            self.begin = self.expected = base

    def _wire_tail(self, reader: FetchReader) -> None:
        task, summary = self.task, self.summary
        summary.taken_up, summary.goes_on = reader.taken_up, reader.goes_on and task.next_base < 0
        if summary.goes_on and task.policy == COMPACT:
            # The log goes on behind the fence: a cleaner took what lay before it.
            summary.end_offset = max(summary.end_offset, reader.end)
        if reader.stopped:
            text = f"records from offset {reader.offset} on were deleted while the replica was being read"
            self.add([Finding("replica-reread", text, offset=reader.offset)], ".log")

    def _batches(self, batches: Batches) -> None:
        task, summary = self.task, self.summary
        header = batches.header
        base, last = batches.base_offset, batches.last_offset
        sparse = checks.compacted(batches) & (base >= self.cleaned_to)
        if sparse.any():
            if task.policy == UNKNOWN:
                summary.compacted, self.cleaned_to = True, UNBOUNDED
            else:
                self.add(checks.sparse(batches, sparse, task.policy == DELETE), ".log")
        self.add(checks.batch_crc(batches), ".log")
        self.add(checks.batch_magic(batches), ".log")
        self.add(checks.batch_header(batches, task.topic == METADATA_TOPIC), ".log")
        self._held_findings(checks.offsets(batches, self.expected, task.cleaned_to, task.policy != COMPACT), HELD_CHECKS)
        self.add(checks.epochs(batches, self.epoch), ".log")
        self.add(checks.segment_bounds(batches, self.begin, task.next_base if task.place is None else -1), ".log")
        if self.offset_index is not None:
            self.offset_index.cleaned_to = self.cleaned_to
            self.add(self.offset_index.feed(batches), ".index")
        if self.time_index is not None:
            self.time_index.cleaned_to = self.cleaned_to
            self.add(self.time_index.feed(batches), ".timeindex")
        self._held_findings(self.producers.feed(batches), HELD_CHECKS)
        if task.level == "records":
            self.add(checks.record_level(batches, *check_records(batches)), ".log")
        expected = np.concatenate(([max(self.expected, 0)], last[:-1] + 1))
        if summary.first_offset < 0:
            summary.first_offset = int(base[0])
        summary.end_offset = self.expected = int(last[-1]) + 1
        self.epoch = int(header["epoch"][-1])
        summary.batches += len(batches)
        summary.records += int(np.maximum(header["count"].astype(np.int64), 0).sum())
        summary.bytes += int(batches.size.sum())
        self._runs(header["epoch"].astype(np.int64), base, last)
        self._cells(batches, base, last, expected)

    def _held_findings(self, found: Iterable[Finding], held: set[str]) -> None:
        """Gaps are held back until the whole segment is seen: a batch that only a cleaner writes explains them."""
        for finding in found:
            if finding.check in held:
                if len(self.held_back) < self.summary.findings.each_max:
                    self.held_back.append(finding)
            else:
                self.add([finding], ".log")

    def _runs(self, epoch: Column, base: Column, last: Column) -> None:
        runs = self.summary.runs
        starts = np.concatenate(([0], np.flatnonzero(np.diff(epoch)) + 1))
        ends = np.append(starts[1:], len(epoch)) - 1
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            if runs and runs[-1][0] == int(epoch[start]):
                runs[-1] = (runs[-1][0], runs[-1][1], int(last[end]))
            elif len(runs) < RUNS_MAX:
                runs.append((int(epoch[start]), int(base[start]), int(last[end])))
            elif "leader epochs" not in self.summary.limits:
                self.summary.limits.append("leader epochs")

    def _cells(self, batches: Batches, base: Column, last: Column, expected: Column) -> None:
        task = self.task
        zone, cell = zones(task, base, last), base >> task.cell_shift
        change = np.flatnonzero((np.diff(zone) != 0) | (np.diff(cell) != 0)) + 1
        starts = np.concatenate(([0], change))
        each = batch_digests(batches, task.digest)
        each[base < expected] += _M1  # a sum does not see the order of its terms; a batch out of order must change it
        digests = np.add.reduceat(each, starts)
        records = np.add.reduceat(np.maximum(batches.header["count"].astype(np.int64), 0), starts)
        sizes = np.add.reduceat(batches.size, starts)
        counts = np.diff(np.append(starts, len(base)))
        spans = np.add.reduceat(np.maximum(last - base + 1, 0), starts)
        firsts, ends = np.minimum.reduceat(base, starts), np.maximum.reduceat(last + 1, starts)
        for row, start in enumerate(starts.tolist()):
            key = int(zone[start]), int(cell[start])
            total = self.summary.cells.get(key)
            if total is None:
                total = self.summary.cells[key] = Cell(0, 0, 0, 0, int(batches.position[start]))
            total.digest = (total.digest + int(digests[row])) & 0xFFFFFFFFFFFFFFFF
            total.batches += int(counts[row])
            total.records += int(records[row])
            total.bytes += int(sizes[row])
            total.offsets += int(spans[row])
            total.first = int(firsts[row]) if total.first < 0 else min(total.first, int(firsts[row]))
            total.end = max(total.end, int(ends[row]))

    def _tail(self, descriptor: int, reader: SegmentReader) -> None:
        """What lies behind the last whole batch: nothing, a write cut by a crash, or rubbish."""
        task, summary = self.task, self.summary
        rest = task.size - reader.position
        if rest <= 0:
            return
        sample = os.pread(descriptor, min(rest, 1 << 16), reader.position)
        if reader.stopped == "shrunk" or not sample:
            summary.stopped = "shrunk"
            self.add([Finding("replica-reread", f"the file was cut to {reader.position + len(sample)} bytes while it was "
                                                "being read")], ".log")
            return
        version = logformat.older_format(sample)
        if version is not None:
            self._leave_older(version, int.from_bytes(sample[:8], "big"), reader.position)
            return
        end_offset = summary.end_offset if summary.end_offset >= 0 else task.base_offset
        zeros = not any(sample)
        what = f"{rest} bytes after the last whole batch, at byte {reader.position} " + (
            "are zeros" if zeros else self._describe(sample, rest)
        )
        crashed = task.next_base < 0 and task.clean is False
        above = end_offset >= task.high_watermark or task.high_watermark > (1 << 62)
        if crashed and (above or zeros):
            self.add([Finding("torn-tail", what, offset=end_offset, position=reader.position, level=NOTE)], ".log")
            summary.stopped = "torn"
        elif reader.stopped == "length" and not zeros:
            self.add([Finding("batch-length", what, offset=end_offset, position=reader.position)], ".log")
        else:
            self.add([Finding("segment-tail", what, offset=end_offset, position=reader.position)], ".log")

    @staticmethod
    def _describe(sample: bytes, rest: int) -> str:
        if len(sample) < logformat.LOG_OVERHEAD:
            return "are less than a batch's first fields"
        base, length = int.from_bytes(sample[:8], "big", signed=True), int.from_bytes(sample[8:12], "big", signed=True)
        if length < logformat.BATCH_LENGTH_MIN:
            return f"begin with a batch length of {length}, less than a header's {logformat.BATCH_LENGTH_MIN}"
        return f"begin with base offset {base} and a batch length of {length}, of which {rest - logformat.LOG_OVERHEAD} are there"

    def _finish(self) -> None:
        task, summary = self.task, self.summary
        if summary.end_offset < 0:
            summary.end_offset = max(task.base_offset, summary.taken_up)
        growing = self._goes_on
        active = task.next_base < 0 and task.base_offset >= task.cleaned_to
        for finding in self.held_back if not summary.compacted else ():
            (self.add([finding], ".log") if active else summary.gaps.append(self._placed(finding, ".log")))
        readable = summary.stopped in {"", "torn"}
        if self.offset_index is not None and readable:
            self.add(self.offset_index.finish(summary.end_position, summary.end_offset, growing), ".index")
        if self.time_index is not None and readable:
            self.add(self.time_index.finish(summary.end_offset, growing), ".timeindex")
        if growing:
            self.producers.cuts = [cut for cut in self.producers.cuts if cut <= summary.end_offset]
        summary.producers = self.producers.finish(summary.end_offset)
        self._snapshots()
        if summary.producers.limited or self.limited:  # a replay reads the segment again (views.replay_apart)
            summary.producers = ProducerFacts(limited=True, last_timestamp=summary.producers.last_timestamp)
            summary.aborts, summary.snapshots = summary.aborts[:0], []

    def _snapshots(self) -> None:
        for name in self.task.snapshots:
            path = os.path.join(self.task.path, name)
            try:
                with open_regular(path) as file:
                    data = file.read(INDEX_BYTES_MAX + 1)
                    if len(data) > INDEX_BYTES_MAX:
                        raise OSError(None, f"it is larger than {INDEX_BYTES_MAX} bytes", path)
                    states = logformat.parse_snapshot(data)
                    self._keep_snapshot(int(name[:20]), states)
            except FormatError as error:
                offset = int(name[:20])
                is_dropped = self.task.is_made_anew or offset >= self.task.recovered_from
                text, level = (f"{error}; the next start drops it", NOTE) if is_dropped else (str(error), ERROR)
                self.add([Finding("producer-snapshot", text, file=path, offset=offset, level=level)], "")
            except FileNotFoundError:
                self.add(_dead_link(path), "")
            except OSError as error:
                self.add([Finding("unreadable", f"cannot be read: {error.strerror}", file=path)], "")
            else:
                self.add((replace(finding, file=path) for finding in checks.producer_snapshot(states, int(name[:20]))), "")

    def _keep_snapshot(self, offset: int, states: Column) -> None:
        if len(states) > self.producers.producers_max:
            self.limited = True
        elif offset > self.task.base_offset and offset in {end for end, _ in self.summary.producers.pieces}:
            self.summary.snapshots.append((offset, states.copy()))


def _dead_link(path: str) -> Iterator[Finding]:
    """A file that is gone since it was listed is none of the log any more; a link that leads nowhere hides what it led to."""
    if os.path.islink(path):
        yield Finding("unreadable", "it is a broken link", file=path)


def batch_digests(batches: Batches, kind: str = "crc", chosen: Column | None = None) -> Column:
    """One uint64 for the bytes of each (or of each `chosen`) batch; their sum is the digest of a set of batches.

    "crc": from the 21 bytes in front of the CRC's range and the CRC-32C computed over the rest, mixed. "blake2b": a keyless
    64-bit BLAKE2b of all bytes, for those who do not want to rest on 32 bits a batch.
    """
    if kind == "blake2b":
        rows = range(len(batches)) if chosen is None else chosen.tolist()
        whole = (hashlib.blake2b(batches.whole(index), digest_size=8).digest() for index in rows)
        return np.frombuffer(b"".join(whole), np.uint64).copy()
    header, crc = (batches.header, batches.crc) if chosen is None else (batches.header[chosen], batches.crc[chosen])
    mixed = _mix(header["base_offset"].astype(np.int64).view(np.uint64))
    mixed = _mix(mixed ^ ((header["length"].astype(np.uint64) << np.uint64(32)) | header["epoch"].astype(np.uint32).astype(np.uint64)))
    return _mix(mixed ^ ((header["magic"].astype(np.uint8).astype(np.uint64) << np.uint64(32)) | crc.astype(np.uint64)))


def _mix(value: Column) -> Column:
    """The finisher of splitmix64: every input bit changes half of the output bits."""
    value = (value ^ (value >> np.uint64(30))) * _M1
    value = (value ^ (value >> np.uint64(27))) * _M2
    mixed: Column = value ^ (value >> np.uint64(31))
    return mixed


def zones(task: SegmentTask, base: Column, last: Column) -> Column:
    """The zone of each batch: how many cuts it lies behind. A batch belongs behind the start of a log in its midst (records below were
    deleted, it is served), and below a high watermark in its midst."""
    starts = np.array(task.starts, np.int64)
    others = np.array([cut for cut in task.cuts if cut not in set(task.starts)], np.int64)
    return np.searchsorted(starts, last, "right") + np.searchsorted(others, base, "right")


Resume = tuple[int, int, int]


@dataclass(slots=True)
class Detail:
    """Batches of one replica in one cell, for the search of the first difference. `resume`: where the next page begins (segment, byte,
    offset), None at the cell's end. `failed`: why the rest could not be read; `moved`: the segment is gone."""

    broker: str
    header: Column
    position: Column
    size: Column
    crc: Column
    digest: Column
    segment: Column
    resume: Resume | None = None
    failed: str = ""
    moved: bool = False


def detail(tasks: list[SegmentTask], positions: list[int], key: tuple[int, int], resume: Resume | None = None) -> Detail:
    """A page of at most DETAIL_BATCHES_MAX batches of one replica in the cell `key` (zone, number), beginning at each segment's position,
    or where the page before ended."""
    parts: list[tuple[Column, Column, Column, Column, Column, Column]] = []
    kept, following, failed, moved = 0, None, "", False
    first, start, low = resume if resume is not None else (0, -1, -1)
    for number in range(first, len(tasks)):
        task, position = tasks[number], start if number == first and start >= 0 else positions[number]
        low = low if number == first and low >= 0 else key[1] << task.cell_shift
        try:
            with open_log(task, position, low) as reader:
                for batches in reader:
                    chosen = in_cell(task, batches, key)[: DETAIL_BATCHES_MAX + 1 - kept]
                    kept += len(chosen)
                    if kept > DETAIL_BATCHES_MAX:
                        following = number, int(batches.position[chosen[-1]]), int(batches.base_offset[chosen[-1]])
                        chosen = chosen[:-1]
                    parts.append((
                        batches.header[chosen], batches.position[chosen], batches.size[chosen], batches.crc[chosen],
                        batch_digests(batches, task.digest, chosen), np.full(len(chosen), task.base_offset, np.int64),
                    ))  # fmt: skip
                    if following is not None or int(batches.base_offset[-1]) >= (key[1] + 1) << task.cell_shift:
                        break
        except OSError as error:
            failed, moved = f"segment {task.base_offset} cannot be read again: {error.strerror}", isinstance(error, FileNotFoundError)
        if following is not None or failed:
            break
    broker = tasks[0].broker if tasks else ""
    if not parts:
        empty = np.empty(0, np.int64)
        none = np.empty(0, logformat.HEADER), empty, empty, empty.astype(np.uint32), empty.astype(np.uint64), empty
        return Detail(broker, *none, failed=failed, moved=moved)
    columns = [np.concatenate([part[n] for part in parts]) for n in range(6)]
    return Detail(
        broker, columns[0], columns[1], columns[2], columns[3], columns[4], columns[5], resume=following, failed=failed, moved=moved
    )


def in_cell(task: SegmentTask, batches: Batches, key: tuple[int, int]) -> Column:
    """Which of the batches belong to a cell."""
    base = batches.base_offset
    return np.flatnonzero((zones(task, base, batches.last_offset) == key[0]) & (base >> task.cell_shift == key[1]))
