"""Very many partitions that the metadata assign at once: they are made some in a turn of the loop, and asked for elsewhere meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.partitions.log_dirs import LogDirHandlers
from minikafka.broker.partitions.log_placement import LogPlacement
from minikafka.broker.partitions.partition import Partition
from minikafka.broker.partitions.replica_manager import PLACED_AT_ONCE, ReplicaManager
from minikafka.client.admin import Admin
from minikafka.core.metadata.delta import MetadataDelta
from minikafka.core.metadata.image import MetadataImage
from minikafka.net.turn_share import TurnShares
from minikafka.steps import STEP_ITEMS, at_once
from minikafka.storage.errors import StorageError
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.lazy_list import LazyList
from minikafka.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from minikafka.wire.records.metadata_records import PartitionChangeRecord

MANY = 3 * PLACED_AT_ONCE + 5


@pytest.fixture(autouse=True)
def steps_in_a_share(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After how many steps the share of a turn is used up."""
    steps = [10 * MANY]

    def begin(shares: TurnShares) -> Any:
        taken = itertools.count(1)
        return lambda: next(taken) >= steps[0]

    monkeypatch.setattr(TurnShares, "begin", begin)
    return steps


@pytest.mark.timeout(60)
async def test_replicas_are_made_some_in_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    codes: set[ErrorCode] = set()
    place, place_late, turn = ReplicaManager._place, ReplicaManager._place_late, 0

    def noted(manager: ReplicaManager, topic: str, topic_id: bytes, index: int, *arguments: Any) -> Any:
        if (topic_id, index) not in manager.partitions_by_id:
            made.append(turn)
        return place(manager, topic, topic_id, index, *arguments)

    def late(manager: ReplicaManager) -> None:
        nonlocal turn
        turn += 1
        for topic_id, index in manager._late:
            with pytest.raises(ApiError) as refused:
                manager.require("", topic_id, index)
            codes.add(refused.value.code)
        place_late(manager)

    monkeypatch.setattr(ReplicaManager, "_place", noted)
    monkeypatch.setattr(ReplicaManager, "_place_late", late)
    async with live_node(tmp_path) as node:
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.create_topic("t", partitions=MANY, replication_factor=1)
        assert node.broker is not None
        replicas = node.broker.replicas
        while len(replicas.partitions) < MANY:
            await asyncio.sleep(0)
        assert all(partition.is_leader for partition in replicas.partitions.values())
    assert sorted(Counter(made).values()) == [5, PLACED_AT_ONCE, PLACED_AT_ONCE, PLACED_AT_ONCE]
    assert codes == {ErrorCode.NOT_LEADER_OR_FOLLOWER}, "whoever asks comes back"
    made.clear()
    async with live_node(tmp_path) as node:
        assert node.broker is not None
        while len(node.broker.replicas.partitions) < MANY:
            await asyncio.sleep(0)
    assert sorted(Counter(made).values())[-1] == PLACED_AT_ONCE and len(made) == MANY, "at a start, too"


@pytest.mark.timeout(60)
async def test_a_replica_whose_topic_goes_before_its_turn_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_node(tmp_path) as node, Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        assert node.broker is not None
        replicas, place_late = node.broker.replicas, ReplicaManager._place_late
        monkeypatch.setattr(ReplicaManager, "_place_late", lambda manager: None)
        await admin.create_topic("t", partitions=MANY, replication_factor=1, wait=False)
        await admin.delete_topic("t")
        assert replicas._late and not replicas.partitions
        monkeypatch.setattr(ReplicaManager, "_place_late", place_late)
        while replicas._late:
            replicas._place_late()
        assert not replicas.partitions


@pytest.mark.timeout(60)
async def test_a_replica_is_about_to_lead_until_its_turn_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_node(tmp_path) as node, Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        assert node.broker is not None
        replicas, place_late = node.broker.replicas, ReplicaManager._place_late
        monkeypatch.setattr(ReplicaManager, "_place_late", lambda manager: None)
        await admin.create_topic("t", partitions=MANY, replication_factor=1, wait=False)
        while "t" not in (image := node.metadata.image).topics_by_name:
            await asyncio.sleep(0)
        indexes = range(len(image.topics_by_name["t"].partitions))
        about = {index for index in indexes if replicas.is_about_to_lead("t", index)}
        assert len(about) == MANY - PLACED_AT_ONCE and about.isdisjoint(index for _, index in replicas.partitions)
        assert not replicas.is_about_to_lead("t", MANY) and not replicas.is_about_to_lead("u", 0)
        monkeypatch.setattr(ReplicaManager, "_place_late", place_late)
        while replicas._late:
            replicas._place_late()
        assert not any(replicas.is_about_to_lead("t", index) for index in indexes)
        monkeypatch.setattr(replicas, "_late_roles", {(image.topics_by_name["t"].topic_id, 3): None})
        assert [index for index in indexes if replicas.is_about_to_lead("t", index)] == [3], "one that follows and will lead"


def elected_again(node: Any) -> tuple[MetadataDelta, MetadataImage]:
    """A step of the metadata after which every partition has another leader epoch."""
    delta = MetadataDelta(node.metadata.image)
    for topic_id, topic in node.metadata.image.topics_by_id.items():
        for index, registration in topic.partitions.items():
            delta.apply(PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=registration.leader))
    image = delta.image(node.metadata.image.offset + 1, node.metadata.image.epoch)
    node.metadata.image = image
    return delta, image


@pytest.mark.timeout(60)
async def test_replicas_take_other_roles_some_in_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker dies, and this one leads two thousand partitions more, which takes 0.3 s."""
    assumed: list[tuple[int, str, int]] = []
    assume, place_late, turn = ReplicaManager._assume_role, ReplicaManager._place_late, 0

    def noted(manager: ReplicaManager, partition: Any, registration: Any, *arguments: Any) -> None:
        assumed.append((turn, partition.key, registration.leader_epoch))
        assume(manager, partition, registration, *arguments)

    def late(manager: ReplicaManager) -> None:
        nonlocal turn
        turn += 1
        place_late(manager)

    async with live_node(tmp_path) as node, Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        assert node.broker is not None
        replicas = node.broker.replicas
        await admin.create_topic("t", partitions=MANY, replication_factor=1)
        while len(replicas.partitions) < MANY:
            await asyncio.sleep(0)
        monkeypatch.setattr(ReplicaManager, "_assume_role", noted)
        monkeypatch.setattr(ReplicaManager, "_place_late", late)
        replicas.apply(*elected_again(node))
        first = [key for _, key, _ in assumed]
        replicas.apply(*elected_again(node))
        while len({key for _, key, epoch in assumed if epoch == 2}) < MANY:
            await asyncio.sleep(0)
        assert all(partition.leader_epoch == 2 for partition in replicas.partitions.values()), "the newest metadata count"
        assert not replicas._late_roles
        monkeypatch.undo()
    turns = Counter(at for at, _, _ in assumed)
    assert len(first) == PLACED_AT_ONCE and turns[0] == 2 * PLACED_AT_ONCE, "some of each step at once"
    assert sorted(turns.values())[:-1] == [5, PLACED_AT_ONCE, PLACED_AT_ONCE]
    assert {epoch for at, _, epoch in assumed if at} == {2}, "a role that the next step has changed is not taken"


@pytest.mark.timeout(60)
async def test_replicas_of_deleted_topics_go_some_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps_in_a_share: list[int]
) -> None:
    """Renaming 3,000 directories took 260 ms. A replica of a new topic of the same name takes the place of the old one at once."""
    removed: list[tuple[int, bytes]] = []
    remove, place_late, turn = ReplicaManager._remove, ReplicaManager._place_late, 0

    def noted(manager: ReplicaManager, partition: Any, *arguments: Any) -> None:
        removed.append((turn, partition.topic_id))
        remove(manager, partition, *arguments)

    def late(manager: ReplicaManager) -> None:
        nonlocal turn
        turn += 1
        place_late(manager)

    monkeypatch.setattr(ReplicaManager, "_remove", noted)
    monkeypatch.setattr(ReplicaManager, "_place_late", late)
    async with live_node(tmp_path) as node, Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        assert node.broker is not None
        replicas, ids = node.broker.replicas, []
        for steps in (10 * MANY, 3):
            steps_in_a_share[0] = steps
            await admin.create_topic("t", partitions=MANY, replication_factor=1)
            ids.append(node.metadata.image.topics_by_name["t"].topic_id)
            while len(replicas.partitions) < MANY or replicas._late:
                await asyncio.sleep(0)
            await admin.delete_topic("t")
            while replicas.partitions:
                await asyncio.sleep(0)
            assert max(Counter(removed).values()) == min(steps, PLACED_AT_ONCE) and len(removed) == MANY
            removed.clear()
            turn += 1
        monkeypatch.setattr(ReplicaManager, "_place_late", lambda manager: None)
        steps_in_a_share[0] = 10 * MANY
        await admin.create_topic("t", partitions=3, replication_factor=1)
        first = node.metadata.image.topics_by_name["t"].topic_id
        steps_in_a_share[0] = 1
        await admin.delete_topic("t")
        assert len(replicas.partitions) == 2 and len(removed) == 1
        steps_in_a_share[0] = 10 * MANY
        await admin.create_topic("t", partitions=4, replication_factor=1)
        assert {topic_id for _, topic_id in removed} == {first} and len(removed) == 3
        assert {partition.topic_id for partition in replicas.partitions.values()} == {node.metadata.image.topics_by_name["t"].topic_id}
        assert not any("-stray" in path.name for path in tmp_path.rglob("*"))


class Found:
    """A log directory with logs of topic `t`."""

    path, is_offline = "/d", False

    def __init__(self, count: int) -> None:
        self.logs = {("t", index): SimpleNamespace(size=1) for index in range(count)}
        self.fails: set[int] = set()
        self.aside: list[int] = []

    def set_aside(self, topic: str, index: int) -> None:
        if index in self.fails:
            raise StorageError("the disk fails")
        del self.logs[topic, index]
        self.aside.append(index)


def test_stray_logs_are_set_aside_some_in_a_turn() -> None:
    """A thousand renames were one turn at the start, and one that failed left every replica of the broker unmade."""
    directory: Any = Found(200)
    metadata: Any = SimpleNamespace(image=SimpleNamespace(topics_by_name={}))
    others: Any = SimpleNamespace()
    placement = LogPlacement(1, [directory], others, others)
    placed = {("t", 0): None}
    directory.fails = {1}
    steps = placement.setting_strays_aside(metadata, placed)
    for renamed in (1, 2, 3):
        next(steps)
        assert len(directory.aside) == renamed, "one rename a step"
    # What comes meanwhile is no stray: a replica placed, one that the metadata assign, one that was removed and is there anew.
    placed["t", 10] = None
    assigned = SimpleNamespace(partitions={11: SimpleNamespace(replicas=[1]), 12: SimpleNamespace(replicas=[2])})
    metadata.image = SimpleNamespace(topics_by_name={"t": assigned})
    directory.logs["t", 13] = SimpleNamespace(size=1)
    at_once(steps)
    assert set(range(200)) - set(directory.aside) == {0, 1, 10, 11, 13}
    assert placement.strays == placement.stray_bytes == 195
    many: Any = Found(2_000)
    steps = LogPlacement(1, [many], others, others).setting_strays_aside(metadata, many.logs)
    assert len(list(steps)) >= 2_000 // STEP_ITEMS and not many.aside, "looks at logs that stay are counted, too"


@pytest.mark.timeout(60)
async def test_replicas_resign_some_in_a_turn_at_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps_in_a_share: list[int]
) -> None:
    resigned, most = 0, 0
    resign = Partition.resign

    def noted(partition: Partition) -> None:
        nonlocal resigned, most
        resigned += 1
        most = max(most, resigned)
        resign(partition)

    async def watch() -> None:
        nonlocal resigned
        while True:
            resigned = 0
            await asyncio.sleep(0)

    monkeypatch.setattr(Partition, "resign", noted)
    async with live_node(tmp_path) as node, Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        assert node.broker is not None
        await admin.create_topic("t", partitions=MANY, replication_factor=1)
        while len(node.broker.replicas.partitions) < MANY:
            await asyncio.sleep(0)
        steps_in_a_share[0] = 1
        watching = asyncio.ensure_future(watch())
        assert most == 0
    watching.cancel()
    assert 0 < most <= STEP_ITEMS < MANY


async def test_who_asks_a_broker_that_has_closed_its_logs_is_told_that_others_lead(tmp_path: Path) -> None:
    """A follower's log said of each partition that the leader's disk had failed."""
    async with live_node(tmp_path) as node, Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        assert node.broker is not None
        await admin.create_topic("t", partitions=1, replication_factor=1)
        replicas = node.broker.replicas
        replicas.require("t", None, 0)
    with pytest.raises(ApiError) as refused:
        replicas.require("t", None, 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("topics", [1, 600])
def test_logs_are_described_while_the_answer_is_encoded(topics: int) -> None:
    """With 9,000 replicas the list took a turn of 25 ms."""
    log = SimpleNamespace(size=5, high_watermark=7, log_end_offset=4)
    named = [(f"t{number % topics}", number // topics) for number in range(600)]
    directory = SimpleNamespace(path="/d", is_offline=False, logs=dict.fromkeys(named, log))
    copy = SimpleNamespace(size=3, high_watermark=0, log_end_offset=1)
    replicas: Any = SimpleNamespace(
        directories=[directory], cordons=(), partition=lambda name, index: SimpleNamespace(is_leader=index == 0),
        moves=SimpleNamespace(future=lambda where: [(("t0", 0), copy, log)]),
    )  # fmt: skip
    handlers, context = LogDirHandlers(replicas), cast(Any, None)
    answer = handlers.describe_log_dirs(context, DescribeLogDirsRequest(topics=None))
    (result,) = answer.results
    assert isinstance(result.topics if topics > 1 else result.topics[0].partitions, LazyList)
    assert sorted((topic.name, one.partition_index) for topic in result.topics for one in topic.partitions) == sorted([*named, ("t0", 0)])
    first = [(one.partition_size, one.offset_lag, one.is_future_key) for one in result.topics[0].partitions if one.partition_index == 0]
    assert first == [(5, 0, False), (3, 3, True)] and all(
        one.offset_lag == 3 for topic in result.topics for one in topic.partitions if one.partition_index
    )
    wanted = [DescribeLogDirsRequest.DescribableLogDirTopic(topic="t0", partitions=[index for _, index in named])]
    (result,) = handlers.describe_log_dirs(context, DescribeLogDirsRequest(topics=wanted)).results
    assert type(result.topics) is list is type(result.topics[0].partitions), "parts of a request have answers that can be joined"
