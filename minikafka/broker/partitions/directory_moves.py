"""Moves replicas between log directories of this broker (AlterReplicaLogDirs, KIP-113). A copy grows in a `-future` directory while the
log stays in service. A copy that has caught up gets its ordinary name, durably and on another thread, and then replaces the log within one
turn of the loop. Last, the old name is durably removed. A crash before that leaves two logs, and the controller knows which is served:
the copy bears a mark until it replaces the log, and then the move goes on."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from minikafka.broker.log_flush import flush, sync_cut, truncate_fully
from minikafka.broker.supervise import Ends
from minikafka.net.tasks import outcome_of, within
from minikafka.storage.errors import ResourceShortage, StorageError, UnexpectedAppendOffset
from minikafka.storage.filesystem import is_shortage
from minikafka.wire.errors import ApiError

if TYPE_CHECKING:
    from minikafka.broker.config.dynamic import Settings
    from minikafka.broker.environment import Environment
    from minikafka.broker.partitions.partition import Partition, PartitionEvents
    from minikafka.storage.directory_files import Promotion
    from minikafka.storage.log import Log
    from minikafka.storage.log_dir import LogDirectory

logger = logging.getLogger("minikafka.replicas")
CHUNK_BYTES = 1 << 20
#: Sync the copy after so many unsynced chunks: it must be as durable as the log that it replaces.
CHUNKS_PER_FLUSH = 64
#: Seconds between two looks at a log that has nothing to copy, though it ends later than the copy.
LOOK_AGAIN_S = 0.1
#: Seconds until what lacked descriptors or memory is tried again.
SHORTAGE_RETRY_S = 1.0


#: Instead of the number of truncations: the copy must begin anew.
ANEW = -1


class _Move:
    """`is_named`: the copy has the ordinary name; None while it gets it. `truncations`: of the log, when the copy was begun."""

    __slots__ = ("chunks", "future", "is_named", "partition", "target", "task", "truncations")

    def __init__(self, partition: Partition, target: LogDirectory, future: Log) -> None:
        self.partition = partition
        self.target = target
        self.future = future
        self.truncations = ANEW
        self.is_named: bool | None = False
        #: How many chunks were looked for.
        self.chunks = 0
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
        self._is_stopping = False
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
        if move is None or move.is_named is None:
            return  # whoever names it drops it afterwards
        if move.task is not None:
            move.task.cancel()
        self._drop(move)

    def _drop(self, move: _Move) -> None:
        try:
            move.target.drop_future(move.future)
        except StorageError as error:
            logger.error("the copy of %s cannot be removed: %s", move.partition, error)

    async def stop(self) -> None:
        """Stop copying. The copies stay on disk."""
        self._is_stopping = True
        tasks = [move.task for move in self._moves.values() if move.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for move in self._moves.values():
            move.future.close_files()
        self._moves.clear()

    # -- copying ---------------------------------------------------------------------------------------------------

    def _must_restart(self, move: _Move) -> bool:
        log = move.partition.log
        return log.truncations != move.truncations or move.future.log_end_offset < log.log_start_offset

    async def _restart(self, move: _Move) -> None:
        """Start again at the beginning of the log, because it was truncated, or its start moved beyond the copy's end. Raises
        StorageError."""
        log, run, wall_ms = move.partition.log, self._environment.run_blocking, self._environment.clock.wall_ms
        move.truncations = log.truncations
        start = max(log.log_start_offset, log.segments.bases[0])
        if await truncate_fully(move.future, start, wall_ms, run, lambda: self._moves.get(move.partition.key) is move):
            await sync_cut(move.future, run)

    async def _run(self, move: _Move) -> None:
        try:
            while self._moves.get(move.partition.key) is move:
                try:
                    await self._copy(move)
                except (StorageError, OSError) as error:
                    if not _is_shortage(error):
                        raise
                    await self._wait_for_resources(f"{move.partition}: the move to {move.target.path} waits", error)
        except (StorageError, ApiError, OSError) as error:
            logger.error("%s: the move to %s has failed: %s", move.partition, move.target.path, error)
            if self._moves.get(move.partition.key) is move:
                self.cancel(move.partition)

    async def _copy(self, move: _Move) -> None:
        """Copy one chunk; serve the copy if it is complete. Raises StorageError, ApiError, OSError; after a shortage call it again."""
        if self._must_restart(move):
            await self._restart(move)
            return
        size = await self._copy_chunk(move)
        move.chunks += 1
        if size == 0 or move.chunks % CHUNKS_PER_FLUSH == 0 or move.future.must_sync_soon(self._environment.clock.wall_ms()):
            await flush(move.future, self._environment.run_blocking)
        if size == 0 and await self._copy_chunk(move) == 0 and self._moves.get(move.partition.key) is move:
            if move.future.log_end_offset < move.partition.log.log_end_offset:
                # The last records were compacted away. Served, the copy would give out their offsets again.
                await asyncio.sleep(LOOK_AGAIN_S)
            elif not move.is_named:
                await self._name(move)
            elif move.future.recovery_point >= move.partition.log.recovery_point:
                await self._settle(move, self._swap(move))
                return
        await self._pause(size)

    async def _wait_for_resources(self, what: str, error: Exception) -> None:
        """The disk is well: the same can be done later."""
        logger.warning("%s: %s", what, error)
        await asyncio.sleep(SHORTAGE_RETRY_S)

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

    async def _copy_chunk(self, move: _Move) -> int:
        """Copy one chunk. Returns its bytes; 0 if the copy is complete, 1 if it must begin anew. Nothing happens between the last look at
        the log and the return."""
        log, future = move.partition.log, move.future
        if self._must_restart(move):
            return 1
        offset = future.log_end_offset
        if offset >= log.log_end_offset:
            return 0
        data = await self._environment.cold_reads.look(lambda: _chunk(log, offset))
        if self._must_restart(move):
            return 1
        if not data:
            return 0
        try:
            future.append_as_follower(memoryview(data))
        except UnexpectedAppendOffset:
            # The log was compacted, and its first batch now begins before the end of the copy.
            move.truncations = ANEW
            return 1
        return len(data)

    async def _name(self, move: _Move) -> None:
        """Give the copy the ordinary name, unless the move is cancelled meanwhile. Raises StorageError."""
        promotion = move.target.prepare_promotion(move.future)
        move.is_named = None
        naming = self._environment.supervisor.start(self._run_promotion(promotion), f"naming the copy of {move.partition}")
        failure = await outcome_of(naming)
        if failure is None:
            move.future.relocate(promotion.path)
        move.is_named = failure is None
        if self._moves.get(move.partition.key) is not move:
            self._drop(move)
        elif failure is not None:
            raise move.target.disk_failed("rename a log in", failure)

    async def _run_promotion(self, promotion: Promotion) -> OSError | None:
        """A shortage may have left the names half changed: nobody uses the copy before the promotion has ended."""
        while True:
            try:
                await self._environment.run_blocking(promotion.run)
            except OSError as error:
                if not is_shortage(error) or self._is_stopping:
                    return error
                await self._wait_for_resources(f"{promotion.path} gets its name later", error)
            else:
                return None

    def _swap(self, move: _Move) -> LogDirectory:
        """Replace the log by the copy. Nothing is awaited in between, so no records can be appended to the old log. Returns where that
        was."""
        partition, old = move.partition, move.partition.log
        source = next(d for d in self._directories if d.logs.get(partition.key) is old)
        move.target.serve_future(move.future, old)
        del self._moves[partition.key]
        partition.log = move.future
        try:
            source.remove(partition.topic, partition.index, self._environment.clock.wall_ms())
        except StorageError as error:
            logger.error("%s: cannot remove the old log from %s after the move: %s", partition, source.path, error)
        return source

    async def _settle(self, move: _Move, source: LogDirectory) -> None:
        """Remove the old name durably: otherwise a power cut could bring back a log that lacks what was appended since."""
        await self._sync_names(source)
        try:
            await flush(move.future, self._environment.run_blocking)
        except StorageError as error:
            logger.error("%s", error)
        logger.info("%s: moved from %s to %s, %d bytes", move.partition, source.path, move.target.path, move.future.size)
        self._events.moved(move.partition)

    async def _sync_names(self, source: LogDirectory) -> None:
        while (sync := source.prepare_sync()) is not None:
            try:
                await self._environment.run_blocking(sync.run)
            except OSError as error:
                failure = source.sync_failed(error)
                if isinstance(failure, ResourceShortage) and not self._is_stopping:
                    await self._wait_for_resources("an old name is removed later", failure)
                    continue
                logger.error("%s", failure)
            return


def _is_shortage(error: Exception) -> bool:
    """Whether descriptors or memory were lacking, and the disk is well."""
    return is_shortage(error) if isinstance(error, OSError) else isinstance(error, ResourceShortage)


def _chunk(log: Log, offset: int) -> bytes:
    piece = log.read(max(offset, log.log_start_offset), CHUNK_BYTES, end_offset=log.log_end_offset).slice
    try:
        return piece.read()
    finally:
        piece.release()
