"""Converting a classic group with members to a consumer group, and back (KIP-848).

Rules: ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup and GroupMetadataManager.validateOnlineUpgrade and
validateOnlineDowngrade* of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from minikafka.core.coordinator.shard import CoordinatorRecord
from minikafka.core.group.classic import GROUP_METADATA_VALUE_VERSION, ClassicGroup, GroupState
from minikafka.core.group.config import Client
from minikafka.core.group.consumer.embedded import assignment_bytes, assignment_of, by_topic_id, subscription_of
from minikafka.core.group.consumer.group import ConsumerGroup
from minikafka.core.group.consumer.member import Assignment, ConsumerMember
from minikafka.core.group.consumer.policy import MigrationPolicy
from minikafka.core.group.consumer.records import (
    Records,
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    target_epoch_record,
    target_record,
)
from minikafka.core.group.consumer.topics import TopicHashes, Topics
from minikafka.core.group.effects import Reply
from minikafka.core.group.member import Member
from minikafka.wire.errors import ApiError, ErrorCode, WireError
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.leave_group import LeaveGroupRequest
from minikafka.wire.records.group_records import ConsumerGroupMemberMetadataValue

#: The protocol type of consumers, as JoinGroup names it.
PROTOCOL_TYPE = "consumer"
ClassicMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
ClassicProtocol = ConsumerGroupMemberMetadataValue.ClassicProtocol


class ClassicGroups(Protocol):
    """The classic groups of the shard."""

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """Groups by id."""

    def freeze(self, group: ClassicGroup) -> None:
        """The group is about to become a consumer group: it changes no more, and members with parked requests must join again."""

    def thaw(self, group: ClassicGroup, now_ms: int) -> None:
        """The conversion failed: the group stays classic."""

    def adopt(self, group: ClassicGroup, now_ms: int, *, is_rebalanced: bool) -> None:
        """A consumer group has become this classic one. `is_rebalanced`: its members need a new assignment."""

    def join(self, reply: Reply, request: JoinGroupRequest, client: Client, now_ms: int) -> None:
        """JoinGroup of a classic group."""

    def answer_leave(self, reply: Reply, request: LeaveGroupRequest, version: int, now_ms: int) -> None:
        """LeaveGroup of a classic group."""


# -- from classic to consumer ----------------------------------------------------------------------------------------------


def upgrade_records(group: ClassicGroup, policy: MigrationPolicy, size_max: int, topics: Topics, hashes: TopicHashes) -> Records:
    """Records that convert a classic group with its members to a consumer group. Raises GROUP_ID_NOT_FOUND."""
    if not policy.may_upgrade:
        raise _refused(group, "online upgrade is disabled")
    if group.protocol_type != PROTOCOL_TYPE:
        raise _refused(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > size_max:
        raise _refused(group, "the group size exceeds the consumer group maximum size")
    try:
        members = [_consumer_member(group, member, topics) for member in group.members.values()]
    except WireError:
        raise _refused(group, "the embedded consumer protocol is malformed") from None
    names = frozenset[str]().union(*(member.subscribed_topic_names for member in members))
    group_id, epoch = group.group_id, group.generation_id
    return [
        CoordinatorRecord(group.key(), None),
        *(member_record(group_id, member) for member in members),
        epoch_record(group_id, epoch, hashes.of(names)),
        *(target_record(group_id, member.member_id, _target(member)) for member in members),
        target_epoch_record(group_id, epoch, 0),
        *(current_record(group_id, member) for member in members),
    ]


def _refused(group: ClassicGroup, why: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group.group_id} to consumer group because {why}.")


def _consumer_member(group: ClassicGroup, member: Member, topics: Topics) -> ConsumerMember:
    """A member with its last assignment. Raises WireError, GROUP_ID_NOT_FOUND."""
    assignment = assignment_of(member.assignment)
    if assignment.user_data:
        why = (
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor before"
            " re-attempting the upgrade"
        )
        raise _refused(group, why)
    # A group without a protocol is in its first rebalance.
    name = group.protocol_name if group.protocol_name is not None else group.select_protocol()
    subscription = subscription_of(member.metadata_for(name))
    partitions = by_topic_id(assignment.assigned_partitions, topics)
    return ConsumerMember(
        member_id=member.member_id,
        member_epoch=group.generation_id,
        previous_member_epoch=group.generation_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned={topic_id: dict.fromkeys(found, group.generation_id) for topic_id, found in partitions.items()},
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
    )


def classic_metadata(session_timeout_ms: int, protocols: list[tuple[str, bytes]]) -> ClassicMetadata:
    """The part of a member's JoinGroup that the group keeps."""
    return ClassicMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in protocols],
    )


def _target(member: ConsumerMember) -> Assignment:
    return {topic_id: frozenset(epochs) for topic_id, epochs in member.assigned.items()}


# -- from consumer to classic ----------------------------------------------------------------------------------------------


def may_downgrade(group: ConsumerGroup, gone: Collection[str], policy: MigrationPolicy) -> bool:
    """Whether the group becomes classic when these members leave, because no other member uses the consumer protocol."""
    left = [member for member_id, member in group.members.items() if member_id not in gone]
    return bool(left) and policy.may_downgrade and len(left) <= policy.classic_size_max and all(member.is_classic for member in left)


def may_downgrade_replacing(group: ConsumerGroup, replaced: ConsumerMember, policy: MigrationPolicy) -> bool:
    """Whether the group becomes classic when a classic member replaces this static member."""
    others = [member for member_id, member in group.members.items() if member_id != replaced.member_id]
    fits = policy.may_downgrade and len(group.members) <= policy.classic_size_max
    return fits and not replaced.is_classic and all(member.is_classic for member in others)


def downgraded_group(
    group: ConsumerGroup, gone: Collection[str], joining: ConsumerMember | None, topics: Topics, wall_ms: int
) -> ClassicGroup:
    """The classic group. Remaining members keep their targets. `joining` replaces the member with its instance id. Raises
    GROUP_ID_NOT_FOUND for a member whose protocol cannot be parsed."""
    classic = ClassicGroup(group.group_id, wall_ms)
    classic.state = GroupState.STABLE
    classic.generation_id = group.epoch
    replaced = None if joining is None else group.static_member(joining.instance_id)
    for member_id, member in group.members.items():
        if member_id not in gone and member is not replaced:
            classic.add(_classic_member(member))
    if joining is not None:
        classic.add(_classic_member(joining))
    classic.protocol_name = classic.select_protocol()
    try:
        for member_id, left in classic.members.items():
            is_joining = joining is not None and replaced is not None and member_id == joining.member_id
            target = group.targets.get(replaced.member_id if is_joining and replaced is not None else member_id, {})
            left.assignment = assignment_bytes(left.metadata_for(classic.protocol_name), target, topics)
    except WireError as error:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot downgrade the classic group {group.group_id}: {error}.") from None
    return classic


def _classic_member(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=PROTOCOL_TYPE,
        protocols=[(protocol.name, protocol.metadata) for protocol in member.classic.supported_protocols],
    )


def downgrade_records(group: ConsumerGroup, classic: ClassicGroup, joining: ConsumerMember | None = None) -> Records:
    """Records that end the consumer group and create the classic one. The records of a member that `joining` has replaced are deleted
    already; its own exist."""
    replaced = None if joining is None else group.static_member(joining.instance_id)
    members = [
        joining.member_id if joining is not None and replaced is not None and member_id == replaced.member_id else member_id
        for member_id in group.members
    ]
    return [*group_tombstones(group, members), CoordinatorRecord(classic.key(), classic.value(), GROUP_METADATA_VALUE_VERSION)]
