"""Classic groups that become consumer groups, and consumer groups that become classic ones (KIP-848)."""

from __future__ import annotations

from minikafka.core.group.classic import ClassicGroup, GroupState
from minikafka.core.group.rebalance import Rebalancer
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.sync_group import SyncGroupResponse


class MigratingRebalancer(Rebalancer):
    """The operations on classic groups that a migration needs (minikafka.core.group.consumer.migration.ClassicGroups)."""

    def freeze(self, group: ClassicGroup) -> None:
        """The group is about to become a consumer group: members with parked requests must join again, as members of that group."""
        group.is_frozen = True
        for member in group.members.values():
            if member.awaiting_join is not None:
                waiting, member.awaiting_join = member.awaiting_join, None
                self._answer_join_error(waiting, member.awaiting_join_version, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            if member.awaiting_sync is not None:
                waiting, member.awaiting_sync = member.awaiting_sync, None
                self._answer_sync(waiting, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    def thaw(self, group: ClassicGroup, now_ms: int) -> None:
        """The group stays classic after all. Its members were told to join again."""
        group.is_frozen = False
        for member in group.members.values():
            self._schedule_session(group, member, now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            self.timers.schedule(("join", group.group_id, ""), now_ms + group.rebalance_timeout_ms)
        else:
            self._prepare(group, now_ms)

    def adopt(self, group: ClassicGroup, now_ms: int, *, is_rebalanced: bool) -> None:
        """A consumer group has become this classic one. `is_rebalanced`: its members need a new assignment."""
        self.restore(group, now_ms)
        if is_rebalanced:
            self._prepare(group, now_ms)
