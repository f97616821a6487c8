"""Audits that a broker makes on its own: which broker, what it leaves behind, what becomes of a run at the broker's end."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import psutil
import pytest

from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.config.properties import ConfigurationError
from minikafka.broker.observe.audits import AuditSchedule
from minikafka.broker.observe.last_audit import LastAudit
from minikafka.broker.supervise import Supervisor
from minikafka.testing import EmbeddedCluster

pytestmark = pytest.mark.timeout(150)
RUN = {"started": "2026-11-21T10:00:00.000Z", "seconds": 2.0, "outcome": "FAIL", "exit_code": 1, "partitions": 9, "batches_compared": 7,
       "bytes_compared": 700, "verdicts": {"DIVERGENT": 2, "SINGLE": 1, "MATCH": 5, "EMPTY": 1}, "checks": {"batch-crc": 3}}  # fmt: skip


def test_one_broker_audits_the_cluster_and_all_tell_the_verdict(tmp_path: Path) -> None:
    properties = {"minikafka.audit.report.dir": str(tmp_path), "minikafka.audit.interval.ms": "700"}
    with EmbeddedCluster(2, topics={"orders": {"partitions": 2}}, config=properties) as cluster:
        producer = confluent_kafka.Producer(cluster.client_config())
        for number in range(20):
            producer.produce("orders", b"x" * 100, partition=number % 2)
        assert producer.flush(10) == 0

        def made() -> bool:
            reported = cluster.metrics(1)
            return reported["minikafka_audit_runs_total"] > 0 and reported['minikafka_audit_partitions{result="match"}'] >= 2

        cluster.wait_until(made, "an audit of broker 1", timeout_s=90)
        assert cluster.metrics(1)["minikafka_audit_runs_failed_total"] == 0
        other = cluster.metrics(2)
        assert other["minikafka_audit_runs_total"] == 0 and other["minikafka_audit_exit_code"] == 0
        assert other["minikafka_audit_batches_compared"] > 0 and other["minikafka_audit_last_run_timestamp_seconds"] > 1.7e9
    assert json.loads((tmp_path / "report.json").read_text())["outcome"] == "PASS"
    assert not [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in (one.info["cmdline"] or [])]


async def test_an_audit_that_fails_unexpectedly_ends_alone_and_the_next_one_begins() -> None:
    """The schedule ended with it, and nobody knew: each failure is counted and logged, and the node goes on."""
    supervisor = Supervisor(asyncio.get_running_loop())
    config: Any = SimpleNamespace(minikafka_audit_interval_ms=1, minikafka_audit_report_dir="", is_broker=True, node_id=1)
    image: Any = SimpleNamespace(brokers={1: SimpleNamespace(broker_id=1, fenced=False)})
    asked, third = 0, asyncio.Event()

    def address() -> str:
        nonlocal asked
        asked += 1
        if asked == 3:
            third.set()
        raise KeyError("an error of ours")

    schedule = AuditSchedule(config, lambda: image, address, supervisor)
    schedule.start()
    await third.wait()
    await schedule.stop()
    assert schedule.runs == 0 and schedule.failures >= 2
    assert supervisor.unexpected == {"audit": schedule.failures} and not supervisor.failed.done()


def test_an_interval_needs_a_directory() -> None:
    given = {"process.roles": "broker", "node.id": "1", "controller.quorum.voters": "2@localhost:1", "minikafka.audit.interval.ms": "60000",
             "controller.listener.names": "CONTROLLER"}  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"minikafka\.audit\.report\.dir is missing"):
        BrokerConfig.from_properties(given)


def test_the_newest_run_of_the_directory_and_of_those_below_counts(tmp_path: Path) -> None:
    last = LastAudit(str(tmp_path))
    assert last.get() is None and LastAudit(None).get() is None
    (tmp_path / "runs.jsonl").write_text(json.dumps({**RUN, "outcome": "PASS", "exit_code": 0}) + "\n")
    os.utime(tmp_path / "runs.jsonl", (1, 1))
    found = last.get()
    assert found is not None and found["outcome"] == "PASS" and found["finished_ms"] == 1000
    (tmp_path / "2026-11-21").mkdir()
    (tmp_path / "2026-11-21" / "runs.jsonl").write_text("nonsense\n" + json.dumps(RUN) + "\n")
    found = last.get()
    assert found is not None and (found["outcome"], found["checks"]) == ("FAIL", {"batch-crc": 3})
    assert (found["match"], found["mismatch"], found["incomplete"]) == (6, 2, 1)


@pytest.mark.parametrize("text", ["", "x\n", "[]\n", '{"outcome": "PASS"}\n', json.dumps({**RUN, "verdicts": []}) + "\n"])
def test_an_unreadable_report_gives_no_verdict(tmp_path: Path, text: str) -> None:
    (tmp_path / "runs.jsonl").write_text(text)
    assert LastAudit(str(tmp_path)).get() is None
