"""`__cluster_metadata-0` on disk: log, snapshots, quorum-state. All methods raise StorageError when the disk fails."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.quorum import quorum_state, raft_promises
from minikafka.broker.quorum.metadata_batch import BATCH_BYTES_MAX, MetadataBatch
from minikafka.broker.quorum.raft_promises import LostPromises
from minikafka.broker.quorum.raft_rot import Rot, find_rot
from minikafka.broker.quorum.snapshots import (
    PART,
    SnapshotContent,
    control_changes,
    decoding_snapshot,
    encode_snapshot,
    file_name,
    parse_name,
    read_snapshot,
    version_record,
    voters_record,
    write_snapshot_file,
)
from minikafka.core.raft.events import AppendLeaderChange, BatchAppended
from minikafka.core.raft.log_state import LogState
from minikafka.core.raft.types import ElectionState, OffsetAndEpoch
from minikafka.core.raft.voters import VoterHistory, VoterSet
from minikafka.steps import Steps
from minikafka.storage import cold_reads
from minikafka.storage.config import LogConfig
from minikafka.storage.durability import FlushTask
from minikafka.storage.errors import CorruptFile, StorageError, UnexpectedAppendOffset
from minikafka.storage.filesystem import File, FileSystem, write_all
from minikafka.storage.log import Log
from minikafka.storage.log_dir import METADATA_TOPIC, LogDirectory
from minikafka.storage.recovery import load_log
from minikafka.storage.slice import FileSlice
from minikafka.wire.batch import RecordBatch, iterate_batches
from minikafka.wire.control import ControlType, control_batch, control_record
from minikafka.wire.errors import ApiError, CorruptRecord, ErrorCode
from minikafka.wire.records.client_records import LeaderChangeMessage
from minikafka.wire.uuid import METADATA_TOPIC_ID

_log = logging.getLogger("minikafka.raft")

READ_BYTES = 1 << 20


class CorruptMetadata(StorageError):
    """A batch of the metadata log does not match its checksum and must not be used."""


class MetadataLog:
    """The files of the metadata log, opened by `load`. `state` and `history` are the quorum's initial state; the core owns them
    afterwards."""

    def __init__(self, log_directory: LogDirectory, config: BrokerConfig, wall_ms: Callable[[], int]) -> None:
        self._root = log_directory
        self._filesystem: FileSystem = log_directory.filesystem
        self._config = config
        self._wall_ms = wall_ms
        self.directory = f"{log_directory.path}/{METADATA_TOPIC}-0"
        self.log: Log
        self.state: LogState
        self.history: VoterHistory
        self.election = ElectionState()
        self.lost_promises: LostPromises | None = None
        self._snapshot_times: dict[OffsetAndEpoch, int] = {}
        self._part: tuple[OffsetAndEpoch, File] | None = None

    # -- loading

    def load(self, static_voters: VoterSet, *, is_observer: bool = False) -> None:
        """Load everything. Raises StorageError, also if quorum-state or the newest snapshot is invalid, because these must not be guessed.

        The log is truncated at the first bytes that are not a valid batch. If no valid batch follows, this looks like a torn write. If one
        follows, or after a clean stop, the log is corrupt: this voter may have told a leader that it has the lost batches. It then does not
        vote until it has them again (`lost_promises`). Kafka's voters do vote, so a quorum can lose committed records. The only voter of a
        quorum has no copy elsewhere, so it does not start. If a disk kept later unsynced batches in a power cut but not earlier ones, this
        looks like corruption, too, because the disk does not show how far it was synced."""
        wall_ms = self._wall_ms()
        rot = self._look_for_rot(static_voters, is_observer=is_observer)
        self.log = load_log(
            self._filesystem,
            self.directory,
            METADATA_TOPIC,
            0,
            self._log_config(),
            wall_ms=wall_ms,
            is_clean=self._root.is_clean and rot is None,
            on_failure=self._root.fail,
        )
        self.log.assign_topic_id(METADATA_TOPIC_ID)
        snapshots, content = self._load_snapshots(wall_ms)
        if self.log.recovery_point < self.log.log_end_offset:
            # After a crash of the process alone, the last batches may be in the page cache only.
            self.log.flush()
        self._load_state(static_voters, snapshots, content)

    def _look_for_rot(self, static_voters: VoterSet, *, is_observer: bool) -> Rot | None:
        """Read the election state, find corruption, and cut off the lost part of the log."""
        with self._disk("check"):
            self.election = quorum_state.read(self._filesystem, self.directory)
            rot = find_rot(self._filesystem, self.directory, self.election.epoch or None)
            if rot is not None and (rot.is_certain or self._root.is_clean):
                _log.error("%s: the batch at offset %d is corrupt; everything from there on is fetched again", self.directory, rot.offset)
                if not is_observer:
                    raft_promises.note_lost(self._filesystem, self.directory, rot, is_clean=self._root.is_clean)
            if not is_observer:
                self.lost_promises = raft_promises.lost_promises(self._filesystem, self.directory)
            if self.lost_promises is not None:
                self._check_others(rot, static_voters)
            if rot is not None:
                self._cut(rot)
        if self.lost_promises is not None:
            _log.error(
                "%s: this voter may have promised to keep what was lost, so it does not vote until a leader has sent it everything; if the"
                " others cannot elect a leader, see the file %s there", self.directory, raft_promises.PROMISES_LOST,
            )  # fmt: skip
        return rot

    def _load_snapshots(self, wall_ms: int) -> tuple[list[OffsetAndEpoch], SnapshotContent | None]:
        """The snapshots, oldest first, and the content of the newest. Adjusts the start of the log to them."""
        log = self.log
        with self._disk("load"):
            snapshots = self._find_snapshots()
            content = self._latest_content(snapshots)
        latest = snapshots[-1] if snapshots else None
        if log.log_start_offset > (latest.offset if latest is not None else 0):
            raise StorageError(
                f"{self.directory}: the log starts at {log.log_start_offset} and no snapshot covers what was before", path=self.directory
            )
        if latest is not None and latest.offset > log.log_end_offset:
            # The process crashed between taking the snapshot and moving the log start, or the log lost records that the snapshot holds.
            log.truncate_fully_and_start_at(latest.offset, wall_ms)
        if snapshots and log.log_start_offset > 0:
            with self._disk("load"):
                for old in [entry for entry in snapshots if entry.offset < log.log_start_offset]:
                    self._unlink_snapshot(old)
                    snapshots.remove(old)
            # The log directory does not store a start offset within a segment, but the oldest snapshot does.
            log.update_high_watermark(snapshots[0].offset)
            log.increment_log_start_offset(snapshots[0].offset)
        return snapshots, content

    def _load_state(self, static_voters: VoterSet, snapshots: list[OffsetAndEpoch], content: SnapshotContent | None) -> None:
        """The quorum's initial state, with the voters from snapshot and log."""
        log, latest = self.log, snapshots[-1] if snapshots else None
        self.history = VoterHistory(static_voters, 0)
        if latest is not None and content is not None and content.kraft_version > 0:
            self.history.install(latest.offset, content.voters, content.kraft_version)
        self.state = LogState(log.log_start_offset, log.log_end_offset, log.epochs.entries, snapshots)
        for batch in self.batches(max(log.log_start_offset, latest.offset if latest else 0), log.log_end_offset):
            if batch.is_control:
                voters, versions = control_changes(batch)
                for offset, voter_set in voters:
                    self.history.add_voters(offset, voter_set)
                for offset, version in versions:
                    self.history.add_version(offset, version)

    def _cut(self, rot: Rot) -> None:
        """Cut the log at the corruption. Recovery would keep a batch that is wrong only in bytes outside its checksum. Removes later
        segments."""
        file = self._filesystem.open(rot.path)
        try:
            file.truncate(rot.position)
            file.fsync()
        finally:
            file.close()

    def _check_others(self, rot: Rot | None, static_voters: VoterSet) -> None:
        voters = raft_promises.latest_voters(self._filesystem, self.directory) or static_voters
        if voters.node_ids != (self._config.node_id,):
            return
        note = f"{self.directory}/{raft_promises.PROMISES_LOST}"
        if rot is None:
            raise CorruptMetadata(
                f"{note} says that this voter has lost some of the metadata log, and it is the only one. Replace the directory by a copy;"
                " or remove that file to go on with what is there",
                path=self.directory,
            )
        raise CorruptMetadata(
            f"{self.directory}: the batch at offset {rot.offset} of the metadata log is corrupt, and this is the only voter: nobody"
            f" else has it. Replace the directory by a copy; or lose this batch and all that follow: `truncate -s {rot.position}"
            f" {rot.path}`, remove the segments after it and {note}, and start again",
            path=self.directory,
        )

    def regain_promises(self) -> None:
        """A leader has given this voter everything it had lost."""
        with self._disk("note that nothing is missing in"):
            raft_promises.note_regained(self._filesystem, self.directory)
        self.lost_promises = None
        _log.info("%s: nothing is missing any more; this voter votes again", self.directory)

    def _log_config(self) -> LogConfig:
        config = self._config
        return LogConfig(
            segment_bytes=config.metadata_log_segment_bytes,
            segment_ms=config.metadata_log_segment_ms,
            retention_bytes=-1,
            retention_ms=-1,
            max_message_bytes=BATCH_BYTES_MAX,
            file_delete_delay_ms=60_000,
        )

    def _find_snapshots(self) -> list[OffsetAndEpoch]:
        found = []
        for name in self._filesystem.list(self.directory):
            path = f"{self.directory}/{name}"
            if name.endswith((PART, ".checkpoint.deleted")):
                self._filesystem.unlink(path)
                continue
            snapshot = parse_name(name)
            if snapshot is not None:
                found.append(snapshot)
                self._snapshot_times[snapshot] = self._filesystem.modified_ms(path)
        return sorted(found)

    def _latest_content(self, snapshots: list[OffsetAndEpoch]) -> SnapshotContent | None:
        """The newest snapshot's content. An invalid snapshot is ignored if the log reaches back before it."""
        while snapshots:
            try:
                return self.read_snapshot(snapshots[-1], with_records=False)
            except CorruptFile as error:
                _log.error("snapshot %s is not valid: %s", file_name(snapshots[-1]), error)
                older_end = snapshots[-2].offset if len(snapshots) > 1 else 0
                if self.log.log_start_offset > older_end:
                    raise
                snapshots.pop()
        return None

    # -- the log

    def append_batch(self, batch: MetadataBatch, epoch: int) -> BatchAppended:
        """Append metadata records as leader. Raises ApiError if they are too many for one batch."""
        return self._append(batch.assembled(self._wall_ms()), epoch, [], [])

    def append_leader_change(self, effect: AppendLeaderChange) -> BatchAppended:
        """Append the control batch that begins an epoch."""
        wall_ms = self._wall_ms()
        message = LeaderChangeMessage(
            leader_id=effect.leader_id,
            voters=[LeaderChangeMessage.Voter(voter_id=node_id) for node_id in effect.voters],
            granting_voters=[LeaderChangeMessage.Voter(voter_id=node_id) for node_id in effect.granting],
        )
        records = [control_record(ControlType.LEADER_CHANGE, message, wall_ms)]
        base = self.log.log_end_offset
        voters: list[tuple[int, VoterSet]] = []
        versions: list[tuple[int, int]] = []
        if effect.kraft_version is not None:
            versions.append((base + len(records), effect.kraft_version))
            records.append(version_record(effect.kraft_version, wall_ms))
        if effect.voter_set is not None:
            voters.append((base + len(records), effect.voter_set))
            records.append(voters_record(effect.voter_set, wall_ms))
        return self._append(control_batch(records, base_offset=0, partition_leader_epoch=effect.epoch), effect.epoch, voters, versions)

    def append_voters(self, epoch: int, voters: VoterSet, kraft_version: int | None) -> BatchAppended:
        wall_ms, base = self._wall_ms(), self.log.log_end_offset
        records = [voters_record(voters, wall_ms)]
        versions: list[tuple[int, int]] = []
        if kraft_version is not None:
            records.insert(0, version_record(kraft_version, wall_ms))
            versions.append((base, kraft_version))
        batch = control_batch(records, base_offset=0, partition_leader_epoch=epoch)
        return self._append(batch, epoch, [(base + len(records) - 1, voters)], versions)

    def _append(
        self, batch: bytearray, epoch: int, voters: list[tuple[int, VoterSet]], versions: list[tuple[int, int]]
    ) -> BatchAppended:
        info = self.log.append_as_leader(memoryview(batch), epoch, self._wall_ms(), origin="raft")
        return BatchAppended(epoch, info.first_offset, info.last_offset + 1, voters, versions)

    def append_fetched(self, records: memoryview, epoch: int) -> list[BatchAppended] | None:
        """Append records from the leader. Returns None, with nothing appended, if any of them is invalid."""
        end = self.log.log_end_offset
        try:
            self.log.append_as_follower(records, epoch)
        except (UnexpectedAppendOffset, ApiError) as error:
            _log.warning("rejected fetched metadata records: %s", error)
            return None
        appended = []
        for batch in iterate_batches(records):
            if batch.base_offset < end or batch.next_offset > self.log.log_end_offset:
                break
            voters, versions = control_changes(batch) if batch.is_control else ([], [])
            appended.append(BatchAppended(batch.partition_leader_epoch, batch.base_offset, batch.next_offset, voters, versions))
        return appended

    def read(self, offset: int, end_offset: int, bytes_max: int) -> bytes:
        """The records for a replica: the batches up to the first corrupt one. Raises CorruptMetadata if the first batch is corrupt,
        ApiError, StorageError."""
        data, size = self._read(offset, end_offset, bytes_max), 0
        try:
            for batch in self._checked(data, offset):
                size += batch.size_in_bytes
        except CorruptMetadata:
            if not size:
                raise
        if not size and offset < end_offset:
            raise self._corrupt(offset, "no whole batch is there")
        return data[:size]

    def batches(self, offset: int, end_offset: int, bytes_max: int | None = None) -> Iterator[RecordBatch]:
        """Whole batches in [offset, end_offset); with `bytes_max`, only those of one read. Raises CorruptMetadata (Kafka's RecordsIterator
        checks the checksums of committed batches, too)."""
        while offset < end_offset:
            data, before = self._read(offset, end_offset, bytes_max or READ_BYTES), offset
            for batch in self._checked(data, offset):
                if batch.next_offset > offset:
                    yield batch
                    offset = batch.next_offset
            if offset == before:
                raise self._corrupt(offset, "no whole batch is there")
            if bytes_max is not None:
                return

    def _read(self, offset: int, end_offset: int, bytes_max: int) -> bytes:
        try:
            piece = self.log.read(offset, bytes_max, end_offset=end_offset).slice
        except ApiError as error:
            if error.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            raise self._corrupt(offset, str(error)) from error
        try:
            with self._disk("read"):
                return piece.read()
        finally:
            piece.release()

    def _checked(self, data: bytes, offset: int) -> Iterator[RecordBatch]:
        """Batches from the one that holds `offset` on. Checks the fields outside the checksum against the expected offsets and epochs."""
        try:
            for batch in iterate_batches(data):
                batch.check()
                if not batch.base_offset <= offset < batch.next_offset:
                    raise CorruptRecord(f"its offsets are said to be {batch.base_offset} to {batch.next_offset - 1}")
                epoch = self.log.epochs.epoch_for_offset(offset)
                if batch.partition_leader_epoch != epoch >= 0:
                    raise CorruptRecord(f"its epoch is said to be {batch.partition_leader_epoch}, and is {epoch}")
                yield batch
                offset = batch.next_offset
        except CorruptRecord as error:
            raise self._corrupt(offset, str(error)) from error

    def _corrupt(self, offset: int, why: str) -> CorruptMetadata:
        return CorruptMetadata(f"{self.directory}: the batch at offset {offset} of the metadata log is corrupt: {why}", path=self.directory)

    def prepare_sync(self) -> SyncTask:
        """A task that makes everything appended so far durable."""
        with self.log.disk("sync the metadata log"):
            return SyncTask(self.log)

    # -- election

    def persist(self, state: ElectionState, kraft_version: int, voters: tuple[int, ...]) -> None:
        with self._disk("write quorum-state of"):
            quorum_state.write(self._filesystem, self.directory, state, kraft_version, voters)

    # -- snapshots

    def path(self, snapshot: OffsetAndEpoch) -> str:
        return f"{self.directory}/{file_name(snapshot)}"

    def read_snapshot(self, snapshot: OffsetAndEpoch, *, with_records: bool = True) -> SnapshotContent:
        """Read a snapshot. Raises CorruptFile."""
        with self._disk("read a snapshot of"):
            return read_snapshot(self._filesystem, self.path(snapshot), with_records=with_records)

    def reading_snapshot(self, snapshot: OffsetAndEpoch) -> Steps[SnapshotContent]:
        """Read a snapshot in steps. Raises CorruptFile."""
        with self._disk("read a snapshot of"):
            data = self._filesystem.read(self.path(snapshot))
        return (yield from decoding_snapshot(data))

    def snapshot_writer(
        self, snapshot: OffsetAndEpoch, records: Iterable[Any], last_timestamp_ms: int, history: VoterHistory
    ) -> Callable[[], object]:
        """Writes a snapshot when called, blocking, on any thread. If it raises OSError, call `snapshot_failed`."""
        voters, version = history.at(snapshot.offset)
        pieces = encode_snapshot(
            records,
            epoch=snapshot.epoch,
            wall_ms=self._wall_ms(),
            last_timestamp_ms=last_timestamp_ms,
            kraft_version=version,
            voters=voters,
        )
        return partial(write_snapshot_file, self._filesystem, self.path(snapshot), pieces)

    def snapshot_written(self, snapshot: OffsetAndEpoch) -> None:
        """The snapshot is on disk."""
        self._snapshot_times[snapshot] = self._wall_ms()

    def drop_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """The snapshot is of no use. Raises StorageError."""
        with self._disk("delete a snapshot of"):
            self._unlink_snapshot(snapshot)

    def snapshot_failed(self, error: OSError) -> StorageError:
        """The error to log or raise."""
        return self.log.fail("write a snapshot of the metadata log", error)

    def read_snapshot_bytes(self, snapshot: OffsetAndEpoch, position: int, bytes_max: int) -> tuple[int, bytes] | None:
        """(size of the file, bytes from `position`); None if the file does not exist. Raises NotInMemory within a look-up."""
        path = self.path(snapshot)
        with self._disk("read a snapshot of"), contextlib.suppress(FileNotFoundError):
            count = max(bytes_max, 1)
            cold_reads.before_opening(self._filesystem, path, max(position, 0), count)
            file = self._filesystem.open(path, read_only=True)
            try:
                size = file.size()
                if not 0 <= position < size:
                    return size, b""
                return size, cold_reads.read(file, min(count, size - position), position, self._filesystem)
            finally:
                file.close()
        return None

    def write_chunk(self, snapshot: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Write a piece of a snapshot that is being fetched."""
        with self._disk("write a snapshot of"):
            if position == 0 or self._part is None or self._part[0] != snapshot:
                self._drop_part()
                path = f"{self.path(snapshot)}.part"
                if self._filesystem.exists(path):
                    self._filesystem.unlink(path)
                self._part = (snapshot, self._filesystem.open(path, create=True))
            write_all(self._part[1], data, position)

    def sync_fetched(self) -> None:
        """Sync the fetched snapshot before it is installed. Blocks, on any thread; if it raises OSError, call `snapshot_failed`."""
        if self._part is not None:
            self._part[1].fsync()

    def install_fetched(self, snapshot: OffsetAndEpoch) -> Steps[SnapshotContent | None]:
        """Make the fetched snapshot, which has been synced, the start of the log. Returns None if it is invalid; it is then deleted."""
        path = self.path(snapshot)
        part = f"{path}.part"
        with self._disk("install a snapshot of"):
            self._drop_part()
            # An earlier attempt may have met a shortage after the rename.
            fetched = part if self._filesystem.exists(part) else path
            try:
                content = yield from decoding_snapshot(self._filesystem.read(fetched))
            except CorruptFile as error:
                _log.warning("the fetched snapshot %s is not valid: %s", file_name(snapshot), error)
                self._filesystem.unlink(fetched)
                return None
            if fetched == part:
                self._filesystem.rename(part, path)
            self._filesystem.fsync_dir(self.directory)
            self.log.truncate_fully_and_start_at(snapshot.offset, self._wall_ms())
            for old in [entry for entry in self._snapshot_times if entry < snapshot]:
                self._unlink_snapshot(old)
        self._snapshot_times[snapshot] = self._wall_ms()
        return content

    def _drop_part(self) -> None:
        if self._part is not None:
            self._part[1].close()
            self._part = None

    def _unlink_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        self._snapshot_times.pop(snapshot, None)
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.unlink(self.path(snapshot))

    def clean(self, high_watermark: int, delivered: int, snapshots: list[OffsetAndEpoch]) -> int:
        """Delete old snapshots and the log before the next one while metadata.max.retention.bytes or .ms is exceeded
        (KafkaRaftLog.maybeClean), but nothing from the offset `delivered` on. Returns the new log start."""
        log, wall_ms = self.log, self._wall_ms()
        log.update_high_watermark(high_watermark)
        with self._disk("clean"):
            sizes = {entry: self._filesystem.size(self.path(entry)) for entry in snapshots}
            remaining = list(snapshots)
            while len(remaining) > 1 and remaining[1].offset <= min(high_watermark, delivered):
                oldest, following = remaining[0], remaining[1]
                total = log.size + sum(sizes[entry] for entry in remaining)
                is_old = self._snapshot_times.get(oldest, wall_ms) + self._config.metadata_max_retention_ms < wall_ms
                if total <= self._config.metadata_max_retention_bytes and not is_old:
                    break
                log.increment_log_start_offset(following.offset)
                log.delete_old_segments(wall_ms)
                self._unlink_snapshot(oldest)
                remaining.pop(0)
        log.delete_files(wall_ms)
        return log.log_start_offset

    def close(self) -> None:
        self._drop_part()
        self.log.close()

    def close_files(self) -> None:
        """Close the files without writing, as in a crash."""
        self._drop_part()
        self.log.close_files()

    @contextlib.contextmanager
    def _disk(self, action: str) -> Iterator[None]:
        try:
            yield
        except CorruptFile as error:
            if action == "load":
                raise StorageError(f"cannot load {self.directory}: {error}", path=self.directory) from error
            raise
        except OSError as error:
            if not hasattr(self, "log"):
                raise StorageError(f"cannot {action} the metadata log in {self.directory}: {error}", path=self.directory) from error
            raise self.log.fail(f"{action} the metadata log", error) from error


class SyncTask:
    """`run` blocks and may run in any thread. `finish` runs on the event loop and returns the offset below which everything is on disk.

    While all unsynced records lie in the active segment, only that file is synced; indexes are rebuilt after a crash."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._end = log.log_end_offset
        self._truncations = log.truncations
        self._whole: FlushTask | None = None
        self._piece: FileSlice | None = None
        if log.durability.is_flush_requested or log.recovery_point <= log.active_segment_base_offset:
            self._whole = log.prepare_flush()
        else:
            self._piece = log.segments[-1].slice(0, 0)

    def run(self) -> None:
        if self._whole is not None:
            self._whole.run()
        elif self._piece is not None:
            self._piece.fsync()

    def failed(self, error: OSError) -> StorageError:
        """`run` raised: returns the error to raise. After a shortage of resources another task syncs the same records."""
        if self._whole is not None:
            return self._log.durability.flush_failed(self._whole, error)
        if self._piece is not None:
            self._piece.release()
        return self._log.fail("sync the metadata log", error)

    def finish(self) -> int:
        if self._whole is not None:
            self._whole.finish()
        elif self._piece is not None:
            self._piece.release()
            self._log.durability.synced_to(self._end, self._truncations)
        return self._log.recovery_point
