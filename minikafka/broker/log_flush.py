"""What takes long for one log, beside the event loop: syncs and truncations."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from minikafka.net.tasks import to_its_end
from minikafka.storage.truncation import DROPPED_AT_ONCE

if TYPE_CHECKING:
    from minikafka.storage.durability import CutSync, FlushTask
    from minikafka.storage.errors import StorageError
    from minikafka.storage.log import Log
    from minikafka.storage.truncation import TruncationPreparation

#: How often a log is flushed before a roll, if others append meanwhile; then the roll syncs what is left.
SYNCS_BEFORE_ROLL = 3


async def flush(log: Log, run_blocking: Callable[..., Awaitable[Any]]) -> None:
    """Sync everything that the log has now. Raises StorageError."""
    task = log.prepare_flush()
    if task is not None:
        await _carried_out(task, lambda error: log.durability.flush_failed(task, error), run_blocking)


async def sync_cut(log: Log, run_blocking: Callable[..., Awaitable[Any]]) -> None:
    """Make a truncation durable; an append before that would block. Raises StorageError."""
    task = log.prepare_cut_sync()
    if task is not None:
        await _carried_out(task, lambda error: log.durability.cut_sync_failed(task, error), run_blocking)


async def _carried_out(
    task: FlushTask | CutSync, failed: Callable[[OSError], StorageError], run_blocking: Callable[..., Awaitable[Any]]
) -> None:
    """Run a sync to its end, even if who waits is cancelled meanwhile: the disk says only once that it has failed, and until then the
    thread uses the files. Raises StorageError."""
    errors: list[OSError] = []
    has_run = False

    async def run() -> None:
        nonlocal has_run
        try:
            await run_blocking(task.run)
        except OSError as error:
            errors.append(error)
        has_run = True

    failure: StorageError | None = None
    try:
        await to_its_end(run())
    finally:
        if errors:
            failure = failed(errors[0])
        elif has_run:
            task.finish()
        else:
            task.undo()
    if failure is not None:
        raise failure from errors[0]


async def truncate(
    log: Log, offset: int, wall_ms: Callable[[], int], run_blocking: Callable[..., Awaitable[Any]], is_due: Callable[[], bool]
) -> bool:
    """Truncate a log to `offset`, in steps. False, perhaps after some of them, if it is not due any more. `sync_cut` makes it durable.
    Raises StorageError, ApiError(CORRUPT_MESSAGE)."""
    while is_due():
        step = log.truncation_step(offset)
        prepared = log.prepare_truncation(step, wall_ms())
        if prepared is None:
            log.truncate_to(step, wall_ms())
        else:
            try:
                await _prepare(log, prepared, run_blocking)
                if not is_due():
                    return False
                log.truncate_to(step, wall_ms(), prepared)
            finally:
                prepared.release()
        if step == offset:
            return True
        await asyncio.sleep(0)
    return False


async def truncate_fully(
    log: Log, offset: int, wall_ms: Callable[[], int], run_blocking: Callable[..., Awaitable[Any]], is_due: Callable[[], bool]
) -> bool:
    """Drop everything, in steps; the empty log starts at `offset`. Otherwise as `truncate`."""
    bases = log.segments.bases
    if len(bases) > DROPPED_AT_ONCE and not await truncate(log, bases[DROPPED_AT_ONCE - 1], wall_ms, run_blocking, is_due):
        return False
    if is_due():
        log.truncate_fully_and_start_at(offset, wall_ms())
        return True
    return False


async def _prepare(log: Log, prepared: TruncationPreparation, run_blocking: Callable[..., Awaitable[Any]]) -> None:
    """Raises StorageError."""
    with contextlib.closing(prepared.pieces()) as pieces:
        for piece in pieces:
            try:
                await to_its_end(run_blocking(piece))
            except OSError as error:
                raise log.fail("truncate the log", error) from error
