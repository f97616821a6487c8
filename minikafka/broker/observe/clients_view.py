"""The clients that push metrics to this broker (KIP-714), for the page /ui."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from minikafka.core.client_metrics.subscriptions import CLIENT_ID, CLIENT_SOFTWARE_NAME, CLIENT_SOFTWARE_VERSION, CLIENT_SOURCE_ADDRESS

if TYPE_CHECKING:
    from minikafka.broker.client_metrics.requests import ClientMetricsHandlers

CLIENTS_MAX = 50


def clients_that_push(clients: ClientMetricsHandlers, now_ms: int) -> dict[str, Any]:
    """subscriptions (names), count, and the most recently active clients: client_id, software, address, interval_ms, pushed_ms_ago (None =
    not yet), series."""
    rows = []
    pushed = clients.series.by_instance
    for instance in islice(reversed(clients.instances.by_id.values()), CLIENTS_MAX):
        attributes = instance.attributes
        rows.append(
            {
                "client_id": (attributes.get(CLIENT_ID) or "")[:128],
                "software": f"{attributes.get(CLIENT_SOFTWARE_NAME)} {attributes.get(CLIENT_SOFTWARE_VERSION)}",
                "address": attributes.get(CLIENT_SOURCE_ADDRESS),
                "interval_ms": instance.requested.interval_ms,
                "pushed_ms_ago": now_ms - instance.pushed_ms if instance.has_pushed else None,
                "series": len(pushed[instance.instance_id]) if instance.instance_id in pushed else 0,
            }
        )
    return {"subscriptions": clients.subscriptions.names, "count": len(clients.instances.by_id), "clients": rows}
