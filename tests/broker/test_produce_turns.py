"""A Produce for many partitions whose batches each take long to look at, or to append, takes many turns of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.fast_paths import Side
from helpers.live_node import broker_port, live_node
from helpers.produce_frames import batch, decoded, led

from minikafka.broker.node import Node
from minikafka.broker.partitions.partition import Partition
from minikafka.client.admin import Admin
from minikafka.net.turn_share import SHARE_S
from minikafka.storage.log_append import LogAppender
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.produce import ProduceRequest

PARTITIONS = 20
#: Steps that use up a share, and one in which it ends.
STEP_S = SHARE_S / 2.5
STEPS_IN_A_TURN = 3


class Steps:
    """Steps that take virtual time, counted by the turn of the loop in which they are taken."""

    def __init__(self) -> None:
        self.now_s, self.turn = 0.0, 0
        self.taken: Counter[int] = Counter()

    def clock_s(self) -> float:
        return self.now_s

    def take(self) -> None:
        self.now_s += STEP_S
        self.taken[self.turn] += 1

    async def count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    def slow(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def stepping(*arguments: Any, **options: Any) -> Any:
            self.take()
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, stepping)


async def prepare(node: Node) -> None:
    async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        await admin.create_topic("t", partitions=PARTITIONS, replication_factor=1)
    await led(node, ("t",), PARTITIONS)


def frame(*values: bytes) -> bytes:
    data = [ProduceRequest.PartitionProduceData(index=index, records=batch(*values)) for index in range(PARTITIONS)]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=data)])
    return b"".join(bytes(piece) for piece in encode_request(request, 9, 1, "c"))[4:]


def end_offsets(node: Node) -> set[int]:
    assert node.broker is not None
    return {node.broker.replicas.partitions[("t", index)].log.log_end_offset for index in range(PARTITIONS)}


async def answered_in_turns(side: Side, steps: Steps, request: bytes) -> None:
    """Ask, and wait for the answer; meanwhile the connection accepts nothing else."""
    steps.taken.clear()
    counting = asyncio.ensure_future(steps.count_turns())
    side.connection.arrived.clear()
    assert side.ask(request) is None
    assert side.connection.holds == 1
    await side.connection.arrived.wait()
    counting.cancel()
    assert side.connection.holds == 0 and side.connection.reason is None


async def test_batches_are_looked_at_in_shares_of_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    steps.slow(monkeypatch, LogAppender, "is_heavy")
    async with live_node(tmp_path, turn_clock_s=steps.clock_s) as node:
        await prepare(node)
        assert node.broker is not None
        side = Side(node.broker.dispatcher, fast=False)
        for number in (1, 2):
            await answered_in_turns(side, steps, frame(b"one"))
            assert max(steps.taken.values()) == STEPS_IN_A_TURN
            assert steps.taken.total() == PARTITIONS and len(steps.taken) > PARTITIONS // (STEPS_IN_A_TURN + 1)
            assert end_offsets(node) == {number}


async def test_the_fast_path_appends_for_a_share_and_the_ordinary_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    async with live_node(tmp_path, turn_clock_s=steps.clock_s) as node:
        await prepare(node)
        assert node.broker is not None
        side = Side(node.broker.dispatcher, fast=True)
        for _ in range(3):
            learned = side.ask(frame(b"one"))
        assert learned is not None
        steps.slow(monkeypatch, Partition, "append")
        await answered_in_turns(side, steps, frame(b"one"))
        # The rest begins in a turn of its own.
        assert set(steps.taken.values()) <= {STEPS_IN_A_TURN, PARTITIONS % STEPS_IN_A_TURN}
        assert steps.taken.total() == PARTITIONS and end_offsets(node) == {4}
        _, answer = decoded(side.connection.frames[max(side.connection.frames)], 9)
        partitions = answer.responses[0].partition_responses
        assert [(one.index, one.error_code, one.base_offset) for one in partitions] == [(index, 0, 3) for index in range(PARTITIONS)]
