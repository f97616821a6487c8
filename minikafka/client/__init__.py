"""Clients on asyncio: `Producer`, `TransactionalProducer`, `Consumer`, `Admin`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.client.admin import (
        Admin,
        ClusterDescription,
        ConfigEntry,
        ListedOffset,
        PartitionDescription,
        TopicDescription,
    )
    from minikafka.client.cluster import BrokerInfo
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
    from minikafka.client.group import GroupMetadata
    from minikafka.client.group_descriptions import GroupDescription, MemberDescription
    from minikafka.client.produce_queue import RecordMetadata
    from minikafka.client.producer import Producer
    from minikafka.client.records import ConsumedRecord
    from minikafka.client.transactional import TransactionalProducer
    from minikafka.wire.errors import ErrorCode

#: name -> module. Modules are imported on first use, so that a command that needs only an error does not import the producer.
_MODULES = {
    "Admin": "admin",
    "AuthenticationError": "errors",
    "BrokerError": "errors",
    "BrokerInfo": "cluster",
    "ClientError": "errors",
    "ClusterDescription": "admin",
    "ConfigEntry": "admin",
    "ConsumedRecord": "records",
    "Consumer": "consumer",
    "DeliveryFailed": "errors",
    "ErrorCode": "errors",
    "GroupDescription": "group_descriptions",
    "GroupMetadata": "group",
    "ListedOffset": "admin",
    "MemberDescription": "group_descriptions",
    "NoBrokers": "errors",
    "PartitionDescription": "admin",
    "Producer": "producer",
    "ProducerFenced": "errors",
    "RecordMetadata": "produce_queue",
    "TopicDescription": "admin",
    "TransactionFailed": "errors",
    "TransactionalProducer": "transactional",
}

__all__ = [
    "Admin",
    "AuthenticationError",
    "BrokerError",
    "BrokerInfo",
    "ClientError",
    "ClusterDescription",
    "ConfigEntry",
    "ConsumedRecord",
    "Consumer",
    "DeliveryFailed",
    "ErrorCode",
    "GroupDescription",
    "GroupMetadata",
    "ListedOffset",
    "MemberDescription",
    "NoBrokers",
    "PartitionDescription",
    "Producer",
    "ProducerFenced",
    "RecordMetadata",
    "TopicDescription",
    "TransactionFailed",
    "TransactionalProducer",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
