"""Apache Kafka's tools read our metadata log and its snapshots: kafka-dump-log --cluster-metadata-decoder and kafka-metadata-shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from helpers.apache_kafka import dump_log, run_tool, wait_until
from helpers.ledger import create_topic
from helpers.mixed_cluster import BROKER, CONTROLLER, MINI, MixedCluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]


def test_dump_log_and_metadata_shell_read_our_metadata(tmp_path: Path) -> None:
    properties = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
    nodes = [(1, MINI, CONTROLLER), (2, MINI, BROKER), (3, MINI, BROKER)]
    with MixedCluster(tmp_path, nodes, properties=properties, dynamic=True) as cluster:
        cluster.format(1, options=["--standalone"])
        cluster.format(2, 3)
        cluster.start()
        for number in range(6):
            create_topic(cluster.bootstrap, f"t{number}", 4, 2, retention_ms="3600000")
        cluster.wait_for_isr("t5", {2, 3})
        assert "t0" in run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", cluster.bootstrap, "--list")
        for node_id in (3, 2, 1):
            assert cluster.stop(node_id) == 0
        directory = cluster.nodes[1].data / "__cluster_metadata-0"
        snapshots = sorted(directory.glob("*.checkpoint"))
        log = directory / "00000000000000000000.log"
        shown = dump_log([log, *snapshots], "--cluster-metadata-decoder")
        assert not re.search(r"[Ee]xception|isvalid: false|Could not decode|unable to", shown), shown[-2000:]
        control = ("LeaderChange", "KRaftVersion", "KRaftVoters", "SnapshotHeader", "SnapshotFooter")
        for kind in (*control, "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"):
            assert kind in shown
        assert len(snapshots) > 1
        in_image(snapshots[-1], {"topics/byName/t0", "topics/byName/t2", "cluster/brokers/2", "features/metadataVersion"})
        in_image(log, {"topics/byName/t0", "topics/byName/t5", "cluster/controllers/1"})


def in_image(path: Path, expected: set[str]) -> None:
    """What kafka-metadata-shell finds under /image. It may begin before its own loader is done, or not end, so it is asked again."""

    def found() -> bool:
        try:
            shown = run_tool("org.apache.kafka.shell.MetadataShell", "--snapshot", str(path), "find", "/image", timeout_s=30)
        except subprocess.TimeoutExpired:
            return False
        return {f"/image/{name}" for name in expected} <= set(shown.split())

    wait_until(found, 60, f"{sorted(expected)} in the image of {path.name}")
