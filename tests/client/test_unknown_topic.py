"""A broker that has not heard of a topic yet is not believed before the others were asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.client import Admin, BrokerError
from minikafka.client.cluster import Cluster
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.metadata import MetadataResponse


class Behind(Cluster):
    """Its first broker knows of no topic."""

    async def refresh(self, topics: Any = (), *, create: bool = False) -> MetadataResponse:
        await super().refresh([])
        answers = [
            MetadataResponse.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name) for name in topics or ()
        ]
        return MetadataResponse(topics=answers)


async def test_the_other_brokers_are_asked(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        bootstrap = f"127.0.0.1:{broker_port(node)}"
        async with Admin(bootstrap) as admin:
            await admin.create_topic("t", partitions=2, replication_factor=1)
        cluster = Behind(bootstrap)
        try:
            assert len((await cluster.fresh_topic("t")).partitions) == 2
            with pytest.raises(BrokerError, match="nowhere") as raised:
                await cluster.fresh_topic("nowhere")
            assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        finally:
            await cluster.close()
