"""The names that users import. Whoever takes one away breaks their programs: it needs a deprecation, and a line in the changelog."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest

import minikafka

NAMES = {
    "minikafka": {"__version__"},
    "minikafka.client": {
        "Admin", "AuthenticationError", "BrokerError", "BrokerInfo", "ClientError", "ClusterDescription", "ConfigEntry", "ConsumedRecord",
        "Consumer", "DeliveryFailed", "ErrorCode", "GroupDescription", "GroupMetadata", "ListedOffset", "MemberDescription", "NoBrokers",
        "PartitionDescription", "Producer", "ProducerFenced", "RecordMetadata", "TopicDescription", "TransactionFailed",
        "TransactionalProducer",
    },
    "minikafka.testing": {
        "BrokerHandle", "ClusterError", "EmbeddedBroker", "EmbeddedCluster", "ExternalCluster", "Fault", "KafkaHandle", "PartitionState",
        "Security",
    },
    "minikafka.spark": {
        "AuditOptions", "AuditResult", "ClusterOptions", "FilesFailed", "FilesReport", "LoadFailed", "LoadOptions", "LoadReport",
        "LocalEngine", "MinikafkaDataSource", "ProduceFailed", "Security", "SourceError", "SparkEngine", "SparkUnavailable", "TableError",
        "WireLedgerError", "build_report", "dataframe_to_files", "load_dataframe", "load_to_files", "run_audit", "run_load",
    },
}  # fmt: skip


@pytest.mark.parametrize("module", NAMES)
def test_names_stay(module: str) -> None:
    found = importlib.import_module(module)
    assert set(found.__all__) == NAMES[module]
    assert all(getattr(found, name) is not None for name in NAMES[module])


def public_members() -> Iterator[tuple[str, Any]]:
    for module in NAMES:
        found = importlib.import_module(module)
        for name in set(found.__all__) - {"__version__"}:
            value = getattr(found, name)
            yield f"{module}.{name}", value
            if inspect.isclass(value):
                yield from ((f"{module}.{name}.{member}", part) for member, part in vars(value).items() if not member.startswith("_"))


def test_exported_names_have_docstrings() -> None:
    """The reference of the documentation is made of these."""
    routines = [(name, value) for name, value in public_members() if isinstance(value, (type, property)) or inspect.isroutine(value)]
    assert len(routines) > 100
    assert not [name for name, value in routines if not (getattr(value, "__doc__", None) or "").strip()]


def test_there_is_one_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", minikafka.__version__)
    assert metadata.version("minikafka") == minikafka.__version__
