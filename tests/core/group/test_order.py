"""What a coordinator writes and answers never depends on the order of a set: that order differs from process to process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.set_order import places, revealing

ROOT = Path(__file__).parents[3]
LIVES = """
import hashlib, random, sys
from core.group.consumer import test_property as consumers
from core.group.streams import test_property as streams
from core.share import test_share_groups as shares
from helpers.consumer_group_world import GroupsWorld
from helpers.streams_group_world import StreamsWorld
from minikafka.core.group.consumer.settings import ConsumerGroupConfig, GroupIntervals
from minikafka.core.group.streams.settings import StreamsIntervals
from minikafka.wire.records.frame import encode_coordinator_key, encode_coordinator_value

def show(name, log):
    digest = hashlib.sha256()
    for record in log:
        digest.update(encode_coordinator_key(record.key))
        digest.update(b"-" if record.value is None else encode_coordinator_value(record.value, record.value.MAX_VERSION))
    print(name, len(log), digest.hexdigest())

for assignor in ("uniform", "range"):
    chance = random.Random(assignor)
    world = GroupsWorld(ConsumerGroupConfig(assignors=(assignor,)), GroupIntervals(assignment_interval_ms=0), a=7, b=5, c=4)
    members = [consumers.Consumer(f"d{number}", world, chance) for number in range(5)]
    for number, member in enumerate(members):
        member.regex = ("a|b", "b|c", "[abc]", None, "c")[number]
    for number in range(400):
        consumers.act(world, members, chance, number)
    show(assignor, world.log)

chance = random.Random("streams")
world = StreamsWorld(StreamsIntervals(assignment_interval_ms=0, num_standby_replicas=1), a=7, b=5)
members = [streams.Processor(f"d{number}", f"p{number % 3}", world) for number in range(5)]
for number in range(400):
    streams.act(world, members, chance, number)
show("streams", world.log)

world = shares.World()
world.topics.counts.update(u=3, v=5)
epochs = {}
for number in range(60):
    member = f"m{number % 7}"
    names = random.Random(number).sample("tuv", 2) if number % 7 == 3 or member not in epochs else ()
    if member in epochs and number % 11 == 0:
        world.heartbeat(member, -1)
        del epochs[member]
    else:
        epochs[member] = world.heartbeat(member, epochs.get(member, 0), *names).member_epoch
show("share", world.log)
"""


def records(hash_seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    run = subprocess.run([sys.executable, "-B", "-c", LIVES], capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
    return run.stdout


def test_groups_of_every_protocol_write_the_same_records_under_every_hash_seed() -> None:
    first, *others = (records(seed) for seed in range(4))
    assert [line.split()[0] for line in first.splitlines()] == ["uniform", "range", "streams", "share"]
    assert all(int(line.split()[1]) > 100 for line in first.splitlines()), first
    assert others == [first] * 3


@pytest.mark.timeout(300)
def test_no_decision_and_no_coordinator_iterates_over_a_set(tmp_path: Path) -> None:
    """Sets of numbers are allowed: they have one order. mypy knows the types."""
    folders = ["minikafka/core", "minikafka/broker/coordinators", "minikafka/broker/share"]
    assert places(ROOT, folders, tmp_path) == []


@pytest.mark.timeout(300)
def test_iterating_over_a_set_is_noticed(tmp_path: Path) -> None:
    package = tmp_path / "some"
    package.mkdir()
    (package / "__init__.py").write_text("")
    lines = [
        "def all_ways(names: frozenset[str], more: set[bytes], numbers: set[int], table: dict[str, set[str]]) -> None:",
        "    for name in names: print(name)",
        "    print([name for name in names | {'x'}], {name: 1 for name in names})",
        "    print(list(more), dict.fromkeys(names), ','.join(names), next(iter(names)), [*names])",
        "    first, = names",
        "    print(more.pop())",
        "    print(sorted(names), len(names), {name for name in names}, any(name for name in names), min(numbers), list(numbers))",
        "    print([name for name in sorted(names)], frozenset(name for name in names), set(names), list(table), table.pop('x'))",
    ]
    (package / "module.py").write_text("\n".join(lines) + "\n")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert list(dict.fromkeys(place.split(":")[1] for place in places(tmp_path, ["some"], scratch))) == ["2", "3", "4", "5", "6"]
    assert revealing(b"for x in y: pass\n") == b"for x in reveal_type((y)): pass\n"
