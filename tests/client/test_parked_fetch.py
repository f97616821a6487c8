"""A fetch that waits for records holds up nothing else of its consumer."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helpers.live_node import broker_port, live_node

from minikafka.client.admin import Admin
from minikafka.client.consumer import Consumer
from minikafka.client.producer import Producer


async def test_commits_and_look_ups_do_not_wait_for_a_parked_fetch(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        address = f"127.0.0.1:{broker_port(node)}"
        async with Admin(address) as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1)
        async with Producer(address) as producer:
            await (await producer.send("t", b"v"))
        async with Consumer(address, group_id="g", auto_offset_reset="earliest", fetch_wait_ms_max=600_000) as consumer:
            await consumer.subscribe(["t"])
            records = []
            while not records:
                records = await consumer.poll(1000)
            fetches = node.broker.replicas.waiting.fetches
            # The next fetch has nothing to bring and waits for ten minutes, longer than a test may last.
            while not len(fetches):
                await asyncio.sleep(0.01)
            await consumer.commit()
            assert await consumer.committed([("t", 0)]) == {("t", 0): 1}
            assert (await consumer.cluster.refresh(["t"])).topics
            assert len(fetches)
