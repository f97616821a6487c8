"""ListOffsets by timestamp of very many partitions whose records are in memory: each search is short, all together are not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.batches import T0, batch
from helpers.coverage_pause import without_coverage
from helpers.live_node import broker_port, live_node
from helpers.peer import Peer
from helpers.turn_lengths import too_long

from minikafka.client import Admin
from minikafka.wire.messages.list_offsets import ListOffsetsRequest

PARTITIONS, BATCHES, STEP_MS = 510, 60, 10
pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]


async def test_looking_up_a_time_in_many_warm_partitions_is_no_long_turn(tmp_path: Path) -> None:
    """Segments that were closed since they were written are searched by their indexes, with several system calls each."""
    async with live_node(tmp_path, {"log.index.interval.bytes": "256"}) as node, Peer(broker_port(node)) as peer:
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.create_topic("t", partitions=PARTITIONS, replication_factor=1)
        assert node.broker is not None
        replicas = node.broker.replicas
        for index in range(PARTITIONS):
            while (partition := replicas.partition("t", index)) is None or partition.leader is None:
                await asyncio.sleep(0.01)
            for number in range(BATCHES):
                partition.log.append_as_leader(memoryview(batch(b"%0100d" % number, timestamp=T0 + number * STEP_MS)), 0, T0)
            partition.log.update_high_watermark(BATCHES)
            partition.log.roll(T0)
        kind = ListOffsetsRequest
        wanted = [
            kind.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=T0 + (index % BATCHES) * STEP_MS)
            for index in range(PARTITIONS)
        ]
        request = kind(replica_id=-1, isolation_level=0, topics=[kind.ListOffsetsTopic(name="t", partitions=wanted)])

        async def ask() -> None:
            (topic,) = (await peer.ask(request, 7)).topics
            found = {one.partition_index: one.offset for one in topic.partitions}
            assert found == {index: index % BATCHES for index in range(PARTITIONS)}

        await ask()
        with without_coverage():
            found = await too_long(ask)
        assert not found
