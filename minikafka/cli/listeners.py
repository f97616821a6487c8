"""A node's report about its listeners at startup: bound and advertised addresses, where clients can run, and likely mistakes."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from minikafka.addresses import host_port
from minikafka.net.tasks import within

logger = logging.getLogger("minikafka.node")
RESOLVE_TIMEOUT_S = 5.0
PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener. `registered` is the advertised (host, port), None for controller listeners."""

    name: str
    protocol: str
    host: str
    port: int
    registered: tuple[str, int] | None


def is_loopback(host: str) -> bool:
    """Whether a host is localhost or an address of the loopback interface."""
    return host == "localhost" or host.startswith("127.") or host == "::1"


def listeners_of(node: Any) -> list[Listener]:
    """The listeners of a node that is in service."""
    registered = node.registered_listeners if node.config.is_broker else {}
    endpoints = (*node.config.broker_listeners, *node.config.controller_listeners)
    protocols = {endpoint.name: PROTOCOLS.get(endpoint.security_protocol, "?") for endpoint in endpoints}
    return [
        Listener(name, protocols.get(name, "?"), bound.host, bound.port, registered[name][:2] if name in registered else None)
        for name, bound in node.listeners.items()
    ]


def works_from(listener: Listener) -> str:
    """Where clients of this listener can run."""
    if listener.registered is None:
        return "controllers and brokers"
    host, port = listener.registered
    if not is_loopback(host):
        return f"wherever {host} resolves to this machine"
    if is_loopback(listener.host):
        return "this machine"
    published = "" if port == listener.port else f" as {listener.port}"
    return f"this machine; for a container: its host, when port {port} is published{published}"


def table(listeners: list[Listener]) -> list[str]:
    """Lines, aligned."""
    rows = [("listener", "protocol", "bound to", "advertised as", "works from")]
    rows += [
        (e.name, e.protocol, host_port(e.host or "0.0.0.0", e.port), host_port(*e.registered) if e.registered else "-", works_from(e))
        for e in listeners
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["  ".join([*(f"{cell:<{width}}" for cell, width in zip(row[:4], widths, strict=True)), row[4]]) for row in rows]


def problems(
    listeners: list[Listener],
    addresses: Mapping[str, list[str] | None],
    *,
    inter_broker: str,
    other_hosts: list[str],
    is_own: Callable[[str], bool],
) -> list[str]:
    """Advertised addresses that cannot work. `addresses`: the addresses of each advertised name, None if it cannot be resolved here;
    `other_hosts`: hosts of the other voters; `is_own`: whether an address belongs to this machine."""
    found = []
    seen: dict[tuple[str, int], str] = {}
    ports = {listener.port for listener in listeners}
    for listener in listeners:
        if listener.registered is None:
            continue
        host, port = listener.registered
        what = f"listener {listener.name} is advertised as {host_port(host, port)}"
        if listener.registered in seen:
            found.append(f"{what}, and so is {seen[listener.registered]}: clients reach the wrong one; give each its own port")
        seen.setdefault(listener.registered, listener.name)
        resolved = addresses.get(host)
        if resolved is None:
            found.append(f"{what}, but {host} cannot be resolved here; advertise a name that clients can resolve (advertised.listeners)")
        elif port not in ports and resolved and all(is_own(address) and not is_loopback(address) for address in resolved):
            found.append(f"{what}, which is this machine, but nothing listens on {port}; did you mean {listener.port}?")
        if listener.name == inter_broker and is_loopback(host) and not all(map(is_loopback, other_hosts)):
            found.append(
                f"{what}, and the other brokers use that address too: each would look for this broker on its own machine. Give brokers"
                " a separate listener (inter.broker.listener.name), and advertise it by a name that they can resolve"
            )
    return found


def _is_own(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


async def _resolve(host: str) -> list[str] | None:
    loop = asyncio.get_running_loop()
    try:
        found = await within(RESOLVE_TIMEOUT_S, loop.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    except (OSError, TimeoutError, UnicodeError):
        return None
    return sorted({str(entry[4][0]) for entry in found})


async def warn(node: Any, listeners: list[Listener]) -> None:
    """Resolve the advertised names, and warn about addresses that cannot work."""
    config = node.config
    hosts = {listener.registered[0] for listener in listeners if listener.registered is not None}
    addresses = dict(zip(hosts, await asyncio.gather(*map(_resolve, hosts)), strict=True))
    others = [host for node_id, (host, _) in config.voters.items() if node_id != config.node_id]
    found = problems(listeners, addresses, inter_broker=config.inter_broker_listener, other_hosts=others, is_own=_is_own)
    for problem in found:
        logger.warning("%s. Run minikafka doctor where your client runs for details", problem)
