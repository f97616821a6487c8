"""All nodes are told to stop at the same moment: each goes quickly, cleanly, and comes back with what it had."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from minikafka.client.admin import Admin
from minikafka.client.producer import Producer
from minikafka.testing.cluster import ProcessCluster

STOP_S_MAX = 8.0


async def fill(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic("kept", partitions=3, replication_factor=3)
    async with Producer(bootstrap) as producer:
        futures = [await producer.send("kept", b"%d" % number, partition=number % 3) for number in range(300)]
        await producer.flush()
        assert all(future.result().offset >= 0 for future in futures)


async def ends(bootstrap: str) -> int:
    async with Admin(bootstrap) as admin:
        offsets = await admin.list_offsets({("kept", index): "latest" for index in range(3)})
    return sum(entry.offset for entry in offsets.values())


@pytest.mark.parametrize("controllers", [1, 3])
def test_all_nodes_stop_at_once(controllers: int) -> None:
    with ProcessCluster(3, controllers=controllers) as cluster:
        asyncio.run(fill(cluster.bootstrap))
        started = time.monotonic()
        processes = [node.process for node in cluster.nodes.values() if node.process is not None]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        statuses = [process.wait(20) for process in processes]
        elapsed = time.monotonic() - started
        assert statuses == [0, 0, 0], cluster.logs()
        assert elapsed < STOP_S_MAX, cluster.logs()
        for node in cluster.nodes.values():
            assert (node.log_dir / ".kafka_cleanshutdown").exists(), cluster.logs()
        cluster.start()
        assert asyncio.run(ends(cluster.bootstrap)) == 300
