"""Mutations that break rules of storage: descriptors, shortages, torn files, truncations. Tests of storage catch them."""

from __future__ import annotations

import os
from typing import Any

from minikafka.sim.replacements import constant, nothing

LOG_DISK = "minikafka.storage.log_disk:LogDisk"
OPEN_FILES = ("tests/storage/test_open_files.py",)
TRANSACTIONS = ("tests/storage/test_open_transactions.py",)
COMPRESSED = ("tests/storage/test_compressed_batches.py",)
LONG_EPOCHS = ("tests/storage/test_long_epoch_files.py",)
PREPARED = ("tests/storage/test_prepared_truncations.py",)
ROLLS = ("tests/storage/test_rolls.py",)
COPIES = ("tests/storage/test_producer_copies.py",)
TORN = ("tests/storage/test_torn_files.py",)
SHORTAGE = ("tests/storage/test_shortage.py",)
POINTS = ("tests/broker/test_recovery_points.py",)
ELSEWHERE = ("tests/storage/test_elsewhere.py",)


def _keep_number(original: Any) -> Any:
    def close(self: Any) -> None:
        if not getattr(self, "path", "").startswith("closed:"):
            self.path = f"closed:{self.path}"
            os.close(self._fd)

    return close


def _close_unsynced(original: Any) -> Any:
    def close_if_idle(self: Any) -> bool:
        self.synced_size = self.size
        return bool(original(self))

    return close_if_idle


def _write_snapshot(original: Any) -> Any:
    def begin_snapshot(self: Any) -> None:
        self.take_snapshot()

    return begin_snapshot


def _with_a_file(original: Any) -> Any:
    def begin(self: Any, **_: object) -> None:
        self.reset()
        self.activate()

    return begin


def _trim_at_once(original: Any) -> Any:
    return lambda self, **_: original(self)


def _without_notification(original: Any) -> Any:
    def give_up(self: Any, failure: Any) -> None:
        self.failure = self.failure or failure

    return give_up


def _forget_files(original: Any) -> Any:
    def undo(self: Any) -> None:
        self._snapshot_writes, self._files, self._epochs = [], [], []
        original(self)

    return undo


def _begin_with_the_segment(original: Any) -> Any:
    return lambda segments, index: segments[index].base_offset


def _end_at_any_marker(original: Any) -> Any:
    def with_aborted(result: Any, *rest: Any) -> Any:
        result.end = 1 << 62
        return original(result, *rest)

    return with_aborted


def _drop_markers_at_once(original: Any) -> Any:
    def retained(self: Any, view: Any, position: int, size: int, header: Any) -> Any:
        kept, self._now_ms = self._now_ms, self._now_ms + (1 << 40)
        try:
            return original(self, view, position, size, header)
        finally:
            self._now_ms = kept

    return retained


def _look_through(original: Any) -> Any:
    return lambda self: min(self.unstable, default=None)


def _at_once(original: Any) -> Any:
    return lambda self: self.write()


def _one_by_one(original: Any) -> Any:
    def append(self: Any, aborted: list[Any]) -> None:
        for entry in aborted:
            original(self, [entry])

    return append


def _beside_others(original: Any) -> Any:
    def write(self: Any, directory: Any, make: Any) -> None:
        work = make()
        if work is not None:
            self._environment.supervisor.start(self._run_write(directory, work), "checkpoints")

    return write


def _made_at_once(original: Any) -> Any:
    def write(self: Any, directory: Any, make: Any) -> None:
        work = make()
        original(self, directory, lambda: work)

    return write


def _leave_out(original: Any) -> Any:
    def wait_for_resources(self: Any, error: Any) -> None:
        self._effects.popleft()
        original(self, error)

    return wait_for_resources


def _name_all(original: Any) -> Any:
    def keep_between(self: Any, log_start_offset: int, log_end_offset: int) -> None:
        pending, self.pending = self.pending, []
        original(self, log_start_offset, log_end_offset)
        self.pending = pending

    return keep_between


def _written_anyhow(original: Any) -> Any:
    def ended(self: Any, write: Any) -> Any:
        write.changes = self._changes
        return original(self, write)

    return ended


def _beside_each_other(original: Any) -> Any:
    def begin_write(self: Any) -> Any:
        self._under_way = None
        return original(self)

    return begin_write


STORAGE_MUTATIONS: list[dict[str, Any]] = [
    {"name": "number-outlives-file", "breaks": "a closed file keeps using its descriptor, which now belongs to another file",
     "patches": (("minikafka.storage.filesystem:OsFile.close", _keep_number),), "tests": ("tests/storage/test_disks.py",)},
    {"name": "closed-log-serves", "breaks": "a log that was removed can still be written to",
     "patches": ((f"{LOG_DISK}.close", nothing),), "tests": OPEN_FILES},
    {"name": "unsynced-file-closed", "breaks": "a file is closed before a sync has covered what was written",
     "patches": (("minikafka.storage.segment:Segment.close_if_idle", _close_unsynced),), "tests": OPEN_FILES},
    {"name": "slice-error-untold", "breaks": "the log is not told that a disk failed under a slice in flight",
     "patches": (("minikafka.storage.slice:FileSlice.failed", nothing),), "tests": OPEN_FILES},
    {"name": "torn-aborts", "breaks": "a transaction index that a crash tore is accepted",
     "patches": (("minikafka.storage.txn_index:TransactionIndex.check", nothing),), "tests": TORN},
    {"name": "epochs-over-sectors", "breaks": "an epoch file of several sectors is overwritten in place",
     "patches": (("minikafka.storage.epoch_cache:SECTOR_BYTES", lambda original: 1 << 30),), "tests": TORN},
    {"name": "any-topic-adopts", "breaks": "a log whose topic id has rotted is given to the topic of its name",
     "patches": (("minikafka.storage.checkpoint:is_torn_metadata", constant(True)),), "tests": TORN},
    {"name": "half-way-untold", "breaks": "the host is not told that an append failed halfway",
     "patches": ((f"{LOG_DISK}.give_up", _without_notification),), "tests": TORN},
    {"name": "offsets-for-nothing", "breaks": "a batch may claim more records than it has room for",
     "patches": (("minikafka.storage.validation:records_max", constant(1 << 31)),), "tests": ("tests/storage/test_validation.py",)},
    {"name": "shortage-is-failure", "breaks": "a shortage of descriptors takes a log offline",
     "patches": (("minikafka.storage.log_disk:is_shortage", constant(False)),), "tests": SHORTAGE},
    {"name": "changes-begin-anyhow", "breaks": "a roll begins without checking that there are enough descriptors to finish it",
     "patches": (("minikafka.storage.open_files:OpenFiles.require", nothing),), "tests": SHORTAGE},
    {"name": "shortage-forgets-files", "breaks": "a flush that lacked descriptors forgets which files it had to sync",
     "patches": (("minikafka.storage.durability:FlushTask.undo", _forget_files),), "tests": SHORTAGE},
    {"name": "cut-under-readers", "breaks": "a truncation removes the bytes under a slice in flight",
     "patches": (("minikafka.storage.slice:SharedFile.reaches_beyond", constant(False)),), "tests": ELSEWHERE},
    {"name": "copies-for-nothing", "breaks": "a truncation copies its segment although no slice reaches beyond the cut",
     "patches": (("minikafka.storage.slice:SharedFile.reaches_beyond", constant(True)),), "tests": ELSEWHERE},
    {"name": "cut-unsynced", "breaks": "truncated bytes may come back after the next append",
     "patches": (("minikafka.storage.durability:Durability.sync_cut", nothing),), "tests": ELSEWHERE},
    {"name": "two-writers", "breaks": "two threads write one checkpoint at a time",
     "patches": (("minikafka.broker.partitions.log_upkeep:LogUpkeep.write", _beside_others),), "tests": POINTS},
    {"name": "lines-brought-back", "breaks": "a checkpoint that waited has lines of logs that were removed meanwhile",
     "patches": (("minikafka.broker.partitions.log_upkeep:LogUpkeep.write", _made_at_once),), "tests": POINTS},
    {"name": "names-unsynced", "breaks": "the names of deleted logs are never made durable",
     "patches": (("minikafka.storage.log_dir:LogDirectory.prepare_sync", nothing),), "tests": ELSEWHERE},
    {"name": "marker-before-horizon", "breaks": "compaction drops a marker before its delete horizon",
     "patches": (("minikafka.storage.compaction:BatchFilter.retained", _drop_markers_at_once),),
     "tests": ("tests/storage/test_cleaner.py",)},
    {"name": "first-record-unsynced", "breaks": "the name of a log with records does not soon become as durable as the records",
     "patches": (("minikafka.storage.durability:Durability.request_flush", nothing),), "tests": ("tests/storage/test_new_logs.py",)},
    {"name": "holes-from-rolls", "breaks": "where holes are allowed, a roll keeps the name of a segment that a power cut may lose",
     "patches": (("minikafka.storage.durability:Durability.sync_names", nothing),), "tests": ("tests/storage/test_recovery.py",)},
    {"name": "vote-not-written", "breaks": "a vote that could not be written for lack of descriptors is given all the same",
     "patches": (("minikafka.broker.quorum.raft_host:RaftHost._wait_for_resources", _leave_out),),
     "tests": ("tests/broker/test_raft_shortage.py",)},
    {"name": "transactions-looked-through", "breaks": "each step of a replay looks at all transactions that are not stable yet",
     "patches": (("minikafka.storage.open_transactions:OpenTransactions.first_unstable", _look_through),), "tests": TRANSACTIONS},
    {"name": "aborts-one-by-one", "breaks": "each aborted transaction of a fetch is a write of its own",
     "patches": (("minikafka.storage.txn_index:TransactionIndex.append", _one_by_one),), "tests": TRANSACTIONS},
    {"name": "state-beyond-the-cut", "breaks": "a truncation goes on from a copy of the producers that is of batches behind the cut",
     "patches": (("minikafka.storage.producer_copies:ProducerCopies.keep_between", nothing),), "tests": COPIES},
    {"name": "state-never-copied", "breaks": "a truncation replays the whole active segment",
     "patches": (("minikafka.storage.producer_copies:ProducerCopies.add", nothing),), "tests": COPIES},
    {"name": "truncation-unprepared", "breaks": "a truncation replays many batches, and copies a segment, on the event loop",
     "patches": (("minikafka.storage.truncation:Truncation.prepare", constant(None)),), "tests": PREPARED},
    {"name": "preparation-out-of-date", "breaks": "a truncation takes the producers' state of a log that was cut since",
     "patches": (("minikafka.storage.truncation:TruncationPreparation._is_out_of_date", constant(False)),), "tests": PREPARED},
    {"name": "segments-dropped-together", "breaks": "a truncation drops all segments in one turn of the event loop",
     "patches": (("minikafka.storage.truncation:DROPPED_AT_ONCE", lambda original: 1 << 30),
                 ("minikafka.broker.log_flush:DROPPED_AT_ONCE", lambda original: 1 << 30)), "tests": PREPARED},
    {"name": "snapshots-on-the-loop", "breaks": "a snapshot of very many producers is encoded in one turn of the event loop",
     "patches": (("minikafka.storage.producer_state:ProducerStateManager.begin_snapshot", _write_snapshot),), "tests": PREPARED},
    {"name": "indexes-begun-on-the-loop", "breaks": "a roll creates the files of the indexes on the event loop",
     "patches": (("minikafka.storage.sparse_index:SparseIndex.begin", _with_a_file),), "tests": ROLLS},
    {"name": "indexes-trimmed-on-the-loop", "breaks": "a roll trims the indexes on the event loop",
     "patches": (("minikafka.storage.segment:Segment.become_inactive", _trim_at_once),), "tests": ROLLS},
    {"name": "index-written-before-a-cut", "breaks": "entries that a truncation dropped count as written",
     "patches": (("minikafka.storage.sparse_index:SparseIndex.is_as_of", constant(True)),), "tests": ROLLS},
    {"name": "new-index-forgotten", "breaks": "the indexes of a new segment get no files with the next flush",
     "patches": (("minikafka.storage.sparse_index:IndexWrite.run", nothing),), "tests": ROLLS},
    {"name": "snapshot-behind-the-cut", "breaks": "a snapshot of what a truncation removed gets its name",
     "patches": (("minikafka.storage.producer_snapshot_files:SnapshotFiles.keep_between", _name_all),), "tests": PREPARED},
    {"name": "snapshot-of-later-batches", "breaks": "a snapshot that is written later is of the batches before its offset",
     "patches": (("minikafka.storage.producer_state:ProducerStateManager.continued", lambda original: lambda self, entry: entry),),
     "tests": PREPARED},
    {"name": "epochs-out-of-date", "breaks": "the file of the epochs keeps contents from before its last change",
     "patches": (("minikafka.storage.epoch_cache:EpochCache.ended", _written_anyhow),), "tests": PREPARED},
    {"name": "epochs-beside-each-other", "breaks": "two threads write the file of the epochs at a time, and the older content stays",
     "patches": (("minikafka.storage.epoch_cache:EpochCache.begin_write", _beside_each_other),), "tests": LONG_EPOCHS},
    {"name": "epochs-of-an-earlier-log", "breaks": "a log that was made again gets the epochs of the one that was deleted",
     "patches": (("minikafka.storage.epoch_cache:EpochCache.is_due", constant(True)),), "tests": LONG_EPOCHS},
    {"name": "recovery-point-before-epochs", "breaks": "the recovery point goes beyond what the file of the epochs says",
     "patches": (("minikafka.storage.durability:Durability.epochs_written", constant(True)),), "tests": LONG_EPOCHS},
    {"name": "epochs-cut-on-the-loop", "breaks": "the file is written on the event loop when only epochs are truncated",
     "patches": (("minikafka.storage.durability:Durability.epochs_cut", nothing),), "tests": PREPARED},
    {"name": "ended-transactions-kept", "breaks": "a transaction that hangs keeps those that ended after it in memory",
     "patches": (("minikafka.storage.open_transactions:ENDED_MAX", lambda original: 1 << 40),), "tests": TRANSACTIONS},
    {"name": "copies-are-strays", "breaks": "a move goes on after a crash in which its copy has its name and does not replace the log yet",
     "patches": (("minikafka.storage.log_dir:LogDirectory.take_back_copy", constant(False)),),
     "tests": ("tests/broker/test_directory_moves.py",)},
    {"name": "streams-unlooked-at", "breaks": "a compressed batch of many records is stored although its stream is cut",
     "patches": (("minikafka.storage.validation:is_whole_stream", constant(True)),), "tests": COMPRESSED},
    {"name": "streams-walked-for-ever", "breaks": "a compressed stream of very many tiny blocks is stepped over to its end",
     "patches": (("minikafka.wire.compression:BLOCKS_MAX", lambda original: 1 << 40),), "tests": COMPRESSED},
    {"name": "gap-is-of-the-earlier-epoch", "breaks": "an epoch that recovery finds behind a gap between segments begins with the segment",
     "patches": (("minikafka.storage.recovery:_end_before", _begin_with_the_segment),),
     "tests": ("tests/storage/test_recovered_epochs.py",)},
    {"name": "late-transactions-looked-at", "breaks": "a look for aborted transactions goes over all that began too late",
     "patches": (("minikafka.storage.txn_index:TransactionIndex._begins_of", constant((-1, -1))),),
     "tests": ("tests/storage/test_txn_index.py",)},
    {"name": "shortened-beyond-stable", "breaks": "a fetch cut short for its aborted transactions may end behind the last stable offset",
     "patches": (("minikafka.broker.partitions.fetch_read:PartitionReader._with_aborted", _end_at_any_marker),),
     "tests": ("tests/broker/test_many_aborted.py",)},
    {"name": "epochs-synced-at-once", "breaks": "the event loop waits for the disk whenever a leader epoch begins or is truncated",
     "patches": (("minikafka.storage.epoch_cache:EpochCache._write_in_place", _at_once),), "tests": LONG_EPOCHS},
]
