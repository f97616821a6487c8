"""Whether the page shows records to whoever can reach it: it has no login."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.broker.observe.observed import ObservedNode


def shows_records(node: ObservedNode) -> bool:
    """By minikafka.http.records. Unless it says, only where nobody else can ask: on a loopback address, and without an authorizer."""
    config = node.config
    if config.minikafka_http_records != "auto":
        return config.minikafka_http_records == "true"
    host = config.minikafka_http_host
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host.lower() == "localhost"
    return is_loopback and node.authority is None
