"""Random histories of a group, checked against an independent model: consumers that only rely on the answers that they get."""

from __future__ import annotations

import random

import pytest
from helpers.consumer_group_world import GroupsWorld, Partitions, assigned, topic_id_of, wire_partitions

from minikafka.core.group.config import Client
from minikafka.core.group.consumer.checks import check_commit
from minikafka.core.group.consumer.coordinator import ConsumerGroups
from minikafka.core.group.consumer.group import STABLE
from minikafka.core.group.consumer.plans import Plan
from minikafka.core.group.consumer.settings import ConsumerGroupConfig, GroupIntervals
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

TOPICS = ("a", "b", "c")
REFUSED = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNRELEASED_INSTANCE_ID}


class Consumer:
    """Owns what it was assigned until it has said that it does not any more."""

    def __init__(self, name: str, world: GroupsWorld, chance: random.Random) -> None:
        self.member_id = name
        self.instance_id = f"i-{name[0]}" if name.startswith("s") else None
        self.epoch = 0
        self.owned: Partitions = set()
        #: What it owns as far as the coordinator can know: it drops out when a heartbeat without it was taken.
        self.held: Partitions = set()
        self.wanted: Partitions = set()
        self.regex: str | None = None
        self.names = set(chance.sample(TOPICS, chance.randint(1, 3)))
        self.is_new = True
        self.world = world
        self.waits = False

    def beat(self, chance: random.Random) -> None:
        """One heartbeat, if none is under way."""
        if self.waits:
            return
        fields: dict[str, object] = {}
        if self.epoch == 0:
            self.owned = set()
        if self.is_new or self.epoch == 0 or chance.random() < 0.1:
            fields = {"rebalance_timeout_ms": 20_000, "subscribed_topic_names": sorted(self.names)}
            fields["subscribed_topic_regex"] = self.regex or ""
        self.is_new = False
        self.waits = True
        owned = wire_partitions(self.owned)
        instance = {"instance_id": self.instance_id} if self.instance_id else {}
        self.world.send(self, member_id=self.member_id, member_epoch=self.epoch, topic_partitions=owned, **instance, **fields)

    def hear(self, chance: random.Random, *, is_lost: bool) -> None:
        """Take the answer, if there is one and it is not lost."""
        answer = self.world.answer(self)
        if answer is None:
            return
        self.waits = False
        if not is_lost:
            self._take(answer, chance)

    def _take(self, answer: ConsumerGroupHeartbeatResponse, chance: random.Random) -> None:
        if answer.error_code in REFUSED:
            self.epoch, self.owned = 0, set()
        elif answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
            target = assigned(answer)
            if target is not None:
                self.wanted = target
            # It takes its time to give partitions up.
            for partition in sorted(self.owned - self.wanted):
                if chance.random() < 0.7:
                    self.owned.discard(partition)
            self.owned |= self.wanted

    def is_member(self) -> bool:
        """Whether the group holds it for a member."""
        group = self.world.groups.groups.get("g")
        return group is not None and self.member_id in group.members and self.epoch > 0


def check_nothing_twice(world: GroupsWorld, consumers: list[Consumer]) -> None:
    """What members own, the coordinator has reserved for them: so no two own the same. Others cannot commit."""
    group = world.groups.groups.get("g")
    for consumer in consumers:
        member = None if group is None else group.members.get(consumer.member_id)
        if group is not None and member is None:
            with pytest.raises(ApiError):
                check_commit(group, consumer.member_id, None, consumer.epoch or 5, 9)
        if group is None or member is None or not consumer.is_member() or consumer.epoch != member.member_epoch:
            continue
        for topic_id, partition in consumer.owned:
            assert group.owners.get(topic_id, {}).get(partition) == consumer.member_id, (consumer.member_id, topic_id, partition)
    if group is not None:
        everything = [
            (topic_id, partition)
            for member in group.members.values()
            for held in (member.assigned, member.pending_revocation)
            for topic_id, epochs in held.items()
            for partition in epochs
        ]
        assert len(everything) == len(set(everything)), "owned twice"


def settle(world: GroupsWorld, consumers: list[Consumer], chance: random.Random) -> None:
    """Nothing happens any more but heartbeats, until the group is stable: a session and a rebalance may end one after the other."""
    world.is_stalled = False
    world.commit()
    world.run()
    for number in range(60):
        if number >= 30 and world.group().state == STABLE:
            break
        world.advance(2_000)
        world.resolve()
        for consumer in consumers:
            consumer.hear(chance, is_lost=False)
            consumer.beat(chance)
            consumer.hear(chance, is_lost=False)
            check_nothing_twice(world, consumers)


def check_quiet(world: GroupsWorld, consumers: list[Consumer]) -> None:
    """Every subscribed partition is owned by a subscribed member, and the group is stable."""
    group = world.group()
    assert group.state == STABLE, (group.epoch, group.assignment_epoch, group.members)
    assert set(group.members) == {consumer.member_id for consumer in consumers}
    wanted = {
        (topic_id_of(name), partition)
        for name in group.subscribed_topics()
        if name in world.topics.topics
        for partition in range(world.topics.topics[name].partition_count)
    }
    owned = [partition for consumer in consumers for partition in consumer.owned]
    assert sorted(owned) == sorted(wanted)
    for consumer in consumers:
        topics = group.topics_of([group.members[consumer.member_id]])
        assert {topic_id for topic_id, _ in consumer.owned} <= {topic_id_of(name) for name in topics}
    if len({frozenset(consumer.names) for consumer in consumers}) == 1 and not group.regexes and world.config.assignors[0] == "uniform":
        sizes = [len(consumer.owned) for consumer in consumers]
        assert max(sizes) - min(sizes) <= 1


def act(world: GroupsWorld, consumers: list[Consumer], chance: random.Random, number: int) -> None:
    """One thing that may happen to a group."""
    dice = chance.random()
    if dice < 0.08 and len(consumers) < 6:
        kind = chance.choice("dds")
        if kind == "d" or not any(consumer.instance_id for consumer in consumers):
            consumers.append(Consumer(f"{kind}{number}", world, chance))
    elif dice < 0.12 and len(consumers) > 1:
        leaver = consumers.pop(chance.randrange(len(consumers)))
        if leaver.epoch > 0 and chance.random() < 0.5:
            instance = {"instance_id": leaver.instance_id} if leaver.instance_id else {}
            epoch = -2 if leaver.instance_id and chance.random() < 0.5 else -1
            world.send("left", member_id=leaver.member_id, member_epoch=epoch, **instance)
    elif dice < 0.16:
        chance.choice(consumers).names = set(chance.sample(TOPICS, chance.randint(0, 3))) or {"a"}
    elif dice < 0.18:
        consumer = chance.choice(consumers)
        consumer.regex, consumer.is_new = chance.choice([None, "[ab]", "c.*", "b|c"]), True
    elif dice < 0.20:
        name = chance.choice(TOPICS)
        existing = world.topics.topics.get(name)
        world.topic(name, 0 if existing and chance.random() < 0.2 else (existing.partition_count if existing else 0) + chance.randint(1, 3))
    elif dice < 0.22:
        world.advance(chance.choice([1_000, 15_000, 50_000]))
    elif dice < 0.24:
        world.fail_over()
    elif dice < 0.27:
        world.is_stalled = not world.is_stalled
        world.commit() if chance.random() < 0.7 or not world.is_stalled else world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    elif dice < 0.30:
        world.resolve()
    else:
        consumer = chance.choice(consumers)
        consumer.beat(chance)
        consumer.hear(chance, is_lost=chance.random() < 0.05)


@pytest.fixture
def kept_alive(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that there would be for heartbeats that are answered without one. Each has to say what is answered."""
    plans: list[Plan] = []
    keep_alive, sender = ConsumerGroups._keep_alive, Client("c", "/1.1.1.1", 1)

    def checked(self: ConsumerGroups, reply: object, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> None:
        plans.append(self._plan(request, sender, now_ms))
        keep_alive(self, reply, request, now_ms)
        assert plans[-1] == Plan(member_id=request.member_id, answer=self._effects().answers[-1][1])

    monkeypatch.setattr(ConsumerGroups, "_keep_alive", checked)
    return plans


@pytest.mark.parametrize("seed", [*range(60), 500_036])
def test_a_group_gives_out_every_partition_once(seed: int, kept_alive: list[Plan]) -> None:
    chance = random.Random(seed)
    config = ConsumerGroupConfig(assignors=chance.choice([("uniform", "range"), ("range", "uniform")]))
    intervals = GroupIntervals(assignment_interval_ms=chance.choice([0, 0, 1_000]))
    world = GroupsWorld(config, intervals, a=chance.randint(1, 7), b=chance.randint(1, 5))
    consumers = [Consumer("d0", world, chance)]
    for number in range(1, 200):
        act(world, consumers, chance, number)
        for consumer in consumers:
            if chance.random() < 0.5:
                consumer.hear(chance, is_lost=False)
        check_nothing_twice(world, consumers)
    settle(world, consumers, chance)
    check_quiet(world, consumers)
    assert kept_alive or world.group().regexes or not world.group().members
    before = {name: (group.state, group.owners, group.targets, group.members) for name, group in world.groups.groups.items()}
    world.fail_over()
    assert {name: (group.state, group.owners, group.targets, group.members) for name, group in world.groups.groups.items()} == before
