"""Ranges of addresses as hosts of ACLs: 10.0.0.0/8, fe80::/10 (CIDR; metadata.version 4.4-IV1). Bits behind the prefix do not count."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_IPV4 = re.compile(r"(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})/(\d{1,2})", re.ASCII)
_IPV6 = re.compile(r"([0-9a-fA-F:.]+)/(\d{1,3})", re.ASCII)
BITS_OF_IPV4, BITS_OF_IPV6 = 32, 128
#: Ranges and addresses whose parsed form is remembered.
PARSED_KEPT = 4096

Network = IPv4Network | IPv6Network


class InvalidRange(ValueError):
    """What is wrong, in words that follow Kafka's."""


def is_range(host: str) -> bool:
    """Whether the host of an ACL is meant as a range."""
    return "/" in host


def parsed(text: str) -> Network:
    """Raises InvalidRange."""
    if match := _IPV4.fullmatch(text):
        octet = next((part for part in match[1].split(".") if int(part) > 255), None)
        if octet is not None:
            raise InvalidRange(f"Value [{octet}] not in range [0,255]")
        address = IPv4Address(".".join(str(int(part)) for part in match[1].split(".")))
        return IPv4Network((address, _prefix(match[2], BITS_OF_IPV4)), strict=False)
    match = _IPV6.fullmatch(text)
    if match is None or ":" not in match[1]:
        raise InvalidRange(f"Could not parse [{text}]")
    try:
        six = IPv6Address(match[1])
    except AddressValueError:
        raise InvalidRange(f"Could not parse [{match[1]}]") from None
    if six.ipv4_mapped is not None:
        raise InvalidRange(f"Could not parse [{match[1]}] - not an IPv6 address")
    return IPv6Network((six, _prefix(match[2], BITS_OF_IPV6)), strict=False)


def _prefix(text: str, bits: int) -> int:
    if int(text) > bits:
        raise InvalidRange(f"Value [{text}] not in range [0,{bits}]")
    return int(text)


@lru_cache(PARSED_KEPT)
def _range(text: str) -> Network | None:
    try:
        return parsed(text)
    except InvalidRange:
        return None


@lru_cache(PARSED_KEPT)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def contains(text: str, host: str) -> bool:
    """Whether an address, as it is written, is in a range; what cannot be read is in none."""
    network, address = _range(text), _address(host)
    return network is not None and address is not None and address in network
