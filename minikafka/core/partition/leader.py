"""The leader of one partition: high watermark, in-sync replicas, acks=all. Deterministic; sees offsets, never records.

Rules: kafka.cluster.Partition and kafka.cluster.Replica of Apache Kafka 4.3; KIP-497 (AlterPartition), KIP-841/903 (eligible replicas),
KIP-966 (no progress below min.insync.replicas), KAFKA-7128 (rejoin at the start of the leader's epoch).
"""

from __future__ import annotations

from collections.abc import Callable

from minikafka.core.partition.isr import AlterOutcome, IsrProposal, IsrState, outcome_of
from minikafka.wire.errors import ApiError, ErrorCode

UNKNOWN_OFFSET = -1
#: Beyond every offset.
ALL_COUNTS = 2**63 - 1

#: (broker id, broker epoch of its fetch) -> whether it may be in the in-sync set: alive, not shutting down, of this epoch.
Eligible = Callable[[int, int], bool]


class FollowerProgress:
    """The leader's view of one follower. Offsets are -1 until the follower has fetched in this epoch; log_end_offset is exclusive."""

    __slots__ = (
        "broker_epoch",
        "confirmed_ms",
        "last_caught_up_ms",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, last_caught_up_ms: int) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end_offset = 0
        self.last_fetch_ms = 0
        #: When the last fetch but one came. The last fetch followed its answer, so the follower followed this leader at that time.
        self.confirmed_ms = 0
        self.last_caught_up_ms = last_caught_up_ms
        self.broker_epoch = -1

    def fetched(self, offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int) -> None:
        """The follower fetched from `offset`, so it holds everything before it."""
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end_offset = leader_end_offset
        self.confirmed_ms = self.last_fetch_ms
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        """Whether it is at the end, or was there at most `lag_ms_max` ago."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_ms_max

    def behind_ms(self, leader_end_offset: int, now_ms: int) -> int | None:
        """How long the follower has been behind the end: 0 if it is at the end, None if it has not reached it under this leader."""
        if self.log_end_offset == leader_end_offset:
            return 0
        return max(now_ms - self.last_caught_up_ms, 0) if self.last_caught_up_ms else None


class PartitionLeader:
    """Leadership of one partition in one leader epoch.

    Invariants: `high_watermark` never goes back; it is at most the log end offset of every member of the maximal in-sync set; at most one
    change of the in-sync set is in flight; the leader is always a member.
    """

    __slots__ = (
        "_eligible",
        "_lag_ms_max",
        "broker_id",
        "counted_end",
        "epoch_start_offset",
        "followers",
        "gaps_refused",
        "high_watermark",
        "isr",
        "leader_epoch",
        "log_end_offset",
        "min_isr",
        "replicas",
    )

    def __init__(
        self,
        *,
        broker_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        log_end_offset: int,
        high_watermark: int,
        min_isr: int,
        lag_ms_max: int,
        eligible: Eligible,
        now_ms: int,
        counted_end: int = ALL_COUNTS,
    ) -> None:
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        #: All replicas, this broker among them; `followers` has one entry for each of the others.
        self.replicas = replicas
        self.isr = IsrState(isr, partition_epoch)
        #: The end of the leader's log. The host reports every append in the same turn of the event loop.
        self.log_end_offset = log_end_offset
        #: The leader's own records count up to this offset, the end of a batch: flush.messages asks that what follows is synced first.
        self.counted_end = counted_end
        #: Where this leadership began. A high watermark below it may be behind that of an earlier leader.
        self.epoch_start_offset = log_end_offset
        #: Ids of producers whose first gap in this epoch was refused (minikafka/core/partition/refusals.py).
        self.gaps_refused: set[int] = set()
        #: high_watermark <= log_end_offset, and it never falls.
        self.high_watermark = high_watermark
        #: min.insync.replicas, limited to the number of replicas.
        self.min_isr = min_isr
        self._lag_ms_max = lag_ms_max
        self._eligible = eligible
        # A member of the in-sync set has the full lag time to fetch from its new leader; other replicas must catch up first.
        self.followers = {replica: FollowerProgress(now_ms if replica in isr else 0) for replica in replicas if replica != broker_id}

    # -- offsets ---------------------------------------------------------------------------------------------------

    def appended(self, log_end_offset: int, now_ms: int) -> bool:
        """The leader's log grew. Returns whether the high watermark moved, which happens only without followers in sync."""
        self.log_end_offset = log_end_offset
        if not self.followers and self.min_isr <= 1 and log_end_offset <= self.counted_end:
            self.high_watermark = log_end_offset
            return True
        return len(self.isr.maximal) == 1 and self.advance(now_ms)

    def hold(self) -> None:
        """What is appended next does not count before `counts_to` says so."""
        self.counted_end = min(self.counted_end, self.log_end_offset)

    def counts_to(self, offset: int, now_ms: int) -> bool:
        """The leader's own records count up to `offset` now. Returns whether the high watermark moved."""
        self.counted_end = offset
        return self.advance(now_ms)

    def fetched(self, broker_id: int, offset: int, log_start_offset: int, broker_epoch: int, now_ms: int) -> bool:
        """A follower fetched from `offset`. Returns whether the high watermark moved.

        Raises NOT_LEADER_OR_FOLLOWER for a broker that is not a replica (its metadata is newer or older than ours), and for a fetch of
        an earlier incarnation of the broker.
        """
        follower = self.followers.get(broker_id)
        if follower is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} is not a replica of this partition")
        if -1 < broker_epoch < follower.broker_epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the fetch is of an earlier incarnation of broker {broker_id}")
        before = follower.log_end_offset
        follower.fetched(offset, log_start_offset, self.log_end_offset, broker_epoch, now_ms)
        if offset == before and broker_id in self.isr.maximal and self.high_watermark == self.log_end_offset:
            return False
        return self.advance(now_ms)

    def advance(self, now_ms: int) -> bool:
        """Recompute the high watermark; True when it moved.

        Replicas outside the in-sync set that have caught up hold it back as well. They will be proposed as members, and under load a high
        watermark that ran ahead of them would keep them out forever. When such a replica falls silent, only the time tells: the host asks
        every replica.lag.time.max.ms / 2, so that the high watermark does not wait for the next record (Apache Kafka's does).
        """
        maximal = self.isr.maximal
        if len(self.isr.committed) < self.min_isr:
            return False
        lowest = min(self.log_end_offset, self.counted_end)
        for broker_id, follower in self.followers.items():
            end = follower.log_end_offset
            if end < lowest and (
                broker_id in maximal
                or (
                    end != UNKNOWN_OFFSET
                    and now_ms - follower.last_caught_up_ms <= self._lag_ms_max
                    and self._eligible(broker_id, follower.broker_epoch)
                )
            ):
                lowest = end
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    def low_watermark(self, log_start_offset: int, alive: Callable[[int], bool]) -> int:
        """The least log start offset of the live replicas (DeleteRecords)."""
        starts = [f.log_start_offset for broker_id, f in self.followers.items() if alive(broker_id)]
        return min([log_start_offset, *starts])

    @property
    def is_high_watermark_current(self) -> bool:
        """Whether the high watermark has reached this epoch, so that ListOffsets may answer LATEST (KIP-207)."""
        return self.high_watermark >= self.epoch_start_offset

    # -- acks ------------------------------------------------------------------------------------------------------

    @property
    def is_writable(self) -> bool:
        """Whether acks=all can be satisfied now."""
        return len(self.isr.committed) >= self.min_isr

    def check_writable(self) -> None:
        """Raises NOT_ENOUGH_REPLICAS when acks=all cannot be satisfied now."""
        if not self.is_writable:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {len(self.isr.committed)} is insufficient to satisfy the min.isr requirement of"
                f" {self.min_isr}",
            )

    def is_replicated(self, required_offset: int) -> ErrorCode | None:
        """The result of an acks=all produce that needs everything before `required_offset` to be replicated; None = not yet."""
        if self.high_watermark < required_offset:
            return None
        return ErrorCode.NONE if len(self.isr.committed) >= self.min_isr else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # -- in-sync replicas ------------------------------------------------------------------------------------------

    def expansion(self, broker_id: int) -> IsrProposal | None:
        """Propose a follower that is in sync again: at the high watermark and at the start of this epoch (KAFKA-7128)."""
        follower = self.followers.get(broker_id)
        if follower is None or self.isr.pending is not None or broker_id in self.isr.maximal:
            return None
        end = follower.log_end_offset
        if end < self.high_watermark or end < self.epoch_start_offset or not self._eligible(broker_id, follower.broker_epoch):
            return None
        return self._propose((*self.isr.committed, broker_id), is_expansion=True)

    def shrinkage(self, now_ms: int) -> IsrProposal | None:
        """Propose to drop the members that have lagged for longer than replica.lag.time.max.ms."""
        if self.isr.pending is not None:
            return None
        kept = tuple(
            broker_id
            for broker_id in self.isr.committed
            if broker_id == self.broker_id or self.followers[broker_id].is_caught_up(self.log_end_offset, now_ms, self._lag_ms_max)
        )
        return self._propose(kept, is_expansion=False) if len(kept) < len(self.isr.committed) else None

    def _propose(self, isr: tuple[int, ...], *, is_expansion: bool) -> IsrProposal:
        epochs = tuple(-1 if b == self.broker_id else self.followers[b].broker_epoch for b in isr)
        proposal = IsrProposal(isr, epochs, self.leader_epoch, self.isr.partition_epoch, is_expansion)
        self.isr.propose(proposal)
        return proposal

    def committed(self, isr: tuple[int, ...], partition_epoch: int, now_ms: int, *, is_answer: bool = False) -> bool:
        """The controller has decided the in-sync set, whether or not that answers a proposal. Returns whether the high watermark moved."""
        return self.isr.commit(isr, partition_epoch, is_answer=is_answer) and self.advance(now_ms)

    def refused(self, proposal: IsrProposal, error: ErrorCode) -> AlterOutcome:
        """AlterPartition failed: revert the proposal, keep it until metadata arrive, or send it again."""
        outcome = outcome_of(error)
        if self.isr.pending is proposal and outcome is AlterOutcome.REVERT:
            self.isr.revert()
        return outcome

    def altered(
        self, proposal: IsrProposal, error: ErrorCode, isr: tuple[int, ...], partition_epoch: int, now_ms: int
    ) -> tuple[AlterOutcome, bool]:
        """The controller answered a proposal with `error`, or with the set and its epoch. Returns what this means for the proposal, and
        whether the high watermark moved."""
        if self.isr.pending is not proposal:
            return AlterOutcome.STALE, False
        if error is not ErrorCode.NONE:
            return self.refused(proposal, error), self.advance(now_ms)
        has_moved = self.committed(isr, partition_epoch, now_ms, is_answer=True)
        return (AlterOutcome.COMMITTED if self.isr.pending is not proposal else AlterOutcome.WAIT_FOR_METADATA), has_moved

    def is_confirmed(self, eligible: tuple[int, ...], since_ms: int) -> bool:
        """Whether every replica that the controller may elect followed this leader at `since_ms` or later: then no other replica led at
        that time. `eligible`: electable replicas outside the in-sync set (KIP-966)."""
        followers = self.followers
        for broker_id in (*self.isr.maximal, *eligible):
            if broker_id != self.broker_id and (broker_id not in followers or followers[broker_id].confirmed_ms < since_ms):
                return False
        return True

    def update_replicas(self, replicas: tuple[int, ...], min_isr: int, now_ms: int) -> None:
        """A reassignment or a changed min.insync.replicas."""
        self.replicas = replicas
        self.min_isr = min_isr
        for broker_id in replicas:
            if broker_id != self.broker_id and broker_id not in self.followers:
                self.followers[broker_id] = FollowerProgress(0)
        for broker_id in [b for b in self.followers if b not in replicas]:
            del self.followers[broker_id]
