"""Log directories and their root files: the owner, the state at shutdown, and the checkpoints.

A root file that cannot be read becomes a finding of its directory (`LogDirectory.unread`), which every partition in the directory carries.
Everything that does not depend on that file is judged as usual.
"""

from __future__ import annotations

import base64
import fcntl
import os
import re
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from minikafka.spark import logformat
from minikafka.spark.findings import Finding, FindingList
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_bootstrap import BOOTSTRAP, why_no_node_starts
from minikafka.spark.regular_files import open_regular

CHECKPOINTS = {
    "high_watermark": "replication-offset-checkpoint",
    "recovery_point": "recovery-point-offset-checkpoint",
    "log_start": "log-start-offset-checkpoint",
    "cleaned": "cleaner-offset-checkpoint",
}
SMALL_FILE_BYTES_MAX = 64 << 20
DEPTH_MAX = 2
#: The property that names the broker, by the version of meta.properties.
NODE_ID, NODE_ID_MAX = {"0": "broker.id", "1": "node.id"}, (1 << 31) - 1
NODE_ID_TEXT = re.compile(r"\+?[0-9]{1,19}")
UUID_BYTES, RESERVED_DIRECTORY_IDS = 16, 100


class SourceError(Exception):
    """A source cannot be used at all; the text says what was expected."""


@dataclass(slots=True)
class LogDirectory:
    """One entry of a broker's `log.dirs`. `clean`: whether the broker shut down cleanly (None: there are no root files).

    `unread`: findings about root files that could not be read; facts that depend on them are missing. `is_listed`: the directory could be
    listed. `is_running`: a broker may be running in it.
    """

    path: str
    broker: str
    cluster_id: str = ""
    directory_id: str = ""
    clean: bool | None = None
    high_watermark: dict[tuple[str, int], int] | None = None
    recovery_point: dict[tuple[str, int], int] | None = None
    log_start: dict[tuple[str, int], int] | None = None
    cleaned: dict[tuple[str, int], int] | None = None
    unread: list[Finding] = field(default_factory=list)
    is_listed: bool = True
    is_running: bool = False

    def of_partitions(self, keys: set[tuple[str, int]]) -> LogDirectory:
        """A copy whose checkpoints hold only these partitions, for the task that reads them."""

        def some(said: dict[tuple[str, int], int] | None) -> dict[tuple[str, int], int] | None:
            return None if said is None else {key: said[key] for key in keys & said.keys()}

        return replace(
            self, high_watermark=some(self.high_watermark), recovery_point=some(self.recovery_point), log_start=some(self.log_start),
            cleaned=some(self.cleaned),
        )  # fmt: skip

    def named_partitions(self) -> dict[tuple[str, int], int]:
        """Partitions that its high watermarks and recovery points name, each with the largest offset of the two."""
        named = dict(self.high_watermark or {})
        for key, offset in (self.recovery_point or {}).items():
            named[key] = max(named.get(key, 0), offset)
        return named


def find_log_directories(paths: Iterable[str]) -> list[str]:
    """The log directories at or directly below each path: a `log.dirs` entry, the parent of partition directories, or a folder of brokers.

    A directory that cannot be listed counts as a log directory, and open_directory reports it. Raises SourceError if a path holds nothing
    like a log directory.
    """
    found: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            raise SourceError(f"{path}: {'not a directory' if os.path.exists(path) else 'no such directory'}")
        hits = [path] if _looks_like_log_directory(path) else list(_below(path, DEPTH_MAX))
        if not hits:
            raise SourceError(f"{path}: no log directory (expected meta.properties or directories named topic-0, topic-1 ...)")
        found += [hit for hit in hits if os.path.realpath(hit) not in {os.path.realpath(earlier) for earlier in found}]
    return found


def _looks_like_log_directory(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return any(entry.name == "meta.properties" or (entry.is_dir() and _is_partition(entry.path)) for entry in entries)
    except OSError:
        return True


def _is_partition(path: str) -> bool:
    if logformat.parse_partition_name(os.path.basename(path)) is None:
        return False
    try:
        names = os.listdir(path)
    except OSError:
        return True
    return any((name := logformat.parse_segment_name(file.removesuffix(".swap"))) and name[1] == "log" for file in names)


def _below(path: str, depth: int) -> Iterator[str]:
    for name in sorted(os.listdir(path)):
        child = os.path.join(path, name)
        if os.path.isdir(child):
            if _looks_like_log_directory(child):
                yield child
            elif depth > 1:
                yield from _below(child, depth - 1)


def open_directory(path: str, label: str, findings: FindingList) -> LogDirectory:
    """Read the root files of a log directory."""
    directory = LogDirectory(path, label)
    data = _read(directory, "meta.properties")
    properties = logformat.parse_properties(data or b"")
    names = (NODE_ID.get(properties.get("version", ""), ""), "node.id", "broker.id")
    named = next((properties[name].strip() for name in names if properties.get(name)), label)
    directory.broker = str(int(named)) if NODE_ID_TEXT.fullmatch(named) else named
    directory.cluster_id, directory.directory_id = properties.get("cluster.id", ""), properties.get("directory.id", "")
    if properties:
        directory.clean = os.path.lexists(os.path.join(path, ".kafka_cleanshutdown"))
    elif directory.unread:
        directory.clean = False
    directory.is_running = directory.clean is not True and is_locked(path)
    for attribute, name in CHECKPOINTS.items():
        data = _read(directory, name)
        if data is None:
            continue
        try:
            setattr(directory, attribute, logformat.parse_offset_checkpoint(data))
        except FormatError as error:
            findings.add(Finding("checkpoint-format", f"{name}: {error}", brokers=(directory.broker,), file=os.path.join(path, name)))
    directory.unread = [replace(one, brokers=(directory.broker,)) for one in directory.unread]
    if not directory.unread and (why := _why_no_broker_starts(properties, directory)):
        text = f"a broker will not start with {path}: {why}"
        findings.add(Finding("unreadable", text, brokers=(directory.broker,), file=os.path.join(path, "meta.properties")))
    if why := why_no_node_starts(path):
        file = os.path.join(path, BOOTSTRAP)
        findings.add(Finding("unreadable", f"a node will not start with {file}: {why}", brokers=(directory.broker,), file=file))
    return directory


def _why_no_broker_starts(properties: dict[str, str], directory: LogDirectory) -> str:
    """What Apache Kafka refuses in meta.properties (MetaProperties, MetaPropertiesEnsemble.verify); "" if nothing."""
    if not properties:
        return "it has checkpoints, but no meta.properties to say which broker it belongs to" if _has_checkpoint(directory) else ""
    version, directory_id = properties.get("version"), directory.directory_id
    if version not in NODE_ID:
        return f"meta.properties has version {version}"
    node = properties.get(NODE_ID[version])
    if node is None or not NODE_ID_TEXT.fullmatch(node) or int(node) > NODE_ID_MAX:
        return f"meta.properties has version {version}, and its {NODE_ID[version]} is {node!r}"
    if version == "1" and not directory.cluster_id:
        return "meta.properties names no cluster"
    if "directory.id" in properties and not _is_directory_id(directory_id):
        return f"directory.id is {directory_id!r}, which is not a valid directory UUID"
    return ""


def _is_directory_id(text: str) -> bool:
    """A UUID in URL-safe base64. The first hundred are reserved (DirectoryId)."""
    try:
        value = base64.b64decode(text.rstrip("=") + "==", b"-_", validate=True)
    except ValueError:
        return False
    return len(value) == UUID_BYTES and int.from_bytes(value, "big") >= RESERVED_DIRECTORY_IDS


def _has_checkpoint(directory: LogDirectory) -> bool:
    """Whether it is a log directory, and not only a folder of partition directories, to which a cleaner's checkpoint may be added."""
    return not (directory.high_watermark is directory.recovery_point is directory.log_start is None)


def is_locked(path: str) -> bool:
    """Whether a process holds a log directory's `.lock`, as a broker does (FileLock). True if that cannot be determined. This does not take
    the lock, so that a starting broker cannot fail because of it."""
    if not sys.platform.startswith("linux"):
        return True
    name = os.path.join(path, ".lock")
    try:
        if _is_in_list_of_locks(os.stat(name).st_ino):
            return True
        with open_regular(name) as file:
            lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            held = fcntl.fcntl(file.fileno(), fcntl.F_GETLK, lock)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return bool(struct.unpack("hhqqi", held)[0] != fcntl.F_UNLCK)


def _is_in_list_of_locks(inode: int) -> bool:
    """F_GETLK does not report a lock of this process, and closing the file would release it. The list lacks those of other containers."""
    try:
        with open("/proc/locks") as file:
            return any(f":{inode} " in line for line in file)
    except OSError:
        return False


def open_readable(path: str, label: str) -> LogDirectory:
    """Like open_directory, for callers that need all root files. Raises SourceError if one cannot be read."""
    directory = open_directory(path, label, FindingList(1))
    list_directory(directory)
    if directory.unread:
        raise SourceError(directory.unread[0].message)
    return directory


def list_directory(directory: LogDirectory) -> list[str]:
    """Its entries, sorted. If it cannot be listed, none, and a finding in `unread`."""
    try:
        return sorted(os.listdir(directory.path))
    except OSError as error:
        text = f"the log directory {directory.path} cannot be listed: {error.strerror}"
        directory.unread.append(Finding("unreadable", text, brokers=(directory.broker,), file=directory.path))
        directory.is_listed = False
        return []


def _read(directory: LogDirectory, name: str) -> bytes | None:
    path = os.path.join(directory.path, name)
    try:
        return read_small(path)
    except OSError as error:
        directory.unread.append(Finding("unreadable", f"{path} cannot be read: {error.strerror}", file=path))
        return None


def read_small(path: str) -> bytes | None:
    """A text file of a log directory; None if it does not exist. Raises OSError, also if the file is larger than any such file can be."""
    try:
        with open_regular(path) as file:
            data = file.read(SMALL_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    if len(data) > SMALL_FILE_BYTES_MAX:
        raise OSError(None, f"it is larger than {SMALL_FILE_BYTES_MAX} bytes", path)
    return data


def check_identities(directories: list[LogDirectory], findings: FindingList) -> None:
    """Check that all directories belong to one cluster."""
    clusters = sorted({directory.cluster_id for directory in directories if directory.cluster_id})
    if len(clusters) > 1:
        brokers = tuple(directory.broker for directory in directories)
        findings.add(Finding("cluster-id", f"cluster ids {', '.join(clusters)}", brokers=brokers))


def labels_of(paths: list[str]) -> list[str]:
    """A short name for each directory: the last part of its path that distinguishes it."""
    for depth in range(1, 6):
        labels = ["/".join(os.path.abspath(path).split(os.sep)[-depth:]) for path in paths]
        if len(set(labels)) == len(labels):
            return labels
    return [os.path.abspath(path) for path in paths]
