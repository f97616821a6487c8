"""The order of a Fetch: partitions are answered as they were asked for, also when their topics alternate."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.client import Admin
from minikafka.testing.probe import exchange
from minikafka.wire.messages.fetch import FetchRequest


@pytest.mark.parametrize("version", [4, 12, 16])
async def test_partitions_are_answered_in_the_order_of_the_request(tmp_path: Path, version: int) -> None:
    """As in Kafka (FetchResponse.toMessage): when the answer is full, it is the last ones that get nothing."""
    wanted = [("b", 1), ("a", 0), ("b", 0), ("b", 2), ("a", 1)]
    async with live_node(tmp_path) as node:
        port = broker_port(node)
        async with Admin(f"127.0.0.1:{port}") as admin:
            for name in "ab":
                await admin.create_topic(name, partitions=3, replication_factor=1)
        ids = {name: node.metadata.image.topics_by_name[name].topic_id for name in "ab"}
        by_id = version >= 13
        topics = [
            FetchRequest.FetchTopic(
                topic="" if by_id else name, topic_id=ids[name] if by_id else bytes(16),
                partitions=[FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000)],
            )
            for name, index in wanted
        ]  # fmt: skip
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=topics, session_epoch=-1)
        response: Any = await asyncio.to_thread(exchange, "127.0.0.1", port, request, version)
    names = {topic_id: name for name, topic_id in ids.items()}
    got = [(names[t.topic_id] if by_id else t.topic, p.partition_index) for t in response.responses for p in t.partitions]
    assert got == wanted
    assert len(response.responses) == 4, "neighbours of one topic stand together"
