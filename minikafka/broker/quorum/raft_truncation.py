"""Truncates the metadata log, and makes that durable, beside the loop: the next append would sync it there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from minikafka.broker.log_flush import sync_cut, truncate
from minikafka.broker.quorum.raft_delivery import SHORTAGE_RETRY_S
from minikafka.storage.errors import ResourceShortage

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from minikafka.broker.quorum.raft_log import MetadataLog

logger = logging.getLogger("minikafka.raft")


class LogTruncating:
    """The truncation that the core of the quorum has asked for. The core gets no event meanwhile."""

    def __init__(
        self, environment: Environment, log: MetadataLog, on_truncated: Callable[[], None], on_failure: Callable[[BaseException], None]
    ) -> None:
        self._environment = environment
        self._log = log
        self._on_truncated = on_truncated
        self._on_failure = on_failure
        self._task: asyncio.Task[None] | None = None

    @property
    def is_going_on(self) -> bool:
        """Whether the log is being truncated."""
        return self._task is not None

    def start(self, offset: int) -> None:
        """Truncate the log to `offset`."""
        logger.info("truncating the metadata log to offset %d", offset)
        self._task = self._environment.supervisor.start(self._run(offset), "truncating the metadata log")

    async def _run(self, offset: int) -> None:
        log, run_blocking = self._log.log, self._environment.run_blocking
        try:
            while True:
                try:
                    await truncate(log, offset, self._environment.clock.wall_ms, run_blocking, lambda: True)
                    await sync_cut(log, run_blocking)
                    break
                except ResourceShortage as error:
                    logger.warning("the metadata log will be truncated later: %s", error)
                    await asyncio.sleep(SHORTAGE_RETRY_S)
        except Exception as error:
            self._on_failure(error)
        finally:
            self._task = None
        self._on_truncated()

    async def finish(self) -> None:
        """Wait for the truncation that is going on."""
        if self._task is not None:
            await asyncio.wait([self._task])
