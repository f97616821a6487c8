"""Clusters whose metadata.version is from before 3.7 have no log directories in their metadata (KIP-858); an upgrade brings them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from helpers.live_node import CLUSTER_ID, broker_port, live_node

from minikafka.broker.node import Node
from minikafka.broker.quorum.format import bootstrap_records
from minikafka.broker.quorum.snapshots import BOOTSTRAP, encode_snapshot, write_snapshot_file
from minikafka.client.maintenance import Maintenance
from minikafka.core.metadata.image import DIRECTORY_MIGRATING, PartitionRegistration
from minikafka.core.metadata.versions import DIRECTORIES
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log_dir import MetaProperties, format_directory
from minikafka.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest


def partition(node: Node) -> PartitionRegistration:
    found = node.metadata.image.partition("t", 0)
    assert found is not None
    return found


async def test_directories_are_told_after_the_upgrade_and_not_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    construct = AssignReplicasToDirsRequest.__init__

    def constructed(self: AssignReplicasToDirsRequest, *arguments: object, **fields: object) -> None:
        told.append(node.metadata.image.features["metadata.version"])
        construct(self, *arguments, **fields)

    monkeypatch.setattr(AssignReplicasToDirsRequest, "__init__", constructed)
    directory, levels = str(tmp_path / "data-0"), {"metadata.version": DIRECTORIES - 3}
    format_directory(OsFileSystem(), directory, MetaProperties(CLUSTER_ID, 1, bytes(range(1, 17))), 0)
    pieces = encode_snapshot(bootstrap_records(levels), epoch=0, wall_ms=0, last_timestamp_ms=0)
    write_snapshot_file(OsFileSystem(), f"{directory}/{BOOTSTRAP}", pieces)
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
