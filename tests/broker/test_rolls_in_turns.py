"""A segment that begins costs a hundred times an ordinary append: requests that begin many of them give others their turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.batches import T0, batch
from helpers.live_node import broker_port, live_node
from helpers.produce_frames import produce

from minikafka.broker.node import Node
from minikafka.client.admin import Admin
from minikafka.net import connection as connection_module
from minikafka.net.channel import Channel
from minikafka.net.connection import TURN_S_MAX
from minikafka.net.server import SocketNetwork
from minikafka.net.turn_share import SHARE_S, TurnShares
from minikafka.storage.rolling import Rolling
from minikafka.wire.messages.produce import ProduceRequest

PARTITIONS = 60
#: What a roll takes by the clock of these tests; nothing else takes time.
ROLL_S = 0.002
#: No turn may have more: its share, and one step that begins before the share is used up.
ROLLS_OF_A_REQUEST = round(SHARE_S / ROLL_S) + 1
ROLLS_OF_A_CONNECTION = round(TURN_S_MAX / ROLL_S) + 8


class Rolls:
    """Counts the rolls in every callback of the loop; a clock that only they move."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.all = self.most = self._now = 0

    def begin(self) -> None:
        self._now = 0

    def roll(self) -> None:
        self.now_s += ROLL_S
        self.all += 1
        self._now += 1
        self.most = max(self.most, self._now)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rolls]:
    rolls, run, roll = Rolls(), asyncio.Handle._run, Rolling.roll

    def run_counted(handle: asyncio.Handle) -> None:
        rolls.begin()
        run(handle)

    def roll_counted(self: Rolling, *arguments: Any) -> Any:
        rolls.roll()
        return roll(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", run_counted)
        patch.setattr(Rolling, "roll", roll_counted)
        patch.setattr(connection_module, "monotonic", lambda: rolls.now_s)
        yield rolls


@asynccontextmanager
async def node_with_topic(tmp_path: Path) -> AsyncIterator[tuple[Node, Channel]]:
    """Every batch whose time is an hour after the one before begins a segment."""
    async with live_node(tmp_path) as node:
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            configs = {"segment.ms": "1000", "message.timestamp.after.max.ms": "9223372036854775807"}
            await admin.create_topic("t", partitions=PARTITIONS, replication_factor=1, configs=configs)
        channel = await Channel.open(SocketNetwork(asyncio.get_running_loop()), "127.0.0.1", broker_port(node), client_id="c")
        yield node, channel
        channel.close()


def request(hour: int, partitions: Iterator[int] | range = range(PARTITIONS)) -> ProduceRequest:
    data = [ProduceRequest.PartitionProduceData(index=index, records=records(hour)) for index in partitions]
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=data)])


def records(hour: int) -> memoryview:
    return memoryview(batch(b"v", timestamp=T0 + hour * 3_600_000))


def ends(node: Node) -> set[int]:
    assert node.broker is not None
    return {partition.log.log_end_offset for partition in node.broker.replicas.partitions.values() if partition.topic == "t"}


async def test_a_request_that_begins_a_segment_of_every_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node_with_topic(tmp_path) as (node, channel):
        await channel.request(request(0), version=12)
        with counted(monkeypatch) as rolls:
            assert node.broker is not None
            monkeypatch.setattr(node.environment, "shares", TurnShares(lambda: rolls.now_s))
            # The second comes while the first is served, and must not overtake it.
            answers = await asyncio.gather(*(channel.request(request(hour), version=12) for hour in (1, 2)))
        assert rolls.all == 2 * PARTITIONS and rolls.most <= ROLLS_OF_A_REQUEST
        for number, answer in enumerate(answers, 1):
            found = {(part.index, part.error_code, part.base_offset) for part in answer.responses[0].partition_responses}  # type: ignore[attr-defined]
            assert found == {(index, 0, number) for index in range(PARTITIONS)}
        assert ends(node) == {3}


async def test_requests_for_one_partition_each_that_arrive_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node_with_topic(tmp_path) as (node, channel):
        await channel.request(request(0), version=12)
        reader, writer = await asyncio.open_connection("127.0.0.1", broker_port(node))

        async def send(hour: int) -> None:
            frames = [
                produce("t", bytes(16), 12, bytes(records(hour)), correlation_id=index, partition=index) for index in range(PARTITIONS)
            ]
            writer.write(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
            for index in range(PARTITIONS):
                answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                assert int.from_bytes(answer[:4], "big") == index

        for hour in (0, 0):
            await send(hour)
        with counted(monkeypatch) as rolls:
            await send(5)
        assert rolls.all == PARTITIONS and rolls.most <= ROLLS_OF_A_CONNECTION
        assert ends(node) == {4}
        writer.close()
