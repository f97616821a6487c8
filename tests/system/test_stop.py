"""All nodes are told to stop at the same moment: each goes quickly, cleanly, and comes back with what it had."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from minikafka.client.admin import Admin
from minikafka.client.producer import Producer
from minikafka.testing.cluster import ProcessCluster

#: A second until a silent controller is given up, another one for the handover of a controller that has nobody left.
STOP_S_MAX = 3.0


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


def stop_all(cluster: ProcessCluster, first: int | None = None) -> None:
    """SIGTERM to all nodes at once, or to `first` until it has gone and then to the others; all end quickly with status 0."""
    processes = {node_id: node.process for node_id, node in cluster.nodes.items() if node.process is not None}
    started = time.monotonic()
    if first is not None:
        processes[first].send_signal(signal.SIGTERM)
        processes[first].wait(20)
    for node_id, process in processes.items():
        if node_id != first:
            process.send_signal(signal.SIGTERM)
    statuses = {node_id: process.wait(20) for node_id, process in processes.items()}
    elapsed_s = time.monotonic() - started
    assert set(statuses.values()) == {0}, f"{statuses}\n{cluster.logs()}"
    assert elapsed_s < STOP_S_MAX, f"{elapsed_s:.1f} s\n{cluster.logs()}"
    for node in cluster.nodes.values():
        assert (node.log_dir / ".kafka_cleanshutdown").exists() or not node.is_broker, cluster.logs()


@pytest.mark.parametrize("controllers", [1, 3])
@pytest.mark.parametrize("first", [None, 1])
def test_all_nodes_stop_at_once(controllers: int, first: int | None) -> None:
    with ProcessCluster(3, controllers=controllers) as cluster:
        asyncio.run(fill(cluster.bootstrap))
        stop_all(cluster, first)
        cluster.start()
        assert asyncio.run(ends(cluster.bootstrap)) == 300


@pytest.mark.parametrize("first", [None, 1])
def test_all_nodes_stop_at_once_with_a_controller_that_is_no_broker(first: int | None) -> None:
    with ProcessCluster(4, dedicated=True) as cluster:
        asyncio.run(fill(cluster.bootstrap))
        stop_all(cluster, first)
        cluster.start()
        assert asyncio.run(ends(cluster.bootstrap)) == 300
