"""A controller describes configurations and users to clients that speak to it (KIP-919, Kafka's ControllerApis.handleDescribeConfigs)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.core.metadata.image import RESOURCE_BROKER_LOGGER
from minikafka.testing.probe import exchange
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest
from minikafka.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
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


async def test_users_made_at_the_controller_are_described_there(tmp_path: Path) -> None:
    credential = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p" * 32
    )
    async with live_node(tmp_path) as node:
        port = node.listeners["CONTROLLER"].port
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[credential])
        altered: Any = await asyncio.to_thread(exchange, "127.0.0.1", port, request, 0)
        assert [one.error_code for one in altered.results] == [0]
        await node.metadata.wait_until(lambda image: ("alice", 1) in image.scram, 5000)
        described: Any = await asyncio.to_thread(exchange, "127.0.0.1", port, DescribeUserScramCredentialsRequest(users=None), 0)
        (user,) = described.results
        assert (user.user, [(info.mechanism, info.iterations) for info in user.credential_infos]) == ("alice", [(1, 4096)])


@pytest.mark.parametrize("name", ["9" * 5000, "-" + "9" * 5000, "--5", "2147483648", "5_0", " 1"], ids=lambda name: name[:12])
async def test_a_node_id_that_is_none_is_refused_and_ends_nothing(tmp_path: Path, name: str) -> None:
    kind = IncrementalAlterConfigsRequest
    changes = {BROKER: ("message.max.bytes", "12345"), RESOURCE_BROKER_LOGGER: ("root", "INFO")}
    resources = [
        kind.AlterConfigsResource(
            resource_type=type_, resource_name=name, configs=[kind.AlterableConfig(name=key, config_operation=0, value=value)]
        )
        for type_, (key, value) in changes.items()
    ]
    asked = [DescribeConfigsRequest.DescribeConfigsResource(resource_type=type_, resource_name=name) for type_ in changes]
    async with live_node(tmp_path) as node:
        epoch = node.raft.quorum.epoch
        for port in (node.listeners["CONTROLLER"].port, broker_port(node)):
            altered: Any = await asyncio.to_thread(exchange, "127.0.0.1", port, kind(resources=resources), 1)
            described: Any = await asyncio.to_thread(exchange, "127.0.0.1", port, DescribeConfigsRequest(resources=asked), 4)
            codes = [one.error_code for one in (*altered.responses, *described.results)]
            assert codes == [ErrorCode.INVALID_REQUEST] * 4
        assert node.raft.quorum.epoch == epoch, "the controller goes on"
