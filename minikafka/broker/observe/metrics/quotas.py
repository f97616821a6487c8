"""Client quotas: the clients' usage and throttle times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.core.client_quota import FETCH, MUTATION, PRODUCE, REQUEST

if TYPE_CHECKING:
    from minikafka.broker.observe.metrics.exposition import Page
    from minikafka.broker.observe.observed import ObservedNode

#: Key of the quota -> Kafka's names of the resource and of its rate.
RESOURCES = {
    PRODUCE: ("produce", "byte_rate"),
    FETCH: ("fetch", "byte_rate"),
    REQUEST: ("request", "request_time"),
    MUTATION: ("controllermutation", "mutation_rate"),
}


def quotas(page: Page, node: ObservedNode) -> None:
    """One sample for each quota that is in use on this node."""
    host = node.quotas
    now_ms = host.now_ms()
    meters = sorted(host.quotas.meters(), key=lambda meter: meter.share)
    tokens = []
    for key, (resource, rate) in RESOURCES.items():
        used = [(meter, {"user": meter.share[0], "clientId": meter.share[1]}) for meter in meters if meter.key == key]
        page.labelled(f"kafka_server_{resource}_{rate}", [(labels, meter.rate.per_second(now_ms)) for meter, labels in used])
        pauses = [(labels, meter.pause_average_ms(now_ms)) for meter, labels in used]
        page.labelled(f"kafka_server_{resource}_throttle_time", pauses)
        tokens += [(labels, meter.bucket.left(meter.limit, now_ms)) for meter, labels in used if meter.bucket is not None]
    page.labelled("kafka_server_controllermutation_tokens", tokens)
    page.one("minikafka_connections_held_total", host.held_connections)
