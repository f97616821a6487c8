"""The metadata log as an image, on every node: a raft listener that publishes one delta for each committed batch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from minikafka.broker.quorum.raft_delivery import STEP_RECORDS
from minikafka.broker.quorum.raft_host import SnapshotId
from minikafka.core.metadata.delta import MetadataDelta
from minikafka.core.metadata.image import METADATA_VERSION, MetadataImage, empty_image
from minikafka.core.metadata.records import image_records
from minikafka.core.metadata.versions import NEWEST, versioned
from minikafka.net.tasks import within
from minikafka.steps import Steps, paced
from minikafka.wire.records.frame import encode_metadata_record
from minikafka.wire.records.metadata_records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord

if TYPE_CHECKING:
    from minikafka.broker.quorum.raft_host import RaftHost
    from minikafka.net.network import Clock

log = logging.getLogger("minikafka.metadata")

#: The defaults of Kafka's MetadataLogConfig.
SNAPSHOT_BYTES = 20 * 1024 * 1024
SNAPSHOT_INTERVAL_MS = 3_600_000

Subscriber = Callable[[MetadataDelta, MetadataImage], None]


class MetadataHost:
    """Holds the newest committed `image` and calls subscribers, in the order of their subscription, after each step.

    Nothing is published before this node has replayed the log up to the high watermark that the leader reported. Otherwise
    a restarting broker would act on outdated leaderships (see Kafka's MetadataLoader). The first delta therefore
    starts from the empty image. The records of a metadata transaction are held back until it ends.
    """

    def __init__(
        self,
        raft: RaftHost,
        clock: Clock | None = None,
        *,
        snapshot_bytes: int = SNAPSHOT_BYTES,
        snapshot_interval_ms: int = SNAPSHOT_INTERVAL_MS,
    ) -> None:
        """With a clock, this host writes snapshots of the metadata log: after `snapshot_bytes` of log
        (metadata.log.max.record.bytes.between.snapshots), or when the last one is `snapshot_interval_ms` old and new records
        were written since (metadata.log.max.snapshot.interval.ms; 0 = never)."""
        self.image: MetadataImage = empty_image()
        self._raft = raft
        self._subscribers: list[Subscriber] = []
        self._pending: MetadataDelta | None = None
        self._transaction: list[tuple[int, Any]] | None = None
        self._caught_up = False
        self._offset = -1
        self._clock = clock
        self._snapshot_bytes = snapshot_bytes
        self._snapshot_interval_ms = snapshot_interval_ms
        self._snapshot_log_size = 0
        self._snapshot_ms: int | None = None
        #: Steps in which a subscriber failed.
        self.apply_errors = 0
        self._behind_ms: int | None = None
        self._waiters: list[tuple[Callable[[MetadataImage], bool], asyncio.Future[None]]] = []
        raft.subscribe(self)

    @property
    def offset(self) -> int:
        """The offset up to which subscribers have seen the log, -1 before the first image. Heartbeats report it as
        CurrentMetadataOffset."""
        return self._offset if self._caught_up else -1

    @property
    def is_caught_up(self) -> bool:
        """Whether the first image has been published."""
        return self._caught_up

    def lag_ms(self, now_ms: int) -> int:
        """For how long records known to be committed have not been applied, in ms; 0 if all have been."""
        if self._offset + 1 >= self._raft.high_watermark:
            self._behind_ms = None
            return 0
        if self._behind_ms is None:
            self._behind_ms = now_ms
        return now_ms - self._behind_ms

    def subscribe(self, callback: Subscriber) -> None:
        """Call `callback(delta, image)` after each further step. It must not raise."""
        self._subscribers.append(callback)

    async def wait_until(self, condition: Callable[[MetadataImage], bool], timeout_ms: int) -> bool:
        """Wait until an image satisfies `condition`. Returns False if that does not happen within `timeout_ms`."""
        if condition(self.image):
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (condition, future)
        self._waiters.append(entry)
        try:
            await within(timeout_ms / 1000, future)
        except TimeoutError:
            return condition(self.image)
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)
        return True

    # -- raft listener ---------------------------------------------------------------------------------------------

    def on_part(self, records: list[tuple[int, Any]]) -> Steps[None] | None:
        """Replay a part of a committed batch, which is published when its end comes."""
        if self._is_long:
            return self._replaying(records)
        self._replay(records)
        return None

    def on_commit(self, base_offset: int, epoch: int, records: list[tuple[int, Any]]) -> Steps[None] | None:
        """Replay a committed batch: [(offset, record)]."""
        if self._is_long:
            return self._committing(base_offset, epoch, records)
        self._replay(records)
        self._commit(base_offset, epoch, records)
        return None

    def _committing(self, base_offset: int, epoch: int, records: list[tuple[int, Any]]) -> Steps[None]:
        yield from self._replaying(records)
        self._commit(base_offset, epoch, records)

    def _commit(self, base_offset: int, epoch: int, records: list[tuple[int, Any]]) -> None:
        self._offset = max(self._offset, records[-1][0] if records else base_offset)
        self._publish(epoch)
        if self._caught_up and self._transaction is None:
            self._maybe_write_snapshot(epoch)

    def on_snapshot(self, snapshot_id: Any, records: Iterable[Any]) -> Steps[None]:
        """Load a snapshot that replaces everything before its end offset (exclusive)."""
        end_offset, epoch = snapshot_id[0], snapshot_id[1]
        self._transaction = None
        self._pending = yield from MetadataDelta.from_snapshot_in_steps(self.image, records, end_offset - 1, epoch)
        self._offset = max(self._offset, end_offset - 1)
        self._publish(epoch)

    def on_high_watermark(self, offset: int) -> None:
        """The high watermark (exclusive) moved; all committed metadata records before it have been delivered."""
        self._offset = max(self._offset, offset - 1)
        self._publish(self._raft.leader_epoch)

    def on_leader_change(self, leader_id: int | None, epoch: int, is_self: bool) -> None:
        """Unused: the image does not depend on the leader."""

    # -- steps -----------------------------------------------------------------------------------------------------

    @property
    def _is_long(self) -> bool:
        """Whether so many records of a transaction are held that their replay at its end takes more than a step."""
        return self._transaction is not None and len(self._transaction) > STEP_RECORDS

    def _replay(self, records: list[tuple[int, Any]]) -> None:
        for offset, record in records:
            for held_offset, held_record in self._take(offset, record):
                self._delta().apply(held_record, held_offset)

    def _replaying(self, records: list[tuple[int, Any]]) -> Steps[None]:
        for offset, record in records:
            for (held_offset, held_record), is_step in paced(self._take(offset, record), STEP_RECORDS):
                self._delta().apply(held_record, held_offset)
                if is_step:
                    yield

    def _take(self, offset: int, record: Any) -> Sequence[tuple[int, Any]]:
        """Replay a record. Of a transaction that ends, the records are left to be applied."""
        kind = type(record)
        if kind is BeginTransactionRecord:
            self._transaction = []
        elif kind is EndTransactionRecord or kind is AbortTransactionRecord:
            held, self._transaction = self._transaction or [], None
            if kind is EndTransactionRecord:
                return held
        elif self._transaction is not None:
            self._transaction.append((offset, record))
        else:
            self._delta().apply(record, offset)
        return ()

    def _delta(self) -> MetadataDelta:
        if self._pending is None:
            self._pending = MetadataDelta(self.image)
        return self._pending

    def _maybe_write_snapshot(self, epoch: int) -> None:
        if self._clock is None:
            return
        size, now_ms = self._raft.metadata_log.log.size, self._clock.now_ms()
        if self._snapshot_ms is None or size < self._snapshot_log_size:
            self._snapshot_ms, self._snapshot_log_size = now_ms, min(size, self._snapshot_log_size)
        is_old = 0 < self._snapshot_interval_ms <= now_ms - self._snapshot_ms and size > self._snapshot_log_size
        if size - self._snapshot_log_size < self._snapshot_bytes and not is_old:
            return
        self._snapshot_ms, self._snapshot_log_size = now_ms, size
        level = self.image.features.get(METADATA_VERSION, NEWEST)
        records = (encode_metadata_record(*versioned(record, level)) for record in image_records(self.image))
        self._raft.write_snapshot(SnapshotId(self._offset + 1, epoch), records, self._clock.wall_ms())

    def _publish(self, epoch: int) -> None:
        if not self._caught_up:
            if self._offset + 1 < max(1, self._raft.high_watermark):
                return
            self._caught_up = True
            log.debug("the metadata log has been replayed up to offset %d", self._offset)
        delta, self._pending = self._pending, None
        if delta is None:
            return
        image = self.image = delta.image(self._offset, epoch)
        if not delta.is_empty:
            for subscriber in self._subscribers:
                try:
                    subscriber(delta, image)
                except Exception:
                    self.apply_errors += 1
                    # The other subscribers must not miss a step. Kafka's fault handler for metadata publishing only logs, too.
                    log.exception("the step to offset %d failed in %s", image.offset, subscriber)
        if self._waiters:
            for condition, future in list(self._waiters):
                if not future.done() and condition(image):
                    future.set_result(None)
