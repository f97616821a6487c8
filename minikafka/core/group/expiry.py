"""Which offsets groups still need, and how groups without offsets end (KIP-211)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from minikafka.core.coordinator.shard import CoordinatorRecord
from minikafka.core.group.classic import ClassicGroup, GroupState
from minikafka.core.group.consumer.coordinator import ConsumerGroups
from minikafka.core.group.consumer.group import EMPTY
from minikafka.core.group.consumer.records import group_tombstones
from minikafka.core.group.streams.coordinator import StreamsGroups
from minikafka.core.group.streams.records import group_tombstones as streams_tombstones
from minikafka.core.group.subscriptions import subscribed_topics

#: What a group takes besides its members, in looks at an offset.
GROUP_LOOKS = 3


class ExpiringGroups:
    """The groups of a shard that have offsets, of all protocols."""

    def __init__(self, classic: Mapping[str, ClassicGroup], consumers: ConsumerGroups, streams: StreamsGroups) -> None:
        self._classic = classic
        self._consumers = consumers
        self._streams = streams

    def ids(self) -> list[str]:
        """The ids of all these groups."""
        return [*self._classic, *self._consumers.groups, *self._streams.groups]

    def looks(self, group_id: str) -> int:
        """The work of `needs`, in looks at an offset: the subscription of each member of a classic group is read."""
        classic = self._classic.get(group_id)
        return GROUP_LOOKS if classic is None else GROUP_LOOKS + len(classic.members)

    def needs(self, group_id: str) -> tuple[int, Collection[str]] | None:
        """Since when the group is not in use (wall ms; 0: the time of each commit counts) and the topics whose offsets stay. None if all
        offsets stay."""
        others = self._consumers.groups.get(group_id) or self._streams.groups.get(group_id)
        if others is not None:
            return 0, others.subscribed_topics()
        group = self._classic.get(group_id)
        if group is None:
            return None
        is_consumer = group.protocol_type == "consumer"
        if group.state is GroupState.EMPTY:
            return group.state_since_wall_ms if group.protocol_type else 0, ()
        subscribed = subscribed_topics(group) if group.state is GroupState.STABLE and is_consumer else None
        return None if subscribed is None else (0, subscribed)

    def end(self, group_id: str) -> list[CoordinatorRecord]:
        """Tombstones that end an empty group; an empty list if it is in use."""
        consumers = self._consumers.groups.get(group_id)
        if consumers is not None:
            is_idle = consumers.state == EMPTY and not self._consumers.is_busy(group_id)
            return group_tombstones(consumers) if is_idle else []
        streams = self._streams.groups.get(group_id)
        if streams is not None:
            return [] if streams.members or self._streams.is_busy(group_id) else streams_tombstones(streams)
        group = self._classic.get(group_id)
        is_over = group is not None and group.state is GroupState.EMPTY and not group.pending_members
        return [CoordinatorRecord(group.key(), None)] if group is not None and is_over else []
