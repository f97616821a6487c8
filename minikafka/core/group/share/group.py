"""A share group: members, epochs, targets, and which partitions have a state. Only replay changes it.

Rules: org.apache.kafka.coordinator.group.modern.share.ShareGroup of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from minikafka.core.group.consumer.member import Assignment
from minikafka.core.group.replay import Replay, apply_epoch, apply_target, apply_target_epoch
from minikafka.late_dataclass import dataclass
from minikafka.wire.records.group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)

EMPTY, STABLE = "Empty", "Stable"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member of a share group. Only replay changes it."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: int = 0
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    assigned: Assignment = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicStates:
    """A topic's name, and those of its partitions that are in some stage of their state."""

    name: str
    partitions: frozenset[int]


class ShareGroup:
    """`initializing`, `initialized`, `deleting`: topics, by id, whose partitions are getting a state, have one, or are losing it."""

    __slots__ = (
        "assignment_epoch", "assignment_wall_ms", "deleting", "epoch", "group_id", "has_states", "initialized", "initializing",
        "is_refresh_due", "members", "metadata_hash", "targets",
    )  # fmt: skip

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.assignment_epoch = 1
        self.assignment_wall_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.initializing: dict[bytes, TopicStates] = {}
        self.initialized: dict[bytes, TopicStates] = {}
        self.deleting: dict[bytes, str] = {}
        #: Whether the log has a record of these three.
        self.has_states = False
        #: Whether topics may have changed since the last refresh.
        self.is_refresh_due = True

    @property
    def state(self) -> str:
        """The name of the group's state."""
        return STABLE if self.members else EMPTY

    def members_with(self, updated: ShareMember) -> dict[str, ShareMember]:
        """The members with `updated` added or replaced."""
        return {**self.members, updated.member_id: updated}

    def subscribed_topics(self, members: Mapping[str, ShareMember] | None = None) -> frozenset[str]:
        """Names of the topics that at least one member subscribes to."""
        subscribers = self.members if members is None else members
        return frozenset[str]().union(*(member.subscribed_topic_names for member in subscribers.values()))


def _member(group: ShareGroup, key: Any, value: Any) -> None:
    if value is None:
        group.members.pop(key.member_id, None)
        return
    group.members[key.member_id] = replace(
        group.members.get(key.member_id) or ShareMember(key.member_id),
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
    )


def _current(group: ShareGroup, key: Any, value: Any) -> None:
    before = group.members.get(key.member_id)
    if value is None:
        if before is not None:
            group.members[key.member_id] = replace(before, member_epoch=-1, previous_member_epoch=-1, assigned={})
        return
    group.members[key.member_id] = replace(
        before or ShareMember(key.member_id),
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=value.state,
        assigned={topic.topic_id: frozenset(topic.partitions) for topic in value.assigned_partitions},
    )


def _states(group: ShareGroup, key: Any, value: Any) -> None:
    group.has_states = value is not None

    def topics(infos: Any) -> dict[bytes, TopicStates]:
        return {info.topic_id: TopicStates(info.topic_name, frozenset(info.partitions)) for info in infos}

    group.initializing = {} if value is None else topics(value.initializing_topics)
    group.initialized = {} if value is None else topics(value.initialized_topics)
    group.deleting = {} if value is None else {info.topic_id: info.topic_name for info in value.deleting_topics}


replay_record: Replay[ShareGroup] = Replay(
    ShareGroup,
    ShareGroupMetadataKey,
    {
        ShareGroupMetadataKey: apply_epoch,
        ShareGroupMemberMetadataKey: _member,
        ShareGroupTargetAssignmentMetadataKey: apply_target_epoch,
        ShareGroupTargetAssignmentMemberKey: apply_target,
        ShareGroupCurrentMemberAssignmentKey: _current,
        ShareGroupStatePartitionMetadataKey: _states,
    },
)
