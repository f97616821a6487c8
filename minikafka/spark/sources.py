"""What is read of partitions' directories, the plan that it makes together, and its split: which segment of which replica is read by
which task.

Planning (planning.py) reads directory listings and the small text files only. Everything a task needs is in its SegmentTask, so that a
task can run on any machine that can open the path.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from minikafka.spark import logformat
from minikafka.spark.claims import is_only_compacted, missing_replicas, policies_of, policy_of
from minikafka.spark.directories import LogDirectory, read_small
from minikafka.spark.earlier_topics import forget_earlier_topics, never_was
from minikafka.spark.fetch_client import Place
from minikafka.spark.findings import ERROR, NOTE, Finding, FindingList
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_log import METADATA_TOPIC, ClusterImage, PartitionClaim, snapshots_of
from minikafka.spark.regular_files import open_regular
from minikafka.spark.startup import NOWHERE, at_start, mistaken_files, mistaken_snapshots, recovered_from

UNBOUNDED = (1 << 63) - 1
COMPACT, DELETE, UNKNOWN = "compact", "delete", "unknown"
CELLS_MAX = 1024


def log_name(base_offset: int, extensions: tuple[str, ...]) -> str:
    """The file name of a segment's log, whose other files are `extensions`."""
    return f"{base_offset:020d}.log.swap" if "log.swap" in extensions else f"{base_offset:020d}.log"


@dataclass(slots=True)
class Segment:
    base_offset: int
    size: int
    extensions: tuple[str, ...]
    inode: int = 0
    changed_ns: int = 0
    device: int = 0

    @property
    def log_name(self) -> str:
        """The name of its log now; the next start takes ".swap" off."""
        return log_name(self.base_offset, self.extensions)


@dataclass(slots=True)
class Replica:
    """One copy of one partition, as planned. Offsets: -1 or None = not known.

    `broker` names the copy in findings; `node` is the id of the broker that owns it. `policy`: whether a cleaner may have removed records
    (COMPACT, DELETE, UNKNOWN). `high_watermark_unread`: its high watermark could not be read, so only the others say what is committed.
    """

    topic: str
    partition: int
    broker: str
    path: str
    segments: list[Segment]
    snapshots: list[str]
    clean: bool | None
    high_watermark: int
    has_high_watermark: bool
    log_start: int
    recovery_point: int | None
    #: How far its own cleaner may have come; 0 where none ever may have. `cleaner_point`: the cleaners' checkpoint's word.
    cleaned: int
    cleaner_point: int = 0
    #: Below it holes may be: what any cleaner of the partition removed, followers copied without.
    cleaned_to: int = 0
    #: The log start that its broker wrote down; -1 where it did not. `is_only_compacted`: see claims.is_only_compacted.
    start_point: int = -1
    is_only_compacted: bool | None = False
    #: A `-future` copy that is to take the place of its broker's own.
    is_future: bool = False
    topic_id: str = ""
    epochs: list[tuple[int, int]] | None = None
    transaction_timeout_ms: int = 0
    claim: PartitionClaim | None = None
    place: Place | None = None
    findings: FindingList = field(default_factory=FindingList)
    node: str = ""
    policy: str = UNKNOWN
    high_watermark_unread: bool = False
    is_high_watermark_listed: bool = True
    directory_id: str = ""
    #: Its broker may be running: what it knows in memory may not be on disk yet.
    is_running: bool = False
    #: Of a copy of the metadata log: where its newest snapshot ends.
    snapshot_end: int = -1
    #: Files that are none: pipes, devices, links to nowhere.
    odd_files: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Everything that is needed to judge one segment, or a stretch of a replica on the wire. `cuts` are offsets where comparison zones
    begin, `starts` those of them where a replica's log begins; see compare.py. `is_rebuilt`: a closed segment whose indexes the next start
    makes anew. `recovered_from`: from this offset on it does without snapshots of producers. `follows`: a stretch behind another one, which
    has the batch that `base_offset` may lie in the midst of. `segments`: how many there are in all copies of the partition."""

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
    cleaned_to: int
    cuts: tuple[int, ...]
    cell_shift: int
    level: str = "batches"
    digest: str = "crc"
    place: Place | None = None
    starts: tuple[int, ...] = ()
    policy: str = UNKNOWN
    is_rebuilt: bool = False
    recovered_from: int = NOWHERE
    follows: bool = False
    segments: int = 1

    @property
    def is_made_anew(self) -> bool:
        """Whether the next start makes the transaction index and the producers' state anew from this segment, which may be the last one of
        a broker that was killed. A snapshot of producers, or an entry of the index, may not have been written yet."""
        return self.is_rebuilt or (self.next_base < 0 and self.clean is False)


@dataclass(slots=True)
class Plan:
    """`instant_ms`: the wall clock when the checkpoints were read; the fence holds for that instant. `is_elsewhere`: made by tasks on
    other machines; this process may not see the directories."""

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


@dataclass(slots=True)
class Entry:
    """A partition's directory as it was found, before anything is known of the others. `failure`: why it could not be read;
    `has_held`: it has no segment, but something tells of records."""

    key: tuple[str, int]
    path: str
    is_future: bool = False
    is_there: bool = True
    replica: Replica | None = None
    failure: str = ""
    has_held: bool = False


def open_entry(directory: LogDirectory, key: tuple[str, int], path: str, is_future: bool, each_max: int) -> Entry:
    """Read a partition's directory: its listing and the small files in it."""
    entry = Entry(key, path, is_future)
    try:
        if os.path.islink(path) and not os.path.exists(path) and not is_future:
            raise OSError(errno.EIO, "it is a broken link")
        if not os.path.isdir(path) and not is_future:
            entry.is_there = False
            return entry
        entry.replica = _open_replica(directory, *key, path, each_max)
        entry.has_held = entry.replica is None and not is_future and _has_held_records(directory, key, path)
    except OSError as error:
        entry.failure = f"{path} cannot be read: {error.strerror}"
    return entry


def assemble(
    plan: Plan, entries: list[tuple[LogDirectory, Entry]], topics: set[str], partitions: set[tuple[str, int]], compacted: set[str],
    transaction_timeout_ms: int = 0,
) -> None:  # fmt: skip
    """Put what was found in all log directories together; nothing is read."""
    reported: set[tuple[str, int, str]] = set()
    for directory, entry in entries:
        if not entry.is_future:
            _add_replica(plan, directory, entry, reported)
    for copies in plan.replicas.values():
        for replica in copies:
            replica.transaction_timeout_ms = transaction_timeout_ms
    _name_twins(plan)
    if plan.image is not None:
        reported |= forget_earlier_topics(plan.replicas, plan.directories, plan.findings, plan.image)
        _place_claims(plan, plan.image)
    for directory, entry in entries:
        if entry.is_future:
            _add_future(plan, directory, entry)
    _missing(plan, topics, partitions, reported)
    _policies(plan, compacted)


def _add_replica(plan: Plan, directory: LogDirectory, entry: Entry, reported: set[tuple[str, int, str]]) -> None:
    """The partition directory as a replica of the plan, or what is wrong with it."""
    key, path = entry.key, entry.path
    if entry.failure:
        text = entry.failure
        plan.missing.setdefault(key, []).append(Finding("unreadable", text, *key, brokers=(directory.broker,), file=path))
        reported.add((*key, directory.broker))
    elif entry.replica is not None:
        plan.replicas.setdefault(key, []).append(entry.replica)
    elif entry.is_there:
        plan.skipped += 1
        if plan.image is None and entry.has_held:
            text = f"{path} has no segments left, but its checkpoints mention records"
            plan.missing.setdefault(key, []).append(Finding("replica-missing", text, *key, brokers=(directory.broker,), file=path))
            reported.add((*key, directory.broker))


def _name_twins(plan: Plan) -> None:
    """Copies of one broker, or of one log directory, or one file in two places, prove nothing against each other."""
    paths: dict[str, list[str]] = {}
    for directory in (one for one in plan.directories if one.directory_id):
        paths.setdefault(directory.directory_id, []).append(directory.path)
    for copies in plan.replicas.values():
        by_node: dict[str, Replica] = {}
        by_directory: dict[str, Replica] = {}
        by_file: dict[tuple[int, int], Replica] = {}
        for replica in copies:
            first = by_node.setdefault(replica.node, replica)
            same = by_directory.setdefault(replica.directory_id, replica) if replica.directory_id else replica
            files = [by_file.setdefault((one.device, one.inode), replica) for one in replica.segments if one.inode and one.size]
            file = next((one for one in files if one is not replica), replica)
            if first is not replica and replica.directory_id and first.directory_id not in {"", replica.directory_id}:
                text = f"broker {replica.node} has it in {first.path} and in {replica.path}"
                _add(replica, Finding("replica-twice", text, file=replica.path))
            elif first is not replica or same is not replica:
                other = first if first is not replica else same
                text = f"{other.path} and {replica.path} are copies of one log directory of broker {other.node}, not two replicas"
                _add(replica, Finding("not-compared", text, file=replica.path))
            elif len(twins := paths.get(replica.directory_id, [])) > sum(one.directory_id == replica.directory_id for one in copies):
                text = f"{' and '.join(twins)} are copies of one log directory, but not all of them have the partition"
                _add(replica, Finding("not-compared", text, file=replica.path))
            elif file is not replica:
                text = f"{file.path} and {replica.path} share a segment file: it would be compared with itself"
                _add(replica, Finding("not-compared", text, file=replica.path))
            if first is not replica:
                replica.broker = f"{replica.node} ({replica.path})"


def _policies(plan: Plan, compacted: set[str]) -> None:
    """Whether a cleaner may have removed records, by the controller's record of the topic alone, and how far cleaners came.

    A cleaner's checkpoint never says more than that record. But a static log.cleanup.policy of the brokers is nowhere on disk: where a
    topic without a policy of its own has a cleaner's line, nobody knows.
    """
    for key, copies in plan.replicas.items():
        policy = UNKNOWN if plan.image is None else policy_of(plan.image, key[0])
        if key[0] == METADATA_TOPIC:
            policy = DELETE
        elif policy == DELETE and any(key in (directory.cleaned or {}) for directory in plan.directories):
            policy = UNKNOWN if plan.image is not None and not policies_of(plan.image, key[0]) else DELETE
        if policy == UNKNOWN and key[0] in compacted:
            policy = COMPACT
        for replica in copies:
            replica.policy = policy
            # No cleaner works on a copy that grows; it lacks only what its broker's own log lacked.
            is_copy = replica.is_future and any(one.node == replica.node and not one.is_future for one in copies)
            replica.cleaned = cleaned_by_itself(replica) if policy == COMPACT and not is_copy else 0
            replica.is_only_compacted = plan.image is not None and is_only_compacted(plan.image, key[0])
        for replica in copies:
            replica.cleaned_to = max(one.cleaned for one in copies)


def cleaned_by_itself(replica: Replica) -> int:
    """How far its own cleaner may have come: never into the active segment. The checkpoint is written behind the work, so that of a broker
    that runs or was killed may be too small."""
    active = replica.segments[-1].base_offset
    return min(replica.cleaner_point, active) if replica.clean else active


def _missing(plan: Plan, topics: set[str], partitions: set[tuple[str, int]], reported: set[tuple[str, int, str]]) -> None:
    """Note the replicas that are not there. A copy that only grows is none."""
    found = [(key, one) for key, copies in plan.replicas.items() for one in copies if not one.is_future or one.claim is not None]
    present = reported | {(*key, one.node) for key, one in found}
    for directory in plan.directories:
        if not directory.is_listed:  # what lies in it is unknown
            present |= {(*key, directory.broker) for key in (plan.image.claims() if plan.image is not None else ())}
    held = {key for key, copies in plan.replicas.items() if any(one.size for one in copies)}
    for key, finding in missing_replicas(plan.image, list(plan.directories), present, held):
        if (not topics or key[0] in topics) and (not partitions or key in partitions):
            plan.missing.setdefault(key, []).append(finding)


def _place_claims(plan: Plan, image: ClusterImage) -> None:
    """Give each replica what the controller says of it, and set strays aside. Nobody reads a deleted topic's logs any more."""
    claims, topic_ids = image.claims(), image.topic_ids()
    given_brokers = {directory.broker for directory in plan.directories if directory.cluster_id}
    for key, copies in list(plan.replicas.items()):
        if key[0] == METADATA_TOPIC:
            for replica in copies:
                replica.high_watermark = max(replica.high_watermark, image.agreed_to.get(replica.path, -1))
            continue
        claim = claims.get(key)
        for replica in list(copies):
            if replica.node not in given_brokers:
                continue
            replica.claim = claim
            if claim is None or replica.node not in claim.replicas:
                why = "the topic no longer exists" if key[0] not in topic_ids else f"broker {replica.node} is not one of its replicas"
                stray = Finding("stray-replica", f"{key[0]}-{key[1]}: by the controller {why}", *key, (replica.broker,), file=replica.path)
                if replica.topic_id in image.removed:
                    plan.findings.add(stray)
                    copies.remove(replica)
                    plan.skipped += 1
                    continue
                _add(replica, stray)
                for name in replica.odd_files:  # nobody reads a stray log here, but its broker does when it starts
                    _add(replica, Finding("unreadable", f"{name} is not a regular file", file=os.path.join(replica.path, name)))
                if (unexplained := never_was(image, replica, claim, topic_ids.get(key[0], ""))) != "":
                    # On a running broker the topic, or the replica, may be newer than the metadata that was read.
                    info = {} if replica.clean else {"moved": True}
                    _add(replica, Finding("not-compared", f"{replica.path}: {unexplained}", file=replica.path, details=info))
                if claim is not None and len(copies) > 1:
                    copies.remove(replica)
                    copies[0].findings.extend(replica.findings)
                    plan.skipped += 1
        if not copies:
            del plan.replicas[key]


def _add_future(plan: Plan, directory: LogDirectory, entry: Entry) -> None:
    """A copy that grows answers for nothing yet, but what it holds stays: it is filled up from the log, and takes its place.

    Where the controller names its log directory already, Apache Kafka's next start puts it in place (recoverAbandonedFutureLogs): it
    answers as its broker's own log, beside which it stands, or which is gone with its directory. Where that directory has the log itself,
    the controller speaks of the log, and so do the checkpoints there.
    """
    key, path, replica = entry.key, entry.path, entry.replica
    if entry.failure:
        plan.missing.setdefault(key, []).append(Finding("unreadable", entry.failure, *key, brokers=(directory.broker,), file=path))
        return
    claim = plan.image.claims().get(key) if plan.image is not None else None
    if replica is None or (claim is not None and replica.topic_id not in {"", claim.topic_id}):
        plan.skipped += 1  # empty, or of a topic that is gone
        return
    replica.is_future, replica.broker = True, f"{replica.node} (future)"
    for finding in replica.findings.kept:
        finding.brokers = (replica.broker,)
    places = dict(zip(claim.replicas, claim.directories, strict=False)) if claim is not None else {}
    beside = any(one.node == replica.node and one.directory_id == directory.directory_id for one in plan.replicas.get(key, []))
    if places.get(replica.node) == directory.directory_id and not beside:
        replica.claim = claim
    else:
        replica.log_start, replica.recovery_point, replica.cleaner_point = replica.segments[0].base_offset, None, 0
        replica.high_watermark, replica.has_high_watermark, replica.is_high_watermark_listed = replica.log_start, True, False
        replica.clean = False if directory.clean is False else None
    if replica.size or replica.claim is not None:
        plan.replicas.setdefault(key, []).append(replica)


def _open_replica(
    directory: LogDirectory, topic: str, partition: int, path: str, each_max: int, attempts: int = 5
) -> Replica | None:  # fmt: skip
    """The log as the next start of its broker would load it."""
    key = topic, partition
    try:
        with os.scandir(path) as listed:
            entries = {entry.name: entry for entry in listed}
        ordered = _segments(entries, at_start(entries, lambda base: _end_of_swap(path, base)))
    except FileNotFoundError:  # its topic was deleted meanwhile, or a cleaner is at work
        if not attempts:
            raise
        return _open_replica(directory, topic, partition, path, each_max, attempts - 1) if os.path.isdir(path) else None
    if not ordered:
        return None
    snapshots = [name for name in entries if (parsed := logformat.parse_segment_name(name)) and parsed[1] == "snapshot"]
    has_high_watermark, high_watermark = _high_watermark(directory, key, ordered, path)
    replica = Replica(
        topic, partition, directory.broker, path, ordered, sorted(snapshots), directory.clean, high_watermark, has_high_watermark,
        max(ordered[0].base_offset, (directory.log_start or {}).get(key, 0)),
        None if directory.recovery_point is None else directory.recovery_point.get(key),
        0, (directory.cleaned or {}).get(key, 0), findings=FindingList(each_max), node=directory.broker,
        directory_id=directory.directory_id, is_running=directory.is_running,
    )  # fmt: skip
    replica.snapshot_end = high_watermark if topic == METADATA_TOPIC else -1
    replica.start_point = (directory.log_start or {}).get(key, -1)
    replica.is_high_watermark_listed = topic == METADATA_TOPIC or directory.high_watermark is None or key in directory.high_watermark
    replica.high_watermark_unread = any(one.file.endswith("replication-offset-checkpoint") for one in directory.unread)
    for one in directory.unread:
        _add(replica, one)
    names = [name for name, entry in entries.items() if entry.is_file()]
    for name, effect in (*mistaken_files(names), *(mistaken_snapshots(entries) if topic == METADATA_TOPIC else ())):
        text = f"{name} is not the name of a segment's or a snapshot's file, but Apache Kafka takes it for one: {effect}"
        _add(replica, Finding("foreign-file", text, file=os.path.join(path, name)))
    _read_identity(replica)
    replica.odd_files = sorted(name for name, entry in entries.items() if not entry.is_file() and not entry.is_dir())
    return replica


def _segments(entries: dict[str, os.DirEntry[str]], files: dict[tuple[int, str], str]) -> list[Segment]:
    """Raises FileNotFoundError, OSError."""
    found = []
    for base in sorted(base for base, part in files if part == "log"):
        status = _status(entries[f"{base:020d}.{files[base, 'log']}"])
        if status is not None:
            extensions = tuple(sorted(name for (of, _), name in files.items() if of == base and name != "log"))
            found.append(Segment(base, status.st_size, extensions, status.st_ino, status.st_ctime_ns, status.st_dev))
    return found


def _end_of_swap(path: str, base: int) -> int:
    """Where a replacement ends. Raises FileNotFoundError, OSError."""
    end = base
    with open_regular(os.path.join(path, f"{base:020d}.log.swap")) as file:
        for batches in logformat.SegmentReader(file.fileno(), os.fstat(file.fileno()).st_size):
            end = int(batches.last_offset[-1]) + 1
    return end


def _has_held_records(directory: LogDirectory, key: tuple[str, int], path: str) -> bool:
    try:
        epochs = len((read_small(os.path.join(path, "leader-epoch-checkpoint")) or b"").splitlines()) > 2
    except OSError:
        epochs = False
    return os.path.isdir(path) and (epochs or (directory.high_watermark or {}).get(key, 0) > 0)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for a segment that was deleted meanwhile. Raises OSError for a link that leads nowhere, a pipe, a device."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        if entry.is_symlink():
            raise OSError(errno.EIO, f"{entry.name} is a broken link") from None
        return None
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise OSError(errno.EIO, f"{entry.name} is not a regular file")
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
            status = os.stat(os.path.join(replica.path, segment.log_name))
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
    checkpoint: there, what a snapshot holds is committed (KIP-630), and what the quorum agrees on (`assemble`).
    """
    if key[0] == METADATA_TOPIC:
        return True, max([segments[0].base_offset, *(end for end, _, _ in snapshots_of(path))])
    if directory.high_watermark is None:
        return False, UNBOUNDED
    return True, directory.high_watermark.get(key, segments[0].base_offset)


def _read_identity(replica: Replica) -> None:
    """leader-epoch-checkpoint and partition.metadata."""
    path = os.path.join(replica.path, "leader-epoch-checkpoint")
    data = _read_beside(replica, path)
    try:
        replica.epochs = None if data is None else logformat.parse_epoch_checkpoint(data)
    except FormatError as error:
        _add(replica, Finding("epoch-checkpoint-format", str(error), file=path))
    if data is None and replica.size and not any(one.file == path for one in replica.findings.kept):
        _add(replica, Finding("epoch-checkpoint-format", "the file is missing", file=path))
    path = os.path.join(replica.path, "partition.metadata")
    data = _read_beside(replica, path)
    try:
        replica.topic_id = "" if data is None else logformat.parse_partition_metadata(data)
    except FormatError as error:
        is_new = replica.clean is False and not replica.size and logformat.is_torn_partition_metadata(data or b"")
        text = "not written whole, and the log is empty: minikafka starts and writes it, Kafka does not start" if is_new else str(error)
        _add(replica, Finding("partition-metadata", text, file=path, level=NOTE if is_new else ERROR))
    if data is None and not any(one.file == path for one in replica.findings.kept):
        _without_identity(replica, path)


def _without_identity(replica: Replica, path: str) -> None:
    """A broker writes the file before the first record, and takes a log without it for a stray one (BrokerMetadataPublisher)."""
    if replica.size and replica.topic != METADATA_TOPIC:
        _add(replica, Finding("partition-metadata", "the file is missing: a broker sets the whole log aside as stray", file=path))


def _read_beside(replica: Replica, path: str) -> bytes | None:
    try:
        return read_small(path)
    except OSError as error:
        _add(replica, Finding("unreadable", f"{path} cannot be read: {error.strerror}", file=path))
        return None


def _add(replica: Replica, finding: Finding) -> None:
    replica.findings.add(replace(finding, topic=replica.topic, partition=replica.partition, brokers=(replica.broker,)))


def partition_tasks(copies: list[Replica], level: str, digest: str) -> Iterator[SegmentTask]:
    """The tasks of one partition. All replicas share the cuts and the cell size, else their digests could not be compared."""
    cleaned = max(replica.cleaned_to for replica in copies)
    branches = unclean_branches(copies)
    cuts = sorted({one.log_start for one in copies} | {one.high_watermark for one in copies} | {cleaned} | branches)
    starts = tuple(sorted({replica.log_start for replica in copies}))
    shift, segments = _cell_shift(copies), sum(len(replica.segments) for replica in copies)
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
                replica.place, starts, replica.policy, not last and _is_rebuilt(replica, end),
                recovered_from(replica.topic, replica.clean, replica.recovery_point), number > 0 and replica.place is not None, segments,
            )  # fmt: skip


def _is_rebuilt(replica: Replica, end: int) -> bool:
    """Whether a segment's indexes may not have reached the disk: a broker that was not stopped in order makes all anew that reach beyond
    its recovery point (LogLoader.recoverLog)."""
    return replica.clean is False and replica.place is None and end > (replica.recovery_point or 0)


def began_at(leader_epoch: int, copies: list[Replica]) -> int | None:
    """Where the first records of this leader epoch or a later one stand, by the epochs that the replicas keep; None when none does."""
    return min((start for one in copies for epoch, start in one.epochs or [] if epoch >= leader_epoch), default=None)


def unclean_branches(copies: list[Replica]) -> set[int]:
    """Where leaders of unclean elections began; older logs went on from there."""
    claim = next((one.claim for one in copies if one.claim is not None), None)
    found = {began_at(election.leader_epoch, copies) for election in (claim.elections if claim is not None else ())}
    return {offset for offset in found if offset is not None}


def _cell_shift(copies: list[Replica]) -> int:
    """log2 of the offsets in a cell, by the replica with the most segments; of several such the largest, for cells that one scan made can
    be made larger for another (summaries.py)."""
    most = max(len(one.segments) for one in copies)
    return max(_shift_of(one) for one in copies if len(one.segments) == most)


def _shift_of(one: Replica) -> int:
    """About 8 MiB of log, at most CELLS_MAX cells a replica (guessed from segment names and sizes)."""
    segments, size = one.segments, one.size
    if len(segments) > 1:
        offsets = segments[-1].base_offset - segments[0].base_offset
        bytes_each = max(1.0, sum(segment.size for segment in segments[:-1]) / max(1, offsets))
    else:
        bytes_each = 100.0
    cell_bytes = max(8 << 20, size // CELLS_MAX)
    return max(4, int(cell_bytes / bytes_each).bit_length())
