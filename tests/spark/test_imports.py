"""The audit proves the broker's work only if it shares no code with it."""

from __future__ import annotations

import grimp
import pytest

AUDIT = [
    "access", "audit", "checks", "claims", "compare", "coverage", "difference", "directories", "engine_local", "engine_spark", "explain",
    "fetch_client", "fetch_reader", "findings", "unclean", "views",
    "ledger", "live", "logformat", "logical", "metadata_log", "metadata_state", "producers", "records", "replay", "report", "report_html",
    "scan", "sources", "spark_master",
]  # fmt: skip
#: How a client connects and says who it is; it sees no record, and the audit checks none of it.
LOGGING_IN = ("minikafka.addresses", "minikafka.security", "minikafka.core.scram", "minikafka.openssl")
#: Puts "1 partition" into words.
IN_WORDS = "minikafka.counted"
#: Makes the methods of data classes, those that log in among them.
DATA_CLASSES = "minikafka.late_dataclass"
#: Ends processes whose program was killed.
ORPHANS = "minikafka.orphans"
#: Run by the driver of `load --to-files`; what its tasks run is not among them.
WRITERS_OF_CLUSTERS = ["cluster_files", "cluster_nodes", "to_files"]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("minikafka", "storage", "wire", exclude_type_checking_imports=True)


@pytest.mark.parametrize("module", AUDIT)
def test_the_audit_shares_no_code_with_the_broker(graph: grimp.ImportGraph, module: str) -> None:
    reached = graph.find_upstream_modules(f"minikafka.spark.{module}")
    allowed = ("minikafka.spark", IN_WORDS, DATA_CLASSES, ORPHANS, *LOGGING_IN)
    foreign = {name for name in reached if not name.startswith(allowed) and name != "minikafka"}
    assert foreign == set()


def test_nothing_in_spark_reaches_the_broker_or_its_storage(graph: grimp.ImportGraph) -> None:
    """But for what writes directories of brokers: it formats them with the code that brokers are formatted with. Load and sink write with
    the client."""
    modules = {name for name in graph.modules if name.startswith("minikafka.spark.")}
    for module in sorted(modules - {f"minikafka.spark.{name}" for name in WRITERS_OF_CLUSTERS}):
        reached = {name for name in graph.find_upstream_modules(module) if not name.startswith(LOGGING_IN)}
        forbidden = ("storage", "minikafka.storage", "minikafka.broker", "minikafka.core")
        assert not {name for name in reached if name.startswith(forbidden)}, module
