"""Compacts logs in the background: picks the dirtiest log, reads and writes in threads, and swaps segments on the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from minikafka.broker.supervise import Ends
from minikafka.storage.cleaner import Cleaning, CleaningNeed, CleaningStopped, cleaning_need
from minikafka.storage.config import INT64_MAX
from minikafka.storage.errors import ResourceShortage, StorageError
from minikafka.wire.errors import ApiError, WireError

if TYPE_CHECKING:
    from minikafka.broker.config.dynamic import Settings
    from minikafka.broker.environment import Environment
    from minikafka.broker.partitions.log_upkeep import MakeTask
    from minikafka.storage.log import Log
    from minikafka.storage.log_dir import LogDirectory

logger = logging.getLogger("minikafka.cleaner")
#: Pauses for log.cleaner.io.max.bytes.per.second: the shortest one, of the clock's unit, and the longest one before the rest is computed
#: again.
PAUSE_S_MIN, PAUSE_S_MAX = 0.001, 3600.0


class LogCleaner:
    """Compacts one log at a time, the one with the largest share of dirty bytes first (LogCleanerManager.grabFilthiestCompactedLog).

    A log that cannot be decoded is skipped until the next start. If a topic is deleted during its compaction, the result is dropped.
    """

    def __init__(
        self, settings: Settings, environment: Environment, directories: list[LogDirectory],
        write: Callable[[LogDirectory, MakeTask], None],
    ) -> None:  # fmt: skip
        """`write`: see LogUpkeep."""
        self._write = write
        self._settings = settings
        self._environment = environment
        self._directories = directories
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._cleaning: Cleaning | None = None
        self._is_stopping = False
        self._uncleanable: WeakSet[Log] = WeakSet()
        self.rounds = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.last_round_ms: int | None = None
        self.last_took_ms = 0
        #: In the last round: the share of the bytes that was rewritten, and the share of the key map that was used.
        self.last_recopied = 0.0
        self.last_map_filled = 0.0
        #: At the last look at all logs: the largest dirty share, and for how long a log should have been compacted at most.
        self.dirtiest = 0.0
        self.overdue_ms = 0
        settings.watch(self._wake.set)

    def start(self) -> None:
        """Start the cleaner, unless log.cleaner.enable is false."""
        if self._settings.log_cleaner_enable:
            self._task = self._environment.supervisor.start(self._run(), "the log cleaner")

    def wake(self) -> None:
        """Look for work now, because a topic's configuration changed."""
        self._wake.set()

    async def stop(self) -> None:
        """Cancel the current round; its log stays as it was."""
        self._is_stopping = True
        self._wake.set()
        if self._cleaning is not None:
            self._cleaning.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def is_dead(self) -> bool:
        """Whether the cleaner has ended although it should run."""
        return self._task is not None and self._task.done() and not self._is_stopping

    def uncleanable(self, directory: LogDirectory) -> list[Log]:
        """Compacted logs that the cleaner could not read."""
        return [log for log in directory.logs.values() if log in self._uncleanable]

    # -- choosing a log --------------------------------------------------------------------------------------------

    def _compacted(self) -> Iterator[tuple[LogDirectory, Log]]:
        for directory in self._directories:
            if not directory.is_offline:
                for log in directory.logs.values():
                    if log.config.is_compacted and log.failure is None and log not in self._uncleanable:
                        yield directory, log

    def _need(self, directory: LogDirectory, log: Log, wall_ms: int) -> CleaningNeed:
        key = (log.topic, log.partition)
        cleaned_to = directory.cleaned.get(key)
        if cleaned_to is not None and log.watermarks.truncated_to < cleaned_to:
            # Records after the truncation point are as dirty as before.
            cleaned_to = directory.cleaned[key] = log.watermarks.truncated_to
        return cleaning_need(log, cleaned_to, wall_ms)

    async def _look(self) -> list[tuple[LogDirectory, Log]]:
        """The logs that are due, the dirtiest first. Looks at all logs, in several turns of the loop if there are very many."""
        self._wake.clear()
        wall_ms, is_over = self._environment.clock.wall_ms(), self._environment.shares.begin()
        due: list[tuple[int, float, LogDirectory, Log]] = []
        dirtiest, overdue_ms = 0.0, 0
        for directory, log in list(self._compacted()):
            need = self._need(directory, log, wall_ms)
            dirtiest, overdue_ms = max(dirtiest, need.ratio), max(overdue_ms, need.overdue_ms)
            if need.is_due:
                due.append((need.overdue_ms, need.ratio, directory, log))
            if is_over():
                await asyncio.sleep(0)
                is_over = self._environment.shares.begin()
        self.dirtiest, self.overdue_ms = dirtiest, overdue_ms
        due.sort(key=lambda found: found[:2], reverse=True)
        return [(directory, log) for _, _, directory, log in due]

    # -- compaction ------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        clock, settings = self._environment.clock, self._settings
        while not self._is_stopping:
            due = await self._look()
            if not due:
                await self._sleep(settings.log_cleaner_backoff_ms / 1000)
            looked_ms = clock.now_ms()
            for directory, log in due:
                is_there = directory.logs.get((log.topic, log.partition)) is log and not directory.is_offline
                if is_there and log.config.is_compacted and log.failure is None and log not in self._uncleanable:
                    need = self._need(directory, log, clock.wall_ms())
                    if need.is_due:
                        await self._attempt(directory, need)
                # Very many logs are not all looked at again behind each round, but others may be dirtier after a while.
                if self._is_stopping or self._wake.is_set() or clock.now_ms() - looked_ms >= settings.log_cleaner_backoff_ms:
                    break

    async def _attempt(self, directory: LogDirectory, need: CleaningNeed) -> None:
        """Compact a log. A failure concerns at most this log."""
        try:
            await self._clean(directory, need)
        except CleaningStopped:
            return
        except ResourceShortage as error:
            logger.warning("%s will be compacted later: %s", need.log.name, error)
            await self._sleep(self._settings.log_cleaner_backoff_ms / 1000)
        except StorageError as error:
            logger.error("cannot compact %s: %s", need.log.name, error)
            self._uncleanable.add(need.log)
        except OSError as error:
            if directory.logs.get((need.log.topic, need.log.partition)) is need.log and not directory.is_offline:
                logger.error("%s", need.log.fail("compact the log", error))
                await self._sleep(self._settings.log_cleaner_backoff_ms / 1000)
        except (ApiError, WireError, ValueError) as error:
            logger.error("%s cannot be read and will no longer be compacted: %s", need.log.name, error)
            self._uncleanable.add(need.log)
        except Exception as error:
            ends = Ends("log's compaction", lambda _: self._uncleanable.add(need.log))
            self._environment.supervisor.caught(f"compaction of {need.log.name}", error, ends)

    async def _sleep(self, seconds: float) -> None:
        self._wake.clear()
        alarm = self._environment.loop.call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            alarm.cancel()

    async def _clean(self, directory: LogDirectory, need: CleaningNeed) -> None:
        log, clock = need.log, self._environment.clock
        started_ms = clock.now_ms()
        log.watermarks.truncated_to = INT64_MAX
        cleaning = self._cleaning = Cleaning(need, clock.wall_ms(), self._settings.log_cleaner_dedupe_buffer_size)
        try:
            if not await self._compact(directory, cleaning, started_ms):
                logger.info("%s changed while it was being compacted; trying again later", log.name)
                await self._sleep(1.0)
                return
        finally:
            self._cleaning = None
        self.rounds += 1
        self.bytes_read += cleaning.bytes_read
        self.bytes_written += cleaning.bytes_written
        self.last_round_ms = clock.now_ms()
        self.last_took_ms = self.last_round_ms - started_ms
        self.last_recopied = cleaning.bytes_written / max(cleaning.bytes_read, 1)
        self.last_map_filled = cleaning.map_filled
        logger.info(
            "%s: compacted up to offset %d, from %d to %d bytes, in %d ms",
            log.name, cleaning.end_offset, cleaning.bytes_read, cleaning.bytes_written, clock.now_ms() - started_ms,
        )  # fmt: skip
        if log.watermarks.truncated_to >= cleaning.end_offset and directory.logs.get((log.topic, log.partition)) is log:
            directory.cleaned[log.topic, log.partition] = cleaning.end_offset
            self._write(directory, directory.cleaned_offsets)

    async def _compact(self, directory: LogDirectory, cleaning: Cleaning, started_ms: int) -> bool:
        """Carry out a round. Returns False if the log changed meanwhile."""
        run: Any = self._environment.run_blocking
        log = cleaning.log
        await self._environment.shares.take(cleaning.find_aborted())
        for window in cleaning.windows():
            with cleaning.pinned(window) as are_there:
                if not are_there:
                    return False
                await run(cleaning.build_map, window)
        await run(cleaning.plan)
        for group in cleaning.groups:
            with cleaning.pinned(group) as are_there:
                if not are_there:
                    return False
                await run(cleaning.write, group)
                is_there = directory.logs.get((log.topic, log.partition)) is log
                if not is_there or not cleaning.swap(group, self._environment.clock.wall_ms()):
                    return False
            await self._throttle(cleaning, started_ms)
        return True

    async def _throttle(self, cleaning: Cleaning, started_ms: int) -> None:
        """Keep the average rate below log.cleaner.io.max.bytes.per.second, as it is now. As in Apache Kafka, 0 means to wait until it is
        changed, and a negative rate, or NaN, is no limit."""
        moved, clock = cleaning.bytes_read + cleaning.bytes_written, self._environment.clock
        while not self._is_stopping:
            rate = self._settings.log_cleaner_io_max_bytes_per_second
            left_s = moved / rate - (clock.now_ms() - started_ms) / 1000 if rate else PAUSE_S_MAX
            if not left_s >= PAUSE_S_MIN:
                return
            # Any changed property wakes it.
            await self._sleep(min(left_s, PAUSE_S_MAX))
