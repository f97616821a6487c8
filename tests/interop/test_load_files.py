"""Directories that `load --to-files` has written are opened by Apache Kafka as its own: one node, three, dynamic quorums, mixed kinds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from confluent_kafka import Producer
from helpers import apache_kafka
from helpers.file_clusters import adopt, check_records, manifest, read_topic, write_table
from helpers.ledger import audit
from helpers.mixed_cluster import BOTH, BROKER, CONTROLLER, KAFKA, MINI, MixedCluster

from minikafka.spark.cluster_files import ClusterOptions
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.load import LoadOptions
from minikafka.spark.to_files import load_to_files

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(240)]
ROWS = 60_000
PARTITIONS = 6
OPTIONS = LoadOptions(
    "", "t", key="id", value="body", timestamp="at", headers=(("from", "source"),), partitions=PARTITIONS, batch_bytes=20_000
)


def write(tmp_path: Path, target: Path, given: list[str], *, compression: str = "none", factor: int = -1) -> list[dict[str, object]]:
    rows = write_table(tmp_path / "rows.parquet", ROWS)
    options = replace(OPTIONS, compression=compression)
    configs = {"segment.bytes": "1048576", "index.interval.bytes": "1000"}
    cluster = ClusterOptions(str(target), tuple(given), replication_factor=factor, topic_configs=configs)
    report = load_to_files(str(tmp_path / "rows.parquet"), options, cluster, LocalEngine(1))
    assert report.rows == ROWS and (report.segments > PARTITIONS or compression != "none")
    return rows


def test_dump_log_segments_finds_nothing_wrong(tmp_path: Path) -> None:
    write(tmp_path, tmp_path / "c", [])
    data = tmp_path / "c" / "node-1" / "data"
    indexes = sorted([*data.glob("t-0/*.index"), *data.glob("t-0/*.timeindex")])
    checked = apache_kafka.dump_log(indexes, "--index-sanity-check")
    assert checked.count("passed sanity check.") == len(indexes) > 2, checked
    verified = apache_kafka.dump_log(indexes, "--verify-index-only")
    assert not re.search(r"[Mm]ismatch|[Ee]xception|Found timestamp|Indexed offset", verified), verified
    files = sorted([*data.glob("t-0/*.log"), *data.glob("t-0/*.snapshot")])
    shown = apache_kafka.dump_log(files, "--deep-iteration")
    assert not re.search(r"isvalid: false|[Ee]xception|not valid|invalid bytes", shown), shown[-3000:]
    assert shown.count("partitionLeaderEpoch: 0") > 20


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_three_nodes_of_apache_kafka_open_the_cluster_and_go_on(tmp_path: Path, compression: str) -> None:
    target = tmp_path / "written"
    with MixedCluster(tmp_path / "c", [(node_id, KAFKA, BOTH) for node_id in (1, 2, 3)]) as cluster:
        rows = write(tmp_path, target, adopt(cluster, target), compression=compression)
        audit([node.data for node in cluster.nodes.values()])
        cluster.start()
        cluster.wait_for_isr("t", {1, 2, 3})
        check_records(read_topic(cluster.bootstrap, "t", PARTITIONS), rows)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "acks": "all"})
        for number in range(PARTITIONS):
            producer.produce("t", b"after", partition=number)
        assert producer.flush(30) == 0
        for node in cluster.nodes.values():
            assert "since clean shutdown file was found" in node.output
            assert not re.search(r"partition=t-\d.*(Recovering|Rebuilding|corrupt)", node.output)
        cluster.check_errors()
        for node_id in cluster.nodes:
            cluster.stop(node_id)
            cluster.start(node_id, kind=MINI)
            cluster.wait_for_isr("t", {1, 2, 3})
        found = read_topic(cluster.bootstrap, "t", PARTITIONS)
        assert [records[-1][2] for records in found.values()] == [b"after"] * PARTITIONS
        check_records({number: records[:-1] for number, records in found.items()}, rows)
        cluster.check_errors()
        for node_id in cluster.nodes:
            assert cluster.stop(node_id) == 0
        audit([node.data for node in cluster.nodes.values()])


@pytest.mark.parametrize("kind", [KAFKA, MINI])
def test_two_of_three_nodes_suffice(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "written"
    with MixedCluster(tmp_path / "c", [(node_id, kind, BOTH) for node_id in (1, 2, 3)]) as cluster:
        rows = write(tmp_path, target, adopt(cluster, target))
        cluster.start(2, 3)
        cluster.wait_for_isr("t", {2, 3})
        check_records(read_topic(cluster.bootstrap.partition(",")[2], "t", PARTITIONS), rows)
        cluster.start(1)
        cluster.wait_for_isr("t", {1, 2, 3})


@pytest.mark.parametrize("kind", [KAFKA, MINI])
def test_a_single_node(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "written"
    with MixedCluster(tmp_path / "c", [(1, kind, BOTH)]) as cluster:
        rows = write(tmp_path, target, adopt(cluster, target))
        cluster.start()
        cluster.wait_for_isr("t", {1})
        check_records(read_topic(cluster.bootstrap, "t", PARTITIONS), rows)
        cluster.check_errors()


@pytest.mark.parametrize("kinds", [(KAFKA, KAFKA), (MINI, KAFKA), (KAFKA, MINI)], ids="-".join)
def test_a_dynamic_quorum_with_brokers_of_their_own(tmp_path: Path, kinds: tuple[str, str]) -> None:
    target = tmp_path / "written"
    controllers = [(1, kinds[0], CONTROLLER), (2, kinds[1], CONTROLLER), (3, kinds[0], CONTROLLER)]
    nodes = [*controllers, (11, kinds[0], BROKER), (12, kinds[1], BROKER)]
    with MixedCluster(tmp_path / "c", nodes, dynamic=True) as cluster:
        rows = write(tmp_path, target, adopt(cluster, target), factor=2)
        cluster.start()
        cluster.wait_for_isr("t", {11, 12})
        check_records(read_topic(cluster.bootstrap, "t", PARTITIONS), rows)
        found = cluster.describe_quorum()
        assert sorted(voter.replica_id for voter in found.current_voters) == [1, 2, 3]
        cluster.check_errors()


@pytest.mark.parametrize("kind", [KAFKA, MINI])
def test_leaders_spread_over_the_nodes_by_themselves(tmp_path: Path, kind: str) -> None:
    """With the properties that the load makes itself, not with given ones."""
    target = tmp_path / "written"
    with MixedCluster(tmp_path / "c", [(node_id, kind, BOTH) for node_id in (1, 2, 3)]) as cluster:
        adopt(cluster, target)
        rows = write(tmp_path, target, [f"{node.node_id}@{node.address}:{node.controller_port}" for node in cluster.nodes.values()])
        for node in cluster.nodes.values():
            with node.properties_path.open("a") as file:
                file.write("log.cleaner.dedupe.buffer.size=10485760\n")  # the heap of these tests is small
        cluster.start()
        cluster.wait_for_isr("t", {1, 2, 3})
        preferred = {one["partition"]: one["replicas"][0] for one in manifest(target)["partitions"]}
        cluster.wait_for(lambda: {n: leader for n, (leader, _) in cluster.partitions("t").items()} == preferred, "preferred leaders", 40)
        check_records(read_topic(cluster.bootstrap, "t", PARTITIONS), rows)
        cluster.check_errors()
