"""How the blocking clients of audit and load reach a broker: TLS, and SASL with PLAIN or SCRAM.

Logging in is not what the audit checks, so it may share `minikafka.security` with the brokers.
"""

from __future__ import annotations

import secrets
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from minikafka.openssl import BlockingSocket
from minikafka.security.client_properties import client_properties
from minikafka.security.jaas import parse_jaas
from minikafka.security.mechanisms import PlainClient, SaslClient
from minikafka.security.scram import SCRAM_MECHANISMS, ScramClient
from minikafka.security.stores import client_context

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS)


@dataclass(frozen=True, slots=True)
class Security:
    """How an audit, a load or a query connects; the default is plain text. Workers get the same settings, and read the files on their
    own machines."""

    tls: bool = False
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Security:
        """A Kafka client's properties: security.protocol, ssl.*, sasl.mechanism, sasl.jaas.config. Raises ValueError."""
        properties = client_properties(properties)
        protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise ValueError(f"security.protocol={protocol}: must be one of {', '.join(PROTOCOLS)}")
        mechanism = user = password = ""
        if protocol.startswith("SASL"):
            mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
            if mechanism not in MECHANISMS:
                raise ValueError(f"sasl.mechanism={mechanism}: must be one of {', '.join(MECHANISMS)}")
            if "sasl.jaas.config" in properties:
                user, password = parse_jaas(properties["sasl.jaas.config"]).credentials()
            else:
                user, password = properties.get("sasl.username", ""), properties.get("sasl.password", "")
            if not user:
                raise ValueError("sasl.jaas.config (or sasl.username and sasl.password) is missing")
        tls = protocol.endswith("SSL")
        given = tuple(sorted((name, text) for name, text in properties.items() if name.startswith("ssl.")))
        if tls:
            client_context(dict(given))
        return cls(tls, mechanism, user, password, given)

    def client_properties(self) -> dict[str, str]:
        """The same as a client's properties."""
        protocol = ("SASL_" if self.mechanism else "") + ("SSL" if self.tls else "PLAINTEXT")
        login = {"sasl.mechanism": self.mechanism, "sasl.username": self.user, "sasl.password": self.password} if self.mechanism else {}
        return {**dict(self.properties), "security.protocol": protocol, **login}

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """An open connection, after the TLS handshake, not logged in yet. Raises OSError, and ValueError for files that cannot be used."""
        plain = socket.create_connection((host, port), timeout=timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self.tls:
                return plain
            context = client_context(dict(self.properties))
            context.sslsocket_class = BlockingSocket
            return context.wrap_socket(plain, server_hostname=host)
        except ssl.SSLError as error:
            plain.close()
            why = getattr(error, "verify_message", "") or error.reason or error
            raise ConnectionError(f"TLS fails ({why}): does the listener speak TLS, and does the trust store contain "
                                  "its signer?") from error
        except BaseException:
            plain.close()
            raise

    def login(self) -> SaslClient:
        """A new exchange of the mechanism."""
        if self.mechanism == "PLAIN":
            return PlainClient(self.user, self.password)
        return ScramClient(SCRAM_MECHANISMS[self.mechanism], self.user, self.password, secrets.token_urlsafe(24))


PLAIN_TEXT = Security()
