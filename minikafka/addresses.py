"""Addresses as people write and read them: host:port, with an IPv6 address in brackets. Everything that reads or names one does it here."""

from __future__ import annotations

#: Kafka's clients accept the name of a listener's protocol before an address (ClientUtils, rd_kafka_broker_name_parse).
_PROTOCOLS = frozenset(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))
_PORT_DEFAULT = 9092
PORT_MAX = 65535


def host_port(host: str, port: int | str) -> str:
    """host:port; an IPv6 address is put in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(text: str, port_default: int | None = None, *, is_any_host: bool = False) -> tuple[str, int]:
    """The host, without brackets, and the port. As in Apache Kafka, an IPv6 address may also stand without brackets before its port.
    `is_any_host`: the host may be missing. Raises ValueError, whose text says what to write instead."""
    host, has_port, port = text.rpartition(":")
    if not has_port or text.endswith("]"):
        host, port = text, "" if port_default is None else str(port_default)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if any(mark in text for mark in "; \t"):
        raise ValueError(f"{text} is not host:port: separate addresses with commas")
    if not (host or is_any_host) or not port.isdecimal() or int(port) > PORT_MAX or any(mark in host for mark in "[]/@ "):
        raise ValueError(f"{text} is not host:port")
    if ":" in host and not _is_ipv6(host):
        raise ValueError(f"{text} is not host:port; an IPv6 address is written in brackets, as in [::1]:9092")
    return host, int(port)


def _is_ipv6(host: str) -> bool:
    from socket import AF_INET6, inet_pton

    try:
        # A link-local address ends with the interface: fe80::1%eth0.
        inet_pton(AF_INET6, host.partition("%")[0])
    except OSError:
        return False
    return True


def split_addresses(text: str) -> list[tuple[str, int]]:
    """`host:port,host:port` as hosts and ports; the port defaults to 9092. Raises ValueError, whose text says what to write instead."""
    found = [_address(entry) for entry in (part.strip() for part in text.split(",")) if entry]
    if not found:
        raise ValueError("no bootstrap servers: give host:port, separated by commas")
    return found


def _address(entry: str) -> tuple[str, int]:
    scheme, has_scheme, address = entry.rpartition("://")
    if has_scheme and scheme.upper() not in _PROTOCOLS:
        raise ValueError(f"{entry} is a URL, and brokers have addresses without one: write {address.partition('/')[0] or 'host:port'}")
    host, port = split_host_port(address, _PORT_DEFAULT)
    if not port:
        raise ValueError(f"{entry} is not host:port")
    return host, port
