"""A broker that takes requests and never answers does not hold up a client that knows another address."""

from __future__ import annotations

import asyncio
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
            assert (await asyncio.wait_for(cluster.refresh([]), 5)).brokers
            await cluster.close()
    finally:
        await asyncio.to_thread(network.close)
