"""Plans: the records of a change of a streams group, and what follows when they are committed.

Rules: GroupMetadataManager of Apache Kafka 4.4. A plan only holds records and an answer. The group changes when the records are replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from minikafka.core.group.consumer.records import Records, epoch_after_leaving
from minikafka.core.group.streams.group import ReportedOffsets, StreamsGroup
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
from minikafka.late_dataclass import dataclass
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse


@dataclass(slots=True)
class Plan:
    """The records to write, and what follows when they are committed.

    `member_id`: the member whose session is extended. `unrevoked`: the member that has to revoke tasks in time. `settled`: the id of a
    member that no longer has to. `gone`: the id of a removed member. `is_refreshed`: the topics were refreshed. `is_assignment_due`:
    targets have to be computed in steps. `delay_ms`: how long the group's first assignment waits. `missing_topics`: internal topics to
    create, by name. `offsets`: the task offsets that the joining `member_id` reported. `status`: entries for the answer.
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
    offsets: ReportedOffsets | None = None
    missing_topics: Mapping[str, InternalTopic] = field(default_factory=dict)
    status: list[StreamsGroupHeartbeatResponse.Status] = field(default_factory=list)

    def add_status(self, status: Status, detail: str) -> None:
        """Add a status of the group to the answer."""
        self.status.append(StreamsGroupHeartbeatResponse.Status(status_code=status, status_detail=detail))


def without(group: StreamsGroup, member: StreamsMember) -> Plan:
    """Remove a member and free its tasks. The group gets a new epoch."""
    epoch = epoch_after_leaving(group.epoch)
    records = member_tombstones(group.group_id, member.member_id)
    records.append(epoch_record(group, epoch, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs))
    if len(group.members) == 1:
        records.append(target_epoch_record(group.group_id, epoch, 0))
    return Plan(records, gone=member.member_id)


def replace_static(group: StreamsGroup, left: StreamsMember, member_id: str, records: Records) -> StreamsMember:
    """A member replaces the member `left`, which had its instance id."""
    member = replace(left, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    records += member_tombstones(group.group_id, left.member_id)
    records += [
        member_record(group.group_id, member),
        target_record(group.group_id, member_id, group.targets.get(left.member_id, TasksTuple())),
        current_record(group.group_id, member),
    ]
    return member
