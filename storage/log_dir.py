"""One log directory (an entry of log.dirs): its identity, lock, checkpoints and logs (Kafka's LogManager).

A directory that failed stays offline until the process starts again, and then counts as not cleanly shut down.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from storage import checkpoint
from storage.config import LogConfig
from storage.errors import CorruptFile, DirectoryLocked, NotFormatted, StorageError
from storage.filesystem import FileSystem, Lock
from storage.log import Log
from storage.recovery import load_log

_log = logging.getLogger(__name__)

METADATA_TOPIC = "__cluster_metadata"
LOCK = ".lock"
_DELETE = "-delete"
_STRAY = "-stray"
_FUTURE = "-future"
_NAME_MAX = 255

ConfigOf = Callable[[str, int, bytes], LogConfig]


@dataclass(slots=True)
class MetaProperties:
    """`meta.properties` version 1. Ids of cluster and directory: text of 22 characters and 16 bytes."""

    cluster_id: str
    node_id: int
    directory_id: bytes


def parse_directory_name(name: str) -> tuple[str, int] | None:
    """(topic, partition) of `<topic>-<partition>`, split at the last dash; None for anything else."""
    topic, dash, digits = name.rpartition("-")
    if not dash or not topic or not digits.isascii() or not digits.isdigit():
        return None
    return topic, int(digits)


def format_directory(filesystem: FileSystem, path: str, meta: MetaProperties, wall_ms: int) -> None:
    """Make the directory and its meta.properties, entries in the order in which Kafka writes them. Raises OSError."""
    filesystem.mkdir(path)
    properties = {
        "node.id": str(meta.node_id),
        "directory.id": checkpoint.uuid_text(meta.directory_id),
        "version": "1",
        "cluster.id": meta.cluster_id,
    }
    checkpoint.write_properties(filesystem, f"{path}/{checkpoint.META_PROPERTIES}", properties, wall_ms)


def read_meta_properties(filesystem: FileSystem, path: str) -> MetaProperties | None:
    """None if the directory has none. Raises NotFormatted if it is not valid, OSError if the disk fails."""
    name = f"{path}/{checkpoint.META_PROPERTIES}"
    if not filesystem.exists(name):
        return None
    properties = checkpoint.read_properties(filesystem, name)
    try:
        if properties["version"] != "1":
            raise NotFormatted(f"{name}: version {properties['version']!r} is not supported, only 1", path=path)
        return MetaProperties(
            properties["cluster.id"], int(properties["node.id"]), checkpoint.uuid_bytes(properties["directory.id"])
        )
    except KeyError as error:
        raise NotFormatted(f"{name}: {error} is missing", path=path) from error
    except (ValueError, CorruptFile) as error:
        raise NotFormatted(f"{name}: {error}", path=path) from error


class LogDirectory:
    """Life: `open`, `load`, then `create_log`, `remove`, `checkpoint_*`, `maintain`, at last `close`.

    `logs` maps (topic, partition) to the log; the metadata log is not among them (the quorum loads it). `cleaned` has the
    offsets up to which logs were compacted. `failure` is set once the disk failed; `on_failure` is told then.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        path: str,
        *,
        on_failure: Callable[[LogDirectory, StorageError], None] | None = None,
        jitter_ms: Callable[[int], int] | None = None,
    ) -> None:
        self.filesystem = filesystem
        self.path = path.rstrip("/") or "/"
        self.logs: dict[tuple[str, int], Log] = {}
        self.meta: MetaProperties | None = None
        self.failure: StorageError | None = None
        self.is_clean = False
        self.previous_broker_epoch = -1
        self._on_failure = on_failure
        self._jitter_ms = jitter_ms
        self._lock: Lock | None = None
        self._is_loaded = False
        #: Partitions whose copy was growing here when the process ended.
        self.futures: set[tuple[str, int]] = set()
        self._doomed: list[tuple[int, str]] = []
        self._recovery_points: dict[tuple[str, int], int] = {}
        self._start_offsets: dict[tuple[str, int], int] = {}
        self._high_watermarks: dict[tuple[str, int], int] = {}
        self.cleaned: dict[tuple[str, int], int] = {}

    @property
    def is_offline(self) -> bool:
        return self.failure is not None

    @property
    def directory_id(self) -> bytes:
        assert self.meta is not None
        return self.meta.directory_id

    # -- opening

    def open(self) -> MetaProperties:
        """Lock the directory, read its identity, take (and delete) the clean-shutdown mark. Raises DirectoryLocked,
        NotFormatted, StorageError."""
        with self._disk("open"):
            if not self.filesystem.is_dir(self.path):
                raise NotFormatted(f"log directory {self.path} does not exist", path=self.path)
            try:
                self._lock = self.filesystem.lock(f"{self.path}/{LOCK}")
            except BlockingIOError as error:
                raise DirectoryLocked(
                    f"Failed to acquire lock on file .lock in {self.path}. A broker that uses this directory is "
                    "already running.",
                    path=self.path,
                ) from error
            meta = read_meta_properties(self.filesystem, self.path)
            if meta is None:
                raise NotFormatted(f"log directory {self.path} is not formatted: no meta.properties", path=self.path)
            # Read and deleted before anything is loaded: a crash while loading must not count as clean (KAFKA-10471).
            mark = f"{self.path}/{checkpoint.CLEAN_SHUTDOWN}"
            epoch = checkpoint.read_clean_shutdown(self.filesystem, mark)
            if epoch is not None:
                self.is_clean = True
                self.previous_broker_epoch = epoch
                self.filesystem.unlink(mark)
                self.filesystem.fsync_dir(self.path)
            self._recovery_points = self._read_checkpoint(checkpoint.RECOVERY_POINT_CHECKPOINT)
            self._start_offsets = self._read_checkpoint(checkpoint.LOG_START_OFFSET_CHECKPOINT)
            self.cleaned = self._read_checkpoint(checkpoint.CLEANER_OFFSET_CHECKPOINT)
            self._high_watermarks = self._read_checkpoint(checkpoint.REPLICATION_OFFSET_CHECKPOINT)
        self.meta = meta
        return meta

    def load(self, config_of: ConfigOf, wall_ms: int) -> None:
        """Load every log. `config_of(topic, partition, topic_id)` gives its configuration; after an unclean stop its
        cleanup policy matters, see `load_log`. Blocks."""
        for _ in self.load_each(config_of, wall_ms):
            pass

    def load_each(self, config_of: ConfigOf, wall_ms: int) -> Iterator[Log]:
        """As `load`, one log at a time, so that progress can be shown."""
        with self._disk("list"):
            names = [name for name in self.filesystem.list(self.path) if self.filesystem.is_dir(f"{self.path}/{name}")]
        for name in names:
            if name.endswith(_DELETE):
                self._doomed.append((wall_ms, f"{self.path}/{name}"))
                continue
            if name.endswith(_FUTURE):
                begun = parse_directory_name(name.removesuffix(_FUTURE).rpartition(".")[0])
                if begun is not None:
                    self.futures.add(begun)
                self._doomed.append((wall_ms, f"{self.path}/{name}"))
                continue
            found = parse_directory_name(name)
            if found is None or found[0] == METADATA_TOPIC or name.endswith((_STRAY, _FUTURE)):
                continue
            yield self._load(*found, config_of, wall_ms)
        self._is_loaded = True

    def _load(self, topic: str, partition: int, config_of: ConfigOf, wall_ms: int) -> Log:
        key, path = (topic, partition), f"{self.path}/{topic}-{partition}"
        topic_id = bytes(16)
        with self._disk("read"), contextlib.suppress(CorruptFile):
            name = f"{path}/{checkpoint.PARTITION_METADATA}"
            topic_id = checkpoint.read_partition_metadata(self.filesystem, name) or topic_id
        log = load_log(
            self.filesystem,
            path,
            topic,
            partition,
            config_of(topic, partition, topic_id),
            wall_ms=wall_ms,
            is_clean=self.is_clean,
            recovery_point=self._recovery_points.get(key, 0),
            log_start_offset=self._start_offsets.get(key, 0),
            high_watermark=self._high_watermarks.get(key),
            may_have_holes=key in self.cleaned,
            on_failure=self.fail,
            jitter_ms=self._jitter_ms,
        )
        self.logs[key] = log
        return log

    def _read_checkpoint(self, name: str) -> dict[tuple[str, int], int]:
        try:
            return checkpoint.read_offset_checkpoint(self.filesystem, f"{self.path}/{name}")
        except CorruptFile as error:
            # Worst case without it: more is read again than needed, and the leader tells the high watermark.
            _log.warning("%s/%s is not valid (%s); going on without it", self.path, name, error)
            self.is_clean = self.is_clean and name != checkpoint.RECOVERY_POINT_CHECKPOINT
            return {}

    # -- logs

    def create_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig, wall_ms: int) -> Log:
        """The log, made if it is not there. Raises ApiError(INCONSISTENT_TOPIC_ID) if one of another topic of that
        name is, StorageError."""
        log = self.logs.get((topic, partition))
        if log is None:
            if self.failure is not None:
                raise self.failure
            log = load_log(
                self.filesystem,
                f"{self.path}/{topic}-{partition}",
                topic,
                partition,
                config,
                wall_ms=wall_ms,
                on_failure=self.fail,
                jitter_ms=self._jitter_ms,
            )
            self.logs[topic, partition] = log
        log.assign_topic_id(topic_id)
        return log

    # -- copies that grow (KIP-113)

    def create_future(self, topic: str, partition: int, topic_id: bytes, config: LogConfig, wall_ms: int) -> Log:
        """An empty log in a `-future` directory, not yet one of `logs`. Raises StorageError."""
        if self.failure is not None:
            raise self.failure
        tail = f".{topic_id.hex()}{_FUTURE}"
        path = f"{self.path}/{f'{topic}-{partition}'[: _NAME_MAX - len(tail)]}{tail}"
        self._doomed = [entry for entry in self._doomed if entry[1] != path]
        with self._disk("begin a copy in"):
            if self.filesystem.is_dir(path):
                self._unlink_all(path)
        future = self._load_copy(path, topic, partition, config, wall_ms)
        future.assign_topic_id(topic_id)
        return future

    def _load_copy(self, path: str, topic: str, partition: int, config: LogConfig, wall_ms: int) -> Log:
        return load_log(
            self.filesystem, path, topic, partition, config, wall_ms=wall_ms, may_have_holes=True, on_failure=self.fail,
            jitter_ms=self._jitter_ms,
        )  # fmt: skip

    def promote_future(self, future: Log, old: Log, wall_ms: int) -> Log:
        """The copy becomes the log: what `old` knows besides its records - epochs, watermarks - it knows, too; its
        directory gets the ordinary name. Raises StorageError."""
        future.epochs.take_over(old.epochs)
        future.close()
        with self._disk("rename a log in"):
            path = f"{self.path}/{future.name}"
            self.filesystem.rename(future.directory, path)
            self.filesystem.fsync_dir(self.path)
        log = self._load_copy(path, future.topic, future.partition, old.config, wall_ms)
        log.update_high_watermark(old.high_watermark)
        log.increment_log_start_offset(old.log_start_offset)
        self.logs[log.topic, log.partition] = log
        return log

    def drop_future(self, future: Log) -> None:
        """The copy is not wanted any more. Raises StorageError."""
        future.close_files()
        with self._disk("delete files in"):
            self._unlink_all(future.directory)

    def remove(self, topic: str, partition: int, wall_ms: int) -> None:
        """Rename the log's directory to `-delete`; its files are unlinked after file.delete.delay.ms."""
        log = self._rename(topic, partition, _DELETE)
        self._doomed.append((wall_ms + log.config.file_delete_delay_ms, log.directory))

    def set_aside(self, topic: str, partition: int) -> None:
        """Rename the directory to `-stray`: the cluster does not know this replica, and nobody deletes it."""
        self._rename(topic, partition, _STRAY)

    def _rename(self, topic: str, partition: int, suffix: str) -> Log:
        log = self.logs.pop((topic, partition))
        log.close_files()
        self.cleaned.pop((topic, partition), None)
        tail = f".{log.topic_id.hex()}{suffix}"
        target = f"{self.path}/{log.name[: _NAME_MAX - len(tail)]}{tail}"
        with self._disk("rename a log in"):
            if self.filesystem.is_dir(target):
                self._unlink_all(target)
            self.filesystem.rename(log.directory, target)
            self.filesystem.fsync_dir(self.path)
        log.directory = target
        return log

    def maintain(self, wall_ms: int) -> int:
        """Retention of all logs, and what waits to be unlinked; the number of segments dropped."""
        count = self.retain(wall_ms)
        self.delete_files(wall_ms)
        return count

    def retain(self, wall_ms: int) -> int:
        """Retention of all logs (every log.retention.check.interval.ms); the number of segments dropped."""
        count = 0
        for log in list(self.logs.values()):
            if log.failure is None:
                count += log.delete_old_segments(wall_ms)
                log.producer_state.expire(wall_ms)
        return count

    def delete_files(self, wall_ms: int) -> None:
        """Unlink files and directories whose delay has passed."""
        paths = self.take_doomed(wall_ms)
        with self._disk("delete files in"):
            self.unlink(paths)

    def take_doomed(self, wall_ms: int) -> list[str]:
        """Paths of the files and directories whose delay has passed, for `unlink`."""
        paths: list[str] = []
        for log in self.logs.values():
            if log.doomed and log.failure is None:
                paths += log.take_doomed(wall_ms)
        due = [entry for entry in self._doomed if entry[0] <= wall_ms]
        for entry in due:
            self._doomed.remove(entry)
        return paths + [path for _, path in due]

    def unlink(self, paths: list[str]) -> None:
        """Remove what `take_doomed` gave. Blocks for as long as the file system takes to free large files; may run
        elsewhere. Raises OSError: tell `disk_failed`."""
        for path in paths:
            if self.filesystem.is_dir(path):
                self._unlink_all(path)
            else:
                with contextlib.suppress(FileNotFoundError):
                    self.filesystem.unlink(path)

    def _unlink_all(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            for name in self.filesystem.list(path):
                self.filesystem.unlink(f"{path}/{name}")
            self.filesystem.rmdir(path)

    # -- checkpoints

    def checkpoint_high_watermarks(self) -> None:
        """replication-offset-checkpoint (every replica.high.watermark.checkpoint.interval.ms)."""
        offsets = {key: log.high_watermark for key, log in self.logs.items()}
        self._write_checkpoint(checkpoint.REPLICATION_OFFSET_CHECKPOINT, offsets)

    def checkpoint_recovery_points(self) -> None:
        """recovery-point-offset-checkpoint (every log.flush.offset.checkpoint.interval.ms)."""
        offsets = {key: log.recovery_point for key, log in self.logs.items()}
        self._write_checkpoint(checkpoint.RECOVERY_POINT_CHECKPOINT, offsets)

    def checkpoint_log_start_offsets(self) -> None:
        """log-start-offset-checkpoint: only logs that start inside of a segment. Epochs that ended before a log's start go from
        its file as well."""
        for log in self.logs.values():
            if log.failure is None:
                log.write_epochs()
        starts = {key: log.log_start_offset for key, log in self.logs.items() if log.log_start_offset > log.bases[0]}
        self._write_checkpoint(checkpoint.LOG_START_OFFSET_CHECKPOINT, starts)

    def checkpoint_cleaned(self) -> None:
        """cleaner-offset-checkpoint (after every round of compaction). May run elsewhere."""
        self._write_checkpoint(checkpoint.CLEANER_OFFSET_CHECKPOINT, dict(self.cleaned))

    def checkpoint_all(self) -> None:
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.checkpoint_high_watermarks()

    def _write_checkpoint(self, name: str, offsets: dict[tuple[str, int], int]) -> None:
        if not self._is_loaded:
            return
        with self._disk("checkpoint"):
            checkpoint.write_offset_checkpoint(self.filesystem, f"{self.path}/{name}", offsets)

    # -- the end

    def close(self, broker_epoch: int = -1) -> None:
        """Close all logs, write the checkpoints and, if everything went well, the clean-shutdown mark. A directory that
        is offline is only let go of. Raises StorageError if the disk fails now."""
        if self.failure is not None:
            self.abandon()
            return
        try:
            for log in self.logs.values():
                log.close()
            self.checkpoint_all()
            if self._is_loaded and self.failure is None:
                with self._disk("mark the shutdown of"):
                    path = f"{self.path}/{checkpoint.CLEAN_SHUTDOWN}"
                    checkpoint.write_clean_shutdown(self.filesystem, path, broker_epoch)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close all files and unlock, writing nothing: what is left is as after a crash."""
        for log in self.logs.values():
            log.close_files()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def fail(self, failure: StorageError) -> None:
        """Take the directory offline."""
        if self.failure is not None:
            return
        self.failure = failure
        _log.error("log directory %s is offline: %s", self.path, failure)
        for log in self.logs.values():
            log.failure = log.failure or failure
        if self._on_failure is not None:
            self._on_failure(self, failure)

    @contextlib.contextmanager
    def _disk(self, action: str) -> Iterator[None]:
        if self.failure is not None:
            raise self.failure
        try:
            yield
        except OSError as error:
            raise self.disk_failed(action, error) from error

    def disk_failed(self, action: str, error: OSError) -> StorageError:
        """Take the directory offline; the error to raise."""
        failure = StorageError(f"cannot {action} log directory {self.path}", path=self.path, cause=error)
        self.fail(failure)
        return failure
