"""Hosts of ACLs: a single address in any notation, or a range such as 10.0.0.0/8 or fe80::/10 (CIDR; metadata.version 4.4-IV1).

Bits after the prefix of a range are ignored. Kafka compares single addresses as text, and writes all eight groups of an IPv6 address. Here
the address itself is compared, so every ACL that matches in Kafka matches here.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

_IPV4 = re.compile(r"(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})/(\d{1,2})", re.ASCII)
_IPV6 = re.compile(r"([0-9a-fA-F:.]+)/(\d{1,3})", re.ASCII)
BITS_OF_IPV4, BITS_OF_IPV6 = 32, 128
#: The longest text of an address; longer ones are not parsed.
ADDRESS_CHARACTERS_MAX = 128


class Peer(NamedTuple):
    """The source of a request. `bits`: length of its address, 0 if `host` is not an address. `scope`: of a link-local address, or ""."""

    host: str
    bits: int
    number: int
    scope: str

    @classmethod
    def of(cls, host: str) -> Peer:
        """The peer with an address as text."""
        if len(host) > ADDRESS_CHARACTERS_MAX:
            return cls(host, 0, 0, "")
        try:
            address = ip_address(host)
        except ValueError:
            return cls(host, 0, 0, "")
        return cls(host, address.max_prefixlen, int(address), host.partition("%")[2])


class Place(NamedTuple):
    """The addresses that an ACL's host matches: those whose first bits are `prefix`, without the last `shift` bits."""

    bits: int
    shift: int
    prefix: int
    scope: str = ""

    @classmethod
    def of(cls, host: str) -> Place | None:
        """The addresses of a host; None if it is neither a valid address nor a valid range."""
        if is_range(host):
            try:
                return parsed(host)
            except InvalidRange:
                return None
        peer = Peer.of(host)
        return cls(peer.bits, 0, peer.number, peer.scope) if peer.bits else None

    def holds(self, peer: Peer) -> bool:
        """Whether the peer's address is among them."""
        return self.bits == peer.bits and peer.number >> self.shift == self.prefix and self.scope in ("", peer.scope)


class InvalidRange(ValueError):
    """An invalid range. The message follows Kafka's."""


def is_range(host: str) -> bool:
    """Whether the host of an ACL is written as a range."""
    return "/" in host


def parsed(text: str) -> Place:
    """The addresses of a range. Raises InvalidRange."""
    if match := _IPV4.fullmatch(text):
        octet = next((part for part in match[1].split(".") if int(part) > 255), None)
        if octet is not None:
            raise InvalidRange(f"Value [{octet}] not in range [0,255]")
        address = IPv4Address(".".join(str(int(part)) for part in match[1].split(".")))
        return _place(int(address), BITS_OF_IPV4, match[2])
    match = _IPV6.fullmatch(text)
    if match is None or ":" not in match[1]:
        raise InvalidRange(f"Could not parse [{text}]")
    try:
        six = IPv6Address(match[1])
    except AddressValueError:
        raise InvalidRange(f"Could not parse [{match[1]}]") from None
    if six.ipv4_mapped is not None:
        raise InvalidRange(f"Could not parse [{match[1]}] - not an IPv6 address")
    return _place(int(six), BITS_OF_IPV6, match[2])


def _place(number: int, bits: int, length: str) -> Place:
    if int(length) > bits:
        raise InvalidRange(f"Value [{length}] not in range [0,{bits}]")
    shift = bits - int(length)
    return Place(bits, shift, number >> shift)
