"""Very many partitions that the metadata assign at once: they are made some in a turn of the loop, and asked for elsewhere meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.partitions.replica_manager import PLACED_AT_ONCE, ReplicaManager
from minikafka.client.admin import Admin
from minikafka.wire.errors import ApiError, ErrorCode

MANY = 3 * PLACED_AT_ONCE + 5


@pytest.mark.timeout(60)
async def test_replicas_are_made_some_in_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    told: set[ErrorCode] = set()
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
            told.add(refused.value.code)
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
    assert told == {ErrorCode.NOT_LEADER_OR_FOLLOWER}, "whoever asks comes back"
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
