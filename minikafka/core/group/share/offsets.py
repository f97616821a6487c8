"""Start offsets of a share group that an admin sets or deletes (GroupMetadataManager of Apache Kafka 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field

from minikafka.core.group.consumer.topics import Topics
from minikafka.core.group.effects import StateAnswers
from minikafka.core.group.share.group import ShareGroup, TopicStates
from minikafka.core.group.share.heartbeat import initializing_record, together
from minikafka.core.group.share.records import Records, epoch_record, states_record
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from minikafka.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
#: The start offset of a state that has none yet.
UNINITIALIZED = -1
_DeletedTopic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


@dataclass(slots=True)
class OffsetsPlan:
    """Records to write first, and the request to share coordinators after that: (partition, start offset) by topic id.

    `epoch`: the epoch of the new states.
    """

    epoch: int = 0
    records: Records = field(default_factory=list)
    topics: dict[bytes, Sequence[tuple[int, int]]] = field(default_factory=dict)

    def without(self, keys: Collection[tuple[bytes, int]]) -> dict[bytes, Sequence[tuple[int, int]]]:
        """The request without the partitions of `keys`."""
        return self._those(lambda key, _: key not in keys)

    def without_offset(self) -> dict[bytes, Sequence[tuple[int, int]]]:
        """The partitions that are to begin where `share.auto.offset.reset` says."""
        return self._those(lambda _, start_offset: start_offset == UNINITIALIZED)

    def _those(self, is_wanted: Callable[[tuple[bytes, int], int], bool]) -> dict[bytes, Sequence[tuple[int, int]]]:
        found = {
            topic_id: [(index, start) for index, start in partitions if is_wanted((topic_id, index), start)]
            for topic_id, partitions in self.topics.items()
        }
        return {topic_id: partitions for topic_id, partitions in found.items() if partitions}


def plan_alteration(
    group: ShareGroup, request: AlterShareGroupOffsetsRequest, topics: Topics
) -> tuple[OffsetsPlan, AlterShareGroupOffsetsResponse]:
    """Plan AlterShareGroupOffsets. The answer assumes success; `add_alteration_results` adds the errors of share coordinators.

    Each alteration is an epoch of its own: a leader that was read from by a former member is fenced, and a try of an earlier alteration
    that arrives late resets nothing. In Apache Kafka the epoch stays.
    """
    plan, response = OffsetsPlan(group.epoch + 1), AlterShareGroupOffsetsResponse(responses=[])
    requested: dict[bytes, TopicStates] = {}
    kind = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition
    for topic in request.topics:
        found = topics.by_name(topic.topic_name)
        count = 0 if found is None else found.partition_count
        existing = [p for p in topic.partitions if 0 <= p.partition_index < count]
        if found is not None:
            requested[found.topic_id] = TopicStates(found.name, frozenset(p.partition_index for p in existing))
            if existing:
                plan.topics[found.topic_id] = [(p.partition_index, p.start_offset) for p in existing]
        codes = [(p.partition_index, ErrorCode.NONE if 0 <= p.partition_index < count else UNKNOWN) for p in topic.partitions]
        response.responses.append(
            AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=bytes(16) if found is None else found.topic_id,
                partitions=[
                    kind(partition_index=index, error_code=code, error_message=code.text if code is UNKNOWN else None)
                    for index, code in codes
                ],
            )
        )
    if requested:
        plan.records += [epoch_record(group.group_id, plan.epoch, group.metadata_hash), initializing_record(group, requested)]
    return plan, response


def add_alteration_results(response: AlterShareGroupOffsetsResponse, answers: StateAnswers) -> None:
    """Add the errors of share coordinators to the answer."""
    for topic in response.responses:
        for partition in topic.partitions:
            code, message = answers.get((topic.topic_id, partition.partition_index), (ErrorCode.NONE, None))
            if not partition.error_code and code is not ErrorCode.NONE:
                partition.error_code, partition.error_message = code, message


def plan_deletion(
    group: ShareGroup, request: DeleteShareGroupOffsetsRequest, topics: Topics
) -> tuple[OffsetsPlan, DeleteShareGroupOffsetsResponse]:
    """Plan DeleteShareGroupOffsets. The answer has the topics that cannot be deleted; `add_deletion_results` adds the others."""
    plan, response = OffsetsPlan(), DeleteShareGroupOffsetsResponse(responses=[])
    initialized, deleting = dict(group.initialized), dict(group.deleting)
    for topic in request.topics:
        found = topics.by_name(topic.topic_name)
        if found is None:
            response.responses.append(_DeletedTopic(topic_name=topic.topic_name, error_code=UNKNOWN, error_message=UNKNOWN.text))
        elif found.topic_id in initialized:
            states = initialized.pop(found.topic_id)
            deleting[found.topic_id] = found.name
            plan.topics[found.topic_id] = [(p, -1) for p in sorted(states.partitions)]
        elif found.topic_id in deleting:
            plan.topics[found.topic_id] = [(p, -1) for p in range(found.partition_count)]
        else:
            message = "There is no offset information to delete."
            response.responses.append(_DeletedTopic(topic_name=topic.topic_name, error_code=UNKNOWN, error_message=message))
    if group.has_states:
        plan.records.append(states_record(group.group_id, group.initializing, initialized, deleting))
    return plan, response


def add_deletion_results(response: DeleteShareGroupOffsetsResponse, answers: StateAnswers, names: Mapping[bytes, str]) -> list[bytes]:
    """Add the result of each topic to the answer. Returns the ids of the topics whose states were deleted."""
    gone = []
    for topic_id in dict.fromkeys(key[0] for key in answers):
        codes = [code for key, (code, _) in answers.items() if key[0] == topic_id and code is not ErrorCode.NONE]
        if codes:
            failed = _DeletedTopic(topic_name=names.get(topic_id, ""), topic_id=topic_id, error_code=codes[0], error_message=codes[0].text)
            response.responses.append(failed)
        else:
            gone.append(topic_id)
    response.responses += [_DeletedTopic(topic_name=names.get(topic_id, ""), topic_id=topic_id) for topic_id in gone]
    return gone


def plan_group_deletion(group: ShareGroup, topics: Topics) -> OffsetsPlan:
    """Plan the deletion of all states of the group."""
    states = together(group.initialized, group.initializing)
    for topic_id, name in group.deleting.items():
        found = topics.by_id(topic_id)
        if found is not None:
            states = together(states, {topic_id: TopicStates(name, frozenset(range(found.partition_count)))})
    plan = OffsetsPlan(topics={topic_id: [(p, -1) for p in sorted(one.partitions)] for topic_id, one in states.items()})
    if group.has_states:
        plan.records.append(states_record(group.group_id, {}, {}, {topic_id: one.name for topic_id, one in states.items()}))
    return plan
