"""Syncing one log beside the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.storage.log import Log

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
