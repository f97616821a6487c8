"""One segment judged: what a worker runs. Returns a summary of constant size, whatever the segment holds."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from minikafka.spark import checks, logformat
from minikafka.spark.access import open_log
from minikafka.spark.findings import ERROR, NOTE, Finding, FindingList
from minikafka.spark.logformat import Batches, FormatError, SegmentReader
from minikafka.spark.producers import PRODUCERS_MAX, ProducerFacts, ProducerScan, is_of_group_coordinator
from minikafka.spark.records import check_records
from minikafka.spark.sources import SegmentTask

Column = np.ndarray[Any, Any]
INDEX_BYTES_MAX = 256 << 20
RUNS_MAX = 4096
ABORTS_MAX = 65_536
HELD_CHECKS = {"offset-gap", "producer-sequence", "producer-epoch"}
WINDOW_BYTES = 4 << 20
RECORDS_WINDOW_BYTES = 16 << 20  # decoding in lockstep wants many batches at once
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@dataclass(slots=True)
class Cell:
    """Batches whose base offset lies in one stretch of offsets. Two replicas agree there if `digest` and `batches` are equal."""

    digest: int
    batches: int
    records: int
    bytes: int
    position: int


@dataclass(slots=True)
class SegmentSummary:
    """`cells`: {(zone, offset >> cell_shift): Cell}. `runs`: (epoch, first offset, last offset). `stopped`: see SegmentReader.

    `gaps` are missing offsets that a compacted partition explains: the caller, who sees all segments, decides.
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
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    findings: FindingList = field(default_factory=FindingList)
    gaps: list[Finding] = field(default_factory=list)
    producers: ProducerFacts = field(default_factory=ProducerFacts)
    aborts: Column = field(default_factory=lambda: np.empty(0, logformat.TXN_ENTRY))
    snapshots: list[tuple[int, Column]] = field(default_factory=list)


def scan_segments(tasks: list[SegmentTask]) -> list[SegmentSummary]:
    return [scan_segment(task) for task in tasks]


def scan_segment(task: SegmentTask) -> SegmentSummary:
    """Walk a segment once: every check of checks.py, and the digests for the comparison. Never raises for what the files hold."""
    return _Scan(task).run()


class _Scan:
    def __init__(self, task: SegmentTask) -> None:
        self.task = task
        self.summary = SegmentSummary(task)
        self.name = os.path.join(task.path, f"{task.base_offset:020d}")
        self.expected = -1 if task.gaps_allowed_below > task.base_offset else task.base_offset
        self.epoch = -1
        self.offset_index: checks.OffsetIndexCheck | None = None
        self.time_index: checks.TimeIndexCheck | None = None
        names = [int(name[:20]) for name in task.snapshots]
        in_sequence = self.expected >= 0 and not is_of_group_coordinator(task.path)
        self.producers = ProducerScan(sorted(offset for offset in names if offset > task.base_offset), in_sequence)
        self.held_back: list[Finding] = []

    def run(self) -> SegmentSummary:
        task, summary = self.task, self.summary
        try:
            self._open_indexes()
            with open_log(task, window_bytes=RECORDS_WINDOW_BYTES if task.level == "records" else WINDOW_BYTES) as reader:
                for batches in reader:
                    self._batches(batches)
                summary.stopped = reader.stopped
                summary.end_position = reader.position
                if isinstance(reader, SegmentReader):
                    self._tail(reader.descriptor, reader)
                elif reader.stopped:
                    text = f"records from offset {reader.offset} on were deleted while the replica was read"
                    self.add([Finding("replica-reread", text, offset=reader.offset)], ".log")
        except FileNotFoundError:
            summary.vanished = True
            return summary
        except OSError as error:
            self.add([Finding("unreadable", f"cannot be read: {error.strerror}", position=summary.end_position)], ".log")
            summary.stopped = "unreadable"
        self._finish()
        return summary

    def add(self, findings: Iterable[Finding], extension: str) -> None:
        for finding in findings:
            self.summary.findings.add(self._placed(finding, extension))

    def _placed(self, finding: Finding, extension: str) -> Finding:
        task = self.task
        file = finding.file or (self.name + extension if task.place is None else task.path)
        return replace(finding, topic=task.topic, partition=task.partition, brokers=(task.broker,), file=file)

    def _open_indexes(self) -> None:
        base = self.task.base_offset
        entries = self._entries("index", logformat.parse_offset_index, logformat.OFFSET_ENTRY.itemsize)
        if entries is not None:
            self.add(checks.index_sorted(entries, "offset"), ".index")
            self.add(checks.index_sorted(entries, "position"), ".index")
            self.offset_index = checks.OffsetIndexCheck(entries, base, self.task.gaps_allowed_below > base)
        entries = self._entries("timeindex", logformat.parse_time_index, logformat.TIME_ENTRY.itemsize)
        if entries is not None:
            self.add(checks.index_sorted(entries, "timestamp"), ".timeindex")
            self.add(checks.index_sorted(entries, "offset", strictly=False), ".timeindex")
            self.time_index = checks.TimeIndexCheck(entries, base, self.task.gaps_allowed_below > base)
        entries = self._entries("txnindex", logformat.parse_txn_index, logformat.TXN_ENTRY.itemsize)
        if entries is not None:
            self.summary.aborts = entries[:ABORTS_MAX].copy()
            self.summary.producers.limited |= len(entries) > ABORTS_MAX

    def _entries(self, extension: str, parse: Any, entry_bytes: int) -> Column | None:
        if extension not in self.task.extensions:
            return None
        try:
            with open(f"{self.name}.{extension}", "rb") as file:
                return parse(logformat.read_index(file, entry_bytes, INDEX_BYTES_MAX))  # type: ignore[no-any-return]
        except FormatError as error:
            self.add([Finding("index-format", str(error))], "." + extension)
        except FileNotFoundError:
            pass
        except OSError as error:
            self.add([Finding("unreadable", f"cannot be read: {error.strerror}")], "." + extension)
        return None

    def _batches(self, batches: Batches) -> None:
        task, summary = self.task, self.summary
        header = batches.header
        base, last = batches.base_offset, batches.last_offset
        cleaned = checks.compacted(batches)
        if cleaned.any():
            summary.compacted = True
        self.add(checks.batch_crc(batches), ".log")
        self.add(checks.batch_magic(batches), ".log")
        self.add(checks.batch_header(batches), ".log")
        begin = task.base_offset
        if task.place is not None and summary.first_offset < 0 and base[0] < begin <= last[0]:
            # Over the wire a log begins with the batch that holds its first offset, where records were deleted up to the midst of one.
            begin = self.expected = int(base[0])
        self._held_findings(checks.offsets(batches, self.expected, task.gaps_allowed_below), HELD_CHECKS)
        self.add(checks.epochs(batches, self.epoch), ".log")
        self.add(checks.segment_bounds(batches, begin, task.next_base), ".log")
        if self.offset_index is not None:
            self.offset_index.compacted |= summary.compacted
            self.add(self.offset_index.feed(batches), ".index")
        if self.time_index is not None:
            self.time_index.compacted |= summary.compacted
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
        self._cells(batches, base, expected)

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

    def _cells(self, batches: Batches, base: Column, expected: Column) -> None:
        task = self.task
        zone = np.searchsorted(np.array(task.cuts, np.int64), base, "right")
        cell = base >> task.cell_shift
        change = np.flatnonzero((np.diff(zone) != 0) | (np.diff(cell) != 0)) + 1
        starts = np.concatenate(([0], change))
        each = batch_digests(batches, task.digest)
        each[base < expected] += _M1  # a sum does not see the order of its terms; a batch out of order must change it
        digests = np.add.reduceat(each, starts)
        records = np.add.reduceat(np.maximum(batches.header["count"].astype(np.int64), 0), starts)
        sizes = np.add.reduceat(batches.size, starts)
        counts = np.diff(np.append(starts, len(base)))
        for row, start in enumerate(starts.tolist()):
            key = int(zone[start]), int(cell[start])
            known = self.summary.cells.get(key)
            if known is None:
                known = self.summary.cells[key] = Cell(0, 0, 0, 0, int(batches.position[start]))
            known.digest = (known.digest + int(digests[row])) & 0xFFFFFFFFFFFFFFFF
            known.batches += int(counts[row])
            known.records += int(records[row])
            known.bytes += int(sizes[row])

    def _tail(self, descriptor: int, reader: SegmentReader) -> None:
        """What lies behind the last whole batch: nothing, a write cut by a crash, or rubbish."""
        task, summary = self.task, self.summary
        rest = task.size - reader.position
        if rest <= 0:
            return
        sample = os.pread(descriptor, min(rest, 1 << 16), reader.position)
        if reader.stopped == "shrunk" or not sample:
            summary.stopped = "shrunk"
            self.add([Finding("replica-reread", f"the file was cut to {reader.position + len(sample)} bytes while it was read")], ".log")
            return
        end_offset = summary.end_offset if summary.end_offset >= 0 else task.base_offset
        zeros = not any(sample)
        what = f"{rest} bytes behind the last whole batch at byte {reader.position} " + (
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
            summary.end_offset = task.base_offset
        growing = task.clean is not True and task.next_base < 0
        compacted = summary.compacted or task.gaps_allowed_below > task.base_offset
        active = task.next_base < 0 and task.base_offset >= task.gaps_allowed_below
        for finding in self.held_back:
            if not compacted:
                (self.add([finding], ".log") if active else summary.gaps.append(self._placed(finding, ".log")))
        readable = summary.stopped in {"", "torn"}
        if self.offset_index is not None and readable:
            self.add(self.offset_index.finish(summary.end_position, summary.end_offset, growing), ".index")
        if self.time_index is not None and readable:
            self.time_index.compacted |= summary.compacted
            self.add(self.time_index.finish(summary.end_offset, growing), ".timeindex")
        limited = summary.producers.limited
        if growing:
            self.producers.cuts = [cut for cut in self.producers.cuts if cut <= summary.end_offset]
        summary.producers = self.producers.finish(summary.end_offset)
        summary.producers.limited |= limited
        self._snapshots()

    def _snapshots(self) -> None:
        for name in self.task.snapshots:
            path = os.path.join(self.task.path, name)
            try:
                with open(path, "rb") as file:
                    states = logformat.parse_snapshot(file.read(INDEX_BYTES_MAX))
                    self._keep_snapshot(int(name[:20]), states)
            except FormatError as error:
                self.add([Finding("producer-snapshot", str(error), file=path, offset=int(name[:20]), level=ERROR)], "")
            except FileNotFoundError:
                continue
            except OSError as error:
                self.add([Finding("unreadable", f"cannot be read: {error.strerror}", file=path)], "")
            else:
                self.add((replace(finding, file=path) for finding in checks.producer_snapshot(states, int(name[:20]))), "")


    def _keep_snapshot(self, offset: int, states: Column) -> None:
        if len(states) > PRODUCERS_MAX:
            self.summary.producers.limited = True
        elif offset > self.task.base_offset and offset in {end for end, _ in self.summary.producers.pieces}:
            self.summary.snapshots.append((offset, states.copy()))


def batch_digests(batches: Batches, kind: str = "crc") -> Column:
    """One uint64 for the bytes of each batch; their sum is the digest of a set of batches.

    "crc": from the 21 bytes in front of the CRC's range and the CRC-32C computed over the rest, mixed. "blake2b": a keyless
    64-bit BLAKE2b of all bytes, for those who do not want to rest on 32 bits a batch.
    """
    if kind == "blake2b":
        whole = (hashlib.blake2b(batches.whole(index), digest_size=8).digest() for index in range(len(batches)))
        return np.frombuffer(b"".join(whole), np.uint64).copy()
    header = batches.header
    mixed = _mix(header["base_offset"].astype(np.int64).view(np.uint64))
    mixed = _mix(mixed ^ ((header["length"].astype(np.uint64) << np.uint64(32)) | header["epoch"].astype(np.uint32).astype(np.uint64)))
    return _mix(mixed ^ ((header["magic"].astype(np.uint8).astype(np.uint64) << np.uint64(32)) | batches.crc.astype(np.uint64)))


def _mix(value: Column) -> Column:
    """The finisher of splitmix64: every input bit changes half of the output bits."""
    value = (value ^ (value >> np.uint64(30))) * _M1
    value = (value ^ (value >> np.uint64(27))) * _M2
    return value ^ (value >> np.uint64(31))


@dataclass(slots=True)
class Detail:
    """The batches of one replica in a range of offsets, for the search of the first difference. `more` = there were more than kept."""

    broker: str
    header: Column
    position: Column
    size: Column
    crc: Column
    digest: Column
    segment: Column
    more: bool = False


def detail(tasks: list[SegmentTask], positions: list[int], low: int, high: int, batches_max: int = 65536) -> Detail:
    """Batches of one replica with base offsets in [low, high), read from the given start position of each segment, in order."""
    parts: list[tuple[Column, Column, Column, Column, Column, Column]] = []
    kept = 0
    for task, start in zip(tasks, positions, strict=True):
        with contextlib.suppress(OSError), open_log(task, start, low) as reader:
            for batches in reader:
                chosen = np.flatnonzero((batches.base_offset >= low) & (batches.base_offset < high))
                digests = batch_digests(batches, task.digest)
                parts.append((
                    batches.header[chosen], batches.position[chosen], batches.size[chosen], batches.crc[chosen], digests[chosen],
                    np.full(len(chosen), task.base_offset, np.int64),
                ))  # fmt: skip
                kept += len(chosen)
                if kept >= batches_max or int(batches.base_offset[-1]) >= high:
                    break
        if kept >= batches_max:
            break
    broker = tasks[0].broker if tasks else ""
    if not parts:
        empty = np.empty(0, np.int64)
        return Detail(broker, np.empty(0, logformat.HEADER), empty, empty, empty.astype(np.uint32), empty.astype(np.uint64), empty)
    columns = [np.concatenate([part[n] for part in parts])[:batches_max] for n in range(6)]
    return Detail(broker, *columns, more=kept >= batches_max)
