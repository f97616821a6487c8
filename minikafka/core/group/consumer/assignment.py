"""Targets of large groups, computed and written in steps, between which the event loop does its other work.

Meanwhile members keep reconciling towards their current targets. Apache Kafka does this in a separate executor (KIP-1263). If the group
changes during the computation, the result belongs to the epoch in which it began, and the next heartbeat begins another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from minikafka.core.coordinator.shard import Append, CoordinatorRecord
from minikafka.core.group.consumer.records import Records
from minikafka.core.group.consumer.turns import Turns
from minikafka.core.group.effects import Effects
from minikafka.steps import Steps
from minikafka.wire.errors import ErrorCode

#: Target records in one batch: a few milliseconds to write.
BATCH_RECORDS_MAX = 200


class AssignedGroup(Protocol):
    """A group of any protocol with server-side assignment."""

    group_id: str
    epoch: int
    assignment_epoch: int

    @property
    def members(self) -> Mapping[str, Any]:
        """Members by member id."""

    @property
    def static_members(self) -> Mapping[str, str]:
        """Member ids by instance id."""

    @property
    def targets(self) -> Mapping[str, Any]:
        """Each member's target assignment."""


GroupKind = TypeVar("GroupKind", bound=AssignedGroup)
RuleFor_contra = TypeVar("RuleFor_contra", bound=AssignedGroup, contravariant=True)
Target = TypeVar("Target")


class TargetRule(Protocol[RuleFor_contra, Target]):
    """How targets are computed and recorded for one group type."""

    def is_early(self, group: RuleFor_contra, wall_ms: int) -> bool:
        """Whether the last assignment is too recent for another one."""

    def steps(self, group: RuleFor_contra) -> Steps[dict[str, Target]]:
        """Compute the target of each member."""

    @property
    def target_record(self) -> Callable[[str, str, Target], CoordinatorRecord]:
        """Function (group id, member id, target): the record of a member's target."""

    @property
    def epoch_record(self) -> Callable[[str, int, int], CoordinatorRecord]:
        """Function (group id, epoch, wall ms): the record of the epoch of all targets."""


class Assignments(Generic[GroupKind, Target]):
    """The assignments in progress, at most one per group."""

    def __init__(
        self, groups: dict[str, GroupKind], turns: Turns, rule: TargetRule[GroupKind, Target], effects: Callable[[], Effects]
    ) -> None:
        self._groups = groups
        self._turns = turns
        self._rule = rule
        self._effects = effects
        self._running: set[str] = set()

    def start_if_due(self, group_id: str, now_ms: int, wall_ms: int) -> None:
        """Begin an assignment if the group's targets belong to an older epoch and the last assignment is not too recent."""
        group = self._groups.get(group_id)
        if group is None or not group.members or group.assignment_epoch >= group.epoch or group_id in self._running:
            return
        if not self._rule.is_early(group, wall_ms):
            self._running.add(group_id)
            self._effects().work.append(self._steps(group, now_ms, wall_ms))

    def _steps(self, group: GroupKind, now_ms: int, wall_ms: int) -> Iterator[None]:
        epoch, instances = group.epoch, dict(group.static_members)
        targets = yield from self._rule.steps(group)

        def work(at_ms: int) -> bool:
            current = self._groups.get(group.group_id)
            if current is not group or group.assignment_epoch >= epoch:
                self._running.discard(group.group_id)
                return False
            self._effects().work.append(self._write(group, epoch, _of_present(group, targets, instances), wall_ms))
            return True

        self._turns.run(group.group_id, work, None, now_ms)

    def _write(self, group: GroupKind, epoch: int, targets: dict[str, Target], wall_ms: int) -> Iterator[None]:
        """Write the targets. The group stays busy until everything is settled. The epoch of the targets is written last: without it, the
        targets are computed again."""
        batch: Records = []
        writing = _Writing(lambda at_ms: self._end(group.group_id, at_ms), lambda at_ms: self._turns.stalled(group.group_id, at_ms))
        for member_id, target in targets.items():
            if group.targets.get(member_id) != target:
                batch.append(self._rule.target_record(group.group_id, member_id, target))
            if len(batch) >= BATCH_RECORDS_MAX:
                self._effects().appends.append(writing.append(batch))
                batch = []
                yield
                if writing.has_failed:
                    break
        is_whole = not writing.has_failed
        last = [*batch, self._rule.epoch_record(group.group_id, epoch, wall_ms)] if is_whole else []
        if last:
            self._effects().appends.append(writing.append(last))
        writing.close()

    def _end(self, group_id: str, now_ms: int) -> None:
        self._running.discard(group_id)
        self._turns.settled(group_id, now_ms)


class _Writing:
    """Batches that are being written. `ended(now_ms)` is called once, when no more batches come and the outcome of each is known."""

    def __init__(self, ended: Callable[[int], None], stalled: Callable[[int], None]) -> None:
        self._ended = ended
        self._stalled = stalled
        self._open = 0
        self._is_closed = False
        self._now_ms = 0
        self.has_failed = False

    def append(self, records: Records) -> Append:
        """The effect that writes one more batch."""
        self._open += 1
        return Append(records, self._done, None, self._settled)

    def close(self) -> None:
        """No more batches come."""
        self._is_closed = True
        self._end_if_over()

    def _done(self, error: ErrorCode, now_ms: int) -> None:
        if error is ErrorCode.REQUEST_TIMED_OUT:
            self._stalled(now_ms)

    def _settled(self, is_written: bool, now_ms: int) -> None:
        self._open -= 1
        self._now_ms = now_ms
        self.has_failed = self.has_failed or not is_written
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._is_closed and not self._open:
            self._ended(self._now_ms)


def _of_present(group: AssignedGroup, targets: dict[str, Target], instances: dict[str, str]) -> dict[str, Target]:
    """The targets of current members. A static member that has rejoined gets the target of its earlier member id."""
    successors = {
        old_id: group.static_members[instance_id]
        for instance_id, old_id in instances.items()
        if instance_id in group.static_members and old_id not in group.members
    }
    found = {successors.get(member_id, member_id): target for member_id, target in targets.items()}
    return {member_id: target for member_id, target in found.items() if member_id in group.members}
