"""One log directory (an entry of log.dirs): its identity, lock, checkpoints and logs (Kafka's LogManager).

A directory that failed stays offline until the process starts again, and then counts as not cleanly shut down.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping

from minikafka.late_dataclass import dataclass
from minikafka.steps import Steps, at_once
from minikafka.storage import checkpoint, directory_files, lost_files, lost_marks
from minikafka.storage.config import LogConfig
from minikafka.storage.directory_files import COPY_MARK, Checkpoint, DirectorySync, DirectoryTask, Promotion, RecoveryPoints, RemovedLines
from minikafka.storage.due_work import DueWork, due_work
from minikafka.storage.errors import CorruptFile, DirectoryLocked, NotFormatted, ResourceShortage, StorageError
from minikafka.storage.filesystem import FileSystem, Lock, is_shortage
from minikafka.storage.log import Log
from minikafka.storage.open_files import OPEN_FILES_MAX, OpenFiles
from minikafka.storage.recovery import load_log

_log = logging.getLogger(__name__)

METADATA_TOPIC = "__cluster_metadata"
LOCK = ".lock"
_DELETE = "-delete"
_STRAY = "-stray"
_FUTURE = "-future"
#: Segments that retention drops in one step: each takes several renames.
SEGMENTS_AT_ONCE = 16
#: The budget of a step of retention; what a dropped segment costs, and how many producers cost one. The unit is some microseconds.
_STEP_COST, _SEGMENT_COST, _PRODUCERS_PER_COST = 512, 32, 32
NAME_MAX = 255
_PARTITION_MAX = (1 << 31) - 1

ConfigOf = Callable[[str, int, bytes], LogConfig]


@dataclass(slots=True)
class MetaProperties:
    """`meta.properties` version 1. The cluster id is text of 22 characters, the directory id 16 bytes."""

    cluster_id: str
    node_id: int
    directory_id: bytes


def parse_directory_name(name: str) -> tuple[str, int] | None:
    """(topic, partition) of `<topic>-<partition>`, split at the last dash; None for anything else. A number that brokers would not write
    (such as 007) gives None too: two directories would belong to one partition."""
    topic, dash, digits = name.rpartition("-")
    if not dash or not topic or not digits.isascii() or not digits.isdigit():
        return None
    partition = int(digits)
    return (topic, partition) if str(partition) == digits and partition <= _PARTITION_MAX else None


def format_directory(filesystem: FileSystem, path: str, meta: MetaProperties, wall_ms: int) -> None:
    """Create the directory and its meta.properties, with the entries in Kafka's order. Raises OSError."""
    filesystem.mkdir(path)
    properties = {
        "node.id": str(meta.node_id),
        "directory.id": checkpoint.uuid_text(meta.directory_id),
        "version": "1",
        "cluster.id": meta.cluster_id,
    }
    checkpoint.write_properties(filesystem, f"{path}/{checkpoint.META_PROPERTIES}", properties, wall_ms)


def read_meta_properties(filesystem: FileSystem, path: str) -> MetaProperties | None:
    """The directory's meta.properties, None if it has none. Raises NotFormatted if the file is not valid, OSError if the disk fails."""
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


def future_name(topic: str, partition: int, topic_id: bytes) -> str:
    """The name of the directory of a copy (LocalLog.logFutureDirName). A start reads the topic from it, so that it cannot be cut."""
    return f"{topic}-{partition}.{topic_id.hex()}{_FUTURE}"


class LogDirectory:
    """One log directory. Call `open` and `load`, then `create_log`, `remove`, the checkpoints and `maintain`, finally `close`.

    `logs` maps (topic, partition) to the log, without the metadata log, which the quorum loads. `cleaned` maps (topic, partition) to the
    end (exclusive) of its last compaction. `failure` is set when the disk fails; then `on_failure` is called.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        path: str,
        *,
        on_failure: Callable[[LogDirectory, StorageError], None] | None = None,
        jitter_ms: Callable[[int], int] | None = None,
        open_files_max: int = OPEN_FILES_MAX,
        unsynced_files_max: int = sys.maxsize,
    ) -> None:
        """`open_files_max`, `unsynced_files_max`: `limit` and `most` of `OpenFiles`."""
        self.filesystem = filesystem
        self._open_files = OpenFiles(open_files_max, most=unsynced_files_max)
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
        #: Whether a power cut could bring back the names of directories that were renamed.
        self.has_unsynced_names = False
        #: Partitions whose future log was being copied into this directory when the process ended.
        self.futures: set[tuple[str, int]] = set()
        self._scheduled_deletions: list[tuple[int, str]] = []
        #: The recovery points that `open` found.
        self.recovery_points_read: dict[tuple[str, int], int] = {}
        #: What a clean stop left, unless a start has loaded all logs since.
        self._stopped: lost_files.StoppedSegments | None = None
        self._start_offsets: dict[tuple[str, int], int] = {}
        self._high_watermarks: dict[tuple[str, int], int] = {}
        self._written_high_watermarks: list[Mapping[tuple[str, int], int]] = []
        self.cleaned: dict[tuple[str, int], int] = {}
        #: Partitions whose logs were removed, but may still have lines in the checkpoints.
        self._removed: set[tuple[str, int]] = set()

    @property
    def is_offline(self) -> bool:
        return self.failure is not None

    @property
    def is_as_stopped(self) -> bool:
        """Whether it was stopped cleanly, and no start has noted since what its logs lost."""
        return self._stopped is not None

    @property
    def directory_id(self) -> bytes:
        assert self.meta is not None
        return self.meta.directory_id

    # -- opening

    def open(self) -> MetaProperties:
        """Lock the directory, read its identity and checkpoints, read and delete the clean-shutdown file. Raises DirectoryLocked,
        NotFormatted, StorageError."""
        with self._disk("open"):
            if not self.filesystem.is_dir(self.path):
                raise NotFormatted(f"log directory {self.path} does not exist", path=self.path)
            try:
                self._lock = self.filesystem.lock(f"{self.path}/{LOCK}")
            except BlockingIOError as error:
                raise DirectoryLocked(
                    f"Failed to acquire lock on file .lock in {self.path}. A broker that uses this directory is already running.",
                    path=self.path,
                ) from error
            meta = read_meta_properties(self.filesystem, self.path)
            if meta is None:
                raise NotFormatted(f"log directory {self.path} is not formatted: no meta.properties", path=self.path)
            # Read and deleted before anything is loaded: a crash while loading must not count as clean (KAFKA-10471).
            clean_shutdown = f"{self.path}/{checkpoint.CLEAN_SHUTDOWN}"
            epoch = checkpoint.read_clean_shutdown(self.filesystem, clean_shutdown)
            if epoch is not None:
                self.is_clean = True
                self.previous_broker_epoch = epoch
                lost_files.loading(self.filesystem, self.path)
            if epoch is not None or not lost_files.is_used_since(self.filesystem, self.path):
                self._stopped = lost_files.read_segments(self.filesystem, self.path)
            points = self._read_checkpoint(checkpoint.RECOVERY_POINT_CHECKPOINT)
            if self.is_clean and not lost_files.has_recovery_points(self.filesystem, self.path, points):
                self.is_clean, self.previous_broker_epoch = points is not None, -1
            self.recovery_points_read = points or {}
            self._start_offsets = self._read_checkpoint(checkpoint.LOG_START_OFFSET_CHECKPOINT) or {}
            self.cleaned = self._read_checkpoint(checkpoint.CLEANER_OFFSET_CHECKPOINT) or {}
            self._high_watermarks = self._read_checkpoint(checkpoint.REPLICATION_OFFSET_CHECKPOINT) or {}
        self.meta = meta
        return meta

    def load(self, config_of: ConfigOf, wall_ms: int) -> None:
        """Load every log, blocking; then call `note_lost_records`. `config_of(topic, partition, topic_id)` gives its configuration; after
        an unclean shutdown the cleanup policy in it matters, see `load_log`."""
        for _ in self.load_each(config_of, wall_ms):
            pass

    def load_each(self, config_of: ConfigOf, wall_ms: int) -> Iterator[Log]:
        """As `load`, one log at a time, so that the caller can show progress."""
        with self._disk("list"):
            names = [name for name in self.filesystem.list(self.path) if self.filesystem.is_dir(f"{self.path}/{name}")]
        for name in names:
            if name.endswith((_DELETE, _FUTURE)):
                begun = parse_directory_name(name.removesuffix(_FUTURE).rpartition(".")[0])
                if begun is not None and name.endswith(_FUTURE):
                    self.futures.add(begun)
                self._scheduled_deletions.append((wall_ms, f"{self.path}/{name}"))
                continue
            found = parse_directory_name(name)
            if found is None and not name.endswith(_STRAY):
                _log.warning("%s/%s is not a partition's directory and is left alone", self.path, name)
            if found is None or found[0] == METADATA_TOPIC or name.endswith(_STRAY):
                continue
            try:
                topic_id = self._read_topic_id(f"{self.path}/{name}")
            except CorruptFile as error:
                self._set_unknown_aside(name, error)
                continue
            yield self._load(*found, topic_id, config_of, wall_ms)
        self._is_loaded = True

    def _read_topic_id(self, path: str) -> bytes:
        """The topic id of a log, zeros if it has none yet. Raises CorruptFile if the file is damaged."""
        name = f"{path}/{checkpoint.PARTITION_METADATA}"
        with self._disk("read"):
            try:
                return checkpoint.read_partition_metadata(self.filesystem, name) or bytes(16)
            except CorruptFile:
                if self.is_clean or not checkpoint.is_torn_metadata(self.filesystem, name):
                    raise
                return bytes(16)

    def _set_unknown_aside(self, name: str, error: CorruptFile) -> None:
        """Rename a log whose topic id is unreadable to `-stray`. Loaded without an id, it would become the log of any new topic of that
        name."""
        tail = f".{bytes(16).hex()}{_STRAY}"
        _log.error("%s/%s: partition.metadata is not valid (%s); the log is set aside as %s", self.path, name, error, tail)
        self._move(f"{self.path}/{name}", f"{self.path}/{name[: NAME_MAX - len(tail)]}{tail}")

    def _load(self, topic: str, partition: int, topic_id: bytes, config_of: ConfigOf, wall_ms: int) -> Log:
        key, path = (topic, partition), f"{self.path}/{topic}-{partition}"
        log = load_log(
            self.filesystem,
            path,
            topic,
            partition,
            config_of(topic, partition, topic_id),
            wall_ms=wall_ms,
            is_clean=self.is_clean,
            recovery_point=self.recovery_points_read.get(key, 0),
            log_start_offset=self._start_offsets.get(key, 0),
            high_watermark=self._high_watermarks.get(key),
            may_have_gaps=key in self.cleaned,
            stopped=self._stopped,
            on_failure=self.fail,
            jitter_ms=self._jitter_ms,
            open_files=self._open_files,
        )
        self.logs[key] = log
        return log

    def _read_checkpoint(self, name: str) -> dict[tuple[str, int], int] | None:
        """The offsets of a checkpoint; none if the file is missing, None if it is not valid."""
        try:
            return checkpoint.read_offset_checkpoint(self.filesystem, f"{self.path}/{name}")
        except CorruptFile as error:
            # Without it, at worst more is read again than necessary, and the high watermark comes from the leader.
            _log.warning("%s/%s is not valid (%s) and is ignored", self.path, name, error)
            return None

    # -- logs

    def create_log(self, topic: str, partition: int, topic_id: bytes, config: LogConfig, wall_ms: int) -> Log:
        """The log of a partition, created if it does not exist. Raises ApiError(INCONSISTENT_TOPIC_ID) if there is a log of another topic
        of that name, and StorageError."""
        log = self.logs.get((topic, partition))
        if log is None:
            if self.failure is not None:
                raise self.failure
            log = self._load_new(f"{self.path}/{topic}-{partition}", topic, partition, config, wall_ms)
        log.assign_topic_id(topic_id)
        if log.is_new and (topic, partition) in self._removed:
            log.durability.stale_point = checkpoint.INT64_MAX  # the checkpoint may still have the earlier log's
        self.logs[topic, partition] = log
        return log

    # -- future logs (KIP-113)

    def create_future(self, topic: str, partition: int, topic_id: bytes, config: LogConfig, wall_ms: int) -> Log:
        """An empty log in a `-future` directory, not yet one of `logs`. Raises StorageError."""
        if self.failure is not None:
            raise self.failure
        path = f"{self.path}/{future_name(topic, partition, topic_id)}"
        self._scheduled_deletions = [(due_ms, scheduled) for due_ms, scheduled in self._scheduled_deletions if scheduled != path]
        with self._disk("begin a copy in"):
            if self.filesystem.is_dir(path):
                self._unlink_all(path)
        future = self._load_new(path, topic, partition, config, wall_ms, may_have_gaps=True)
        future.assign_topic_id(topic_id)
        return future

    def _load_new(self, path: str, topic: str, partition: int, config: LogConfig, wall_ms: int, *, may_have_gaps: bool = False) -> Log:
        return load_log(
            self.filesystem, path, topic, partition, config, wall_ms=wall_ms, may_have_gaps=may_have_gaps, on_failure=self.fail,
            jitter_ms=self._jitter_ms, open_files=self._open_files,
        )  # fmt: skip

    def load_again(self, topic: str, partition: int) -> Log:
        """An empty log in the place of one that is gone. It gets its configuration and topic id with its replica. Raises StorageError."""
        log = self.logs[topic, partition] = self._load_new(f"{self.path}/{topic}-{partition}", topic, partition, LogConfig(), 0)
        return log

    def prepare_promotion(self, future: Log) -> Promotion:
        """The task that gives a complete copy's directory the ordinary name. `run` may be called on another thread while nothing else uses
        the copy; then call `future.relocate` with its path. The log that it will replace keeps its name and goes on: after a crash the
        copy lacks what was appended since, and the controller knows which of the two counts."""
        return Promotion(self.filesystem, future.directory, f"{self.path}/{future.name}")

    def serve_future(self, future: Log, old: Log) -> None:
        """Make a promoted copy, which has all records of `old`, the current log. It takes the epochs and watermarks of `old`. Raises
        StorageError."""
        with self._disk("rename a log in"), contextlib.suppress(FileNotFoundError):
            self.filesystem.unlink(f"{future.directory}/{COPY_MARK}")
        future.epochs.copy_from(old.epochs)
        future.durability.supersedes(old.directory.rpartition("/")[0])
        future.update_config(old.config)
        future.update_high_watermark(old.high_watermark)
        future.increment_log_start_offset(old.log_start_offset)
        if old.watermarks.lost is not None:
            with self._disk("mark a log in"):
                lost_marks.write_mark(self.filesystem, future.directory, old.watermarks.lost)
            future.watermarks.lost = old.watermarks.lost
        self.logs[future.topic, future.partition] = future

    def take_back_copy(self, topic: str, partition: int, wall_ms: int) -> bool:
        """Remove a log that was a copy in a move when the process ended, as `futures` tells. False, and nothing changes, if it was none."""
        with self._disk("look for a copy in"):
            if not self.filesystem.exists(f"{self.logs[topic, partition].directory}/{COPY_MARK}"):
                return False
        self.remove(topic, partition, wall_ms)
        self.futures.add((topic, partition))
        return True

    def drop_future(self, future: Log) -> None:
        """Close the future log and delete its files. Raises StorageError."""
        future.close_files()
        with self._disk("delete files in"):
            self._unlink_all(future.directory)

    def remove(self, topic: str, partition: int, wall_ms: int) -> None:
        """Rename the log's directory to `-delete`; its files are unlinked after file.delete.delay.ms."""
        delay_ms = self.logs[topic, partition].config.file_delete_delay_ms
        self._scheduled_deletions.append((wall_ms + delay_ms, self._rename(topic, partition, _DELETE)))

    def set_aside(self, topic: str, partition: int) -> None:
        """Rename the directory to `-stray`: the cluster has no such replica. It is never deleted automatically."""
        self._rename(topic, partition, _STRAY)

    def _rename(self, topic: str, partition: int, suffix: str) -> str:
        log = self.logs[topic, partition]
        tail = f".{log.topic_id.hex()}{suffix}"
        target = f"{self.path}/{log.name[: NAME_MAX - len(tail)]}{tail}"
        self._move(log.directory, target, log)
        return target

    def _move(self, path: str, target: str, log: Log | None = None) -> None:
        """Rename a directory. Its log, if loaded, is closed and removed from `logs`."""
        with self._disk("rename a log in", is_change=True):
            if log is not None:
                del self.logs[log.topic, log.partition]
                log.close_files()
                self.cleaned.pop((log.topic, log.partition), None)
                self._removed.add((log.topic, log.partition))
            if self.filesystem.is_dir(target):
                self._unlink_all(target)
            self.filesystem.rename(path, target)
            self.has_unsynced_names = True

    def maintain(self, wall_ms: int) -> int:
        """Apply retention to all logs, and unlink files whose delay has passed. Returns the number of dropped segments."""
        count = self.retain(wall_ms)
        self.delete_files(wall_ms)
        return count

    def retain(self, wall_ms: int) -> int:
        """`retaining` in one go."""
        return at_once(self.retaining(wall_ms, wall_ms))

    def retaining(self, wall_ms: int, now_ms: int) -> Steps[int]:
        """Apply retention to all logs (every log.retention.check.interval.ms) and forget idle producers, in steps of a few milliseconds.
        Returns the number of dropped segments. Raises StorageError."""
        count, cost = 0, 0
        for key, log in list(self.logs.items()):
            dropped = SEGMENTS_AT_ONCE
            while dropped == SEGMENTS_AT_ONCE and log.failure is None and self.logs.get(key) is log:
                dropped = log.delete_old_segments(wall_ms, SEGMENTS_AT_ONCE)
                count += dropped
                cost += 1 + dropped * _SEGMENT_COST
                if cost >= _STEP_COST:
                    cost = 0
                    yield
            if log.failure is None:
                cost += len(log.producer_state.entries) // _PRODUCERS_PER_COST
                log.producer_state.expire(wall_ms, now_ms)
        return count

    def due_work(self, wall_ms: int) -> Steps[DueWork]:
        """Look at all logs, in steps; see `due_work`."""
        self._open_files.shrink()
        return due_work(list(self.logs.values()), wall_ms, self._open_files.excess)

    def delete_files(self, wall_ms: int) -> None:
        """Unlink files and directories whose delay has passed."""
        paths = at_once(self.due_work(wall_ms)).paths + self.take_due_deletions(wall_ms)
        if self.failure is not None:
            raise self.failure
        try:
            self.unlink(paths)
        except OSError as error:
            raise self.unlink_failed(paths, error) from error

    def take_due_deletions(self, wall_ms: int) -> list[str]:
        """Remove and return the paths of removed logs whose delay has passed, for `unlink`; `due_work` has those of other logs' files."""
        due = [path for due_ms, path in self._scheduled_deletions if due_ms <= wall_ms]
        self._scheduled_deletions = [(due_ms, path) for due_ms, path in self._scheduled_deletions if due_ms > wall_ms]
        return due

    def unlink(self, paths: list[str]) -> None:
        """Unlink the paths from `take_due_deletions`. Blocks while the file system frees large files; may run on another thread. If it
        raises OSError, call `unlink_failed`."""
        for path in paths:
            if self.filesystem.is_dir(path):
                self._unlink_all(path)
            else:
                with contextlib.suppress(FileNotFoundError):
                    self.filesystem.unlink(path)

    def unlink_failed(self, paths: list[str], error: OSError) -> StorageError:
        """Call this if `unlink` raised; returns the error to log or raise. After a shortage the paths are scheduled again."""
        failure = self.disk_failed("delete files in", error)
        if isinstance(failure, ResourceShortage):
            self._scheduled_deletions += [(0, path) for path in paths]
        return failure

    def _unlink_all(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            for name in self.filesystem.list(path):
                inside = f"{path}/{name}"
                if self.filesystem.is_dir(inside):
                    self._unlink_all(inside)
                else:
                    self.filesystem.unlink(inside)
            self.filesystem.rmdir(path)

    # -- checkpoints

    # Each is created on the loop from the current state, and written where `run` is called: one at a time for a directory, in order.

    def high_watermarks(self) -> Checkpoint | None:
        """replication-offset-checkpoint (every replica.high.watermark.checkpoint.interval.ms). None, too, if the file has just that."""
        offsets = {key: log.watermarks.high_watermark for key, log in self.logs.items()}
        is_due, written = self._is_loaded and self._written_high_watermarks != [offsets], self._written_high_watermarks
        return directory_files.HighWatermarks(self.filesystem, self.path, offsets, written) if is_due else None

    def recovery_points(self) -> RecoveryPoints | None:
        """recovery-point-offset-checkpoint (every log.flush.offset.checkpoint.interval.ms, and when a truncation lowered a point)."""
        return RecoveryPoints(self.filesystem, self.path, self.logs) if self._is_loaded else None

    @property
    def has_removed_lines(self) -> bool:
        """Whether checkpoints may have lines of removed logs."""
        return bool(self._removed)

    def prepare_removal(self) -> RemovedLines | None:
        """The task that takes the lines of removed logs out of the checkpoints (LogManager.asyncDelete); None if there are none."""
        if not self._removed or self.failure is not None or not self._is_loaded:
            return None
        written = (self.recovery_points(), self.log_start_offsets(), self.cleaned_offsets())
        return RemovedLines([one for one in written if one is not None], self._removed)

    def log_start_offsets(self) -> Checkpoint | None:
        """log-start-offset-checkpoint, with only the logs that start inside a segment. Also requests a flush of the logs whose epoch file
        still has epochs that ended before the log's start."""
        starts: dict[tuple[str, int], int] = {}
        for key, log in self.logs.items():
            if log.epochs.is_dirty:
                log.durability.is_flush_requested = True
            start = log.watermarks.log_start_offset
            if start > log.segments.bases[0]:
                starts[key] = start
        return self._checkpoint(checkpoint.LOG_START_OFFSET_CHECKPOINT, starts)

    def cleaned_offsets(self) -> Checkpoint | None:
        """cleaner-offset-checkpoint (after every round of compaction)."""
        return self._checkpoint(checkpoint.CLEANER_OFFSET_CHECKPOINT, dict(self.cleaned))

    def write_checkpoint(self, made: DirectoryTask | None) -> None:
        """Write a checkpoint now, blocking. Raises StorageError."""
        if made is not None:
            with self._disk("checkpoint"):
                made.run()
            made.finish()

    def write_checkpoints(self) -> None:
        """Write all checkpoints of a clean shutdown. Raises StorageError."""
        for make in (self.recovery_points, self.log_start_offsets, self.high_watermarks):
            self.write_checkpoint(make())

    def _checkpoint(self, name: str, offsets: dict[tuple[str, int], int]) -> Checkpoint | None:
        """None until every log is loaded: the file must not lose the entries of logs that are not loaded yet."""
        return Checkpoint(self.filesystem, f"{self.path}/{name}", offsets) if self._is_loaded else None

    # -- names

    def prepare_sync(self) -> DirectorySync | None:
        """The task that makes renamed directories durable; None if there are none. A power cut before that only brings back old names,
        which loading recognizes by their topic ids."""
        if not self.has_unsynced_names or self.failure is not None:
            return None
        self.has_unsynced_names = False
        return DirectorySync(self.filesystem, self.path)

    def sync_failed(self, error: OSError) -> StorageError:
        """Call this if `run` of `prepare_sync` raised; returns the error to log. After a ResourceShortage prepare the same again."""
        self.has_unsynced_names = True
        return self.disk_failed("sync", error)

    def sync_names(self) -> None:
        """As `prepare_sync`, run now. Blocks. Raises StorageError."""
        sync = self.prepare_sync()
        if sync is not None:
            try:
                sync.run()
            except OSError as error:
                raise self.sync_failed(error) from error

    # -- the end

    def close(self, broker_epoch: int = -1) -> None:
        """Close all logs, write the checkpoints and, if everything succeeded, the clean-shutdown file. An offline directory is only
        unlocked. Raises StorageError if the disk fails now."""
        if self.failure is not None:
            self.abandon()
            return
        try:
            for log in self.logs.values():
                log.close()
            self.write_checkpoints()
            if self._is_loaded and self.failure is None:
                with self._disk("mark the shutdown of"):
                    lost_files.write_segments(self.filesystem, self.path, self.logs, broker_epoch)
                    path = f"{self.path}/{checkpoint.CLEAN_SHUTDOWN}"
                    checkpoint.write_clean_shutdown(self.filesystem, path, broker_epoch)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close all files and unlock without writing anything, which leaves the directory as after a crash."""
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
            log.take_offline(failure)
        if self._on_failure is not None:
            self._on_failure(self, failure)

    @contextlib.contextmanager
    def _disk(self, action: str, *, is_change: bool = False) -> Iterator[None]:
        """Turn OSError into StorageError. `is_change`: the action has several steps, so descriptors are checked before the first."""
        if self.failure is not None:
            raise self.failure
        try:
            if is_change:
                self._open_files.require(self.filesystem, f"{self.path}/{checkpoint.META_PROPERTIES}")
        except OSError as error:
            raise self.disk_failed(action, error) from error
        try:
            yield
        except OSError as error:
            raise self.disk_failed(action, error, is_half_done=is_change) from error

    def disk_failed(self, action: str, error: OSError, *, is_half_done: bool = False) -> StorageError:
        """The error to raise. A failed disk takes the directory offline; a shortage (ResourceShortage) does not, unless half done."""
        message = f"cannot {action} log directory {self.path}"
        if is_shortage(error) and not is_half_done:
            return ResourceShortage(message, path=self.path, cause=error)
        failure = StorageError(message, path=self.path, cause=error)
        self.fail(failure)
        return failure
