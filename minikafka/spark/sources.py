"""Where the logs lie, and the plan: which segment of which replica is read by which task.

Planning reads directory listings and the small text files only. Everything a task needs is in its SegmentTask, so that a task
can run on any machine that can open the path.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from minikafka.spark import logformat
from minikafka.spark.claims import missing_replicas, newest_image
from minikafka.spark.fetch_client import Place
from minikafka.spark.findings import Finding, FindingList
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_log import METADATA_TOPIC, ClusterImage, PartitionClaim

UNBOUNDED = (1 << 63) - 1
CHECKPOINTS = {
    "high_watermark": "replication-offset-checkpoint",
    "recovery_point": "recovery-point-offset-checkpoint",
    "log_start": "log-start-offset-checkpoint",
    "cleaned": "cleaner-offset-checkpoint",
}
SMALL_FILE_BYTES_MAX = 16 << 20
CELLS_MAX = 1024


class SourceError(Exception):
    """A source that cannot be used at all; the text says what was expected."""


@dataclass(slots=True)
class LogDirectory:
    """One entry of a broker's `log.dirs`. `clean` is whether it was shut down cleanly (None: the root files are not there)."""

    path: str
    broker: str
    cluster_id: str = ""
    directory_id: str = ""
    clean: bool | None = None
    high_watermark: dict[tuple[str, int], int] | None = None
    recovery_point: dict[tuple[str, int], int] | None = None
    log_start: dict[tuple[str, int], int] | None = None
    cleaned: dict[tuple[str, int], int] | None = None


@dataclass(slots=True)
class Segment:
    base_offset: int
    size: int
    extensions: tuple[str, ...]
    inode: int = 0
    changed_ns: int = 0


@dataclass(slots=True)
class Replica:
    """One copy of one partition, as planned. Offsets: -1 or None = not known."""

    topic: str
    partition: int
    broker: str
    path: str
    segments: list[Segment]
    snapshots: list[str]
    clean: bool | None
    high_watermark: int
    high_watermark_known: bool
    log_start: int
    recovery_point: int | None
    cleaned: int
    topic_id: str = ""
    epochs: list[tuple[int, int]] | None = None
    transaction_timeout_ms: int = 0
    claim: PartitionClaim | None = None
    place: Place | None = None
    findings: FindingList = field(default_factory=FindingList)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Everything that is needed to judge one segment. `cuts` are offsets where comparison zones begin; see compare.py."""

    topic: str
    partition: int
    broker: str
    path: str
    base_offset: int
    next_base: int
    size: int
    extensions: tuple[str, ...]
    snapshots: tuple[str, ...]
    clean: bool | None
    high_watermark: int
    gaps_allowed_below: int
    cuts: tuple[int, ...]
    cell_shift: int
    level: str = "batches"
    digest: str = "crc"
    place: Place | None = None


@dataclass(slots=True)
class Plan:
    """`instant_ms`: the wall clock when the checkpoints were read; the fence holds for that instant. `is_elsewhere`: made by a task of
    Spark, because this process does not see the directories."""

    replicas: dict[tuple[str, int], list[Replica]]
    directories: list[LogDirectory]
    findings: FindingList
    instant_ms: int
    skipped: int = 0
    image: ClusterImage | None = None
    missing: dict[tuple[str, int], list[Finding]] = field(default_factory=dict)
    is_elsewhere: bool = False

    @property
    def bytes(self) -> int:
        return sum(replica.size for copies in self.replicas.values() for replica in copies)


def find_log_directories(paths: Iterable[str]) -> list[str]:
    """The log directories at or right below each path: a `log.dirs` entry, a partition's own directory's parent, or a folder of brokers.

    Raises SourceError where nothing like a log directory is found.
    """
    found: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            raise SourceError(f"{path}: {'not a directory' if os.path.exists(path) else 'no such directory'}")
        try:
            hits = [path] if _looks_like_log_directory(path) else _below(path)
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
        if not hits:
            raise SourceError(f"{path}: no log directory (expected meta.properties or directories named topic-0, topic-1 ...)")
        found += [hit for hit in hits if os.path.realpath(hit) not in {os.path.realpath(known) for known in found}]
    return found


def _looks_like_log_directory(path: str) -> bool:
    with os.scandir(path) as entries:
        return any(entry.name == "meta.properties" or (entry.is_dir() and _is_partition(entry.path)) for entry in entries)


def _is_partition(path: str) -> bool:
    if logformat.parse_partition_name(os.path.basename(path)) is None:
        return False
    return any((name := logformat.parse_segment_name(file)) and name[1] == "log" for file in os.listdir(path))


def _below(path: str, depth: int = 2) -> list[str]:
    hits = []
    for name in sorted(os.listdir(path)):
        child = os.path.join(path, name)
        if os.path.isdir(child):
            if _looks_like_log_directory(child):
                hits.append(child)
            elif depth > 1:
                hits += _below(child, depth - 1)
    return hits


def open_directory(path: str, label: str, findings: FindingList) -> LogDirectory:
    """Read the root files of a log directory. Bad ones become findings and count as unknown."""
    properties = logformat.parse_properties(_read(os.path.join(path, "meta.properties")) or b"")
    broker = properties.get("node.id") or properties.get("broker.id") or label
    directory = LogDirectory(path, broker, properties.get("cluster.id", ""), properties.get("directory.id", ""))
    if properties:
        directory.clean = os.path.exists(os.path.join(path, ".kafka_cleanshutdown"))
    for attribute, name in CHECKPOINTS.items():
        data = _read(os.path.join(path, name))
        if data is None:
            continue
        try:
            setattr(directory, attribute, logformat.parse_offset_checkpoint(data))
        except FormatError as error:
            findings.add(Finding("checkpoint-format", f"{name}: {error}", brokers=(broker,), file=os.path.join(path, name)))
    return directory


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(SMALL_FILE_BYTES_MAX)
    except FileNotFoundError:
        return None


def make_plan(
    paths: Iterable[str], topics: Iterable[str] = (), each_max: int = 20, partitions: Iterable[tuple[str, int]] = (),
    transaction_timeout_ms: int = 0,
) -> Plan:  # fmt: skip
    """List the replicas of every partition under the log directories. `topics` and `partitions` limit to these (empty: all).

    The order makes claims safe while brokers run: first the high watermarks, then the controller's in-sync sets, then the sizes of
    the logs. An in-sync replica of the second instant holds by then what was committed at the first.
    """
    findings = FindingList(each_max)
    instant_ms = time.time_ns() // 1_000_000
    found = find_log_directories(list(paths))
    labels = _labels(found)
    directories = [open_directory(path, label, findings) for path, label in zip(found, labels, strict=True)]
    _one_cluster(directories, findings)
    plan = Plan({}, directories, findings, instant_ms)
    plan.image = newest_image(list(directories), findings)
    wanted, wanted_partitions = set(topics), set(partitions)
    unreadable: set[tuple[str, int, str]] = set()
    for directory in directories:
        for name in sorted(os.listdir(directory.path)):
            parsed = logformat.parse_partition_name(name)
            path = os.path.join(directory.path, name)
            if parsed is None or not os.path.isdir(path) or (wanted and parsed[0] not in wanted):
                continue
            if wanted_partitions and parsed not in wanted_partitions:
                continue
            try:
                replica = _open_replica(directory, *parsed, path, each_max)
            except OSError as error:
                text = f"{path} cannot be read: {error.strerror}"
                plan.missing.setdefault(parsed, []).append(Finding("unreadable", text, *parsed, brokers=(directory.broker,), file=path))
                unreadable.add((*parsed, directory.broker))
                continue
            if replica is None:
                plan.skipped += 1
                if plan.image is None and _has_held_records(directory, parsed, path):
                    text = f"{path} has no segment any more, but its checkpoints tell of records"
                    plan.missing.setdefault(parsed, []).append(
                        Finding("replica-missing", text, *parsed, brokers=(directory.broker,), file=path)
                    )
                continue
            replica.transaction_timeout_ms = transaction_timeout_ms
            plan.replicas.setdefault(parsed, []).append(replica)
    _claims(plan, wanted, wanted_partitions, unreadable)
    return plan


def _claims(plan: Plan, topics: set[str], partitions: set[tuple[str, int]], unreadable: set[tuple[str, int, str]]) -> None:
    """Give each replica what the controller says of it, set strays aside and note the replicas that are not there."""
    if plan.image is None:
        return
    claims, topic_ids = plan.image.claims(), plan.image.topic_ids()
    known = {directory.broker for directory in plan.directories if directory.cluster_id}
    present = unreadable | {(*key, replica.broker) for key, copies in plan.replicas.items() for replica in copies}
    for key, copies in plan.replicas.items():
        if key[0] == METADATA_TOPIC:
            continue
        claim = claims.get(key)
        for replica in list(copies):
            if replica.broker not in known:
                continue
            replica.claim = claim
            if claim is None or replica.broker not in claim.replicas:
                why = "the topic does not exist any more" if key[0] not in topic_ids else f"broker {replica.broker} is no replica of it"
                _add(replica, Finding("stray-replica", f"{key[0]}-{key[1]}: by the controller {why}", file=replica.path))
                if claim is not None and len(copies) > 1:
                    copies.remove(replica)
                    copies[0].findings.extend(replica.findings)
                    plan.skipped += 1
    for key, finding in missing_replicas(plan.image, list(plan.directories), present, topics):
        if not partitions or key in partitions:
            plan.missing.setdefault(key, []).append(finding)


def _labels(paths: list[str]) -> list[str]:
    """A short name for each directory: the last part of its path that differs from the others'."""
    for depth in range(1, 6):
        labels = ["/".join(os.path.abspath(path).split(os.sep)[-depth:]) for path in paths]
        if len(set(labels)) == len(labels):
            return labels
    return [os.path.abspath(path) for path in paths]


def _one_cluster(directories: list[LogDirectory], findings: FindingList) -> None:
    clusters = sorted({directory.cluster_id for directory in directories if directory.cluster_id})
    if len(clusters) > 1:
        brokers = tuple(directory.broker for directory in directories)
        findings.add(Finding("cluster-id", f"cluster ids {', '.join(clusters)}", brokers=brokers))


def _open_replica(directory: LogDirectory, topic: str, partition: int, path: str, each_max: int) -> Replica | None:
    key = topic, partition
    segments: dict[int, Segment] = {}
    snapshots: list[str] = []
    extensions: dict[int, list[str]] = {}
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                parsed = logformat.parse_segment_name(entry.name)
                if parsed is None:
                    continue
                base, extension = parsed
                if extension == "log":
                    status = _status(entry)
                    if status is None:
                        continue
                    segments[base] = Segment(base, status.st_size, (), status.st_ino, status.st_ctime_ns)
                elif extension == "snapshot":
                    snapshots.append(entry.name)
                else:
                    extensions.setdefault(base, []).append(extension)
    except FileNotFoundError:  # its topic was deleted meanwhile
        return None
    if not segments:
        return None
    for base, segment in segments.items():
        segment.extensions = tuple(sorted(extensions.get(base, ())))
    ordered = [segments[base] for base in sorted(segments)]
    known, high_watermark = _high_watermark(directory, key, ordered, path)
    replica = Replica(
        topic, partition, directory.broker, path, ordered, sorted(snapshots), directory.clean, high_watermark, known,
        max(ordered[0].base_offset, (directory.log_start or {}).get(key, 0)),
        None if directory.recovery_point is None else directory.recovery_point.get(key),
        (directory.cleaned or {}).get(key, 0), findings=FindingList(each_max),
    )  # fmt: skip
    _read_identity(replica)
    return replica


def _has_held_records(directory: LogDirectory, key: tuple[str, int], path: str) -> bool:
    try:
        epochs = len((_read(os.path.join(path, "leader-epoch-checkpoint")) or b"").splitlines()) > 2
    except OSError:
        epochs = False
    return os.path.isdir(path) and (epochs or (directory.high_watermark or {}).get(key, 0) > 0)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for a segment that was deleted meanwhile. Raises OSError for a link that leads nowhere, a pipe, a device."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        if entry.is_symlink():
            raise OSError(errno.EIO, f"{entry.name} is a link that leads nowhere") from None
        return None
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(errno.EIO, f"{entry.name} is no file")
    return status


def changed(replica: Replica) -> bool:
    """Whether a segment was replaced, cut or deleted since the plan; growing at the end is no change.

    Inode numbers are used again at once, and a cleaner sets the old modification time, so rolled segments go by their change time.
    A last segment that was rolled since may have been cleaned since.
    """
    if replica.place is not None:
        return False
    last = replica.segments[-1]
    try:
        for segment in replica.segments:
            status = os.stat(os.path.join(replica.path, f"{segment.base_offset:020d}.log"))
            if status.st_size < segment.size or status.st_ino != segment.inode:
                return True
            if segment is not last and status.st_ctime_ns != segment.changed_ns:
                return True
        bases = [parsed[0] for name in os.listdir(replica.path) if (parsed := logformat.parse_segment_name(name)) and parsed[1] == "log"]
    except OSError:
        return True
    return max(bases, default=-1) > last.base_offset


def _high_watermark(directory: LogDirectory, key: tuple[str, int], segments: list[Segment], path: str) -> tuple[bool, int]:
    """(known, offset): the checkpoint's word; without any checkpoint the log is taken as all committed.

    A partition that the checkpoint leaves out was not yet committed when it was written. The metadata log has no such
    checkpoint: there, what a snapshot holds is committed (KIP-630).
    """
    if key[0] == METADATA_TOPIC:
        ends = [int(name[:20]) for name in os.listdir(path) if name.endswith(".checkpoint") and name[:20].isdigit()]
        return True, max([segments[0].base_offset, *ends])
    if directory.high_watermark is None:
        return False, UNBOUNDED
    return True, directory.high_watermark.get(key, segments[0].base_offset)


def _read_identity(replica: Replica) -> None:
    """leader-epoch-checkpoint and partition.metadata."""
    path = os.path.join(replica.path, "leader-epoch-checkpoint")
    data = _read(path)
    try:
        replica.epochs = None if data is None else logformat.parse_epoch_checkpoint(data)
    except FormatError as error:
        _add(replica, Finding("epoch-checkpoint-format", str(error), file=path))
    if data is None and replica.size:
        _add(replica, Finding("epoch-checkpoint-format", "the file is missing", file=path))
    path = os.path.join(replica.path, "partition.metadata")
    data = _read(path)
    try:
        replica.topic_id = "" if data is None else logformat.parse_partition_metadata(data)
    except FormatError as error:
        _add(replica, Finding("partition-metadata", str(error), file=path))


def _add(replica: Replica, finding: Finding) -> None:
    replica.findings.add(replace(finding, topic=replica.topic, partition=replica.partition, brokers=(replica.broker,)))


def partition_tasks(copies: list[Replica], level: str, digest: str) -> Iterator[SegmentTask]:
    """The tasks of one partition. All replicas share the cuts and the cell size, else their digests could not be compared."""
    cleaned = max(replica.cleaned for replica in copies)
    cuts = sorted({replica.log_start for replica in copies} | {replica.high_watermark for replica in copies} | {cleaned})
    shift = _cell_shift(copies)
    for replica in copies:
        for number, segment in enumerate(replica.segments):
            last = number == len(replica.segments) - 1
            end = UNBOUNDED if last else replica.segments[number + 1].base_offset
            begin = segment.base_offset if number else -1
            snapshots = tuple(name for name in replica.snapshots if begin < int(name[:20]) <= end)
            yield SegmentTask(
                replica.topic, replica.partition, replica.broker, replica.path, segment.base_offset,
                -1 if last else replica.segments[number + 1].base_offset, segment.size, segment.extensions,
                snapshots, replica.clean, replica.high_watermark, cleaned, tuple(cuts), shift, level, digest,
                replica.place,
            )  # fmt: skip


def _cell_shift(copies: list[Replica]) -> int:
    """log2 of the offsets in a cell: about 8 MiB of log, at most CELLS_MAX cells a partition (guessed from segment names and sizes)."""
    segments = max((replica.segments for replica in copies), key=len)
    size = max(replica.size for replica in copies)
    if len(segments) > 1:
        offsets = segments[-1].base_offset - segments[0].base_offset
        bytes_each = max(1.0, sum(segment.size for segment in segments[:-1]) / max(1, offsets))
    else:
        bytes_each = 100.0
    cell_bytes = max(8 << 20, size // CELLS_MAX)
    return max(4, int(cell_bytes / bytes_each).bit_length())


def split(tasks: Iterable[SegmentTask], split_bytes: int) -> Iterator[list[SegmentTask]]:
    """Lists of neighbouring tasks of about `split_bytes` each (a task of Spark costs 50 ms whatever it does)."""
    batch: list[SegmentTask] = []
    total = 0
    for task in tasks:
        if batch and (total + task.size > split_bytes or len(batch) >= 1024):
            yield batch
            batch, total = [], 0
        batch.append(task)
        total += task.size
    if batch:
        yield batch
