"""A broker that takes requests and never answers does not hold up a client that knows another address."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.client import cluster as client_cluster
from minikafka.client.cluster import Cluster
from minikafka.testing.proxy import CLIENT, FaultyNetwork


async def test_metadata_are_asked_elsewhere_after_a_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_cluster, "METADATA_TIMEOUT_MS", 300)
    network = FaultyNetwork(dict)
    try:
        async with live_node(tmp_path) as node:
            silent = await asyncio.to_thread(network.front, 1, broker_port(node))
            cluster = Cluster(f"127.0.0.1:{silent},127.0.0.1:{broker_port(node)}")
            await cluster.refresh([])
            network.cut([(CLIENT, 1), (1, CLIENT)])
            with pytest.raises(TimeoutError):
                await cluster.refresh([])
            assert (await cluster.refresh([])).brokers
            await cluster.close()
    finally:
        await asyncio.to_thread(network.close)


async def test_a_failed_connection_without_waiters_is_quiet() -> None:
    """Whoever asked for the connection gave up: its failure is not reported to the event loop as one that nobody retrieved."""
    found: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context["message"]))
    cluster = Cluster("127.0.0.1:1")
    asking = asyncio.ensure_future(cluster.channel_at("127.0.0.1", 1))
    await asyncio.sleep(0)
    asking.cancel()
    opening = list(cluster._opening.values())
    await asyncio.wait([asking, *opening])
    del asking, opening
    gc.collect()
    await asyncio.sleep(0)
    assert found == []
    await cluster.close()
