"""Records the progress of an audit over the network in a file, so that the audit can resume after its driver failed.

The file consists of frames like a summary file (summary_file.py): for each partition the planned bounds, then the summary of each scanned
range. Bytes after the last whole frame were being written when the driver failed, and are ignored.

A range is reused if exactly the same task is planned again: the topic, its leader epoch, its policy, its replicas, their log starts and
their high watermarks are all unchanged. A partition that has grown on any replica is read again, because a verdict covers everything that
is committed when the audit starts, and a replica that was behind has unread bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, TypeVar

from minikafka.counted import counted
from minikafka.spark import judging, summary_codec
from minikafka.spark.findings import NOTE, Finding
from minikafka.spark.scan import SegmentSummary, scan_segment
from minikafka.spark.sources import COMPACT, Plan, Replica, Segment, SegmentTask
from minikafka.spark.splits import split
from minikafka.spark.summary_file import frame_of, read_frame

Item = TypeVar("Item")
Key = tuple[str, int]
MAGIC = b"minikafka audit ledger 1\n"
#: Ranges that were read longer ago are read again.
AGE_MS_MAX = 24 * 3600 * 1000
#: Tasks of a core whose results are awaited before more begin, how much of small stretches is one task, and summaries handed on at once.
AHEAD, SMALL_BYTES, HANDED_ON = 4, 64 << 20, 64


class WireLedgerError(ValueError):
    """The file cannot be this audit's ledger; the text names it and says what to do."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A range and the encoded summary of its scan."""

    task: SegmentTask
    content: bytes

    def summary(self) -> SegmentSummary:
        """The decoded summary."""
        found: SegmentSummary = summary_codec.loads(zlib.decompress(self.content))
        return replace(found, task=self.task)


@dataclass(slots=True)
class _Partition:
    """A partition in the ledger. `identity`: facts that must be unchanged. `bounds`: {broker: [log start, high watermark, [[base offset,
    bytes] of each range]]}. `places`: {stretch key: (position in the file, bytes)} of each scanned range."""

    identity: list[Any]
    bounds: dict[str, list[Any]]
    places: dict[str, tuple[int, int]] = field(default_factory=dict)

    def still_holds(self, now: _Partition) -> bool:
        """Whether nothing has been written, truncated or deleted on any replica since, and the leader is the same."""
        alike = self.identity == now.identity and self.bounds.keys() == now.bounds.keys()
        return alike and all(self.bounds[broker][:2] == now.bounds[broker][:2] for broker in self.bounds)


@contextlib.contextmanager
def opened(path: str) -> Iterator[WireLedger | None]:
    """The ledger in this file, which is created if it does not exist; None for "". Raises WireLedgerError, OSError."""
    if not path:
        yield None
        return
    with contextlib.closing(WireLedger(path)) as ledger:
        yield ledger


class WireLedger:
    """One audit's ledger. Raises WireLedgerError if the file is not a ledger, or another audit is writing it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._partitions: dict[Key, _Partition] = {}
        self._file = _open(path)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(self._file, path):
                raise BlockingIOError
            self._read()
        except BlockingIOError:
            self._file.close()
            raise WireLedgerError(f"{path} is the ledger of an audit that is still running") from None
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def finish(self) -> None:
        """Delete the file, because the audit has its verdict. The file may already be gone."""
        if _is_at(self._file, self.path):
            os.unlink(self.path)

    def _read(self) -> None:
        begin = self._file.read(len(MAGIC))
        if begin != MAGIC[: len(begin)]:
            raise WireLedgerError(f"{self.path} is not the ledger of an audit: name a file that does not exist yet")
        end = self._file.tell()
        if begin == MAGIC:
            end = self._read_frames()
        self._file.seek(end)
        self._file.truncate()
        if begin != MAGIC or not end:
            self._partitions.clear()
            self._file.seek(0)
            self._file.write(MAGIC + frame_of("shape", summary_codec.FORMAT_DIGEST, b""))
            self._file.flush()

    def _read_frames(self) -> int:
        """Read the frames. Returns the end of the last whole frame, or 0 if another version of this package wrote the file."""
        end = 0
        with contextlib.suppress(ValueError):
            while (frame := read_frame(self._file)) is not None:
                kind, name, content = frame
                if not end and (kind, name) != ("shape", summary_codec.FORMAT_DIGEST):
                    return 0
                end = self._file.tell()
                if kind == "partition":
                    topic, number = name.split()
                    self._partitions[topic, int(number)] = _Partition(*summary_codec.loads(content))
                elif kind == "stretch":
                    topic, number, stretch_key, read_ms = name.split()
                    earlier = self._partitions.get((topic, int(number)))
                    if earlier is not None and 0 <= _now_ms() - int(read_ms) <= AGE_MS_MAX:
                        earlier.places[stretch_key] = end - len(content), len(content)
        return end

    def _write(self, kind: str, name: str, content: bytes) -> None:
        with self._named():
            self._file.seek(0, os.SEEK_END)
            self._file.write(frame_of(kind, name, content))

    def settle(self, plan: Plan, cluster_id: str, topic_ids: dict[str, str]) -> None:
        """Plan the same offsets as before for each unchanged partition, and drop what was read from the others. `topic_ids`: topics
        without an id are read again."""
        changed = 0
        for key, copies in plan.replicas.items():
            wired = [one for one in copies if one.place is not None]
            if not wired:
                continue
            now, earlier = _planned(wired, cluster_id, topic_ids.get(key[0], "")), self._partitions.get(key)
            if earlier is not None and topic_ids.get(key[0]) and earlier.still_holds(now):
                for one in wired:
                    _bound(one, earlier.bounds[one.broker])
                continue
            changed += earlier is not None and bool(earlier.places)
            self._partitions[key] = now
            self._write("partition", f"{key[0]} {key[1]}", summary_codec.dumps([now.identity, now.bounds]))
        if changed:
            text = f"{counted(changed, 'partition')} changed since the interrupted run, to be read again"
            plan.findings.add(Finding("resumed", text, level=NOTE))
        self._flush()

    def _flush(self) -> None:
        with self._named():
            self._file.flush()
            os.fsync(self._file.fileno())

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from None

    def read_all(
        self, plan: Plan, tasks: list[SegmentTask], split_bytes: int, parallelism: int,
        scanned: Callable[[list[list[SegmentTask]]], Iterator[list[SegmentSummary]]], watch: Callable[[list[SegmentSummary]], None],
    ) -> list[list[SegmentTask | Kept]]:  # fmt: skip
        """Scan and store the missing ranges. Returns lists of items for `summaries_of`. `watch` is called with incoming summaries."""
        held: list[Kept] = []
        open_: list[SegmentTask] = []
        for task in tasks:
            if task.place is not None:
                found = self._kept(task)
                held += [found] if found is not None else []
                open_ += [task] if found is None else []
        if held:
            size = sum(one.task.size for one in held)
            stretches = counted(len(held) + len(open_), "stretch", "stretches")
            text = f"of {stretches} on the wire, an interrupted run read {len(held)} ({size:,} bytes)"
            plan.findings.add(Finding("resumed", text, level=NOTE))
        for several in _batched(list(split(open_, min(split_bytes, SMALL_BYTES))), AHEAD * parallelism):
            for summaries in scanned(several):
                watch(summaries)
                held += [self._keep(one) for one in summaries]
                self._flush()
        rest: list[list[SegmentTask | Kept]] = [[*one] for one in split([task for task in tasks if task.place is None], split_bytes)]
        rest += [[*one] for one in _batched(held, HANDED_ON)]
        return rest

    def _kept(self, task: SegmentTask) -> Kept | None:
        place = self._partitions[task.topic, task.partition].places.get(_stretch_key(task))
        if place is None:
            return None
        self._file.seek(place[0])
        return Kept(task, self._file.read(place[1]))

    def _keep(self, summary: SegmentSummary) -> Kept:
        """Write a range to the file if it was read to its end."""
        task = summary.task
        content = zlib.compress(summary_codec.dumps(replace(summary, task=replace(task, place=None))), 1)
        if not summary.stopped and not summary.vanished:
            self._write("stretch", f"{task.topic} {task.partition} {_stretch_key(task)} {_now_ms()}", content)
        return Kept(task, content)


def summaries_of(items: list[SegmentTask | Kept]) -> list[SegmentSummary]:
    """The summaries of some ranges: stored ones are decoded, the others are scanned. Runs in a task."""
    return [one.summary() if isinstance(one, Kept) else scan_segment(one) for one in items]


def keys_of(items: list[SegmentTask | Kept]) -> list[Key]:
    """The partition of each summary of some ranges; none if one was read over the network (judging.keys_of)."""
    on_disk = [one for one in items if isinstance(one, SegmentTask)]
    return judging.keys_of(on_disk) if len(on_disk) == len(items) else []


def _open(path: str) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")


def _is_at(file: BinaryIO, path: str) -> bool:
    """Whether the open file is still the file at this path."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    return False


def _batched(items: list[Item], count: int) -> Iterator[list[Item]]:
    return (items[start : start + count] for start in range(0, len(items), count))


def _planned(wired: list[Replica], cluster_id: str, topic_id: str) -> _Partition:
    claim = wired[0].claim
    identity = [cluster_id, topic_id, claim.leader_epoch if claim is not None else -1, wired[0].policy]
    bounds = {}
    for one in wired:
        stretches = [[segment.base_offset, segment.size] for segment in one.segments]
        bounds[one.broker] = [one.log_start, one.high_watermark, stretches]
    return _Partition(identity, bounds)


def _bound(replica: Replica, bounds: list[Any]) -> None:
    _, replica.high_watermark, stretches = bounds
    replica.segments = [Segment(base, size, ()) for base, size in stretches]
    if replica.policy == COMPACT:
        replica.cleaned = replica.cleaned_to = min(replica.cleaned_to, replica.high_watermark)


def _stretch_key(task: SegmentTask) -> str:
    """The key of a range in the file. It excludes the broker's address and the login, which may change between runs."""
    return summary_codec.digest_of(replace(task, place=None, path=""), "")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
