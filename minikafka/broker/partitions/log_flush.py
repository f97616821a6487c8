"""What takes long for one log, beside the event loop: syncs and truncations."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from minikafka.net.tasks import to_its_end
from minikafka.storage.truncation import DROPPED_AT_ONCE

if TYPE_CHECKING:
    from minikafka.storage.log import Log
    from minikafka.storage.truncation import TruncationPreparation

#: How often a log is flushed before a roll, if others append meanwhile; then the roll syncs what is left.
SYNCS_BEFORE_ROLL = 3


async def flush(log: Log, run_blocking: Callable[..., Awaitable[Any]]) -> None:
    """Sync everything that the log has now. Raises StorageError."""
    task = log.prepare_flush()
    if task is None:
        return
    try:
        await run_blocking(task.run)
    except OSError as error:
        raise log.durability.flush_failed(task, error) from error
    except BaseException:
        task.undo()
        raise
    task.finish()


async def sync_cut(log: Log, run_blocking: Callable[..., Awaitable[Any]]) -> None:
    """Make a truncation durable; an append before that would block. Raises StorageError."""
    task = log.prepare_cut_sync()
    if task is None:
        return
    try:
        await run_blocking(task.run)
    except OSError as error:
        raise log.durability.cut_sync_failed(task, error) from error
    except BaseException:
        task.undo()
        raise
    task.finish()


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
