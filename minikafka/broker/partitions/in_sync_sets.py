"""Changes of the in-sync sets of partitions that this broker leads: sends proposals, applies answers, logs changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from minikafka.broker.partitions.alter_partition import AlterPartitionManager
from minikafka.core.partition.isr import AlterOutcome, IsrProposal
from minikafka.steps import Steps, paced
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.partitions.partition import Partition, PartitionEvents
    from minikafka.core.metadata.image import PartitionRegistration

logger = logging.getLogger("minikafka.replicas")
ALTER_RETRY_S = 0.05


class InSyncSets:
    """Sends the leader cores' proposals to the controller, and returns its answers to them."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        environment: Environment,
        controller: ControllerChannel,
        events: PartitionEvents,
        lag_ms_max: int,
    ) -> None:
        self._clock = environment.clock
        self._supervisor, self._shares = environment.supervisor, environment.shares
        self._events = events
        self._lag_ms_max = lag_ms_max
        self._alter = AlterPartitionManager(broker_id, broker_epoch, controller, self._answered, environment.supervisor)
        self._is_stopping = False
        self._looking: asyncio.Task[None] | None = None
        #: How often in-sync sets have shrunk and expanded, and how often proposals were refused.
        self.shrinks = 0
        self.expands = 0
        self.refusals = 0

    async def stop(self) -> None:
        """Stop proposing."""
        self._is_stopping = True
        if self._looking is not None:
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._alter.stop()

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Ask the controller for a change of the in-sync set."""
        self._alter.submit(partition, proposal)

    def look(self, partitions: Iterable[Partition]) -> None:
        """`shrinking` for all of these, some in a turn of the loop, unless the last look is still under way."""
        if self._looking is None or self._looking.done():
            steps = self.shrinking(list(partitions))
            if not self._shares.take_some(steps):
                self._looking = self._supervisor.start(self._shares.take(steps), "looking at the in-sync sets")

    def shrinking(self, partitions: Iterable[Partition]) -> Steps[None]:
        """Propose to remove the replicas that have lagged too long. Let high watermarks go on that waited for others, which have lagged as
        long without being in sync."""
        now_ms = self._clock.now_ms()
        for partition, is_step in paced(partitions):
            if is_step:
                yield
                now_ms = self._clock.now_ms()
                if self._is_stopping:
                    return
            leader = partition.leader
            if leader is None:
                continue
            if leader.high_watermark < leader.log_end_offset and leader.advance(now_ms):
                partition.high_watermark_moved()
                leader = partition.leader
            proposal = None if leader is None else leader.shrinkage(now_ms)
            if proposal is not None:
                logger.info(
                    "%s: in epoch %d proposing in-sync replicas %s, because the others have not caught up for %d ms",
                    partition, partition.leader_epoch, list(proposal.isr), self._lag_ms_max,
                )  # fmt: skip
                self.propose(partition, proposal)

    def registered(self, partition: Partition, registration: PartitionRegistration) -> None:
        """Compare a registration in the metadata with the leader's state. Call this before the leader takes the registration over."""
        if partition.leader is None or registration.leader_epoch != partition.leader_epoch:
            return
        isr = partition.leader.isr
        if registration.partition_epoch > isr.partition_epoch:
            is_asked = isr.pending is not None and set(isr.pending.isr) == set(registration.isr)
            why = "as this leader asked" if is_asked else "by the controller's decision"
            self._note(partition, isr.committed, registration.isr, registration.partition_epoch, why)

    def _answered(self, partition: Partition, proposal: IsrProposal, error: ErrorCode, isr: tuple[int, ...], partition_epoch: int) -> None:
        leader = partition.leader
        if leader is None:
            return
        before = leader.isr.committed
        outcome, has_moved = leader.altered(proposal, error, isr, partition_epoch, self._clock.now_ms())
        if has_moved:
            partition.high_watermark_moved()
        if outcome is AlterOutcome.COMMITTED:
            self._note(partition, before, isr, partition_epoch, "as this leader asked")
            if not has_moved:
                self._events.changed(partition)
        elif outcome is not AlterOutcome.STALE and error is not ErrorCode.NONE:
            self.refusals += 1
            logger.info(
                "%s: in epoch %d the controller rejected the in-sync replicas %s: %s (%s)",
                partition, partition.leader_epoch, list(proposal.isr), error.name, outcome.value,
            )  # fmt: skip
            if outcome is AlterOutcome.RETRY:
                self._supervisor.call_later(ALTER_RETRY_S, "proposing in-sync replicas", self._propose_again, partition, proposal)

    def _propose_again(self, partition: Partition, proposal: IsrProposal) -> None:
        if not self._is_stopping and partition.leader is not None and partition.leader.isr.pending is proposal:
            self._alter.submit(partition, proposal)

    def _note(self, partition: Partition, before: tuple[int, ...], now: tuple[int, ...], partition_epoch: int, why: str) -> None:
        """Log a change of the set once, whether the controller's answer or the metadata bring it first."""
        if set(before) == set(now):
            return
        self.expands += bool(set(now) - set(before))
        self.shrinks += bool(set(before) - set(now))
        logger.info(
            "%s: in epoch %d the in-sync replicas are %s after %s, %s (partition epoch %d)",
            partition, partition.leader_epoch, list(now), list(before), why, partition_epoch,
        )  # fmt: skip
