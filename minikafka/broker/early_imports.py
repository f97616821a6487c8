"""Imports before the start what a node needs later: importing it with the first request would take long in a turn of the event loop."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

#: What modules import inside functions, so that commands start fast.
NEEDED_LATER = (
    "minikafka.wire.compiler", "minikafka.wire.records.group_records", "minikafka.wire.records.metadata_records",
    "minikafka.wire.records.share_records", "minikafka.wire.records.transaction_records",
)  # fmt: skip
#: What the HTTP server of a node imports, 40 ms in all.
OF_PAGE = (
    "minikafka.broker.observe.http", "minikafka.broker.observe.cluster_view", "minikafka.broker.observe.metrics.node",
    "minikafka.broker.observe.topic_view", "minikafka.client.maintenance",
)  # fmt: skip


def import_early(names: Iterable[str] = NEEDED_LATER) -> None:
    """Import them."""
    for name in names:
        importlib.import_module(name)
