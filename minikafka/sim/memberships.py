"""S27: consumer groups (KIP-848) as the committed part of their log tells of them: who has which partition, and whose commits count.

The model shares nothing with the coordinators. It takes the records batch by batch, when a high watermark first covers them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minikafka.sim.consumer_members import GROUP, STATIC, TOPIC
from minikafka.sim.replicas import Batch, inode_of
from minikafka.sim.streams_memberships import StreamsMemberships
from minikafka.wire.batch import iterate_batches
from minikafka.wire.records import group_records as kinds
from minikafka.wire.records.frame import decode_group_key, decode_group_value

if TYPE_CHECKING:
    from minikafka.sim.node import SimNode
    from minikafka.sim.parts import Invariants

GROUPS_TOPIC = "__consumer_offsets"
#: Topic id and partition.
Partition = tuple[bytes, int]


@dataclass(slots=True)
class Membership:
    """A member's epoch, and what it has or still has to revoke, each partition with the epoch since which it has it."""

    epoch: int = 0
    assigned: dict[Partition, int] = field(default_factory=dict)
    pending: dict[Partition, int] = field(default_factory=dict)


@dataclass(slots=True)
class Group:
    """A group: its epoch, the epoch of its targets, and its members by id."""

    epoch: int = 0
    target_epoch: int = 0
    members: dict[str, Membership] = field(default_factory=dict)


class Memberships:
    """The groups of the consumer protocol."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._world = invariants.world
        self.groups: dict[str, Group] = {}
        self._streams = StreamsMemberships(invariants)
        #: (partition, member epoch) -> the member that was answered to have it in that epoch.
        self._answered: dict[tuple[Partition, int], str] = {}

    # -- the log -------------------------------------------------------------------------------------------------------

    def committed(self, node: SimNode, log: Any, batch: Batch) -> None:
        """A batch of the groups' topic is below a high watermark."""
        options = self._world.options
        if batch.is_control or not (options.consumer_members or options.streams_members):
            return
        inode = inode_of(node.disk, log.directory, batch)
        changed, have_tasks_moved = set(), False
        for found in iterate_batches(memoryview(bytes(inode.data[batch.position : batch.end]))):
            for record in found.records():
                key: Any = decode_group_key(bytes(record.key or b""))
                value: Any = None if record.value is None else decode_group_value(key, bytes(record.value))
                if isinstance(key, kinds.OffsetCommitKey):
                    if key.group == GROUP and value is not None and value.metadata:
                        self._check_commit(f"{node} {log.name}/{record.offset}", key, value)
                elif self._apply(key, value):
                    changed.add(key.group_id)
                elif self._streams.apply(key, value):
                    have_tasks_moved = True
        for group_id in sorted(changed):
            self._check_owners(f"{node} {log.name}/{batch.base}", group_id)
        if have_tasks_moved:
            self._streams.check_owners(f"{node} {log.name}/{batch.base}")

    def _apply(self, key: Any, value: Any) -> bool:
        """Apply a record of a group. Returns whether it can change who has what."""
        if isinstance(key, kinds.ConsumerGroupMetadataKey):
            group = self.groups.setdefault(key.group_id, Group())
            if value is not None and value.epoch < group.epoch:
                self._world.violate("S27", f"the epoch of {key.group_id} falls from {group.epoch} to {value.epoch}")
            group.epoch = 0 if value is None else value.epoch
        elif isinstance(key, kinds.ConsumerGroupTargetAssignmentMetadataKey):
            self.groups.setdefault(key.group_id, Group()).target_epoch = 0 if value is None else value.assignment_epoch
        elif isinstance(key, kinds.ConsumerGroupMemberMetadataKey):
            members = self.groups.setdefault(key.group_id, Group()).members
            if value is None:
                members.pop(key.member_id, None)
            else:
                members.setdefault(key.member_id, Membership())
        elif isinstance(key, kinds.ConsumerGroupCurrentMemberAssignmentKey):
            members = self.groups.setdefault(key.group_id, Group()).members
            if value is not None:
                held = (_partitions(value.assigned_partitions), _partitions(value.partitions_pending_revocation))
                members[key.member_id] = Membership(value.member_epoch, *held)
            elif key.member_id in members:
                members[key.member_id] = Membership(-1)
            return True
        return False

    def _check_owners(self, where: str, group_id: str) -> None:
        self._invariants.checked["S27"] += 1
        owners: dict[Partition, str] = {}
        for member_id, member in self.groups[group_id].members.items():
            for partition in (*member.assigned, *member.pending):
                if owners.setdefault(partition, member_id) != member_id:
                    both = f"{owners[partition]} and {member_id}"
                    self._world.violate("S27", f"{where}: partition {partition[1]} of {group_id} belongs to both {both}")

    def _check_commit(self, where: str, key: kinds.OffsetCommitKey, value: Any) -> None:
        """A commit counts only from a member in its epoch, or in an earlier one in which it had the partition already (KIP-1251)."""
        self._invariants.checked["S27"] += 1
        member_id, _, text = value.metadata.rpartition(" ")
        epoch, group = int(text), self.groups.get(key.group, Group())
        member = group.members.get(member_id)
        if member is None:
            self._world.violate("S27", f"{where}: a commit of {member_id}, which is not a member of {key.group}")
            return
        topic = self._invariants.image.topics_by_name.get(key.topic)
        partition = (b"" if topic is None else topic.topic_id, key.partition)
        since = member.assigned.get(partition, member.pending.get(partition, member.epoch))
        if not since <= epoch <= member.epoch:
            text = f"in epoch {epoch}, but it is in {member.epoch} and has had the partition since {since}"
            self._world.violate("S27", f"{where}: a commit of {member_id} for {key.partition} {text}")

    # -- answers ---------------------------------------------------------------------------------------------------------

    def answered(self, node: SimNode, response: Any, client_id: str) -> None:
        """A heartbeat is answered: in one epoch a partition is given to one member."""
        if response.error_code or response.assignment is None or response.member_epoch <= 0:
            return
        self._invariants.checked["S27"] += 1
        identity = client_id if client_id.startswith(STATIC) else response.member_id
        for topic in response.assignment.topic_partitions:
            for partition in topic.partitions:
                place = ((topic.topic_id, partition), response.member_epoch)
                if self._answered.setdefault(place, identity) != identity:
                    both = f"{self._answered[place]} and {identity}"
                    self._world.violate("S27", f"{node} gives partition {partition} in epoch {response.member_epoch} to {both}")

    def streams_answered(self, node: SimNode, response: Any) -> None:
        """A heartbeat of a streams group is answered."""
        self._streams.answered(node, response)

    # -- at rest ---------------------------------------------------------------------------------------------------------

    def unrest(self) -> tuple[str, str] | None:
        """Why the groups are not at rest, as (rule, text): a partition or task has no owner, or a member is not where its group is."""
        return self._consumers_unrest() or self._streams.unrest()

    def _consumers_unrest(self) -> tuple[str, str] | None:
        expected = self._world.options.consumer_members
        if not expected:
            return None
        group, topic = self.groups.get(GROUP, Group()), self._invariants.image.topics_by_name[TOPIC]
        if len(group.members) != expected:
            return "S27", f"{GROUP} has the members {list(group.members)}, but {expected} take part"
        behind = {member_id: member.epoch for member_id, member in group.members.items() if member.epoch != group.epoch or member.pending}
        if behind or group.target_epoch != group.epoch:
            return "S27", f"{GROUP} is in epoch {group.epoch}, its targets are in {group.target_epoch}; lagging members: {behind}"
        owned = sorted(partition for member in group.members.values() for partition in member.assigned)
        wanted = [(topic.topic_id, index) for index in sorted(topic.partitions)]
        if owned != wanted:
            return "S27", f"{GROUP} has {[index for _, index in owned]} of {[index for _, index in wanted]}"
        self._invariants.checked["S27"] += 1
        return None


def _partitions(topics: list[Any]) -> dict[Partition, int]:
    return {
        (topic.topic_id, partition): since
        for topic in topics
        for partition, since in zip(topic.partitions, topic.assignment_epochs or (), strict=True)
    }
