"""Alerts, scrape configuration and dashboard under docker/: well formed, and every metric that they name is one that brokers give."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from minikafka.testing import EmbeddedCluster

DOCKER = Path(__file__).resolve().parents[2] / "docker"
METRIC = re.compile(r"\b((?:kafka|minikafka|process)_\w+)\b")
#: Only there once something has happened to it.
ON_DEMAND = {"minikafka_log_truncations_total", "kafka_consumergroup_lag_sum"}


def expressions() -> list[str]:
    alerts = yaml.safe_load((DOCKER / "alerts.yml").read_text())
    dashboard = json.loads((DOCKER / "grafana" / "dashboards" / "minikafka.json").read_text())
    return [rule["expr"] for group in alerts["groups"] for rule in group["rules"]] + [
        target["expr"] for panel in dashboard["panels"] for target in panel["targets"]
    ]


@pytest.fixture(scope="module")
def given() -> Iterator[set[str]]:
    with EmbeddedCluster(3, topics=["t"]) as cluster:
        text = "".join(cluster.broker(n).ask("metrics") for n in (1, 2, 3))
        yield {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if line and not line.startswith("#")}


def test_every_metric_that_is_asked_for_exists(given: set[str]) -> None:
    asked = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert len(asked) > 20
    assert asked - ON_DEMAND <= given


def test_the_files_fit_together() -> None:
    services = yaml.safe_load((DOCKER.parent / "docker-compose.yml").read_text())["services"]
    compose = [name for name, service in services.items() if "profiles" not in service]
    for service in (services["prometheus"], services["grafana"]):
        for volume in service["volumes"]:
            assert (DOCKER.parent / volume.split(":")[0]).exists(), volume
    scrape = yaml.safe_load((DOCKER / "prometheus.yml").read_text())["scrape_configs"][0]
    targets = scrape["static_configs"][0]["targets"]
    assert [target.split(":")[0] for target in targets] == compose
    source = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    panels = json.loads((DOCKER / "grafana/dashboards/minikafka.json").read_text())["panels"]
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}
    spots = [tuple(panel["gridPos"][key] for key in "xywh") for panel in panels]
    assert all(
        a is b or a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0] or a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1] for a in spots for b in spots
    )
