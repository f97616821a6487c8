"""One partition on this broker: its log, and the leader core while this broker leads it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from minikafka.core.partition.leader import ALL_COUNTS, Eligible, PartitionLeader
from minikafka.late_dataclass import dataclass
from minikafka.storage.errors import StorageError
from minikafka.storage.producer_state import LAST_OFFSET, add_to_sequence
from minikafka.storage.validation import Fitting
from minikafka.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from minikafka.core.metadata.image import PartitionRegistration
    from minikafka.core.partition.isr import IsrProposal
    from minikafka.core.partition.refusals import Refusals
    from minikafka.storage.log import Log
    from minikafka.storage.log_append import BatchRun
    from minikafka.storage.producer_state import Verification
    from minikafka.storage.types import AppendInfo

logger = logging.getLogger("minikafka.replicas")
NO_EPOCH = -1
#: The traffic counters of a partition.
TRAFFIC = ("bytes_in", "bytes_out", "messages_in", "bytes_rejected", "produces", "produces_failed", "fetches", "fetches_failed")
#: Topics that only coordinators write (org.apache.kafka.common.internals.Topic).
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class PartitionEvents(Protocol):
    """Events of partitions, their fetchers and their directory moves; the broker handles each in the turn in which it happens."""

    def appended(self, partition: Partition) -> None:
        """The leader's log has grown, but its high watermark has not moved: followers' fetches may be answered."""

    def high_watermark_moved(self, partition: Partition) -> None:
        """The high watermark moved, on a leader or a follower: produces and fetches may be answered."""

    def follower_fetched(self, partition: Partition) -> None:
        """A follower has reported its log start: DeleteRecords may be answered."""

    def changed(self, partition: Partition) -> None:
        """The in-sync set, the role or the log has changed: all requests that wait for the partition must check again."""

    def replicated(self, partition: Partition, size: int) -> None:
        """`size` bytes were replicated from the leader."""

    def truncated(self, partition: Partition, records: int) -> None:
        """The log was truncated by `records` offsets; fetches may have to be answered."""

    async def cut_is_synced(self, partition: Partition) -> None:
        """A truncation is durable. Returns when nothing on disk says more of the log. Raises StorageError."""

    def sync_due(self, partition: Partition) -> None:
        """flush.messages asks for a sync before the leader's last records count."""

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """The leader asks the controller to change the in-sync set."""

    def moved(self, partition: Partition) -> None:
        """The log is now in another log directory."""


@dataclass(frozen=True, slots=True)
class LeaderRules:
    """Settings of all leaders on this broker: replica.lag.time.max.ms, and which followers may be in sync."""

    broker_id: int
    lag_ms_max: int
    is_eligible: Eligible


class Partition:
    """A replica of a partition.

    Invariant: `leader` is set exactly while this broker leads in `leader_epoch`. Only the leader's handlers or the follower's fetcher
    append to the log, never both. `appending` is `leader`, or None while produces are held for the next leader (`hold`).
    """

    __slots__ = (
        "_events",
        "_rules",
        "appending",
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_syncs",
        "fetches",
        "fetches_failed",
        "index",
        "is_internal",
        "key",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "messages_in",
        "produces",
        "produces_failed",
        "registration",
        "topic",
        "topic_id",
        "truncations",
    )

    def __init__(self, events: PartitionEvents, rules: LeaderRules, topic: str, topic_id: bytes, index: int, log: Log) -> None:
        self._events = events
        self._rules = rules
        self.topic = topic
        self.is_internal = topic in INTERNAL_TOPICS
        self.topic_id = topic_id
        self.index = index
        self.key = (topic, index)
        self.log = log
        #: The leader core while this broker leads in `leader_epoch`, else None.
        self.leader: PartitionLeader | None = None
        #: `leader`, or None while clients' records are held for the next leader.
        self.appending: PartitionLeader | None = None
        #: The leader in `leader_epoch`; -1 if there is none or it is unknown. The epoch never decreases while the replica is here.
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        #: The newest registration in the metadata; None before the first.
        self.registration: PartitionRegistration | None = None
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.bytes_rejected = 0
        #: Syncs for flush.messages that a shortage has prevented.
        self.failed_syncs = 0
        #: Requests to append, those that failed through no fault of the client, requests to read, and failed ones.
        self.produces = 0
        self.produces_failed = 0
        self.fetches = 0
        self.fetches_failed = 0
        #: Reason -> how often this replica has truncated its log.
        self.truncations: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.leader is not None

    def count_truncation(self, reason: str, records: int = 0) -> None:
        """Count a truncation by its reason (diverging_epoch, out_of_range or start_moved), and report how many offsets it removed."""
        self.truncations[reason] = self.truncations.get(reason, 0) + 1
        self._events.truncated(self, max(records, 0))

    @property
    def traffic(self) -> tuple[int, ...]:
        """The values of the counters in TRAFFIC."""
        return (
            self.bytes_in, self.bytes_out, self.messages_in, self.bytes_rejected, self.produces, self.produces_failed, self.fetches,
            self.fetches_failed,
        )  # fmt: skip

    def produced(self, requests: int, size: int, records: int) -> None:
        """Count what clients have appended; `size` in bytes."""
        self.produces += requests
        self.bytes_in += size
        self.messages_in += records

    @property
    def isr(self) -> tuple[int, ...]:
        """The committed in-sync replicas as far as this broker knows."""
        if self.leader is not None:
            return self.leader.isr.committed
        return self.registration.isr if self.registration is not None else ()

    @property
    def high_watermark(self) -> int:
        """The end offset (exclusive) of what consumers may read."""
        return self.log.watermarks.high_watermark

    # -- roles -----------------------------------------------------------------------------------------------------

    def make_leader(self, registration: PartitionRegistration, min_isr: int, now_ms: int) -> bool:
        """Lead in the registration's epoch, or apply a change within it. Returns whether the epoch is new. Raises StorageError."""
        self.registration = registration
        self.leader_id = self._rules.broker_id
        if self.leader is not None and registration.leader_epoch == self.leader_epoch:
            self.leader.update_replicas(registration.replicas, min_isr, now_ms)
            if self.leader.committed(registration.isr, registration.partition_epoch, now_ms) or self.leader.advance(now_ms):
                self.high_watermark_moved()
            else:
                self._events.changed(self)
            return False
        log = self.log
        lost = log.watermarks.lost
        if lost is not None:
            logger.error("%s: leads without the records among offsets %d to %d that were removed while the broker was down", self, *lost)
            log.accept_loss()
        log.assign_epoch_start(registration.leader_epoch, log.log_end_offset)
        self.leader_epoch = registration.leader_epoch
        self.leader = self.appending = PartitionLeader(
            broker_id=self._rules.broker_id,
            leader_epoch=registration.leader_epoch,
            partition_epoch=registration.partition_epoch,
            replicas=registration.replicas,
            isr=registration.isr,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            min_isr=min_isr,
            lag_ms_max=self._rules.lag_ms_max,
            eligible=self._rules.is_eligible,
            now_ms=now_ms,
            counted_end=log.recovery_point if log.is_sync_due else ALL_COUNTS,
        )
        if self.leader.advance(now_ms):
            self.high_watermark_moved()
        if log.is_sync_due:
            self._events.sync_due(self)
        return True

    def make_follower(self, registration: PartitionRegistration) -> bool:
        """Stop leading. Returns whether leader or epoch changed."""
        changed = self.leader is not None or registration.leader_epoch != self.leader_epoch or registration.leader != self.leader_id
        self.registration = registration
        self.leader = self.appending = None
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        return changed

    def resign(self) -> None:
        """Neither lead nor follow: the replica is removed, or the broker stops."""
        self.leader = self.appending = None
        self.leader_id = -1

    def note_lost(self, refusals: Refusals, now_ms: int) -> None:
        """This broker has lost the leadership. Record the batches above the high watermark as refused with NOT_LEADER_OR_FOLLOWER, whether
        or not the next leader has them."""
        log = self.log
        if log.log_end_offset <= log.high_watermark:
            return
        for producer_id, entry in log.producer_state.entries.items():
            lost = next((batch for batch in entry.batches if batch[LAST_OFFSET] >= log.high_watermark), None)
            if lost is not None:
                last_sequence, _, offset_delta, _ = lost
                sequence = add_to_sequence(last_sequence, -offset_delta)
                for name in (self.topic, self.topic_id):
                    key = (name, self.index, producer_id)
                    refusals.note(key, entry.epoch, sequence, ErrorCode.NOT_LEADER_OR_FOLLOWER, now_ms, is_lost=True)

    def hold(self) -> None:
        """Keep leading, but accept no records of clients. Replication and fetches go on."""
        self.appending = None

    def release(self) -> None:
        """Accept clients' records again, if this broker still leads."""
        self.appending = self.leader

    @property
    def is_held(self) -> bool:
        """Whether this broker leads but accepts no records of clients."""
        return self.leader is not None and self.appending is None

    # -- checks ----------------------------------------------------------------------------------------------------

    def check_epoch(self, epoch: int) -> None:
        """Raises FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH unless the requester's epoch is ours or -1 (KIP-320)."""
        if epoch == self.leader_epoch or epoch < 0:
            return
        if epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def leading(self) -> PartitionLeader:
        """The leader core. Raises NOT_LEADER_OR_FOLLOWER if this broker does not lead."""
        if self.leader is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.leader

    # -- appending -------------------------------------------------------------------------------------------------

    def append(
        self, records: memoryview, acks: int, wall_ms: int, now_ms: int, origin: str = "client", verification: Verification | None = None,
        fitting: Fitting = Fitting.HERE,
    ) -> AppendInfo:  # fmt: skip
        """Append as leader and wake waiting requests. A batch that begins a transaction needs a `verification`. Raises ApiError (including
        HeavyBatch); StorageError becomes KAFKA_STORAGE_ERROR."""
        leader = self.appending
        if leader is None:
            if self.leader is None or origin == "client":
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            leader = self.leader
        if acks < 0:
            leader.check_writable()
        try:
            info = self.log.append_as_leader(records, self.leader_epoch, wall_ms, origin=origin, verification=verification, fitting=fitting)
        except StorageError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if not info.is_duplicate:
            if self.log.flushes_by_count:
                self._appended(leader, info.last_offset + 1, now_ms)
            # As in `_appended`, without its call: this is every append.
            elif leader.appended(info.last_offset + 1, now_ms):
                self.high_watermark_moved()
            else:
                self._events.appended(self)
        return info

    def _appended(self, leader: PartitionLeader, end_offset: int, now_ms: int) -> None:
        is_sync_due = self.log.is_sync_due
        if is_sync_due:
            leader.hold()
        if leader.appended(end_offset, now_ms):
            self.high_watermark_moved()
        else:
            self._events.appended(self)
        if is_sync_due:
            self._events.sync_due(self)

    def count_synced(self, now_ms: int) -> None:
        """Let those records of the leader count that flush.messages allows: some were synced, or the configuration changed. If it asks for
        another sync, that begins."""
        leader, log = self.leader, self.log
        if leader is None or log.failure is not None:
            return
        is_sync_due = log.is_sync_due
        if leader.counts_to(log.recovery_point if is_sync_due else ALL_COUNTS, now_ms):
            self.high_watermark_moved()
        if is_sync_due:
            self._events.sync_due(self)

    def append_run(self, run: BatchRun, now_ms: int) -> bool:
        """Append the batches of a run as leader and wake waiting requests once. False, with nothing appended, if they must be appended one
        by one; an error then shows again."""
        leader = self.appending
        try:
            if leader is None or not self.log.append_run(run, self.leader_epoch):
                return False
        except StorageError:
            return False
        self._appended(leader, run.end_offset, now_ms)
        return True

    def follower_fetched(self, broker_id: int, offset: int, log_start_offset: int, broker_epoch: int, now_ms: int) -> None:
        """Record a follower's position. This may advance the high watermark and propose the follower as in sync. Raises ApiError."""
        leader = self.leading()
        if leader.fetched(broker_id, offset, log_start_offset, broker_epoch, now_ms):
            self.high_watermark_moved()
        # A follower with an old checkpoint may still have deleted records, and would bring them back if it became leader.
        if broker_id not in leader.isr.maximal and (log_start_offset < 0 or log_start_offset >= self.log.log_start_offset):
            proposal = leader.expansion(broker_id)
            if proposal is not None:
                self._events.propose(self, proposal)
        self._events.follower_fetched(self)

    def high_watermark_moved(self) -> None:
        """Store the leader core's high watermark and report the change."""
        leader = self.leader
        assert leader is not None
        self.log.update_high_watermark(leader.high_watermark)
        self._events.high_watermark_moved(self)
