"""`minikafka load --to-files`, the server.properties it wrote started by `minikafka start`, every record read by confluent-kafka."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from helpers.file_clusters import adopt, check_records, read_topic, write_table
from helpers.ledger import audit
from helpers.mixed_cluster import BOTH, MINI, MixedCluster

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(120)


def command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-B", "-m", "minikafka", *arguments], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_three_nodes_start_on_what_was_written(tmp_path: Path) -> None:
    rows = write_table(tmp_path / "rows.parquet", 20_000)
    target = tmp_path / "written"
    with MixedCluster(tmp_path / "c", [(node_id, MINI, BOTH) for node_id in (1, 2, 3)]) as cluster:
        adopt(cluster, target)
        said = command(
            "load", str(tmp_path / "rows.parquet"), "--topic", "t", "--partitions", "6", "--key", "id", "--value", "body",
            "--timestamp", "at", "--header", "from=source", "--compression", "lz4", "--to-files", str(target),
            *(text for node in cluster.nodes.values() for text in ("--node", f"{node.node_id}@{node.address}:{node.controller_port}")),
        )  # fmt: skip
        assert "rows read and records written agree" in said
        command("verify-files", str(target))
        cluster.start()
        cluster.wait_for_isr("t", {1, 2, 3})
        check_records(read_topic(cluster.bootstrap, "t", 6), rows)
        cluster.check_errors()
        for node_id in cluster.nodes:
            assert cluster.stop(node_id) == 0
        audit([node.data for node in cluster.nodes.values()])
