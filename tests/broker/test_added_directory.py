"""A disk that is added to log.dirs, and a metadata directory that stands alone (Kafka's KafkaRaftServer.initializeLogDirs)."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.node import StartError
from minikafka.client import Admin, Consumer, Producer
from minikafka.storage.checkpoint import read_properties
from minikafka.storage.errors import NotFormatted
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log_dir import MetaProperties, format_directory


async def test_a_new_log_directory_is_formatted_at_the_start_and_used(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.create_topic("old", partitions=1, replication_factor=1)
        async with Producer(f"127.0.0.1:{broker_port(node)}") as producer:
            await (await producer.send("old", b"kept"))
    first, added = tmp_path / "data-0", tmp_path / "added"
    async with live_node(tmp_path, {"log.dirs": f"{first},{added}"}) as node:
        address = f"127.0.0.1:{broker_port(node)}"
        async with Admin(address) as admin:
            await admin.create_topic("new", partitions=1, replication_factor=1)
        assert {name for name, _ in node.directories[1].logs} == {"new"}, "the emptier directory gets the next replica"
        async with Consumer(address) as consumer:
            await consumer.assign([("old", 0)], {("old", 0): 0})
            assert [record.value for record in await consumer.poll(5000)] == [b"kept"]
    before, after = (read_properties(OsFileSystem(), f"{path}/meta.properties") for path in (first, added))
    assert (after["cluster.id"], after["node.id"]) == (before["cluster.id"], before["node.id"])
    assert after["directory.id"] != before["directory.id"]


async def test_a_directory_for_metadata_alone_needs_a_format_of_its_own_only(tmp_path: Path) -> None:
    metadata = tmp_path / "data-0"
    async with live_node(tmp_path, {"metadata.log.dir": str(metadata), "log.dirs": str(tmp_path / "logs")}) as node:
        assert [directory.path for directory in node.directories] == [str(tmp_path / "logs")]
        assert (metadata / "__cluster_metadata-0").is_dir()


async def test_an_unformatted_metadata_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFormatted, match=r"not formatted|does not exist"):
        async with live_node(tmp_path, {"metadata.log.dir": str(tmp_path / "nothing")}):
            pass
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "why"), [("another-cluster-000000", 1, "belongs to cluster"), ("", 7, "belongs to node 7")]
)
async def test_a_metadata_directory_of_another_node_or_cluster_is_refused(tmp_path: Path, cluster_id: str, node_id: int, why: str) -> None:
    """It stands alone, so that log.dirs do not name it: its metadata would be another cluster's."""
    async with live_node(tmp_path) as node:
        own = node.cluster_id
    foreign = str(tmp_path / "foreign")
    format_directory(OsFileSystem(), foreign, MetaProperties(cluster_id or own, node_id, b"\x01" * 16), 0)
    with pytest.raises(StartError, match=why):
        async with live_node(tmp_path, {"metadata.log.dir": foreign, "log.dirs": str(tmp_path / "data-0")}):
            pass
