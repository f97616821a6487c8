"""TLS and SASL of a node's listeners and of its connections to other nodes. The properties are in config/listener_security.py."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from minikafka.broker.config.endpoints import PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SECURITY_PROTOCOLS, SSL
from minikafka.broker.config.listener_security import (
    SaslProperties,
    is_security_property,
    listener_prefix,
    listener_properties,
    login_properties,
    outgoing_logins,
    sasl_properties,
)
from minikafka.broker.config.security_properties import SECURITY
from minikafka.core.metadata.image import RESOURCE_BROKER
from minikafka.net.tls_settings import ServerTls
from minikafka.security.client import ClientSecurity
from minikafka.security.errors import SecurityError
from minikafka.security.mechanisms import PlainServer, SaslServer
from minikafka.security.principals import PrincipalMapper, distinguished_name, principal_mapper
from minikafka.security.scram import SCRAM_MECHANISMS, ScramCredential, ScramMechanism, ScramServer
from minikafka.security.stores import certificate_warning, server_context

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage
    from minikafka.core.scram import TokenLogin

logger = logging.getLogger("minikafka.security")

PROTOCOL_NAMES = {number: name for name, number in SECURITY_PROTOCOLS.items()}
Made = TypeVar("Made")
#: (user, mechanism number) -> its UserScramCredentialRecord, or None.
ScramRecords = Callable[[str, int], Any]
#: (id of a delegation token, mechanism) -> what a client that logs in with the token must know, or None.
TokenLogins = Callable[[str, ScramMechanism], "TokenLogin | None"]


class ListenerSasl:
    """SASL of one listener: starts authentication exchanges on the server side."""

    def __init__(self, properties: SaslProperties, scram_records: ScramRecords, token_login: TokenLogins) -> None:
        self.mechanisms = properties.mechanisms
        self.failed_delay_ms = properties.failed_delay_ms
        self.frame_bytes_max = properties.frame_bytes_max
        self._properties = properties
        self._secret = secrets.token_bytes(32)
        self._scram_records = scram_records
        self._token_login = token_login

    def server(self, mechanism: str) -> SaslServer:
        """Start an exchange."""
        if mechanism == "PLAIN":
            return PlainServer(self._properties.users)
        scram = SCRAM_MECHANISMS[mechanism]

        def credential(user: str) -> ScramCredential | None:
            record = self._scram_records(user, scram.number)
            if record is None:
                return None
            return ScramCredential(bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations)

        nonce = secrets.token_urlsafe(24)
        return ScramServer(scram, credential, nonce, self._secret, lambda token_id: self._token_login(token_id, scram))

    def session_lifetime_ms(self, mechanism: str) -> int:
        """How long an authentication is valid, in ms; 0 = for ever (KIP-368)."""
        return self._properties.session_lifetime_ms[mechanism]


class ListenerSecurity:
    """Security of one listener. `tls` None: no TLS; `sasl` None: no SASL."""

    def __init__(
        self,
        config: BrokerConfig,
        listener: str,
        protocol: int,
        given: Mapping[str, str],
        scram_records: ScramRecords,
        token_login: TokenLogins,
    ) -> None:
        """Reads key and trust stores. Raises SecurityError."""
        properties = listener_properties(given, listener)
        self.name = listener
        self.tls: ServerTls | None = None
        self.sasl: ListenerSasl | None = None
        if protocol in (SASL_PLAINTEXT, SASL_SSL):
            self.sasl = ListenerSasl(sasl_properties(config, listener, given), scram_records, token_login)
        self._mapper: PrincipalMapper = principal_mapper(properties.get("ssl.principal.mapping.rules", "DEFAULT"))
        if protocol in (SSL, SASL_SSL):
            if self.sasl is not None and f"{listener_prefix(listener)}ssl.client.auth" not in given:
                # As in Kafka, SASL_SSL requests client certificates only if the listener's own property says so.
                properties.pop("ssl.client.auth", None)
            self.tls = ServerTls(server_context(properties))
            warning = certificate_warning(properties)
            if warning is not None:
                logger.warning("listener %s: %s; no client that checks it will connect", listener, warning)

    def take(self, new: ListenerSecurity) -> None:
        """Use the settings of `new` for future connections."""
        if self.tls is not None and new.tls is not None:
            self.tls.context = new.tls.context
        self.sasl = new.sasl
        self._mapper = new._mapper

    def certificate_principal(self, certificate: bytes | None) -> str | None:
        """The principal of a client certificate (DER): anonymous without a certificate, None if no mapping rule applies."""
        if certificate is None:
            return "User:ANONYMOUS"
        name = self._mapper(distinguished_name(certificate))
        return None if name is None else f"User:{name}"


class NodeSecurity:
    """Security of a node: `listeners` by name, and its connections to brokers and to controllers (None = plain text)."""

    def __init__(self, config: BrokerConfig, scram_records: ScramRecords, token_login: TokenLogins) -> None:
        """`scram_records`, `token_login`: look credentials up in the metadata. Raises SecurityError with the listener's name."""
        self._config = config
        self._scram_records = scram_records
        self._token_login = token_login
        self._dynamic: dict[str, str] = {}
        self.listeners = self._make_listeners(config.given)
        self.inter_broker, self.controller = self._make_clients(config.given)

    def _make_listeners(self, given: Mapping[str, str]) -> dict[str, ListenerSecurity]:
        config = self._config
        found = {}
        for endpoint in [*config.broker_listeners, *config.controller_listeners]:
            if endpoint.security_protocol != PLAINTEXT:
                found[endpoint.name] = _named(
                    endpoint.name,
                    lambda e=endpoint: ListenerSecurity(  # type: ignore[misc]
                        config, e.name, e.security_protocol, given, self._scram_records, self._token_login
                    ),
                )
        return found

    def _make_clients(self, given: Mapping[str, str]) -> tuple[ClientSecurity | None, ClientSecurity | None]:
        config = self._config
        logins = dict(outgoing_logins(config, given))
        inter_broker = _client(config, config.inter_broker_listener, logins, given) if config.is_broker else None
        return inter_broker, _client(config, config.controller_listener, logins, given) if config.controller_listener else None

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply dynamic properties (KIP-226): new connections use the new certificates, authorities and users.

        Files are read again even if their names are unchanged. Invalid settings are logged, and the previous ones are kept.
        """
        own = str(self._config.node_id)
        if (RESOURCE_BROKER, "") not in delta.changed_configs and (RESOURCE_BROKER, own) not in delta.changed_configs:
            return
        texts = {**image.config(RESOURCE_BROKER, ""), **image.config(RESOURCE_BROKER, own)}
        effective = {entry.name for entry in SECURITY if entry.dynamic}
        dynamic = {name: text for name, text in texts.items() if name in effective or is_security_property(name)}
        if not dynamic and not self._dynamic:
            return
        given = {**self._config.given, **dynamic}
        try:
            listeners, (inter_broker, controller) = self._make_listeners(given), self._make_clients(given)
        except SecurityError as error:
            logger.warning("dynamic security properties are ignored: %s", error)
            return
        self._dynamic = dynamic
        for name, new in listeners.items():
            self.listeners[name].take(new)
        for old, fresh in ((self.inter_broker, inter_broker), (self.controller, controller)):
            if old is not None and fresh is not None:
                old.take(fresh)
        logger.info("dynamic configuration: listeners %s use new keys, authorities and users", ", ".join(listeners) or "(none)")


def _client(config: BrokerConfig, listener: str, logins: Mapping[str, str], given: Mapping[str, str]) -> ClientSecurity | None:
    protocol = config.protocol_of(listener)
    properties = listener_properties(given, listener)
    properties.pop("sasl.jaas.config", None)
    if listener in logins:
        properties |= login_properties(config, listener, logins[listener], given)
    return _named(listener, lambda: ClientSecurity.from_properties({**properties, "security.protocol": PROTOCOL_NAMES[protocol]}))


def _named(listener: str, make: Callable[[], Made]) -> Made:
    try:
        return make()
    except SecurityError as error:
        raise SecurityError(f"listener {listener}: {error}") from error
