"""Processes and, by `pytest -m long tests/spark/test_executors_killed.py`, Spark's executors are killed while an audit scans and while it
judges, and the verdicts are the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import killed_executors
from helpers.audited_clusters import BROKERS
from helpers.log_clusters import Partition, plain, write_broker

from minikafka.spark import audit as auditing
from minikafka.spark import engine_local
from minikafka.spark import report as reporting
from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine

WANTED = {*(f"scan {number}" for number in killed_executors.SCANNED), *(f"judge {number}" for number in killed_executors.JUDGED)}


def write(folder: Path) -> list[str]:
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
        write_broker(folder / f"b{broker}", broker, made)
    (folder / "kills").mkdir()
    return [str(folder / f"b{broker}") for broker in BROKERS]


def results_of(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps({name: report[name] for name in ("outcome", "partitions", "findings", "finding_counts")}))
    return found


@pytest.mark.parametrize("has_threads", [False, True], ids=["forked", "of a fork server"])
def test_killed_processes_change_no_verdict(has_threads: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    paths, kills = write(tmp_path), str(tmp_path / "kills")
    usual = results_of(reporting.build(run_audit(paths, LocalEngine(1), AuditOptions())))
    monkeypatch.setattr(engine_local, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(engine_local, "_threads_run", lambda: has_threads)
    monkeypatch.setattr(auditing, "scan_segments", partial(killed_executors.killed_scan, kills))
    monkeypatch.setattr(auditing, "judge", partial(killed_executors.killed_judge, kills))
    engine = LocalEngine(2)
    try:
        assert results_of(reporting.build(run_audit(paths, engine, AuditOptions()))) == usual
    finally:
        engine.close()
    assert {one.name for one in (tmp_path / "kills").iterdir()} == WANTED
    assert usual["outcome"] == "FAIL" and len(usual["partitions"]) == 30


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_killed_executors_change_no_verdict(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    paths = write(tmp_path)
    usual = results_of(reporting.build(run_audit(paths, LocalEngine(1), AuditOptions())))
    root = Path(killed_executors.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{root.parent}:{root}", "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, killed_executors.__file__, str(tmp_path / "kills"), *paths]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert results_of(json.loads(ran.stdout.splitlines()[-1])) == usual
    assert {one.name for one in (tmp_path / "kills").iterdir()} == WANTED
