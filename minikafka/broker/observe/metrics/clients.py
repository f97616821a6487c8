"""What clients push of their own metrics (KIP-714), and how that goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from minikafka.broker.observe.metrics.exposition import Page, head, labels, number
from minikafka.broker.observe.metrics.table import METRICS

if TYPE_CHECKING:
    from minikafka.broker.observe.observed import ObservedBroker

SAMPLES_A_STEP = 500
FAMILIES = (("minikafka_client_metric", False), ("minikafka_client_metric_total", True))


def client_metrics(page: Page, broker: ObservedBroker) -> None:
    """How many clients push, and what became of it."""
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


def pushed(broker: ObservedBroker) -> Iterator[bytes]:
    """What clients have told, in pieces of so many samples; the same names in every dialect."""
    for name, are_counters in FAMILIES:
        title = head(name, METRICS[name]) + "\n"
        for part in broker.client_metrics.series.samples(SAMPLES_A_STEP, are_counters=are_counters):
            yield (title + "".join(f"{name}{labels(**names)} {number(value)}\n" for names, value in part)).encode()
            title = ""
