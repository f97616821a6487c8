"""Requests that only the leader of a partition can carry out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from minikafka.client.cluster import Cluster
from minikafka.client.errors import TRANSPORT_ERRORS, BrokerError

T = TypeVar("T")


async def at_leader(cluster: Cluster, topic: str, index: int, ask: Callable[[int], Awaitable[T]], timeout_ms: int | None = None) -> T:
    """The result of `ask(node_id of the leader)`, which is called again, with new metadata, while the leader moves or does not answer.
    Raises BrokerError, TimeoutError."""

    async def asked() -> T:
        leader = (await cluster.leader(topic, index, timeout_ms=timeout_ms)).leader
        try:
            return await ask(leader)
        except (BrokerError, *TRANSPORT_ERRORS):
            cluster.forget(topic)
            raise

    return await cluster.retry_refused(asked, lambda code: code.retriable, timeout_ms)
