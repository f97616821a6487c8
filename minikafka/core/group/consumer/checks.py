"""Checks of consumers' requests, with the errors and messages of Apache Kafka 4.3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from minikafka.core.group.consumer.group import ConsumerGroup
from minikafka.core.group.consumer.member import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, Assignment, AssignmentEpochs, ConsumerMember
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

#: From this version on, consumers generate their member ids themselves (KIP-1082).
MEMBER_ID_REQUIRED_VERSION = 1
#: From this version on, an OffsetCommit carries a member epoch.
MEMBER_EPOCH_VERSION = 9
#: Resolves a committed topic: name and id, or None when the cluster does not have the partition.
TopicResolver = Callable[[str, bytes, int], "tuple[str, bytes] | ErrorCode"]
#: (topic, topic id, partition) -> whether its offset may be committed.
CommitCheck = Callable[[str, bytes, int], ErrorCode]


class Member(Protocol):
    """A member of a group with server-side assignment."""

    @property
    def member_id(self) -> str:
        """Its id."""

    @property
    def member_epoch(self) -> int:
        """Its epoch."""


MemberKind = TypeVar("MemberKind", bound=Member)
MemberOf_co = TypeVar("MemberOf_co", bound=Member, covariant=True)


class Members(Protocol[MemberOf_co]):
    """A group that may have static members."""

    @property
    def group_id(self) -> str:
        """Its id."""

    @property
    def members(self) -> Mapping[str, MemberOf_co]:
        """Members by member id."""

    def static_member(self, instance_id: str | None) -> MemberOf_co | None:
        """The member with an instance id, or None."""


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]) -> None:
    """Raises INVALID_REQUEST or UNSUPPORTED_ASSIGNOR for a heartbeat that no group would accept."""
    epoch = request.member_epoch
    names: list[tuple[str, str | None]] = [
        ("GroupId", request.group_id), ("InstanceId", request.instance_id), ("RackId", request.rack_id),
    ]  # fmt: skip
    if version >= MEMBER_ID_REQUIRED_VERSION or epoch > 0 or epoch == LEAVE_EPOCH:
        names.insert(0, ("MemberId", request.member_id))
    check_texts(names)
    if epoch == 0:
        _check_joining(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        message = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        raise ApiError(ErrorCode.UNSUPPORTED_ASSIGNOR, message)


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def check_texts(names: Sequence[tuple[str, str | None]]) -> None:
    """Raises INVALID_REQUEST if one of these texts is present and blank. `names`: (field name, text)."""
    for name, text in names:
        if text is not None and not text.strip():
            raise invalid(f"{name} can't be empty.")


def invalid(message: str) -> ApiError:
    """INVALID_REQUEST with a message."""
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def check_room(group: ConsumerGroup, member_id: str, instance_id: str | None, size_max: int) -> None:
    """Raises GROUP_MAX_SIZE_REACHED if a new member would exceed `size_max`. One with a known instance id replaces another."""
    if len(group.members) >= size_max and member_id not in group.members and group.static_member(instance_id) is None:
        message = f"The consumer group has reached its maximum capacity of {size_max} members."
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)


def existing_member(group: Members[MemberKind], member_id: str) -> MemberKind:
    """The member of the group with this id. Raises UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    return member


def existing_static_member(group: Members[MemberKind], member_id: str, instance_id: str) -> MemberKind:
    """The static member with this instance id. Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if it has another member id."""
    member = group.static_member(instance_id)
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        message = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        raise ApiError(ErrorCode.FENCED_INSTANCE_ID, message)
    return member


def check_released(member: Member, member_id: str, instance_id: str) -> None:
    """Raises UNRELEASED_INSTANCE_ID unless the previous member with the instance id has left temporarily (epoch -2)."""
    if member.member_epoch != LEAVE_STATIC_EPOCH:
        message = (
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id is owned by"
            f" {member.member_id} member."
        )
        raise ApiError(ErrorCode.UNRELEASED_INSTANCE_ID, message)


def check_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Raises FENCED_MEMBER_EPOCH unless the member sends its current epoch, or the previous one because the answer with the current epoch
    may have been lost."""
    if epoch in (0, member.member_epoch):
        return
    if epoch == member.previous_member_epoch and epoch < member.member_epoch and _is_subset(owned, member.assigned):
        return
    word = "greater" if epoch > member.member_epoch else "smaller"
    message = (
        f"The consumer group member has a {word} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({member.member_epoch}). The member must abandon all its partitions and rejoin."
    )
    raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _is_subset(owned: Assignment | None, assigned: AssignmentEpochs) -> bool:
    if owned is None:
        return False
    return all(topic_id in assigned and partitions <= assigned[topic_id].keys() for topic_id, partitions in owned.items())


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    """The partitions that the sender reports to own; None if the request does not list them."""
    if request.topic_partitions is None:
        return None
    owned: dict[bytes, frozenset[int]] = {}
    for topic in request.topic_partitions:
        owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


# -- offsets -------------------------------------------------------------------------------------------------------------


def check_commit(group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int, version: int | None) -> CommitCheck:
    """A check for each partition that a member commits. In its current epoch a member may commit all partitions, in an older one those that
    it has owned since then (KIP-1251). `version`: of the OffsetCommit, None for a TxnOffsetCommit. Raises UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION."""
    if epoch < 0 and not group.members:
        return commit_any
    if version is None and epoch == -1 and not member_id and instance_id is None:
        return commit_any
    member = existing_member(group, member_id)
    if version is not None and version < MEMBER_EPOCH_VERSION and not member.is_classic:
        message = "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
    if epoch == member.member_epoch:
        return commit_any
    stale = stale_error(member)
    if epoch > member.member_epoch:
        raise ApiError(stale)

    def check(topic: str, topic_id: bytes, partition: int) -> ErrorCode:
        since = member.assignment_epoch(topic_id, partition)
        return ErrorCode.NONE if since is not None and epoch >= since else stale

    return check


def first_refusal(check: CommitCheck, resolve: TopicResolver, partitions: Sequence[tuple[str, bytes, int]]) -> ErrorCode:
    """NONE if a member may commit all these partitions (topic name, id, number), otherwise the first error: it fails the whole request."""
    for name, topic_id, partition in partitions:
        found = resolve(name, topic_id, partition)
        code = ErrorCode.NONE if isinstance(found, ErrorCode) else check(*found, partition)
        if code is not ErrorCode.NONE:
            return code
    return ErrorCode.NONE


def commit_any(topic: str, topic_id: bytes, partition: int) -> ErrorCode:
    """The check for a client that may commit any partition."""
    return ErrorCode.NONE


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Check that a member may read offsets. Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION."""
    if member_id is None and epoch < 0:
        return
    member = existing_member(group, member_id or "")
    if epoch != member.member_epoch:
        raise ApiError(stale_error(member))


def stale_error(member: ConsumerMember) -> ErrorCode:
    """The error for a request with another epoch than the member's."""
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


class Subscribed(Protocol):
    """A group of any protocol with members."""

    def subscribed_topics(self) -> frozenset[str]:
        """Topics that the members subscribe to."""


def subscribes(group: Subscribed, partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], ErrorCode]:
    """Whether OffsetDelete may delete each partition's offset: not while members subscribe to its topic (KIP-496)."""
    subscribed = group.subscribed_topics()
    return {key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if key[0] in subscribed else ErrorCode.NONE for key in partitions}
