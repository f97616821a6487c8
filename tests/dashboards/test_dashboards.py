"""Every panel of stock dashboards, of ours and every alert finds its series in what the brokers of a live cluster tell.

The selectors of the stock dashboards are in asked.tsv (README.md says where they come from); `test_prometheus.py` runs whole expressions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from dashboards import relabel
from dashboards.cluster import busy_cluster
from dashboards.stock import Ask, asks

from minikafka.broker.observe.metrics.table import WITHOUT_DATA

pytestmark = pytest.mark.timeout(60)
HERE = Path(__file__).parent
DOCKER = HERE.parents[1] / "docker"
ASKED = [Ask.of_line(line) for line in (HERE / "asked.tsv").read_text().splitlines()]


def ours() -> list[Ask]:
    """The selectors of our own dashboards and alerts."""
    found = []
    for path in sorted((DOCKER / "grafana" / "dashboards").glob("*.json")):
        found += asks(path.stem, json.loads(path.read_text()))
    rules = [rule for group in yaml.safe_load((DOCKER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
    found += asks("alerts", {"panels": [{"title": rule["alert"], "targets": [{"expr": rule["expr"]}]} for rule in rules]})
    return found


@pytest.fixture(scope="module")
def series() -> Iterator[dict[str, list[relabel.Labels]]]:
    """The series by name."""
    config = yaml.safe_load((DOCKER / "prometheus.yml").read_text())
    with busy_cluster() as (cluster, _):
        expositions = {f"broker-{broker.node_id}:9404": cluster.broker(broker.node_id).ask("metrics") for broker in cluster.brokers}
    by_name: dict[str, list[relabel.Labels]] = {}
    for labels in relabel.series(config, expositions):
        by_name.setdefault(labels["__name__"], []).append(labels)
    yield by_name


def selects(ask: Ask, labels: relabel.Labels) -> bool:
    for label, operator, value in ask.matchers:
        actual = labels.get(label, "")
        if value is None:
            # A variable of the dashboard: it offers what is there.
            matches = actual != ""
        elif operator in ("=", "!="):
            matches = (actual == value) == (operator == "=")
        else:
            matches = (re.fullmatch(value, actual) is not None) == (operator == "=~")
        if not matches:
            return False
    return True


def is_without_data(ask: Ask) -> bool:
    return ask.name.startswith(tuple(WITHOUT_DATA))


def test_the_list_is_whole_and_the_exceptions_are_few() -> None:
    assert len({ask.dashboard for ask in ASKED}) == 12 and len(ASKED) > 250
    own_business = [ask for ask in ASKED if is_without_data(ask)]
    assert {prefix for prefix in WITHOUT_DATA if any(ask.name.startswith(prefix) for ask in own_business)} == set(WITHOUT_DATA)
    assert len(own_business) < len(ASKED) / 4


@pytest.mark.parametrize("dashboard", sorted({ask.dashboard for ask in ASKED}))
def test_stock_dashboards(dashboard: str, series: dict[str, list[relabel.Labels]]) -> None:
    wanted = [ask for ask in ASKED if ask.dashboard == dashboard and not is_without_data(ask)]
    missing = [ask.line() for ask in wanted if not any(selects(ask, labels) for labels in series.get(ask.name, ()))]
    assert wanted and not missing


def test_metrics_listed_as_missing_are_missing(series: dict[str, list[relabel.Labels]]) -> None:
    assert not [name for name in series if name.startswith(tuple(WITHOUT_DATA))]


def test_our_dashboards_and_alerts(series: dict[str, list[relabel.Labels]]) -> None:
    wanted = ours()
    assert len(wanted) > 40
    # Only there when it has happened.
    seldom = {"minikafka_log_truncations_total", "minikafka_audit_exit_code", "minikafka_audit_last_run_timestamp_seconds"}
    made_by_prometheus = {"up"}
    found = [ask for ask in wanted if any(selects(ask, labels) for labels in series.get(ask.name, ()))]
    assert not [ask.line() for ask in wanted if ask not in found and ask.name not in seldom | made_by_prometheus]
