"""Long work of coordinators, done in steps so that the event loop can do other work in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from minikafka.storage.batch_scan import marker_of
from minikafka.storage.cold_reads import looking, reading
from minikafka.storage.errors import LogClosed, ResourceShortage, StorageError
from minikafka.wire.batch import iterate_batches
from minikafka.wire.errors import WireError

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from minikafka.storage.log import Log
    from minikafka.wire.batch import RecordBatch
    from minikafka.wire.record import Record

#: Records replayed in one turn of the loop, and bytes of their values; of transactions this takes some 4 ms. A transaction of 9,000
#: partitions has 36 KiB.
STEP_RECORDS = 64
STEP_VALUE_BYTES = 32 * 1024
#: Bytes read, checked and decompressed in one turn, rounded to whole batches.
STEP_BYTES = 256 * 1024

#: Larger batches are decompressed in a thread.
UNPACKED_BYTES_MAX = 64 * 1024

#: A step of long work: None when it is done, or a function to run in a thread before the next step.
Step = Callable[[], None] | None

#: Raised when a log cannot be replayed.
UNREADABLE = (StorageError, WireError)

OnRecord = Callable[["Record", int], None]
OnMarker = Callable[[int, bool], None]


def is_passing(error: object, log: Log) -> bool:
    """Whether the log may be readable soon: descriptors or memory are lacking, or the reader had the log that a move between directories
    has replaced by this one."""
    return isinstance(error, ResourceShortage) or (isinstance(error, LogClosed) and log.failure is None)


class StepQueue:
    """Runs pieces of work one after the other, one step per turn of the loop, however many partitions have work.

    A coordinator that replayed a million records, or deleted as many offsets, in one turn would be silent for longer than its session.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._waiting: deque[tuple[Iterator[Step], Callable[[], None]]] = deque()
        self._next: asyncio.Handle | None = None
        self._stopped = False

    def run(self, work: Iterator[Step], after_step: Callable[[], None]) -> None:
        """Run `work` to its end, and `after_step` after each step and at the end.

        The first step runs at once if the queue is empty. A step that yields a function runs it in a thread, while other work continues. An
        exception in the work ends it, and is raised here or in the turn of the step.
        """
        is_idle = not self._waiting
        self._waiting.append((work, after_step))
        if is_idle and self._next is None:
            self._step()

    def stop(self) -> None:
        """Drop all work."""
        self._stopped = True
        self._waiting.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _turn(self) -> None:
        self._next = None
        self._step()

    def _step(self) -> None:
        """Run one step. Even if it ends its work, the next piece of work begins in the next turn."""
        work, after_step = self._waiting[0]
        is_over = True
        try:
            for blocking in work:
                is_over = blocking is not None
                if blocking is not None:
                    self._environment.supervisor.start(self._do(blocking, work, after_step), "unpacking for coordinators")
                break
            after_step()
        finally:
            if is_over and self._waiting and self._waiting[0][0] is work:
                self._waiting.popleft()
            if self._waiting and self._next is None:
                self._next = self._environment.supervisor.call_soon("long work of coordinators", self._turn)

    async def _do(self, blocking: Callable[[], None], work: Iterator[Step], after_step: Callable[[], None]) -> None:
        await self._environment.run_blocking(blocking)
        if not self._stopped:
            self.run(work, after_step)


class _Unpacking:
    """The records of a batch that is decompressed in a thread."""

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch
        self._records: list[Record] = []
        self._error: Exception | None = None

    def unpack(self) -> None:
        """Decompress the batch. Runs in any thread."""
        try:
            self._records = list(self._batch.records())
        except Exception as error:
            self._error = error

    def records(self) -> list[Record]:
        """The records. Raises the exception of `unpack`, if any."""
        if self._error is not None:
            raise self._error
        return self._records


class CommittedReader:
    """Reads a coordinator's log from its start to the high watermark, and continues as the high watermark moves.

    `next_offset`: the offset of the next record to read; everything before it has been passed to the callbacks.
    """

    def __init__(self, log: Log, chunk_bytes: int, what: str) -> None:
        """`what` describes the read in the error of a failed disk."""
        self._log = log
        self._chunk_bytes = min(chunk_bytes, STEP_BYTES)
        self._what = what
        self.next_offset: int = log.log_start_offset
        #: Number of records read so far.
        self.records = 0

    def read(self, end_offset: int, on_record: OnRecord, on_marker: OnMarker) -> Iterator[Step]:
        """Pass on everything committed before `end_offset`, in steps, some of which may run in another thread.

        Calls `on_record(record, producer id or -1)` and `on_marker(producer id, is it a commit)`. Raises StorageError, and CorruptRecord
        for a batch that does not match its checksum."""
        due, left = self.records + STEP_RECORDS, STEP_VALUE_BYTES
        while self.next_offset < end_offset:
            data = yield from self._reading(end_offset)
            if not data:
                self.next_offset = end_offset
                break
            for batch in iterate_batches(memoryview(data)):
                batch.check()
                if batch.is_control:
                    marker = marker_of(batch)
                    if marker is not None:
                        on_marker(batch.producer_id, not marker[0])
                else:
                    producer_id = batch.producer_id if batch.is_transactional else -1
                    records: Iterable[Record]
                    if batch.is_larger_than(UNPACKED_BYTES_MAX):
                        unpacking = _Unpacking(batch)
                        yield unpacking.unpack
                        records = unpacking.records()
                    else:
                        records = batch.records()
                    for record in records:
                        self.records += 1
                        left -= 0 if record.value is None else len(record.value)
                        on_record(record, producer_id)
                        if self.records >= due or left <= 0:
                            due, left = self.records + STEP_RECORDS, STEP_VALUE_BYTES
                            yield None
                self.next_offset = batch.next_offset
            if self.next_offset < end_offset:
                yield None

    def _reading(self, end_offset: int) -> Generator[Step, None, bytes]:
        """Read a chunk. What is not in memory is read through in another thread."""
        return (yield from reading(looking(partial(self._chunk, end_offset)), attrgetter("read_through")))

    def _chunk(self, end_offset: int) -> bytes:
        result = self._log.read(max(self.next_offset, self._log.log_start_offset), self._chunk_bytes, end_offset=end_offset)
        try:
            with self._log.disk(self._what):
                return result.slice.read()
        finally:
            result.slice.release()
