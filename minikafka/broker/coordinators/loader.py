"""Long work of coordinators, in steps between which the event loop does its other work."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from minikafka.storage.batch_scan import marker_of
from minikafka.storage.errors import StorageError
from minikafka.wire.batch import iterate_batches
from minikafka.wire.errors import WireError

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from minikafka.storage.log import Log
    from minikafka.wire.batch import RecordBatch
    from minikafka.wire.record import Record

#: Records that are replayed in one turn of the loop: some milliseconds.
STEP_RECORDS = 200
#: Bytes that are read, checked and unpacked in one turn, give or take a batch.
STEP_BYTES = 256 * 1024

#: Records of a batch that take more are unpacked beside the loop.
UNPACKED_BYTES_MAX = 64 * 1024

#: A step of long work: over, or to be done beside the loop before the next one.
Step = Callable[[], None] | None

#: What a log that cannot be replayed raises.
UNREADABLE = (StorageError, WireError)
_OVER = object()

OnRecord = Callable[["Record", int], None]
OnMarker = Callable[[int, bool], None]


class StepQueue:
    """Runs pieces of work one after the other, a step in each turn of the loop, however many partitions want one.

    A coordinator that replays a million records, or deletes as many offsets, in one turn is silent for longer than its session.
    """

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._waiting: deque[tuple[Iterator[Step], Callable[[], None]]] = deque()
        self._next: asyncio.Handle | None = None
        self._stopped = False

    def run(self, work: Iterator[Step], after_step: Callable[[], None]) -> None:
        """Take `work` to its end, `after_step` after each step and the end; the first step at once, if nobody else waits. What raises in
        it is raised here, or in the turn, and ends the work. A step may be a function that is called beside the loop; others go on
        meanwhile."""
        is_idle = not self._waiting
        self._waiting.append((work, after_step))
        if is_idle and self._next is None:
            self._step()

    def stop(self) -> None:
        """Forget all work."""
        self._stopped = True
        self._waiting.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _turn(self) -> None:
        self._next = None
        self._step()

    def _step(self) -> None:
        """Work that ends within its first step makes room for the next only in the next turn."""
        work, after_step = self._waiting[0]
        is_over = True
        try:
            for beside in work:
                is_over = beside is not None
                if beside is not None:
                    self._environment.supervisor.start(self._do(beside, work, after_step), "unpacking for coordinators")
                break
            after_step()
        finally:
            if is_over and self._waiting and self._waiting[0][0] is work:
                self._waiting.popleft()
            if self._waiting and self._next is None:
                self._next = self._environment.supervisor.call_soon("long work of coordinators", self._turn)

    async def _do(self, beside: Callable[[], None], work: Iterator[Step], after_step: Callable[[], None]) -> None:
        await self._environment.run_blocking(beside)
        if not self._stopped:
            self.run(work, after_step)


class _Unpacking:
    """The records of a batch, unpacked somewhere else."""

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch
        self._records: list[Record] = []
        self._error: Exception | None = None

    def unpack(self) -> None:
        """(In any thread.)"""
        try:
            self._records = list(self._batch.records())
        except Exception as error:
            self._error = error

    def records(self) -> list[Record]:
        """Them. Raises what unpacking has raised."""
        if self._error is not None:
            raise self._error
        return self._records


class CommittedReader:
    """Reads a coordinator's log from its start up to the high watermark, and on from there as it moves.

    `next_offset`: everything before has been handed on.
    """

    def __init__(self, log: Log, chunk_bytes: int, what: str) -> None:
        """`what` is read, for the error of a disk that fails."""
        self._log = log
        self._chunk_bytes = min(chunk_bytes, STEP_BYTES)
        self._what = what
        self.next_offset: int = log.log_start_offset
        #: Records that were read.
        self.records = 0

    def read(self, end_offset: int, on_record: OnRecord, on_marker: OnMarker) -> Iterator[Step]:
        """Hand on what is committed before `end_offset`, in steps, of which some may be done in another thread.

        `on_record(record, producer id or -1)` and `on_marker(producer id, is it a commit)` are called. Raises StorageError; CorruptRecord
        for a batch that is not what its checksum says."""
        due = self.records + STEP_RECORDS
        while self.next_offset < end_offset:
            result = self._log.read(max(self.next_offset, self._log.log_start_offset), self._chunk_bytes, end_offset=end_offset)
            with self._log.disk(self._what):
                data = result.slice.read() if result is not None else b""
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
                        on_record(record, producer_id)
                        if self.records >= due:
                            due = self.records + STEP_RECORDS
                            yield None
                self.next_offset = batch.next_offset
            if self.next_offset < end_offset:
                yield None
