"""Clients on asyncio: `Producer`, `TransactionalProducer`, `Consumer`, `Admin`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.client.admin import Admin
    from minikafka.client.consumer import Consumer
    from minikafka.client.errors import (
        AuthenticationError,
        BrokerError,
        ClientError,
        DeliveryFailed,
        NoBrokers,
        ProducerFenced,
        TransactionFailed,
    )
    from minikafka.client.produce_queue import RecordMetadata
    from minikafka.client.producer import Producer
    from minikafka.client.records import ConsumedRecord
    from minikafka.client.transactional import TransactionalProducer

#: name -> module. Modules are imported on first use, so that a command that needs only an error does not import the producer.
_MODULES = {
    "Admin": "admin",
    "AuthenticationError": "errors",
    "BrokerError": "errors",
    "ClientError": "errors",
    "ConsumedRecord": "records",
    "Consumer": "consumer",
    "DeliveryFailed": "errors",
    "NoBrokers": "errors",
    "Producer": "producer",
    "ProducerFenced": "errors",
    "RecordMetadata": "produce_queue",
    "TransactionFailed": "errors",
    "TransactionalProducer": "transactional",
}

__all__ = [
    "Admin",
    "AuthenticationError",
    "BrokerError",
    "ClientError",
    "ConsumedRecord",
    "Consumer",
    "DeliveryFailed",
    "NoBrokers",
    "Producer",
    "ProducerFenced",
    "RecordMetadata",
    "TransactionFailed",
    "TransactionalProducer",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
