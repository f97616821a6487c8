"""Clusters whose metadata.version is from before 3.7 have no log directories in their metadata (KIP-858); an upgrade brings them."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import CLUSTER_ID, broker_port, live_node

from minikafka.broker.node import Node
from minikafka.broker.quorum.format import bootstrap_records
from minikafka.broker.quorum.snapshots import BOOTSTRAP, encode_snapshot, write_snapshot_file
from minikafka.client.errors import BrokerError
from minikafka.client.maintenance import Maintenance
from minikafka.core.metadata.image import DIRECTORY_MIGRATING, RESOURCE_BROKER, PartitionRegistration
from minikafka.core.metadata.versions import CORDONS, DIRECTORIES
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log_dir import MetaProperties, format_directory
from minikafka.testing.probe import exchange
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_configs import AlterConfigsRequest
from minikafka.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from minikafka.wire.messages.describe_log_dirs import DescribeLogDirsRequest


def partition(node: Node) -> PartitionRegistration:
    found = node.metadata.image.partition("t", 0)
    assert found is not None
    return found


def formatted(directory: Path, metadata_version: int) -> None:
    """A new cluster's first directory."""
    path = str(directory / "data-0")
    format_directory(OsFileSystem(), path, MetaProperties(CLUSTER_ID, 1, bytes(range(1, 17))), 0)
    pieces = encode_snapshot(bootstrap_records({"metadata.version": metadata_version}), epoch=0, wall_ms=0, last_timestamp_ms=0)
    write_snapshot_file(OsFileSystem(), f"{path}/{BOOTSTRAP}", pieces)


async def test_directories_are_told_after_the_upgrade_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    construct = AssignReplicasToDirsRequest.__init__

    def constructed(self: AssignReplicasToDirsRequest, *arguments: object, **fields: object) -> None:
        told.append(node.metadata.image.features["metadata.version"])
        construct(self, *arguments, **fields)

    monkeypatch.setattr(AssignReplicasToDirsRequest, "__init__", constructed)
    formatted(tmp_path, DIRECTORIES - 3)
    async with live_node(tmp_path, log_dirs=2) as node, Maintenance(f"127.0.0.1:{broker_port(node)}") as admin:
        is_told = asyncio.Event()

        def look(delta: object, image: object) -> None:
            if node.metadata.image.brokers[1].log_dirs and partition(node).directory(1) == node.directories[0].directory_id:
                is_told.set()

        await admin.create_topic("t", partitions=1, replication_factor=1)
        assert partition(node).directories == (DIRECTORY_MIGRATING,) and node.metadata.image.brokers[1].log_dirs == ()
        node.metadata.subscribe(look)
        await admin.update_features({"metadata.version": DIRECTORIES})
        await asyncio.wait_for(is_told.wait(), 20)
        assert (partition(node).leader, partition(node).isr, partition(node).leader_epoch) == (1, (1,), 0)
        assert len(node.metadata.image.brokers[1].log_dirs) == 2 and not node.metadata.image.brokers[1].fenced
    assert set(told) == {DIRECTORIES}


async def test_directories_are_cordoned_from_the_metadata_version_that_has_it_on(tmp_path: Path) -> None:
    """KIP-1066. What the properties file says waits, too; a directory that the broker does not have is refused."""
    formatted(tmp_path, CORDONS - 1)
    cordoned = {"cordoned.log.dirs": str(tmp_path / "data-1")}
    async with live_node(tmp_path, cordoned, log_dirs=2) as node, Maintenance(f"127.0.0.1:{broker_port(node)}") as admin:

        async def shown() -> list[bool]:
            ask = partial(exchange, "127.0.0.1", broker_port(node), DescribeLogDirsRequest(topics=None), 5)
            response: Any = await asyncio.to_thread(ask)
            return [result.is_cordoned for result in response.results]

        assert await shown() == [False, False]
        for value in ("", "*"):
            with pytest.raises(BrokerError, match="INVALID_CONFIG"):
                await admin.alter_configs(RESOURCE_BROKER, "1", [("set", "cordoned.log.dirs", value)])
        await admin.update_features({"metadata.version": CORDONS})
        with pytest.raises(BrokerError, match="INVALID_REQUEST"):
            await admin.alter_configs(RESOURCE_BROKER, "1", [("set", "cordoned.log.dirs", f"{tmp_path}/unknown")])
        entry = AlterConfigsRequest.AlterableConfig(name="cordoned.log.dirs", value=f"{tmp_path}/unknown")
        whole = AlterConfigsRequest.AlterConfigsResource(resource_type=RESOURCE_BROKER, resource_name="1", configs=[entry])
        ask = partial(exchange, "127.0.0.1", broker_port(node), AlterConfigsRequest(resources=[whole]), 2)
        replaced: Any = await asyncio.to_thread(ask)
        assert [response.error_code for response in replaced.responses] == [ErrorCode.INVALID_REQUEST]
        assert await shown() == [False, True]
        await admin.alter_configs(RESOURCE_BROKER, "1", [("set", "cordoned.log.dirs", "*")])
        assert await shown() == [True, True]
