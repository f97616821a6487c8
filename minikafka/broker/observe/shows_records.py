"""Whether the page, which has no login, shows records."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.broker.observe.observed import ObservedNode


def shows_records(node: ObservedNode) -> bool:
    """As minikafka.http.records says. With auto, only if nobody else can connect: on a loopback address, and without an authorizer."""
    config = node.config
    if config.minikafka_http_records != "auto":
        return config.minikafka_http_records == "true"
    host = config.minikafka_http_host
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host.lower() == "localhost"
    return is_loopback and node.authority is None
