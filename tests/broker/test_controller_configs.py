"""A controller describes configurations to clients that speak to it (KIP-919, Kafka's ControllerApis.handleDescribeConfigs)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from helpers.live_node import live_node

from minikafka.testing.probe import exchange
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

BROKER = 4


async def test_changes_made_at_the_controller_are_described_there(tmp_path: Path) -> None:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name="message.max.bytes", config_operation=0, value="12345")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[change])
    kind = DescribeConfigsRequest.DescribeConfigsResource
    asked = [
        kind(resource_type=BROKER, resource_name="1", configuration_keys=["message.max.bytes", "node.id"]),
        kind(resource_type=BROKER, resource_name="2"),
    ]
    async with live_node(tmp_path) as node:
        port = node.listeners["CONTROLLER"].port
        altered: Any = await asyncio.to_thread(exchange, "127.0.0.1", port, IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert [one.error_code for one in altered.responses] == [0]
        await node.metadata.wait_until(lambda image: image.config(BROKER, "1").get("message.max.bytes") == "12345", 5000)
        described: Any = await asyncio.to_thread(exchange, "127.0.0.1", port, DescribeConfigsRequest(resources=asked), 4)
        own, other = described.results
        assert {entry.name: entry.value for entry in own.configs} == {"message.max.bytes": "12345", "node.id": "1"}
        assert other.error_code == ErrorCode.INVALID_REQUEST and "Unexpected broker id, expected 1" in other.error_message
