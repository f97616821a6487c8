"""Bootstrap lists, as people write them."""

from __future__ import annotations

#: Kafka's clients accept the name of a listener's protocol before an address (ClientUtils, rd_kafka_broker_name_parse).
_PROTOCOLS = frozenset(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))
_PORT_DEFAULT = 9092
_PORT_MAX = 65535


def split_addresses(text: str) -> list[tuple[str, int]]:
    """`host:port,host:port` as hosts and ports; the port defaults to 9092. Raises ValueError, whose text says what to write instead."""
    found = [_address(entry) for entry in (part.strip() for part in text.split(",")) if entry]
    if not found:
        raise ValueError("no bootstrap servers: give host:port, separated by commas")
    return found


def _address(entry: str) -> tuple[str, int]:
    scheme, has_scheme, address = entry.rpartition("://")
    host, has_port, port = address.rpartition(":")
    if not has_port or (address.startswith("[") and address.endswith("]")):
        host, port = address, str(_PORT_DEFAULT)
    if has_scheme and scheme.upper() not in _PROTOCOLS:
        raise ValueError(f"{entry} is a URL, and brokers have addresses without one: write {address.partition('/')[0] or 'host:port'}")
    if not host or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX or "/" in host:
        raise ValueError(f"{entry} is not host:port")
    return host.strip("[]"), int(port)
