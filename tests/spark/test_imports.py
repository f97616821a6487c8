"""The audit proves the broker's work only if it shares no code with it."""

from __future__ import annotations

import grimp
import pytest

AUDIT = [
    "access", "audit", "checks", "claims", "compare", "engine_local", "engine_spark", "explain", "fetch_client", "findings",
    "ledger", "live", "logformat", "logical", "metadata_log", "producers", "records", "replay", "report", "report_html", "scan", "sources",
]  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("minikafka", "storage", "wire", exclude_type_checking_imports=True)


@pytest.mark.parametrize("module", AUDIT)
def test_the_audit_shares_no_code_with_the_broker(graph: grimp.ImportGraph, module: str) -> None:
    reached = graph.find_upstream_modules(f"minikafka.spark.{module}")
    foreign = {name for name in reached if not name.startswith("minikafka.spark") and name != "minikafka"}
    assert foreign == set()


def test_nothing_in_spark_reaches_the_broker_or_its_storage(graph: grimp.ImportGraph) -> None:
    reached = graph.find_upstream_modules("minikafka.spark", as_package=True)
    assert not {
        name
        for name in reached
        if name.split(".")[0] == "storage" or name.startswith(("minikafka.broker", "minikafka.core", "minikafka.net"))
    }
