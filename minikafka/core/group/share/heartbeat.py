"""The changes that a member's heartbeat makes to its share group.

Rules: GroupMetadataManager.shareGroupHeartbeat of Apache Kafka 4.3. A plan only holds records and an answer. The group changes when the
records are replayed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace

from minikafka.core.coordinator.shard import CoordinatorRecord
from minikafka.core.group.config import Client
from minikafka.core.group.consumer.member import Assignment
from minikafka.core.group.consumer.records import epoch_after_leaving
from minikafka.core.group.consumer.targets import is_early
from minikafka.core.group.consumer.topics import TopicHashes, Topics
from minikafka.core.group.share.assignor import assign_simple
from minikafka.core.group.share.group import ShareGroup, ShareMember, TopicStates
from minikafka.core.group.share.records import (
    Records,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    states_record,
    target_epoch_record,
    target_record,
)
from minikafka.core.group.share.settings import ShareIntervals, ShareSettings
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

LEAVE_EPOCH = -1
#: The start offset of a share partition that begins where `share.auto.offset.reset` says.
UNSET_START_OFFSET = -1


@dataclass(slots=True)
class SharePlan:
    """The records to write, and what follows when they are committed.

    `member_id`: the member whose session is extended. `gone`: the id of a removed member. `initialize`: partitions to initialize, by topic
    id, each with its start offset, in `state_epoch`. `is_refreshed`: the topics were refreshed.
    """

    records: Records = field(default_factory=list)
    answer: ShareGroupHeartbeatResponse | None = None
    member_id: str | None = None
    gone: str | None = None
    initialize: Mapping[bytes, Sequence[tuple[int, int]]] = field(default_factory=dict)
    state_epoch: int = 0
    is_refreshed: bool = False


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raises INVALID_REQUEST for a heartbeat that no group would accept."""
    for name, text in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if text is not None and not text.strip():
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if request.member_epoch == 0:
        if not request.subscribed_topic_names:
            raise ApiError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise ApiError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")


class SharePlanner:
    """Makes plans. It has no state of its own."""

    def __init__(self, settings: ShareSettings, topics: Topics, hashes: TopicHashes) -> None:
        self._settings = settings
        self._topics = topics
        self._hashes = hashes

    def heartbeat(
        self, group: ShareGroup, request: ShareGroupHeartbeatRequest, client: Client, wall_ms: int, asked: Mapping[bytes, frozenset[int]]
    ) -> SharePlan:
        """A member joins or continues. `asked`: partitions whose initialization was requested recently. Raises ApiError."""
        member_id, group_id = request.member_id, group.group_id
        if len(group.members) >= self._settings.size_max and member_id not in group.members:
            message = f"The share group has reached its maximum capacity of {self._settings.size_max} members."
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
        intervals = self._settings.intervals(group_id)
        before = _existing(group, request)
        updated = _updated(before, request, client)
        plan = SharePlan(member_id=member_id)
        if updated != before:
            plan.records.append(member_record(group_id, updated))
        is_bumped = updated.subscribed_topic_names != before.subscribed_topic_names
        if group.assignment_epoch >= group.epoch and self._has_unassigned(group):
            is_bumped = True
        epoch, is_bumped = self._next_epoch(group, updated, plan, is_bumped)
        target_epoch, target = self._next_target(group, updated, epoch, plan, intervals, wall_ms)
        reconciled = self._reconcile(group, updated, target_epoch, target, plan, is_bumped)
        plan.answer = _answer(request, before, reconciled, intervals)
        self._initialize(group, updated, epoch, plan, asked)
        return plan

    def _next_epoch(self, group: ShareGroup, updated: ShareMember, plan: SharePlan, is_bumped: bool) -> tuple[int, bool]:
        if not is_bumped and not group.is_refresh_due:
            return group.epoch, False
        plan.is_refreshed = True
        metadata_hash = self._hashes.of(group.subscribed_topics(group.members_with(updated)))
        if not is_bumped and metadata_hash == group.metadata_hash:
            return group.epoch, False
        plan.records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
        return group.epoch + 1, True

    def _has_unassigned(self, group: ShareGroup) -> bool:
        """Whether the targets differ from the initialized partitions of the subscribed topics."""
        if not group.members:
            return False
        assigned: dict[bytes, set[int]] = {}
        for target in group.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        names = group.subscribed_topics()
        return any(
            topic.name in names and frozenset(assigned.get(topic_id, ())) != topic.partitions
            for topic_id, topic in group.initialized.items()
        )

    def _next_target(
        self, group: ShareGroup, updated: ShareMember, epoch: int, plan: SharePlan, intervals: ShareIntervals, wall_ms: int
    ) -> tuple[int, Assignment]:
        if group.assignment_epoch >= epoch or is_early(group, intervals, wall_ms):
            return group.assignment_epoch, group.targets.get(updated.member_id, {})
        subscriptions = {member_id: self._ids(member.subscribed_topic_names) for member_id, member in group.members_with(updated).items()}
        partitions = {topic_id: topic.partitions for topic_id, topic in group.initialized.items()}
        targets = assign_simple(subscriptions, partitions, group.targets)
        plan.records += [
            target_record(group.group_id, member_id, target)
            for member_id, target in targets.items()
            if group.targets.get(member_id) != target
        ]
        plan.records.append(target_epoch_record(group.group_id, epoch, wall_ms))
        return epoch, targets[updated.member_id]

    def _ids(self, names: Collection[str]) -> frozenset[bytes]:
        return frozenset(topic.topic_id for name in names if (topic := self._topics.by_name(name)) is not None)

    def _reconcile(
        self, group: ShareGroup, member: ShareMember, epoch: int, target: Assignment, plan: SharePlan, has_changed: bool
    ) -> ShareMember:
        if not has_changed and member.member_epoch == epoch:
            return member
        topic_ids = self._ids(member.subscribed_topic_names)
        assigned = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in topic_ids}
        reconciled = replace(member, assigned=assigned)
        if epoch != member.member_epoch:
            reconciled = replace(reconciled, state=0, member_epoch=epoch, previous_member_epoch=member.member_epoch)
        if reconciled != member:
            plan.records.append(current_record(group.group_id, reconciled))
        return reconciled

    def _initialize(
        self, group: ShareGroup, updated: ShareMember, epoch: int, plan: SharePlan, asked: Mapping[bytes, frozenset[int]]
    ) -> None:
        """Plan the initialization of partitions of subscribed topics that have no state.

        A partition that is new to a topic that the group already knows begins at 0, so that what stands in it is read, too. Any other
        begins where `share.auto.offset.reset` says, however often it is asked for. So what is `initializing` stays so until it has a
        state, and new partitions are never noted there. In Apache Kafka, any partition of such a topic that is asked for again begins at 0.
        """
        requested: dict[bytes, TopicStates] = {}
        wanted: dict[bytes, list[tuple[int, int]]] = {}
        for name in sorted(group.subscribed_topics(group.members_with(updated))):
            topic = self._topics.by_name(name)
            if topic is None:
                continue
            topic_id = topic.topic_id
            done, begun = group.initialized.get(topic_id), group.initializing.get(topic_id)
            have = done.partitions if done else frozenset[int]()
            first = begun.partitions if begun else frozenset[int]()
            missing = frozenset(range(topic.partition_count)) - have - asked.get(topic_id, frozenset())
            if not missing:
                continue
            if done is None and begun is None:
                first = missing
                requested[topic_id] = TopicStates(topic.name, missing)
            wanted[topic_id] = [(partition, UNSET_START_OFFSET if partition in first else 0) for partition in sorted(missing)]
        if requested:
            plan.records.append(initializing_record(group, requested))
        plan.initialize, plan.state_epoch = wanted, epoch

    def leave(self, group: ShareGroup, member_id: str) -> SharePlan:
        """Remove a member. Raises UNKNOWN_MEMBER_ID."""
        if member_id not in group.members:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
        left = {other: member for other, member in group.members.items() if other != member_id}
        epoch = epoch_after_leaving(group.epoch)
        records = member_tombstones(group.group_id, member_id)
        records.append(epoch_record(group.group_id, epoch, self._hashes.of(group.subscribed_topics(left))))
        if not left:
            # The next member to join need not wait for the interval between assignments.
            records.append(target_epoch_record(group.group_id, epoch, 0))
        answer = ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=LEAVE_EPOCH)
        return SharePlan(records, answer, gone=member_id)


def initializing_record(group: ShareGroup, requested: Mapping[bytes, TopicStates]) -> CoordinatorRecord:
    """The record that begins to initialize more partitions. Their topics leave `deleting`."""
    initializing = together(group.initializing, requested)
    deleting = {topic_id: name for topic_id, name in group.deleting.items() if topic_id not in initializing}
    return states_record(group.group_id, initializing, group.initialized, deleting)


def together(first: Mapping[bytes, TopicStates], second: Mapping[bytes, TopicStates]) -> dict[bytes, TopicStates]:
    """The partitions that are in at least one of the two."""
    result = dict(first)
    for topic_id, states in second.items():
        before = result.get(topic_id)
        result[topic_id] = states if before is None else TopicStates(states.name, before.partitions | states.partitions)
    return result


def without(topics: Mapping[bytes, TopicStates], gone: Mapping[bytes, Collection[int]]) -> dict[bytes, TopicStates]:
    """The partitions of `topics` that are not in `gone`."""
    result = {}
    for topic_id, states in topics.items():
        left = states.partitions - frozenset(gone.get(topic_id, ()))
        if left:
            result[topic_id] = TopicStates(states.name, left)
    return result


def _existing(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """The sender as the group has it. Raises UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH."""
    member, epoch = group.members.get(request.member_id), request.member_epoch
    if member is None:
        if epoch != 0:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of group {group.group_id}.")
        return ShareMember(request.member_id)
    if epoch in (0, member.member_epoch) or (epoch < member.member_epoch and epoch == member.previous_member_epoch):
        return member
    word, rest = "greater", ""
    if epoch < member.member_epoch:
        word = "smaller"
        rest = f", and it does not match the previous member epoch ({member.previous_member_epoch})"
    message = (
        f"The share group member has a {word} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({member.member_epoch}){rest}. The member must abandon all its partitions and rejoin."
    )
    raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _updated(before: ShareMember, request: ShareGroupHeartbeatRequest, client: Client) -> ShareMember:
    names = request.subscribed_topic_names
    return replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        subscribed_topic_names=before.subscribed_topic_names if names is None else frozenset(names),
        client_id=client.client_id,
        client_host=client.host,
    )


def _answer(
    request: ShareGroupHeartbeatRequest, before: ShareMember, member: ShareMember, intervals: ShareIntervals
) -> ShareGroupHeartbeatResponse:
    answer = ShareGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=member.member_epoch, heartbeat_interval_ms=intervals.heartbeat_interval_ms
    )
    if request.member_epoch == 0 or request.subscribed_topic_names is not None or member.assigned != before.assigned:
        kind = ShareGroupHeartbeatResponse.TopicPartitions
        partitions = [kind(topic_id=topic_id, partitions=sorted(member.assigned[topic_id])) for topic_id in sorted(member.assigned)]
        answer.assignment = ShareGroupHeartbeatResponse.Assignment(topic_partitions=partitions)
    return answer
