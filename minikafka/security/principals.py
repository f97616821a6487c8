"""Principals of certificates: the distinguished name as Java writes it, mapped by ssl.principal.mapping.rules.

Source: Apache Kafka's SslPrincipalMapper and DefaultKafkaPrincipalBuilder; java.security X500Principal.getName (RFC 2253).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from minikafka.security.errors import SecurityError

#: Object identifier -> name of the attributes that RFC 2253 names; the values of others are written in hexadecimal.
_NAMES = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}  # fmt: skip
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")

PrincipalMapper = Callable[[str], str | None]


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate (DER), most specific part first."""
    from cryptography import x509

    parts = []
    for relative in reversed(x509.load_der_x509_certificate(certificate).subject.rdns):
        parts.append("+".join(_attribute(attribute) for attribute in relative))
    return ",".join(parts)


def _attribute(attribute: object) -> str:
    from cryptography import x509

    assert isinstance(attribute, x509.NameAttribute)
    name = _NAMES.get(attribute.oid.dotted_string)
    if name is not None:
        return f"{name}={attribute.rfc4514_string().partition('=')[2]}"
    data = x509.Name([attribute]).public_bytes()
    for _ in range(3):  # unwrap the sequence, the set, and the sequence of identifier and value
        data = _content(data)
    identifier = len(data) - len(_content(data)) + data[1]
    return f"{attribute.oid.dotted_string}=#{data[identifier:].hex()}"


def _content(data: bytes) -> bytes:
    """The content of a DER value, after its tag and length."""
    return data[2:] if data[1] < 0x80 else data[2 + (data[1] & 0x7F) :]


def principal_mapper(rules: str) -> PrincipalMapper:
    """ssl.principal.mapping.rules as a function from distinguished name to principal name, None if no rule applies. Raises
    SecurityError."""
    found: list[tuple[re.Pattern[str] | None, str, str]] = []
    text, position = rules.strip() or "DEFAULT", 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise SecurityError(
                f"ssl.principal.mapping.rules={rules}: must be DEFAULT or RULE:pattern/replacement/[LU], separated by commas; wrong from"
                f" {text[position:]!r} on"
            )
        position = match.end()
        if match[1]:
            found.append((None, "", ""))
            continue
        try:
            pattern = re.compile(match[2])
        except re.error as error:
            raise SecurityError(f"ssl.principal.mapping.rules={rules}: {match[2]!r} is not a regular expression: {error}") from error
        found.append((pattern, re.sub(r"\$(\d)", r"\\\1", match[3]), match[4]))

    def apply(name: str) -> str | None:
        for pattern, replacement, case in found:
            if pattern is None:
                return name
            match = pattern.fullmatch(name)
            if match is not None:
                result = match.expand(replacement).strip()
                return result.lower() if case == "L" else result.upper() if case == "U" else result
        return None

    return apply
