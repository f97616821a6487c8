"""Random lives of a streams group: members that stall, die, come back, lie about their epochs, and believe what they are answered."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from helpers.streams_group_world import Processor, StreamsWorld

from minikafka.core.group.streams.checks import check_commit
from minikafka.core.group.streams.group import STABLE
from minikafka.core.group.streams.settings import StreamsIntervals
from minikafka.wire.errors import ApiError, ErrorCode


def check_active_once(world: StreamsWorld, processors: list[Processor]) -> None:
    """No active task is with two members; who is no member cannot commit."""
    group = world.groups.groups.get("g")
    if group is None:
        return
    for processor in processors:
        member = group.members.get(processor.member_id)
        if member is None:
            with pytest.raises(ApiError):
                check_commit(group, processor.member_id, None, processor.epoch or 5, 9)
        elif processor.epoch == member.member_epoch:
            held = set(member.assigned.active) | set(member.pending.active)
            assert processor.has["active"] <= held, (processor.member_id, processor.has, member)
    active = [task for member in group.members.values() for task in {**member.assigned.active, **member.pending.active}]
    assert len(active) == len(set(active)), "an active task has two owners"


def check_nothing_twice(world: StreamsWorld, processors: list[Processor]) -> None:
    """As above, and no task is in two hands of one process."""
    check_active_once(world, processors)
    group = world.groups.groups.get("g")
    if group is None:
        return
    for process in {member.process_id for member in group.members.values()}:
        standby = [task for m in group.members.values() if m.process_id == process for task in m.assigned.standby | m.assigned.warmup]
        assert len(standby) == len(set(standby)), "a standby task is twice in a process"


def settle(
    world: StreamsWorld,
    processors: list[Processor],
    chance: random.Random,
    check: Callable[[StreamsWorld, list[Processor]], None] = check_nothing_twice,
) -> None:
    """Nothing happens any more but heartbeats of members that tell the truth."""
    world.is_stalled, world.makes_topics = False, True
    world.commit()
    world.run()
    for _ in range(40):
        world.advance(2_000)
        for processor in processors:
            processor.lies = False
            processor.hear(chance, is_lost=False)
            processor.beat(chance)
            processor.hear(chance, is_lost=False)
            check(world, processors)


def check_quiet(world: StreamsWorld, processors: list[Processor]) -> None:
    """Every task runs, each once, and stateful ones stand by as often as processes allow."""
    group = world.group()
    assert group.state == STABLE, (group.state, group.epoch, group.assignment_epoch, group.configured, group.members)
    assert set(group.members) == {processor.member_id for processor in processors}
    wanted = {("0", partition) for partition in range(world.topics.topics["a"].partition_count)}
    wanted |= {("1", partition) for partition in range(world.topics.topics["b"].partition_count)}
    active = [task for processor in processors for task in processor.has["active"]]
    assert sorted(active) == sorted(wanted)
    copies = min(world.streams_intervals.num_standby_replicas, len({processor.process_id for processor in processors}) - 1)
    standby = [task for processor in processors for task in processor.has["standby"]]
    assert sorted(standby) == sorted(task for task in wanted if task[0] == "0" for _ in range(copies))


def act(world: StreamsWorld, processors: list[Processor], chance: random.Random, number: int) -> None:
    """One thing that may happen to a group."""
    dice = chance.random()
    if dice < 0.08 and len(processors) < 6:
        processors.append(Processor(f"{chance.choice('dds')}{number}", f"p{chance.randint(1, 4)}", world))
    elif dice < 0.12 and len(processors) > 1:
        leaver = processors.pop(chance.randrange(len(processors)))
        if leaver.epoch > 0 and chance.random() < 0.5:
            instance = {"instance_id": leaver.instance_id} if leaver.instance_id else {}
            epoch = -2 if leaver.instance_id and chance.random() < 0.5 else -1
            world.send("left", member_id=leaver.member_id, member_epoch=epoch, **instance)
            if epoch == -2:
                back = Processor(f"{leaver.member_id}+", leaver.process_id, world)
                back.instance_id = leaver.instance_id
                processors.append(back)
    elif dice < 0.13:
        world.topic("b", world.topics.topics["b"].partition_count + 1)
    elif dice < 0.15:
        world.advance(chance.choice([1_000, 15_000, 50_000]))
    elif dice < 0.17:
        world.fail_over()
    elif dice < 0.20:
        world.is_stalled = not world.is_stalled
        world.commit() if chance.random() < 0.7 or not world.is_stalled else world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    elif dice < 0.22:
        world.makes_topics = not world.makes_topics
    else:
        processor = chance.choice(processors)
        processor.beat(chance)
        processor.hear(chance, is_lost=chance.random() < 0.05)


@pytest.mark.parametrize("seed", range(8))
def test_liars_take_no_task_from_others(seed: int) -> None:
    """Who reports tasks that it does not have, or is in another process all of a sudden, gets none that another member runs; and when the
    lies end, every task runs once."""
    chance = random.Random(seed)
    world = StreamsWorld(StreamsIntervals(assignment_interval_ms=0, initial_rebalance_delay_ms=0, num_standby_replicas=1), a=5, b=3)
    processors = [Processor(f"d{number}", f"p{number}", world) for number in range(4)]
    for number in range(200):
        for processor in processors:
            processor.is_liar = True
        act(world, processors, chance, number)
        check_active_once(world, processors)
    settle(world, processors, random.Random(-1), check=check_active_once)
    check_quiet(world, processors)


@pytest.mark.parametrize("seed", [*range(24), 500_079])
def test_a_group_runs_every_task_once(seed: int) -> None:
    chance = random.Random(seed)
    intervals = StreamsIntervals(
        assignment_interval_ms=chance.choice([0, 0, 1_000]),
        initial_rebalance_delay_ms=chance.choice([0, 0, 3_000]),
        num_standby_replicas=chance.choice([0, 1, 2]),
    )
    world = StreamsWorld(intervals, a=chance.randint(1, 7), b=chance.randint(1, 5))
    processors = [Processor("d0", "p0", world)]
    for number in range(1, 200):
        act(world, processors, chance, number)
        for processor in processors:
            if chance.random() < 0.5:
                processor.hear(chance, is_lost=False)
        check_nothing_twice(world, processors)
    settle(world, processors, random.Random(-1))
    check_quiet(world, processors)
    before = {name: (group.state, group.targets, group.members) for name, group in world.groups.groups.items()}
    world.fail_over()
    assert {name: (group.state, group.targets, group.members) for name, group in world.groups.groups.items()} == before
