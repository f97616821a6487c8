"""The names that users import. Whoever takes one away breaks their programs: it needs a deprecation, and a line in the changelog."""

from __future__ import annotations

import importlib
import re
from importlib import metadata

import pytest

import minikafka

NAMES = {
    "minikafka": {"__version__"},
    "minikafka.client": {
        "Admin", "AuthenticationError", "BrokerError", "ClientError", "ConsumedRecord", "Consumer", "DeliveryFailed", "NoBrokers",
        "Producer", "ProducerFenced", "RecordMetadata", "TransactionFailed", "TransactionalProducer",
    },
    "minikafka.testing": {
        "BrokerHandle", "ClusterError", "EmbeddedBroker", "EmbeddedCluster", "ExternalCluster", "Fault", "KafkaHandle", "Security",
    },
}  # fmt: skip


@pytest.mark.parametrize("module", NAMES)
def test_names_stay(module: str) -> None:
    found = importlib.import_module(module)
    assert set(found.__all__) == NAMES[module]
    assert all(getattr(found, name) is not None for name in NAMES[module])


def test_there_is_one_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", minikafka.__version__)
    assert metadata.version("minikafka") == minikafka.__version__
