"""Executors are killed while an audit runs, and the verdicts are the same: `pytest -m long tests/spark/test_executors_killed.py`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import killed_executors
from helpers.audited_clusters import BROKERS
from helpers.log_clusters import Partition, plain, write_broker

from minikafka.spark import report as reporting
from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine

pytest.importorskip("pyspark")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_killed_executors_change_no_verdict(tmp_path: Path) -> None:
    """Thirty partitions in some ten tasks; one differs, of one the end is gone, and both lie where executors are killed."""
    for broker in BROKERS:
        made = []
        for number in range(30):
            batches = [plain(offset, text="x" * 30_000) for offset in range(4)]
            if broker == 3 and number == 17:
                batches[2] = plain(2, text="y" * 30_000)
            if broker == 2 and number == 5:
                del batches[3]
            made.append(Partition(f"t-{number}", batches, high_watermark=4))
        write_broker(tmp_path / f"b{broker}", broker, made)
    paths = [str(tmp_path / f"b{broker}") for broker in BROKERS]
    here = reporting.build(run_audit(paths, LocalEngine(1), AuditOptions()))
    kills = tmp_path / "kills"
    kills.mkdir()
    root = Path(killed_executors.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{root.parent}:{root}", "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, killed_executors.__file__, str(kills), *paths]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    there = json.loads(ran.stdout.splitlines()[-1])
    wanted = {*(f"scan {number}" for number in killed_executors.SCANNED), *(f"judge {number}" for number in killed_executors.JUDGED)}
    assert {one.name for one in kills.iterdir()} == wanted
    for name in ("outcome", "partitions", "findings", "finding_counts"):
        assert json.loads(json.dumps(here[name])) == there[name], name
    assert here["outcome"] == "FAIL" and len(here["partitions"]) == 30
