"""Snapshots of the metadata log: writes this node's in a thread, and installs a leader's in steps. Those of a large cluster take long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from minikafka.broker.quorum.raft_delivery import SHORTAGE_RETRY_S, Delivery, SnapshotId
from minikafka.core.raft.types import OffsetAndEpoch
from minikafka.storage.errors import ResourceShortage, StorageError

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from minikafka.broker.quorum.raft_log import MetadataLog
    from minikafka.broker.quorum.snapshots import SnapshotContent
    from minikafka.core.raft.quorum import Quorum

logger = logging.getLogger("minikafka.raft")


class SnapshotWriting:
    """At most one snapshot is being written; one that is due meanwhile is left out."""

    def __init__(
        self,
        environment: Environment,
        log: MetadataLog,
        on_written: Callable[[OffsetAndEpoch], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._environment = environment
        self._log = log
        self._on_written = on_written
        self._on_failure = on_failure
        self._task: asyncio.Task[None] | None = None

    def start(self, snapshot: OffsetAndEpoch, records: Iterable[Any], last_timestamp_ms: int, quorum: Quorum) -> None:
        """Write a snapshot of these records, which must not change. Raises ValueError if the log cannot have it."""
        if not quorum.log.start_offset <= snapshot.offset <= quorum.high_watermark:
            raise ValueError(f"a snapshot at {snapshot.offset} is not within the committed log up to {quorum.high_watermark}")
        if self._task is None and snapshot not in quorum.log.snapshots:
            write = self._log.snapshot_writer(snapshot, records, last_timestamp_ms, quorum.history)
            self._task = self._environment.supervisor.start(self._run(snapshot, write), "a snapshot of the metadata log")

    async def _run(self, snapshot: OffsetAndEpoch, write: Callable[[], object]) -> None:
        try:
            try:
                await self._environment.run_blocking(write)
            except OSError as error:
                raise self._log.snapshot_failed(error) from error
            self._log.snapshot_written(snapshot)
            self._on_written(snapshot)
        except ResourceShortage as error:
            logger.warning("skipped the snapshot at offset %d; the next one comes later: %s", snapshot.offset, error)
        except StorageError as error:
            self._on_failure(error)
        finally:
            self._task = None

    async def finish(self) -> None:
        """Wait for the snapshot that is being written."""
        if self._task is not None:
            await asyncio.wait([self._task])


class SnapshotInstalling:
    """Installs a fetched snapshot. The core of the quorum gets no event meanwhile."""

    def __init__(
        self,
        environment: Environment,
        log: MetadataLog,
        delivery: Delivery,
        on_installed: Callable[[OffsetAndEpoch, SnapshotContent | None], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_installed` is called with None for an invalid snapshot."""
        self._environment = environment
        self._log = log
        self._delivery = delivery
        self._on_installed = on_installed
        self._on_failure = on_failure
        self._task: asyncio.Task[None] | None = None

    @property
    def is_going_on(self) -> bool:
        """Whether a snapshot is being installed."""
        return self._task is not None

    def start(self, snapshot: OffsetAndEpoch) -> None:
        """Install a snapshot."""
        self._task = self._environment.supervisor.start(self._run(snapshot), "installing a snapshot of the metadata log")

    async def _run(self, snapshot: OffsetAndEpoch) -> None:
        content: SnapshotContent | None = None
        try:
            while True:
                try:
                    content = await self._install(snapshot)
                    break
                except ResourceShortage as error:
                    logger.warning("a fetched snapshot will be installed later: %s", error)
                    await asyncio.sleep(SHORTAGE_RETRY_S)
            if content is not None:
                await self._delivery.in_turns(self._delivery.install(SnapshotId(snapshot.offset, snapshot.epoch), content.records))
        except Exception as error:
            self._on_failure(error)
        finally:
            self._task = None
        self._on_installed(snapshot, content)

    async def _install(self, snapshot: OffsetAndEpoch) -> SnapshotContent | None:
        try:
            await self._environment.run_blocking(self._log.sync_fetched)
        except OSError as error:
            raise self._log.snapshot_failed(error) from error
        return await self._delivery.in_turns(self._log.install_fetched(snapshot))

    async def finish(self) -> None:
        """Wait for the snapshot that is being installed."""
        if self._task is not None:
            await asyncio.wait([self._task])
