"""Classic groups that become consumer groups, and consumer groups that become classic ones (KIP-848)."""

from __future__ import annotations

from minikafka.core.group.classic import ClassicGroup, GroupState
from minikafka.core.group.rebalance import Rebalancer
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.sync_group import SyncGroupResponse


class MigratingRebalancer(Rebalancer):
    """What groups of the other protocol ask of the classic ones (minikafka.core.group.consumer.migration.ClassicGroups)."""

    def freeze(self, group: ClassicGroup) -> None:
        """It is about to become a consumer group: who is parked joins again, there."""
        group.is_frozen = True
        for member in group.members.values():
            if member.awaiting_join is not None:
                waiting, member.awaiting_join = member.awaiting_join, None
                self._answer_join_error(waiting, member.awaiting_join_version, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            if member.awaiting_sync is not None:
                waiting, member.awaiting_sync = member.awaiting_sync, None
                self._answer_sync(waiting, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    def thaw(self, group: ClassicGroup, now_ms: int) -> None:
        """It stays classic. Everybody was sent away to join again."""
        group.is_frozen = False
        for member in group.members.values():
            self._schedule_session(group, member, now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            self.timers.schedule(("join", group.group_id, ""), now_ms + group.rebalance_timeout_ms)
        else:
            self._prepare(group, now_ms)

    def adopt(self, group: ClassicGroup, now_ms: int, *, is_rebalanced: bool) -> None:
        """A consumer group has become this one; `is_rebalanced`: its members have to agree upon an assignment."""
        self.restore(group, now_ms)
        if is_rebalanced:
            self._prepare(group, now_ms)
