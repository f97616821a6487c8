"""Members of both protocols in one group, and the invariants that must hold whatever they do.

Invariants: no two members that are in their group's newest word own the same partition; what a member that is none any more commits is
refused; when nothing happens any more, every partition is owned, and the group is stable. After a change of broker everything is as before.
"""

from __future__ import annotations

import random
from typing import Any

from helpers.consumer_group_world import topic_id_of
from helpers.mixed_groups import REBALANCE_MS, SESSION_MS, MixedWorld, Partitions, assignment, partitions_of

from minikafka.core.group.classic import GroupState
from minikafka.core.group.consumer.group import STABLE
from minikafka.wire.errors import ErrorCode

TOPICS = ("t", "u")
REJOINS = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
UNAVAILABLE = {
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS,
}  # fmt: skip


class Broken(AssertionError):
    """An invariant does not hold."""


class Member:
    """The common part of members of both protocols."""

    def __init__(self, name: str, world: MixedWorld, chance: random.Random) -> None:
        self.name = name
        self.world = world
        self.epoch = 0
        self.owned: Partitions = set()
        self.waits_for: str | None = None
        self.names = chance.sample(TOPICS, chance.randint(1, 2))
        #: When it sent the last request whose answer confirmed its assignment: it stops reading when its session has expired by its own
        #: clock. An answer may be late, and the coordinator counts from the request.
        self.heard_ms = self.sent_ms = world.now_ms

    @property
    def member_id(self) -> str:
        """As the group knows it."""
        return self.name

    def believes(self) -> bool:
        """Whether it still reads its partitions."""
        return self.epoch > 0 and self.world.now_ms - self.heard_ms < SESSION_MS

    def drop(self) -> None:
        """Note that it is no longer a member."""
        self.epoch, self.owned = 0, set()

    def act(self, chance: random.Random) -> None:
        """Take an answer, or send something."""
        raise NotImplementedError

    def leave(self) -> None:
        """Leave the group."""
        raise NotImplementedError


class ConsumerMember(Member):
    """Of the consumer protocol."""

    def act(self, chance: random.Random) -> None:
        if self.waits_for is not None:
            answer = self.world.take(self.waits_for)
            if answer is None:
                return
            self.waits_for = None
            self._hear(answer, chance)
            return
        self.waits_for, self.sent_ms = f"{self.name} beats", self.world.now_ms
        if self.epoch == 0:
            self.owned = set()
            self.world.beat(self.waits_for, self.member_id, 0, sorted(self.names))
        elif chance.random() < 0.1:
            self.world.beat(self.waits_for, self.member_id, self.epoch, sorted(self.names), self.owned)
        else:
            self.world.beat(self.waits_for, self.member_id, self.epoch, owned=self.owned)

    def _hear(self, answer: Any, chance: random.Random) -> None:
        code = ErrorCode(answer.error_code)
        if chance.random() < 0.05:
            return  # the answer is lost
        if code is ErrorCode.NONE:
            self.epoch, self.heard_ms = answer.member_epoch, self.sent_ms
            if answer.assignment is not None:
                names = {topic_id_of(name): name for name in TOPICS}
                wanted = {(names[topic.topic_id], index) for topic in answer.assignment.topic_partitions for index in topic.partitions}
                # It delays the revocation of partitions.
                kept = {partition for partition in self.owned - wanted if chance.random() < 0.3}
                self.owned = wanted | kept
                self.wanted = wanted
            elif chance.random() < 0.7:
                self.owned &= getattr(self, "wanted", self.owned)
        elif code not in UNAVAILABLE:
            self.drop()

    def leave(self) -> None:
        if self.epoch > 0:
            self.world.beat(f"{self.name} leaves", self.member_id, -1)


class ClassicMember(Member):
    """Of the classic protocol, cooperative or eager; it assigns when it leads."""

    def __init__(self, name: str, world: MixedWorld, chance: random.Random) -> None:
        super().__init__(name, world, chance)
        self.id = ""
        self.is_eager = chance.random() < 0.4
        self.joined: Any = None
        self.must_join = True

    @property
    def member_id(self) -> str:
        return self.id

    def drop(self) -> None:
        super().drop()
        self.must_join = True

    def act(self, chance: random.Random) -> None:
        if self.waits_for is not None:
            answer = self.world.take(self.waits_for)
            if answer is not None:
                is_join, self.waits_for = self.waits_for.endswith("joins"), None
                self._hear_join(answer) if is_join else self._hear_sync(answer, chance)
        elif self.joined is not None:
            self._sync()
        elif self.must_join:
            if self.is_eager:
                self.owned = set()
            self.waits_for = f"{self.name} joins"
            self.world.join(self.waits_for, self.id, sorted(self.names), self.owned)
        else:
            code = self.world.alive(self.id, self.epoch)
            if code is ErrorCode.NONE:
                self.heard_ms = self.world.now_ms
            elif code is ErrorCode.REBALANCE_IN_PROGRESS:
                self.heard_ms, self.must_join = self.world.now_ms, True
            elif code not in UNAVAILABLE:
                self._lost(code)

    def _lost(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.id = ""
        self.drop()

    def _hear_join(self, answer: Any) -> None:
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
        elif code is ErrorCode.NONE:
            self.id, self.joined = answer.member_id, answer
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._lost(code)

    def _sync(self) -> None:
        joined, self.waits_for, self.sent_ms = self.joined, f"{self.name} syncs", self.world.now_ms
        given: dict[str, bytes] = {}
        if joined.leader == joined.member_id:
            everything = [(name, index) for name in TOPICS for index in range(self.world.topics.topics[name].partition_count)]
            members = [member.member_id for member in joined.members]
            given = {member: assignment(set(everything[number :: len(members)])) for number, member in enumerate(members)}
        self.world.sync(self.waits_for, self.id, joined.generation_id, given)

    def _hear_sync(self, answer: Any, chance: random.Random) -> None:
        joined, self.joined = self.joined, None
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            if code not in UNAVAILABLE and code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self._lost(code)
            self.must_join = True
            return
        wanted = partitions_of(bytes(answer.assignment))
        is_revoked = bool(self.owned - wanted)
        self.epoch, self.heard_ms, self.owned, self.must_join = joined.generation_id, self.sent_ms, wanted, is_revoked

    def leave(self) -> None:
        if self.id:
            self.world.leave((self.id, None), reply=f"{self.name} leaves")


def check_ownership(world: MixedWorld, members: list[Member]) -> None:
    """In a consumer group: what members own that are in the epoch in which the group has them is reserved for them, once."""
    group = world.shard.consumers.groups.get("g")
    if group is None:
        return
    everything = [
        (topic_id, partition)
        for member in group.members.values()
        for held in (member.assigned, member.pending_revocation)
        for topic_id, epochs in held.items()
        for partition in epochs
    ]
    if len(everything) != len(set(everything)):
        raise Broken("a partition is in the hands of two members")
    for member in members:
        registered = group.members.get(member.member_id)
        if registered is None or not member.believes() or registered.member_epoch != member.epoch:
            continue
        # A classic member goes on reading its partitions while it waits for the next assignment.
        for name, partition in member.owned:
            owner = group.owners.get(topic_id_of(name), {}).get(partition)
            if owner != member.member_id:
                raise Broken(f"{member.name} reads {name}-{partition}, which is {owner}'s")


def check_commits(world: MixedWorld, members: list[Member], chance: random.Random) -> None:
    """A former member, or one with a wrong epoch, commits nothing."""
    if world.is_stalled or not members:
        return
    member = chance.choice([*members, *world.former])
    consumer, classic = world.shard.consumers.groups.get("g"), world.shard.groups.get("g")
    partition = chance.choice(sorted(member.owned)) if member.owned else ("t", 0)
    lie = chance.choice([0, 0, 1, 5])
    if not member.member_id or member.epoch <= 0:
        return
    code = world.commit(member.member_id, member.epoch + lie, partition)
    if consumer is not None and consumer.members:
        registered = consumer.members.get(member.member_id)
        is_lawful = registered is not None and member.epoch + lie <= registered.member_epoch
    elif classic is not None and classic.state is not GroupState.EMPTY:
        is_lawful = member.member_id in classic.members and member.epoch + lie == classic.generation_id
    else:
        return
    if code is ErrorCode.NONE and not is_lawful:
        raise Broken(f"{member.name} has committed at {member.epoch} + {lie}")
    is_current = registered_epoch(world, member) == member.epoch and lie == 0
    if is_current and member.owned and code in REJOINS - {ErrorCode.REBALANCE_IN_PROGRESS}:
        raise Broken(f"{member.name} may not commit what it owns: {code.name}")


def check_lies(world: MixedWorld, members: list[Member], chance: random.Random) -> None:
    """A member with a wrong epoch is fenced and gets no assignment."""
    liars = [member for member in members if isinstance(member, ConsumerMember) and member.epoch > 0 and member.waits_for is None]
    if world.is_stalled or not liars:
        return
    liar = chance.choice(liars)
    answer = world.beat("now", liar.member_id, liar.epoch + chance.randint(2, 9), owned=liar.owned)
    if answer is not None and answer.error_code == ErrorCode.NONE and answer.member_epoch < liar.epoch + 2:
        raise Broken(f"{liar.name} lied about its epoch, and was believed")


def registered_epoch(world: MixedWorld, member: Member) -> int | None:
    """A member's epoch in a consumer group."""
    group = world.shard.consumers.groups.get("g")
    registered = None if group is None else group.members.get(member.member_id)
    return None if registered is None else registered.member_epoch


def settle(world: MixedWorld, members: list[Member], chance: random.Random) -> None:
    """Let the members' heartbeats alone run until the group is stable."""
    world.go_on()
    for _ in range(60):
        world.advance(1_000)
        for member in members:
            for _ in range(4):
                member.act(chance)
            check_ownership(world, members)


def check_quiet(world: MixedWorld, members: list[Member]) -> None:
    """Every subscribed partition is read by exactly one member; the group is stable."""
    consumer, classic = world.shard.consumers.groups.get("g"), world.shard.groups.get("g")
    if consumer is not None:
        if consumer.state != STABLE:
            raise Broken(f"{consumer.state} in {consumer.epoch}, targets of {consumer.assignment_epoch}: {list(consumer.members.values())}")
        names = consumer.subscribed_topics()
        present = [member for member in members if member.member_id in consumer.members]
        if len(present) != len(consumer.members):
            raise Broken(f"members that are none: {set(consumer.members) - {member.member_id for member in present}}")
    elif classic is not None and classic.members:
        if classic.state is not GroupState.STABLE:
            raise Broken(f"the classic group is {classic.state.value}")
        names, present = frozenset(TOPICS), [member for member in members if member.member_id in classic.members]
    else:
        raise Broken("there is no group")
    wanted = {(name, index) for name in names for index in range(world.topics.topics[name].partition_count)}
    owned = [partition for member in present for partition in member.owned]
    if sorted(owned) != sorted(wanted):
        raise Broken(f"read is {sorted(owned)}, not {sorted(wanted)}")


def act(world: MixedWorld, members: list[Member], chance: random.Random, number: int) -> None:
    """One random event."""
    dice = chance.random()
    if dice < 0.06 and len(members) < 6:
        kind = ConsumerMember if chance.random() < 0.5 else ClassicMember
        members.append(kind(f"m{number}", world, chance))
    elif dice < 0.10 and len(members) > 1:
        leaver = members.pop(chance.randrange(len(members)))
        world.former.append(leaver)
        if chance.random() < 0.6:
            leaver.leave()
    elif dice < 0.12:
        world.advance(chance.choice([500, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    elif dice < 0.135:
        world.fail_over()
        for member in members:
            member.waits_for = member.waits_for if member.waits_for in world.answers else None
    elif dice < 0.16:
        world.is_stalled = not world.is_stalled
        if not world.is_stalled:
            world.go_on()
        elif chance.random() < 0.3:
            world.refuse()
    elif dice < 0.21:
        check_commits(world, members, chance)
    elif dice < 0.23:
        check_lies(world, members, chance)
    else:
        chance.choice(members).act(chance)


def play(world: MixedWorld, chance: random.Random, steps: int = 250) -> None:
    """A life. Raises Broken."""
    kind = ConsumerMember if chance.random() < 0.4 else ClassicMember
    members: list[Member] = [kind("m0", world, chance)]
    for number in range(1, steps):
        act(world, members, chance, number)
        check_ownership(world, members)
    if world.policy == "disabled" and world.shard.groups.get("g") is not None:
        # A classic group refuses consumers, so they never become members.
        members = [member for member in members if isinstance(member, ClassicMember)] or [ClassicMember("last", world, chance)]
    settle(world, members, chance)
    check_quiet(world, members)
    group = world.shard.consumers.groups.get("g")
    before = None if group is None else (group.state, group.owners, group.targets, group.members)
    world.fail_over()
    group = world.shard.consumers.groups.get("g")
    if (None if group is None else (group.state, group.owners, group.targets, group.members)) != before:
        raise Broken("another broker has another group")
