"""pytest plugin: brokers as fixtures.

    kafka_broker_proc   one broker for the session          kafka          this test's handle on it
    kafka_cluster_proc  three brokers for the session       kafka_cluster  this test's handle on them
    kafka_noproc        --kafka-bootstrap-servers HOST:PORT kafka_topic    a topic for this test

With --kafka-bootstrap-servers the same tests run against that cluster. Every pytest-xdist worker has its own clusters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minikafka.counted import counted
from minikafka.testing import factories

LOG_LINES_MAX = 40

kafka_broker_proc = factories.kafka_proc(brokers=1)
kafka_cluster_proc = factories.kafka_proc()
kafka_noproc = factories.kafka_noproc()
kafka = factories.kafka("kafka_broker_proc")
kafka_cluster = factories.kafka("kafka_cluster_proc")
kafka_topic = factories.kafka_topic("kafka")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the --kafka-* options."""
    group = parser.getgroup("minikafka", "Kafka brokers as fixtures")
    group.addoption("--kafka-bootstrap-servers", metavar="HOST:PORT,..", help="use this cluster instead of embedded brokers")
    group.addoption("--kafka-brokers", type=int, metavar="N", help="brokers of kafka_cluster_proc [3]")
    group.addoption("--kafka-mode", choices=["thread", "process"], help="how embedded brokers run [thread]")
    group.addoption("--kafka-keep-logs", metavar="DIR", help="keep the brokers' logs and configurations under DIR")
    group.addoption("--kafka-log-level", default="INFO", help="log level of embedded brokers [INFO]")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "kafka_breaks: kills or cuts off brokers; skipped with --kafka-bootstrap-servers")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that break brokers if the cluster is an external one."""
    if config.getoption("kafka_bootstrap_servers"):
        for item in items:
            if item.get_closest_marker("kafka_breaks"):
                item.add_marker(pytest.mark.skip(reason="would break brokers of an external cluster"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    """Attach the state of every cluster that a failed test used."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.when in ("setup", "call") and report.failed:
        for name, cluster in _clusters(item):
            report.sections.append((f"Kafka cluster ({name})", _state(cluster)))
            report.sections.append((f"Kafka brokers' logs ({name})", cluster.logs(LOG_LINES_MAX)))


def _clusters(item: pytest.Item) -> list[tuple[str, Any]]:
    found: dict[int, tuple[str, Any]] = {}
    for name, value in {**_fixture_values(item), **(getattr(item, "funcargs", None) or {})}.items():
        cluster = getattr(value, "cluster", value)
        if hasattr(cluster, "transfer_leadership") and hasattr(cluster, "audit"):
            found.setdefault(id(cluster), (name, cluster))
    return list(found.values())


def _fixture_values(item: pytest.Item) -> dict[str, Any]:
    """All fixtures that are set up. `funcargs` has only those that the test itself requested, not those that other fixtures requested."""
    values = {}
    for name, definitions in getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).items():
        cached = getattr(definitions[-1], "cached_result", None) if definitions else None
        if cached is not None and cached[2] is None:
            values[name] = cached[0]
    return values


def _state(cluster: Any) -> str:
    try:
        text: str = cluster.describe()
    except Exception as error:
        return f"the cluster cannot be described: {error}"
    try:
        result = cluster.audit(raise_on_mismatch=False)
        compared = counted(result.batches_compared, "batch", "batches")
        text += f"\naudit {result.outcome}: {counted(len(result.partitions), 'partition')}, {compared} compared"
    except Exception as error:
        text += f"\nthe audit cannot run: {error}"
    return text
