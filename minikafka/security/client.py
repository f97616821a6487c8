"""Secures a client's connections as Kafka's client properties say (security.protocol, ssl.*, sasl.*)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from minikafka.addresses import host_port
from minikafka.net.network import AuthenticationFailed
from minikafka.net.tls_settings import ClientTls
from minikafka.security.errors import SecurityError
from minikafka.security.jaas import LoginModule, parse_jaas
from minikafka.security.mechanisms import PlainClient, SaslClient, SaslRefused
from minikafka.security.scram import SCRAM_MECHANISMS, TOKEN_EXTENSION, ScramClient
from minikafka.security.stores import client_context
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from minikafka.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from minikafka.net.channel import Channel

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS)
HANDSHAKE_VERSION = 1
ROUNDS_MAX = 8


class ClientSecurity:
    """How a client opens connections: over TLS unless `tls` is None, and with SASL unless `mechanism` is ""."""

    def __init__(self, protocol: str, tls: ClientTls | None, mechanism: str = "", login: Callable[[], SaslClient] | None = None) -> None:
        self.protocol = protocol
        self.tls = tls
        self.mechanism = mechanism
        #: Creates the client's side of a new SASL exchange.
        self.login = login or _no_mechanism

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol}{f', {self.mechanism}' if self.mechanism else ''})"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ClientSecurity | None:
        """The security that a Kafka client's properties ask for; None for PLAINTEXT. Reads key and trust stores. Raises SecurityError."""
        protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise SecurityError(f"security.protocol={protocol}: must be one of {', '.join(PROTOCOLS)}")
        if protocol == "PLAINTEXT":
            return None
        tls = ClientTls(client_context(properties)) if protocol.endswith("SSL") else None
        if not protocol.startswith("SASL"):
            return cls(protocol, tls)
        if "sasl.mechanism" not in properties:
            # Kafka's default is GSSAPI.
            raise SecurityError(f"sasl.mechanism is missing: must be one of {', '.join(MECHANISMS)}")
        mechanism = properties["sasl.mechanism"].strip().upper()
        if mechanism not in MECHANISMS:
            raise SecurityError(f"sasl.mechanism={mechanism}: must be one of {', '.join(MECHANISMS)}")
        return cls(protocol, tls, mechanism, _login(mechanism, _module(properties)))

    def take(self, new: ClientSecurity) -> None:
        """Take over the settings of `new`, from the next connection on."""
        self.tls, self.mechanism, self.login = new.tls, new.mechanism, new.login

    async def authenticate(self, channel: Channel, timeout_ms: int) -> int:
        """Authenticate an open channel that has negotiated versions. Returns the session's lifetime in milliseconds, 0 = unlimited.

        Raises AuthenticationFailed, and what Channel.request raises."""
        if not self.mechanism:
            return 0
        where = host_port(channel.host, channel.port)
        handshake = SaslHandshakeRequest(mechanism=self.mechanism)
        agreed = cast(SaslHandshakeResponse, await channel.request(handshake, HANDSHAKE_VERSION, timeout_ms))
        if agreed.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise AuthenticationFailed(
                f"{where}: SASL mechanism {self.mechanism} is not enabled there; enabled: {', '.join(agreed.mechanisms) or 'none'}"
            )
        if agreed.error_code:
            raise AuthenticationFailed(f"{where}: it rejects SASL ({ErrorCode(agreed.error_code).name}); is it a SASL listener?")
        exchange = self.login()
        token: bytes | None = exchange.first()
        for _ in range(ROUNDS_MAX):
            answer = cast(SaslAuthenticateResponse, await channel.request(SaslAuthenticateRequest(auth_bytes=token), None, timeout_ms))
            if answer.error_code:
                text = answer.error_message or ErrorCode(answer.error_code).name
                raise AuthenticationFailed(f"{where}: {text}")
            try:
                token = exchange.next(bytes(answer.auth_bytes))
            except SaslRefused as error:
                raise AuthenticationFailed(f"{where}: {error}") from error
            if token is None:
                return int(answer.session_lifetime_ms)
        raise AuthenticationFailed(f"{where}: the {self.mechanism} exchange does not end")


def _no_mechanism() -> SaslClient:
    raise SecurityError("there is no SASL mechanism")


def _module(properties: Mapping[str, str]) -> LoginModule:
    """From sasl.jaas.config, or from librdkafka's sasl.username and sasl.password."""
    if "sasl.jaas.config" in properties:
        return parse_jaas(properties["sasl.jaas.config"])
    user, password = properties.get("sasl.username"), properties.get("sasl.password")
    if not user or password is None:
        raise SecurityError("sasl.jaas.config (or sasl.username and sasl.password) is missing")
    return LoginModule("", {"username": user, "password": password})


def _login(mechanism: str, module: LoginModule) -> Callable[[], SaslClient]:
    user, password = module.credentials()
    if mechanism == "PLAIN":
        return lambda: PlainClient(user, password)
    is_token = module.options.get(TOKEN_EXTENSION, "").lower() == "true"
    return lambda: ScramClient(SCRAM_MECHANISMS[mechanism], user, password, secrets.token_urlsafe(24), is_token=is_token)
