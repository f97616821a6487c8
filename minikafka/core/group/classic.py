"""A classic consumer group: its members and its rebalance phase. It has no timers and handles no requests."""

from __future__ import annotations

from enum import Enum

from minikafka.core.group.member import Member
from minikafka.wire.records.group_records import GroupMetadataKey, GroupMetadataValue

GROUP_METADATA_VALUE_VERSION = 3
#: The last generation (INT32); the one after it is 0.
GENERATION_MAX = (1 << 31) - 1


class GroupState(Enum):
    """States of a classic group. The values are those in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: Memory of members that received an id and have not joined yet: per member besides its id, and per group. Beyond the latter the oldest
#: are dropped.
PENDING_MEMBER_BYTES = 256
PENDING_BYTES_MAX = 8 << 20

#: Legal transitions: target -> states it may be entered from (org.apache.kafka.coordinator.group.classic.ClassicGroupState).
PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class ClassicGroup:
    """Members, generation and phase of one group.

    Invariants: `leader_id` is None or a member's id. Every value of `static_members` (group instance id -> member id) is a member.
    `generation_id` only grows, except that 0 follows the last one. Members await a sync in COMPLETING_REBALANCE only.
    """

    __slots__ = (
        "_pending_bytes",
        "generation_id",
        "group_id",
        "is_frozen",
        "leader_id",
        "members",
        "new_member_added",
        "pending_members",
        "pending_sync_members",
        "protocol_name",
        "protocol_type",
        "rebalance_remaining_ms",
        "state",
        "state_since_wall_ms",
        "static_members",
    )

    def __init__(self, group_id: str, wall_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_wall_ms = wall_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, None] = {}
        self._pending_bytes = 0
        self.pending_sync_members: dict[str, None] = {}
        self.new_member_added = False
        self.rebalance_remaining_ms = -1
        #: The group is about to become a consumer group and must not change any more.
        self.is_frozen = False

    def transition(self, target: GroupState, wall_ms: int) -> None:
        """Enter `target`. Raises AssertionError for a transition that PREVIOUS_STATES does not list, which is a bug of this code."""
        if self.state not in PREVIOUS_STATES[target]:
            raise AssertionError(f"group {self.group_id}: {self.state.value} -> {target.value} is not a transition")
        self.state = target
        self.state_since_wall_ms = wall_ms

    # -- members ---------------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Add a member. The first member leads until a join phase elects another leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.forget_announced(member.member_id)
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id

    def announce(self, member_id: str) -> list[str]:
        """Expect a member that has just received its id. Returns the oldest ids that are no longer expected, if there are too many."""
        self.pending_members[member_id] = None
        self._pending_bytes += len(member_id) + PENDING_MEMBER_BYTES
        forgotten = []
        while self._pending_bytes > PENDING_BYTES_MAX:
            oldest = next(iter(self.pending_members))
            self.forget_announced(oldest)
            forgotten.append(oldest)
        return forgotten

    def forget_announced(self, member_id: str) -> None:
        """Stop expecting a member: it has joined, or it will not. Does nothing if it was not expected."""
        if member_id in self.pending_members:
            del self.pending_members[member_id]
            self._pending_bytes -= len(member_id) + PENDING_MEMBER_BYTES

    def remove(self, member_id: str) -> Member | None:
        """Remove a member. If it led, the longest-standing remaining member becomes the leader."""
        member = self.members.pop(member_id, None)
        self.forget_announced(member_id)
        self.pending_sync_members.pop(member_id, None)
        if member is not None and member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static(self, group_instance_id: str, member_id: str) -> Member:
        """Give a static member a new member id (KIP-345). It keeps its place and its leadership."""
        old_id = self.static_members[group_instance_id]
        member = self.members[old_id]
        member.member_id = member_id
        self.members = {(member_id if key == old_id else key): value for key, value in self.members.items()}
        self.static_members[group_instance_id] = member_id
        if old_id in self.pending_sync_members:
            del self.pending_sync_members[old_id]
        if self.leader_id == old_id:
            self.leader_id = member_id
        return member

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout that any member asked for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def all_joined(self) -> bool:
        """Whether no member and no announced member is still expected to join."""
        return not self.pending_members and all(m.awaiting_join is not None for m in self.members.values())

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader is a member that has joined in this phase. Returns False if none has."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    # -- protocols -------------------------------------------------------------------------------------------------

    def candidate_protocols(self) -> list[str]:
        """Protocols that every member supports, in the order of the first member."""
        members = list(self.members.values())
        if not members:
            return []
        supported = [{name for name, _ in member.protocols} for member in members[1:]]
        return [name for name, _ in members[0].protocols if all(name in names for names in supported)]

    def supports(self, protocol_type: str, names: list[str]) -> bool:
        """Whether a member with these protocols could join now."""
        if not self.members:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and not set(self.candidate_protocols()).isdisjoint(names)

    def select_protocol(self) -> str | None:
        """The candidate with the most votes; ties go to the earlier candidate."""
        candidates = self.candidate_protocols()
        votes = {name: 0 for name in candidates}
        for member in self.members.values():
            choice = member.vote(votes)
            if choice is not None:
                votes[choice] += 1
        return max(candidates, key=lambda name: votes[name], default=None)

    def next_generation(self, wall_ms: int) -> None:
        """End the join phase: start a new generation, with a protocol if there are members."""
        self.generation_id = 0 if self.generation_id == GENERATION_MAX else self.generation_id + 1
        self.new_member_added = False
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition(GroupState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol_name = None
            self.leader_id = None
            self.transition(GroupState.EMPTY, wall_ms)

    # -- records ---------------------------------------------------------------------------------------------------

    def key(self) -> GroupMetadataKey:
        """The key of the group's record in `__consumer_offsets`."""
        return GroupMetadataKey(group=self.group_id)

    def value(self, assignments: dict[str, bytes] | None = None) -> GroupMetadataValue:
        """The group's record. `assignments`, if given, replace the members' current ones."""
        members = [
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_for(self.protocol_name),
                assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        ]
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.state_since_wall_ms,
            members=members,
        )

    @classmethod
    def from_value(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """The group that a record describes: stable if it has members, empty otherwise."""
        group = cls(group_id, value.current_state_timestamp)
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        for stored in value.members:
            group.add(
                Member(
                    member_id=stored.member_id,
                    group_instance_id=stored.group_instance_id,
                    client_id=stored.client_id,
                    client_host=stored.client_host,
                    rebalance_timeout_ms=stored.rebalance_timeout
                    if stored.rebalance_timeout >= 0
                    else stored.session_timeout,
                    session_timeout_ms=stored.session_timeout,
                    protocol_type=value.protocol_type,
                    protocols=[(value.protocol or "", stored.subscription)],
                    assignment=stored.assignment,
                )
            )
        group.leader_id = value.leader if value.members else None
        group.state = GroupState.STABLE if value.members else GroupState.EMPTY
        return group
