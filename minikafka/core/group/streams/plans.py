"""What a change of a streams group writes, and what follows when it is committed.

Rules: GroupMetadataManager of Apache Kafka 4.4. Everything here is a plan: records and an answer. The group changes when the records are
replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from minikafka.core.group.consumer.records import Records, epoch_after_leaving
from minikafka.core.group.streams.group import StreamsGroup, ToldOffsets
from minikafka.core.group.streams.member import StreamsMember
from minikafka.core.group.streams.model import InternalTopic, Status, TasksTuple
from minikafka.core.group.streams.records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    target_epoch_record,
    target_record,
)
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse


@dataclass(slots=True)
class Plan:
    """What is to be written, and what follows when it is committed.

    `member_id`: whose session goes on. `unrevoked`: the member that has to give tasks up in time; `settled`: one that need not any more.
    `gone`: one that is no more. `is_refreshed`: the topics were looked at. `is_assignment_due`: targets are computed in steps.
    `delay_ms`: how long the group's first assignment waits. `missing_topics`: internal topics that the answer asks for, by name.
    `offsets`: what `member_id` has told of its tasks with its request to join.
    """

    records: Records = field(default_factory=list)
    answer: StreamsGroupHeartbeatResponse | None = None
    member_id: str | None = None
    unrevoked: StreamsMember | None = None
    settled: str | None = None
    gone: str | None = None
    is_refreshed: bool = False
    is_assignment_due: bool = False
    delay_ms: int | None = None
    offsets: ToldOffsets | None = None
    missing_topics: Mapping[str, InternalTopic] = field(default_factory=dict)
    status: list[StreamsGroupHeartbeatResponse.Status] = field(default_factory=list)

    def tell(self, status: Status, detail: str) -> None:
        """Say something of the group in the answer."""
        self.status.append(StreamsGroupHeartbeatResponse.Status(status_code=status, status_detail=detail))


def without(group: StreamsGroup, member: StreamsMember) -> Plan:
    """A member is no more: what it had is free, and the group gets a new epoch."""
    epoch = epoch_after_leaving(group.epoch)
    records = member_tombstones(group.group_id, member.member_id)
    records.append(epoch_record(group, epoch, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs))
    if len(group.members) == 1:
        records.append(target_epoch_record(group.group_id, epoch, 0))
    return Plan(records, gone=member.member_id)


def replace_static(group: StreamsGroup, left: StreamsMember, member_id: str, records: Records) -> StreamsMember:
    """A member takes the place of who had its instance id."""
    member = replace(left, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    records += member_tombstones(group.group_id, left.member_id)
    records += [
        member_record(group.group_id, member),
        target_record(group.group_id, member_id, group.targets.get(left.member_id, TasksTuple())),
        current_record(group.group_id, member),
    ]
    return member
