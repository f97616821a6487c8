"""Moves replicas between log directories of this broker (AlterReplicaLogDirs, KIP-113). A copy grows in a `-future` directory while the
log stays in service. When the copy has caught up, it replaces the log within one turn of the loop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from minikafka.broker.partitions.log_flush import flush
from minikafka.broker.supervise import Ends
from minikafka.net.tasks import within
from minikafka.storage.errors import StorageError, UnexpectedAppendOffset
from minikafka.wire.errors import ApiError

if TYPE_CHECKING:
    from minikafka.broker.config.dynamic import Settings
    from minikafka.broker.environment import Environment
    from minikafka.broker.partitions.partition import Partition, PartitionEvents
    from minikafka.storage.log import Log
    from minikafka.storage.log_dir import LogDirectory

logger = logging.getLogger("minikafka.replicas")
CHUNK_BYTES = 1 << 20
#: Sync the copy after so many unsynced chunks: it must be as durable as the log that it replaces.
CHUNKS_PER_FLUSH = 64


class _Move:
    __slots__ = ("future", "partition", "target", "task", "truncations")

    def __init__(self, partition: Partition, target: LogDirectory, future: Log) -> None:
        self.partition = partition
        self.target = target
        self.future = future
        self.truncations = partition.log.truncations
        self.task: asyncio.Task[None] | None = None


class DirectoryMoves:
    """The moves in progress, at most one per partition. A move survives a restart: `resume` starts the copy again."""

    def __init__(self, directories: list[LogDirectory], environment: Environment, settings: Settings, events: PartitionEvents) -> None:
        self._directories = directories
        self._events = events
        self._environment = environment
        self._settings = settings
        self._moves: dict[tuple[str, int], _Move] = {}
        self._settings_changed = asyncio.Event()
        settings.watch(self._wake)

    def _wake(self) -> None:
        changed, self._settings_changed = self._settings_changed, asyncio.Event()
        changed.set()

    def future(self, directory: LogDirectory) -> list[tuple[tuple[str, int], Log, Log]]:
        """(partition, copy, log) of each move into a directory, for DescribeLogDirs."""
        return [(key, move.future, move.partition.log) for key, move in self._moves.items() if move.target is directory]

    def start(self, partition: Partition, target: LogDirectory) -> None:
        """Start copying. Raises StorageError."""
        going_on = self._moves.get(partition.key)
        if going_on is not None:
            if going_on.target is target:
                return
            self.cancel(partition)
        if target.logs.get(partition.key) is partition.log:
            return
        log = partition.log
        future = target.create_future(partition.topic, partition.index, partition.topic_id, log.config, self._environment.clock.wall_ms())
        move = self._moves[partition.key] = _Move(partition, target, future)
        self._restart(move)
        logger.info("%s: moving to %s", partition, target.path)
        ends = Ends("move", lambda _: self.cancel(partition))
        move.task = self._environment.supervisor.start(self._run(move), f"the move of {partition} to {target.path}", ends=ends)

    def resume(self, partition: Partition) -> None:
        """Restart a move that a restart of the broker interrupted."""
        for directory in self._directories:
            if partition.key in directory.futures and not directory.is_offline:
                directory.futures.discard(partition.key)
                try:
                    self.start(partition, directory)
                except StorageError as error:
                    logger.error("%s cannot be moved to %s: %s", partition, directory.path, error)

    def cancel(self, partition: Partition) -> None:
        """Cancel the partition's move, because the partition leaves or moves elsewhere."""
        move = self._moves.pop(partition.key, None)
        if move is None:
            return
        if move.task is not None:
            move.task.cancel()
        try:
            move.target.drop_future(move.future)
        except StorageError as error:
            logger.error("the copy of %s cannot be removed: %s", partition, error)

    async def stop(self) -> None:
        """Stop copying. The copies stay on disk."""
        tasks = [move.task for move in self._moves.values() if move.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for move in self._moves.values():
            move.future.close_files()
        self._moves.clear()

    # -- copying ---------------------------------------------------------------------------------------------------

    def _restart(self, move: _Move) -> None:
        """Start again at the beginning of the log, because it was truncated, or its start moved beyond the copy's end."""
        log = move.partition.log
        move.truncations = log.truncations
        move.future.truncate_fully_and_start_at(max(log.log_start_offset, log.segments.bases[0]), self._environment.clock.wall_ms())

    async def _run(self, move: _Move) -> None:
        run: Any = self._environment.run_blocking
        key, chunks = move.partition.key, 0
        try:
            while self._moves.get(key) is move:
                size = self._copy_chunk(move)
                chunks += 1
                if size == 0 or chunks % CHUNKS_PER_FLUSH == 0 or move.future.must_sync_soon(self._environment.clock.wall_ms()):
                    await flush(move.future, run)
                if size == 0 and self._copy_chunk(move) == 0 and self._moves.get(key) is move:
                    self._swap(move)
                    return
                await self._pause(size)
        except (StorageError, ApiError, OSError) as error:
            logger.error("%s: the move to %s has failed: %s", move.partition, move.target.path, error)
            if self._moves.get(key) is move:
                self.cancel(move.partition)

    async def _pause(self, size: int) -> None:
        """Wait as long as the throttle asks for after `size` bytes. A new throttle counts from the moment it is set: 1 MiB at 1 byte a
        second would otherwise hold the move for twelve days."""
        left, clock = float(size), self._environment.clock
        if size == 0:
            await asyncio.sleep(0)
        while left > 0:
            rate, began_ms = max(self._settings.replica_alter_log_dirs_io_max_bytes_per_second, 1), clock.now_ms()
            try:
                await within(left / rate, self._settings_changed.wait())
            except TimeoutError:
                return
            left -= rate * (clock.now_ms() - began_ms) / 1000

    def _copy_chunk(self, move: _Move) -> int:
        """Copy one chunk. Returns its bytes; 0 if the copy is complete."""
        log, future = move.partition.log, move.future
        if log.truncations != move.truncations or future.log_end_offset < log.log_start_offset:
            self._restart(move)
        offset = future.log_end_offset
        if offset >= log.log_end_offset:
            return 0
        piece = log.read(max(offset, log.log_start_offset), CHUNK_BYTES, end_offset=log.log_end_offset).slice
        data = piece.read()
        piece.release()
        if not data:
            return 0
        try:
            future.append_as_follower(memoryview(data))
        except UnexpectedAppendOffset:
            # The log was compacted, and its first batch now begins before the end of the copy.
            self._restart(move)
            return 1
        return len(data)

    def _swap(self, move: _Move) -> None:
        """Replace the log by the copy. Nothing is awaited in between, so no records can be appended to the old log."""
        partition, wall_ms = move.partition, self._environment.clock.wall_ms()
        old = partition.log
        del self._moves[partition.key]
        source = next(d for d in self._directories if d.logs.get(partition.key) is old)
        log = move.target.promote_future(move.future, old, wall_ms)
        partition.log = log
        try:
            source.remove(partition.topic, partition.index, wall_ms)
            # Sync before any append: otherwise the old name could bring back an incomplete log after a power cut.
            source.sync_names()
        except StorageError as error:
            logger.error("%s: cannot remove the old log from %s after the move: %s", partition, source.path, error)
        logger.info("%s: moved from %s to %s, %d bytes", partition, source.path, move.target.path, log.size)
        self._events.moved(partition)
