"""A real Prometheus with the configuration of docker/ scrapes a live cluster; every panel's query finds data, every alert is sound.

    pytest -m prometheus tests/dashboards

MINIKAFKA_DASHBOARDS=DIRECTORY adds whole dashboards: its JSON files are filled in as Grafana does it (README.md says where they come from).
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from dashboards.cluster import busy_cluster
from dashboards.stock import fill_in, panels, substitute
from dashboards.test_dashboards import ASKED, DOCKER, is_without_data
from helpers.prometheus import Prometheus, prometheus

from minikafka.broker.observe.metrics.table import WITHOUT_DATA
from minikafka.testing.ports import ReservedPorts

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(180)]
TRAFFIC_S = 12.0
GIVEN = sorted(Path(os.environ["MINIKAFKA_DASHBOARDS"]).glob("*.json")) if "MINIKAFKA_DASHBOARDS" in os.environ else []
ANY_TRAFFIC = 'sum(irate(kafka_server_brokertopicmetrics_bytesin_total{topic!=""}[5m])) > 0'
OURS = sorted((DOCKER / "grafana" / "dashboards").glob("*.json"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    port = ReservedPorts(1)
    with busy_cluster(http=True) as (cluster, traffic):
        ports = {f"broker-{broker.node_id}:9404": broker.http_port for broker in cluster.brokers if broker.http_port is not None}
        assert len(ports) == 3
        number = port.numbers[0]
        port.release()
        with prometheus(tmp_path_factory.mktemp("prometheus"), DOCKER / "prometheus.yml", ports, number) as server:
            # Rates need several scrapes with traffic between them.
            until = time.monotonic() + TRAFFIC_S
            while time.monotonic() < until or not server.query(ANY_TRAFFIC):
                traffic.go_on()
                time.sleep(0.5)
                assert time.monotonic() < until + 60
            yield server


def fails(server: Prometheus, expression: str) -> str | None:
    """Why a panel with this expression shows nothing."""
    found = server.query(expression)
    if not found:
        return f"no data: {expression}"
    return None if any(not math.isnan(float(one["value"][1])) for one in found) else f"nothing but NaN: {expression}"


def test_every_scrape_succeeds(running: Prometheus) -> None:
    targets = running.get("targets")["activeTargets"]
    assert len(targets) == 9
    assert {target["health"] for target in targets} == {"up"}, [target["lastError"] for target in targets]
    assert not running.get("targets", state="dropped")["droppedTargets"]


@pytest.mark.parametrize("dashboard", sorted({ask.dashboard for ask in ASKED}))
def test_queries_of_stock_dashboards(dashboard: str, running: Prometheus) -> None:
    wanted = [ask.promql({}) for ask in ASKED if ask.dashboard == dashboard and not is_without_data(ask)]
    assert wanted and not [why for why in (fails(running, expression) for expression in wanted) if why]


@pytest.mark.parametrize("path", [*OURS, *GIVEN], ids=lambda path: path.stem)
def test_whole_dashboards(path: Path, running: Prometheus) -> None:
    dashboard = json.loads(path.read_text())
    every, one = fill_in(dashboard, running.labels), fill_in(dashboard, running.labels, choose_all=False)
    shown, empty, excused = 0, [], 0
    for title, expression in panels(dashboard):
        why = fails(running, substitute(expression, every))
        if why is not None and '="$' in expression:
            # An equation with a variable that may be "All" is never true; a viewer has to choose one.
            why = fails(running, substitute(expression, one))
        if why is None:
            shown += 1
        elif any(prefix in expression for prefix in WITHOUT_DATA):
            excused += 1
        else:
            empty.append(f"{title}: {why}")
    print(f"{path.stem}: {shown} queries with data, {excused} of other products")
    assert shown and not empty


def test_prometheus_takes_the_alerts(running: Prometheus) -> None:
    rules = [rule for group in running.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(alert_rules())
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
    firing = [rule["name"] for rule in rules if rule["state"] != "inactive"]
    assert not firing, "a healthy cluster raises no alarm"


def alert_rules() -> dict[str, dict[str, object]]:
    """By name."""
    return {rule["alert"]: rule for group in yaml.safe_load((DOCKER / "alerts.yml").read_text())["groups"] for rule in group["rules"]}


def test_promtool_finds_no_fault() -> None:
    for check in (["config", "prometheus.yml"], ["rules", "--lint=all", "--lint-fatal", "alerts.yml"]):
        subprocess.run(["promtool", "check", *check], cwd=DOCKER, check=True, capture_output=True)


_CONTROLLERS = 'kafka_controller_kafkacontroller_activecontrollercount{{job="{job}",instance="{instance}"}}'
#: Alert -> (series, values that raise it, values that do not), a value a minute.
CASES: dict[str, list[tuple[str, str, str]]] = {
    "NoActiveController": [
        (_CONTROLLERS.format(job=job, instance=instance), values, calm)
        for job in ("kafka-broker", "kafka-controller")
        for instance, values, calm in (("a", "0x20", "1x20"), ("b", "0x20", "0x20"))
    ],
    "PartitionsWithoutLeader": [('kafka_controller_kafkacontroller_offlinepartitionscount{instance="a"}', "3x20", "0x20")],
    "UnderMinIsr": [('kafka_server_replicamanager_underminisrpartitioncount{instance="a"}', "1x20", "0x20")],
    "UnderReplicated": [('kafka_server_replicamanager_underreplicatedpartitions{instance="a"}', "1x20", "0 1 0x18")],
    "UncleanElection": [('kafka_controller_controllerstats_uncleanleaderelections_total{instance="a"}', "0x17 1 1 1", "5x20")],
    "LogDirectoryOffline": [('kafka_log_logmanager_offlinelogdirectorycount{instance="a"}', "1x20", "0x20")],
    "BrokerFenced": [('kafka_controller_kafkacontroller_fencedbrokercount{instance="a"}', "1x20", "0x20")],
    "InSyncSetsFlap": [('kafka_server_replicamanager_isrshrinks_total{instance="a"}', "0+60x20", "0+1x20")],
    "GroupLags": [('kafka_consumergroup_lag_sum{consumergroup="g",topic="t"}', "200000x20", "200000x3 5x16")],
    "LogTruncated": [
        ('minikafka_log_truncations_total{topic="t",partition="0",reason="out_of_range"}', "0x17 1 1 1", "0x20"),
        ('minikafka_log_truncations_total{topic="t",partition="0",reason="diverging_epoch"}', "0x20", "0x17 1 1 1"),
    ],
    "BrokerDown": [('up{job="kafka-broker",instance="a"}', "0x20", "1x20")],
    "QuorumUnsteady": [('kafka_server_raftmetrics_current_epoch{instance="a"}', "1+1x20", "1x10 2x10")],
    "MetadataNotApplied": [('kafka_server_brokermetadatametrics_metadata_apply_error_count{instance="a"}', "1x20", "0x20")],
    "CompactionStopped": [
        ('kafka_log_logcleaner_deadthreadcount{instance="a"}', "1x20", "0x20"),
        ('kafka_log_logcleanermanager_uncleanable_partitions_count{instance="a",logDirectory="/d"}', "0x20", "0x20"),
    ],
    "ReplicasDiffer": [('minikafka_audit_exit_code{instance="a"}', "0x10 1x10", "0x20")],
    # Time begins at 0 there.
    "AuditStale": [('minikafka_audit_last_run_timestamp_seconds{instance="a"}', "-259200x20", "600x20")],
    "SlowDisk": [('kafka_log_logflushstats_logflushrateandtimems{instance="a",quantile="0.99"}', "2000x20", "40x20")],
    "BrokerBusy": [('kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{instance="a"}', "0.05x20", "0.5x20")],
}


def test_each_alert_is_raised_when_it_should_be_and_only_then(tmp_path: Path) -> None:
    rules = alert_rules()
    assert set(CASES) == set(rules)
    tests = []
    for alert, rows in CASES.items():
        for number, is_raised in ((1, True), (2, False)):
            series = [{"series": row[0], "values": row[number]} for row in rows]
            counts = 'count(ALERTS{alertname="%s",alertstate="firing"}) or vector(0)' % alert  # noqa: UP031
            expected = [{"labels": "{}", "value": int(is_raised)}]
            check = {"expr": counts, "eval_time": "20m", "exp_samples": expected}
            tests.append({"interval": "1m", "input_series": series, "name": f"{alert} {is_raised}", "promql_expr_test": [check]})
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(DOCKER / "alerts.yml")], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
