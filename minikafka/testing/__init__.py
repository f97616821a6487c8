"""Kafka brokers for tests: `EmbeddedCluster`, `EmbeddedBroker`, fixtures for pytest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.testing.embedded import BrokerHandle, EmbeddedBroker, EmbeddedCluster, Fault
    from minikafka.testing.errors import ClusterError
    from minikafka.testing.handle import ExternalCluster, KafkaHandle
    from minikafka.testing.inspection import PartitionState
    from minikafka.testing.security import Security

#: name -> module. Modules are imported on first use, so that the pytest plugin costs nothing if no test uses a broker.
_MODULES = {
    "BrokerHandle": "embedded",
    "ClusterError": "errors",
    "EmbeddedBroker": "embedded",
    "EmbeddedCluster": "embedded",
    "ExternalCluster": "handle",
    "Fault": "embedded",
    "KafkaHandle": "handle",
    "PartitionState": "inspection",
    "Security": "security",
}

__all__ = [
    "BrokerHandle",
    "ClusterError",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "ExternalCluster",
    "Fault",
    "KafkaHandle",
    "PartitionState",
    "Security",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    import importlib

    from minikafka import windows

    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ImportError as error:
        if windows.is_the_reason(error):
            raise ImportError(windows.ADVICE) from error
        raise
