"""Metrics that clients push (KIP-714), and counts of pushes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from minikafka.broker.observe.metrics.exposition import Page, head, labels, number

if TYPE_CHECKING:
    from minikafka.broker.observe.observed import ObservedBroker

SAMPLES_A_STEP = 500
FAMILIES = (("minikafka_client_metric", False), ("minikafka_client_metric_total", True))


def client_metrics(page: Page, broker: ObservedBroker) -> None:
    """Counts of clients and of their pushes."""
    clients = broker.client_metrics
    page.one("kafka_server_client_metrics_instance_count", len(clients.instances.by_id))
    page.one("kafka_server_client_metrics_unknown_subscription_request_count", clients.instances.unknown_subscriptions)
    page.one("kafka_server_client_metrics_throttle_count", clients.instances.throttled)
    page.one("kafka_server_client_metrics_plugin_export_count", clients.pushes)
    page.one("kafka_server_client_metrics_plugin_error_count", clients.unreadable)
    page.one("minikafka_client_metrics_subscriptions", len(clients.subscriptions))
    page.one("minikafka_client_metrics_received_bytes_total", clients.pushed_bytes)
    page.one("minikafka_client_metrics_series", clients.series.count)
    page.one("minikafka_client_metrics_dropped_total", clients.series.dropped)


def pushed(page: Page, broker: ObservedBroker) -> Iterator[bytes]:
    """Metrics that clients pushed, in chunks of a fixed number of samples, under the names in the page's dialects."""
    for family, are_counters in FAMILIES:
        for name, metric in page.heads(family):
            yield (head(name, metric) + "\n").encode()
            for part in broker.client_metrics.series.samples(SAMPLES_A_STEP, are_counters=are_counters):
                yield "".join(f"{name}{labels(**names)} {number(value)}\n" for names, value in part).encode()
