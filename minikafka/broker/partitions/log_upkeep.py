"""Periodic work on logs: checkpoints, retention, flushes, file deletion."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from minikafka.broker.measures.durations import Durations
from minikafka.storage.config import INT64_MAX
from minikafka.storage.due_work import overdue
from minikafka.storage.errors import StorageError

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.steps import Steps
    from minikafka.storage.directory_files import DirectoryTask
    from minikafka.storage.durability import FlushTask
    from minikafka.storage.log import Log
    from minikafka.storage.log_dir import LogDirectory

logger = logging.getLogger("minikafka.replicas")
#: Makes a task from the present state; None if there is nothing to do.
MakeTask = Callable[[], "DirectoryTask | None"]
FLUSH_INTERVAL_S = 1.0
#: Of more logs than this, FLUSHED_AT_ONCE are flushed in one go.
MANY_LOGS = 256
FLUSHED_AT_ONCE = 16
#: Threads that flush so many at a time before the logs are closed.
FLUSHES_BEFORE_CLOSE = 4


class LogUpkeep:
    """Periodic work on the logs of the online directories. One flush runs at a time."""

    def __init__(self, config: BrokerConfig, environment: Environment, directories: list[LogDirectory]) -> None:
        self._config = config
        self._environment = environment
        self._directories = directories
        self._timers: dict[str, asyncio.TimerHandle] = {}
        #: What looks at all logs, by its name.
        self._looking: dict[str, asyncio.Task[None]] = {}
        #: When the last look for flush.ms began.
        self._looked_ms = environment.clock.now_ms()
        self._flushing: asyncio.Task[None] | None = None
        self._retaining: asyncio.Task[None] | None = None
        self._unlinking: set[asyncio.Task[None]] = set()
        #: By directory: what makes the tasks that are still to be done.
        self._to_write: dict[str, list[MakeTask]] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        #: Directories whose checkpoints are to lose the lines of removed logs.
        self._to_forget: set[str] = set()
        #: By directory: what those wait for who need the next write of recovery points; its result is why it failed.
        self._lowering: dict[str, asyncio.Future[StorageError | None]] = {}
        self._is_stopping = False
        self.flushes = Durations(environment.monotonic_s)

    def start(self) -> None:
        """Start the periodic work."""
        config = self._config
        self.every("high watermarks", config.replica_high_watermark_checkpoint_interval_ms / 1000, self._checkpoint_high_watermarks)
        self.every("recovery points", config.log_flush_offset_checkpoint_interval_ms / 1000, self._checkpoint_recovery_points)
        self.every("retention", config.log_retention_check_interval_ms / 1000, self._retain)
        self.every("log starts", config.log_flush_start_offset_checkpoint_interval_ms / 1000, self._checkpoint_log_starts)
        self.every("flush", FLUSH_INTERVAL_S, self._look)
        interval_ms = config.log_flush_scheduler_interval_ms
        if interval_ms < INT64_MAX:
            self._looked_ms = self._environment.clock.now_ms()
            self.every("flush.ms", max(interval_ms, 1) / 1000, self._look_for_overdue)

    def every(self, name: str, interval_s: float, work: Callable[[], None]) -> None:
        """Call `work` every `interval_s` seconds until the upkeep stops."""

        def run() -> None:
            self._timers[name] = self._environment.supervisor.call_later(interval_s, name, run)
            try:
                work()
            except StorageError as error:
                logger.error("%s: %s", name, error)

        self._timers[name] = self._environment.supervisor.call_later(interval_s, name, run)

    def cancel(self) -> None:
        """Start no further work."""
        self._is_stopping = True
        for timer in self._timers.values():
            timer.cancel()

    async def finish(self) -> None:
        """Wait for the work in progress."""
        await asyncio.gather(*self._looking.values(), return_exceptions=True)
        if self._flushing is not None:
            await asyncio.gather(self._flushing, return_exceptions=True)
        retaining = [] if self._retaining is None else [self._retaining]
        under_way = [*self._unlinking, *self._writing.values(), *retaining]
        if under_way:
            await asyncio.wait(under_way)

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if not directory.is_offline]

    def _checkpoint_high_watermarks(self) -> None:
        for directory in self._online():
            self.write(directory, directory.high_watermarks)

    def _checkpoint_recovery_points(self) -> None:
        for directory in self._online():
            self.write(directory, directory.recovery_points)

    def _checkpoint_log_starts(self) -> None:
        for directory in self._online():
            self.write(directory, directory.log_start_offsets)

    def write(self, directory: LogDirectory, make: MakeTask) -> None:
        """Make a task and run it in a thread, after the directory's earlier ones: two that write one file would share its temporary file.
        It is made no earlier, so that it has no lines of logs that were removed before."""
        waiting = self._to_write.setdefault(directory.path, [])
        if make not in waiting:
            waiting.append(make)
        self._begin_writes(directory)

    async def write_checkpoints(self) -> None:
        """Write the checkpoints of a clean shutdown now, and wait for them."""
        self._checkpoint_recovery_points()
        self._checkpoint_log_starts()
        self._checkpoint_high_watermarks()
        if self._writing:
            await asyncio.wait(list(self._writing.values()))

    def _begin_writes(self, directory: LogDirectory) -> None:
        if directory.path not in self._writing:
            waiting = self._to_write.setdefault(directory.path, [])
            self._writing[directory.path] = self._environment.supervisor.start(self._run_writes(directory, waiting), "checkpoints")

    async def _run_writes(self, directory: LogDirectory, waiting: list[MakeTask]) -> None:
        try:
            while not directory.is_offline:
                waiter = self._lowering.pop(directory.path, None)
                work: DirectoryTask | None
                if waiter is not None:
                    work = directory.recovery_points()
                elif directory.path in self._to_forget:
                    self._to_forget.discard(directory.path)
                    work = directory.prepare_removal()
                elif waiting:
                    work = waiting.pop(0)()
                else:
                    break
                failure = await self._run_write(directory, work) if work is not None else None
                if waiter is not None and not waiter.done():
                    waiter.set_result(failure)
                if failure is not None and directory.has_removed_lines:
                    break  # tried again with the next flush
        finally:
            waiting.clear()
            del self._writing[directory.path]
            waiter = self._lowering.pop(directory.path, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(directory.failure)

    async def _run_write(self, directory: LogDirectory, work: DirectoryTask) -> StorageError | None:
        try:
            await self._environment.run_blocking(work.run)
        except OSError as error:
            failure = directory.disk_failed("write a checkpoint of", error)
            logger.error("%s", failure)
            return failure
        work.finish()
        return None

    def forget_removed(self) -> None:
        """Take the lines of removed logs out of the checkpoints, soon."""
        for directory in self._online():
            if directory.has_removed_lines:
                self._to_forget.add(directory.path)
                self._begin_writes(directory)

    async def lower_recovery_point(self, log: Log) -> None:
        """Wait until the checkpoint has no recovery point any more that a truncation of the log lowered (LogManager.truncateTo). Several
        logs share a write. Raises StorageError."""
        key = log.topic, log.partition
        directory = next((one for one in self._online() if one.logs.get(key) is log), None)
        if directory is None or not log.durability.has_stale_point:
            return
        waiter = self._lowering.get(directory.path)
        if waiter is None:
            waiter = self._lowering[directory.path] = asyncio.get_running_loop().create_future()
        self._begin_writes(directory)
        await asyncio.wait([waiter])
        failure = waiter.result()
        if failure is not None:
            raise failure

    def _retain(self) -> None:
        if self._retaining is None or self._retaining.done():
            self._retaining = self._environment.supervisor.start(self._run_retention(), "retention")

    async def _run_retention(self) -> None:
        """Apply retention to all logs, in steps."""
        wall_ms, now_ms = self._environment.clock.wall_ms(), self._environment.clock.now_ms()
        for directory in self._online():
            try:
                for _ in directory.retaining(wall_ms, now_ms):
                    await asyncio.sleep(0)
                    if self._is_stopping:
                        return
            except StorageError as error:
                logger.error("retention: %s", error)

    def _look(self) -> None:
        self.forget_removed()
        self._take("looking at the logs", self._look_at_all)

    def _look_for_overdue(self) -> None:
        """flush.ms, every log.flush.scheduler.interval.ms (LogManager.flushDirtyLogs)."""
        self._take("looking for flush.ms", self._flush_overdue)

    def _take(self, name: str, begin: Callable[[], Steps[None]]) -> None:
        """Look at all logs, some in a turn, unless the last such look is still going on."""
        if name not in self._looking or self._looking[name].done():
            shares, steps = self._environment.shares, begin()
            if not shares.take_some(steps):
                self._looking[name] = self._environment.supervisor.start(shares.take(steps), name)

    def _flush_overdue(self) -> Steps[None]:
        found: list[Log] = []
        now_ms, last_ms = self._environment.clock.now_ms(), self._looked_ms
        self._looked_ms = now_ms
        for directory in self._online():
            found += yield from overdue(list(directory.logs.values()), now_ms, last_ms)
        self._flush_soon(found)

    def _look_at_all(self) -> Steps[None]:
        """Look at all logs, some in a turn, and begin what is due."""
        due: list[Log] = []
        for directory in self._online():
            wall_ms = self._environment.clock.wall_ms()
            paths, flushes, has_stale_points = yield from directory.due_work(wall_ms)
            if directory.is_offline or self._is_stopping:
                continue
            self._unlink(directory, paths + directory.take_due_deletions(wall_ms))
            if directory.has_unsynced_names:
                self.write(directory, directory.prepare_sync)
            if has_stale_points:
                self.write(directory, directory.recovery_points)
            due += flushes
        self._flush_soon(due)

    def _flush_soon(self, due: list[Log]) -> None:
        """Flush these logs, unless others are being flushed: the next look finds what was asked for."""
        if due and not self._is_stopping and (self._flushing is None or self._flushing.done()):
            self._flushing = self._environment.supervisor.start(self._run_flushes(due), "flushing of logs")

    def _unlink(self, directory: LogDirectory, paths: list[str]) -> None:
        """Delete the files that retention and topic deletion left, in a thread, because deleting large files is slow."""
        if paths:
            running = self._environment.supervisor.start(self._run_unlink(directory, paths), "deletion of files")
            self._unlinking.add(running)
            running.add_done_callback(self._unlinking.discard)

    async def _run_unlink(self, directory: LogDirectory, paths: list[str]) -> None:
        try:
            await self._environment.run_blocking(directory.unlink, paths)
        except OSError as error:
            logger.error("%s", directory.unlink_failed(paths, error))

    async def _run_flushes(self, logs: list[Log]) -> None:
        """Flush one log after the other, so that the quorum's syncs need not wait behind hundreds of flushes. Those go first whose files
        are to be closed. Of very many logs, some are flushed in one go: each waits for its thread."""
        logs.sort(key=lambda log: not log.durability.is_whole_flush_requested)
        at_once = FLUSHED_AT_ONCE if len(logs) > MANY_LOGS else 1
        for start in range(0, len(logs), at_once):
            if not self._is_stopping:
                await self._flush_together(logs[start : start + at_once])

    async def flush_all(self) -> None:
        """Flush every log that has anything to sync, several at a time: closing syncs them, too, but one after the other, and ten thousand
        took minutes."""
        logs = (log for directory in self._online() for log in list(directory.logs.values()))
        waiting = (log for log in logs if log.failure is None and log.recovery_point < log.log_end_offset)
        start = self._environment.supervisor.start
        await asyncio.wait(
            [start(self._flush_some(waiting), "flushing of logs before they are closed") for _ in range(FLUSHES_BEFORE_CLOSE)]
        )

    async def _flush_some(self, waiting: Iterator[Log]) -> None:
        while logs := list(itertools.islice(waiting, FLUSHED_AT_ONCE)):
            await self._flush_together(logs, is_whole=True)

    async def _flush_together(self, logs: list[Log], *, is_whole: bool = False) -> None:
        tasks: list[tuple[Log, FlushTask]] = []
        for log in logs:
            self._prepare_flush(log, tasks, is_whole or log.durability.should_sync_ahead)
        if not tasks:
            return
        failed = await self._environment.run_blocking(self._sync, [task for _, task in tasks])
        is_over = self._environment.shares.begin()
        for log, task in tasks:
            if is_over():
                await asyncio.sleep(0)
                is_over = self._environment.shares.begin()
            try:
                if task in failed:
                    raise log.durability.flush_failed(task, failed[task]) from failed[task]
                task.finish()
            except StorageError as error:
                logger.error("%s cannot be flushed: %s", log.name, error)

    @staticmethod
    def _prepare_flush(log: Log, tasks: list[tuple[Log, FlushTask]], is_whole: bool) -> None:
        if log.failure is not None:
            return
        try:
            task = log.prepare_flush(None if is_whole else log.active_segment_base_offset)
        except StorageError as error:
            logger.error("%s cannot be flushed: %s", log.name, error)
            return
        if task is not None:
            tasks.append((log, task))

    def _sync(self, tasks: list[FlushTask]) -> dict[FlushTask, OSError]:
        """Run the tasks; returns those that failed. Runs in a thread."""
        failed: dict[FlushTask, OSError] = {}
        for task in tasks:
            try:
                with self.flushes.measured():
                    task.run()
            except OSError as error:
                failed[task] = error
        return failed
