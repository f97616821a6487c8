"""Security of a node: how each listener protects itself and how this node connects to others, from Kafka's properties.

Properties of one listener stand before the general ones: `listener.name.internal.ssl.keystore.location` before `ssl.keystore.location`, and
what belongs to a mechanism names it: `listener.name.internal.plain.sasl.jaas.config` (KIP-103, SaslConfigs, ChannelBuilders).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from minikafka.broker.config_security import SECURITY, STANDARD_AUTHORIZER
from minikafka.core.metadata.image import RESOURCE_BROKER
from minikafka.net.tls import ServerTls
from minikafka.security.client import MECHANISMS, ClientSecurity
from minikafka.security.errors import SecurityError
from minikafka.security.jaas import LoginModule, parse_jaas
from minikafka.security.mechanisms import PlainServer, SaslServer
from minikafka.security.principals import PrincipalMapper, distinguished_name, principal_mapper
from minikafka.security.scram import SCRAM_MECHANISMS, ScramCredential, ScramServer
from minikafka.security.stores import certificate_warning, server_context

if TYPE_CHECKING:
    from minikafka.broker.config import BrokerConfig
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage

logger = logging.getLogger("minikafka.security")

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = range(4)
PROTOCOL_NAMES = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
USER_PREFIX = "user_"
_GENERAL = ("ssl.", "sasl.", "connections.max.reauth.ms")
#: (user, number of the mechanism) -> what UserScramCredentialRecord says of it, or None.
ScramRecords = Callable[[str, int], Any]


def listener_properties(given: Mapping[str, str], listener: str) -> dict[str, str]:
    """What holds for a listener, as texts under names without its prefix."""
    prefix = listener_prefix(listener)
    own = {name[len(prefix) :]: text for name, text in given.items() if name.lower().startswith(prefix)}
    return {name: text for name, text in given.items() if name.startswith(_GENERAL)} | own


def listener_prefix(listener: str) -> str:
    """listener.name.NAME. in lower case."""
    return f"listener.name.{listener.lower()}."


def general_name(name: str) -> str:
    """The property that listener.name.NAME.[MECHANISM.]PROPERTY sets for one listener; "" for other names."""
    parts = name.split(".", 3)
    if name[:14].lower() != "listener.name." or len(parts) < 4:
        return ""
    mechanism, _, inner = parts[3].partition(".")
    return inner if mechanism.upper() in (*MECHANISMS, "OAUTHBEARER", "GSSAPI") else parts[3]


def is_security_property(name: str) -> bool:
    """Whether a property of one listener has an effect."""
    general = general_name(name)
    return any(entry.name == general for entry in SECURITY)


def security_problems(config: BrokerConfig) -> list[str]:
    """A sentence for each thing that can be seen to be wrong without reading a file."""
    problems: list[str] = []
    for endpoint in [*config.broker_listeners, *config.controller_listeners]:
        if endpoint.security_protocol in (SASL_PLAINTEXT, SASL_SSL):
            problems += _problems(endpoint.name, lambda name=endpoint.name: ListenerSasl(config, name))  # type: ignore[misc]
        if endpoint.security_protocol in (SSL, SASL_SSL):
            rules = listener_properties(config.given, endpoint.name).get("ssl.principal.mapping.rules", "DEFAULT")
            problems += _problems(endpoint.name, lambda rules=rules: principal_mapper(rules))  # type: ignore[misc]
    for listener, mechanism in outgoing_logins(config):
        problems += _problems(listener, lambda: login_properties(config, listener, mechanism))  # noqa: B023 - called at once
    if config.authorizer_class_name not in ("", STANDARD_AUTHORIZER):
        problems.append(
            f"authorizer.class.name={config.authorizer_class_name}: Java classes are not loaded, and everybody would be let in; there is "
            f"{STANDARD_AUTHORIZER}"
        )
    problems += [
        f"super.users={principal}: a principal is a type and a name, such as User:admin; several are separated by semicolons"
        for principal in super_users(config)
        if not all(principal.partition(":"))
    ]
    return problems


def super_users(config: BrokerConfig) -> list[str]:
    """The principals of super.users."""
    return [principal.strip() for principal in config.super_users.split(";") if principal.strip()]


def _problems(listener: str, attempt: Callable[[], object]) -> list[str]:
    try:
        attempt()
    except SecurityError as error:
        return [f"listener {listener}: {error}"]
    return []


def outgoing_logins(config: BrokerConfig, given: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """(listener, SASL mechanism) of the connections that this node opens with SASL."""
    found = []
    given = config.given if given is None else given
    if config.is_broker and config.protocol_of(config.inter_broker_listener) in (SASL_PLAINTEXT, SASL_SSL):
        found.append((config.inter_broker_listener, given.get("sasl.mechanism.inter.broker.protocol", "GSSAPI")))
    controller = config.controller_listener
    if controller and config.protocol_of(controller) in (SASL_PLAINTEXT, SASL_SSL):
        found.append((controller, given.get("sasl.mechanism.controller.protocol", "GSSAPI")))
    return found


def login_properties(config: BrokerConfig, listener: str, mechanism: str, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """sasl.mechanism and sasl.jaas.config of a login of this node. Raises SecurityError."""
    mechanism = mechanism.upper()
    if mechanism not in MECHANISMS:
        which = "sasl.mechanism.controller.protocol" if listener == config.controller_listener else "sasl.mechanism.inter.broker.protocol"
        raise SecurityError(f"{which}={mechanism}: must be one of {', '.join(MECHANISMS)}")
    name = f"{mechanism.lower()}.sasl.jaas.config"
    text = listener_properties(config.given if given is None else given, listener).get(name)
    if text is None:
        raise SecurityError(f"{listener_prefix(listener)}{name} is missing: as whom does this node log in (username, password)?")
    parse_jaas(text).credentials()
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": text}


class ListenerSasl:
    """SASL of one listener. Raises SecurityError."""

    def __init__(self, config: BrokerConfig, listener: str, given: Mapping[str, str] | None = None) -> None:
        """`given` stands for `config.given`."""
        properties = listener_properties(config.given if given is None else given, listener)
        text = properties.get("sasl.enabled.mechanisms", "GSSAPI")
        self.mechanisms = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in self.mechanisms if name not in MECHANISMS]
        if unknown or not self.mechanisms:
            raise SecurityError(f"sasl.enabled.mechanisms={text}: must name some of {', '.join(MECHANISMS)}")
        self.failed_delay_ms: int = config.connection_failed_authentication_delay_ms
        self.frame_bytes_max: int = min(config.sasl_server_max_receive_size, config.socket_request_max_bytes)
        self._reauth_ms = {name: _reauth_ms(properties, name) for name in self.mechanisms}
        self._users: dict[str, str] = {}
        if "PLAIN" in self.mechanisms:
            module = _jaas_of(properties, listener, "PLAIN")
            self._users = {key.removeprefix(USER_PREFIX): value for key, value in module.options.items() if key.startswith(USER_PREFIX)}
        for name in self.mechanisms:
            if f"{name.lower()}.sasl.jaas.config" in properties:
                _jaas_of(properties, listener, name)
        self._secret = secrets.token_bytes(32)
        #: Set by who knows the metadata.
        self.scram_records: ScramRecords = lambda user, mechanism: None

    def server(self, mechanism: str) -> SaslServer:
        """A new exchange."""
        if mechanism == "PLAIN":
            return PlainServer(self._users)
        scram = SCRAM_MECHANISMS[mechanism]

        def credential(user: str) -> ScramCredential | None:
            record = self.scram_records(user, scram.number)
            if record is None:
                return None
            return ScramCredential(bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations)

        return ScramServer(scram, credential, secrets.token_urlsafe(24), self._secret)

    def session_lifetime_ms(self, mechanism: str) -> int:
        """How long an authentication holds; 0 = for good (KIP-368)."""
        return self._reauth_ms[mechanism]


def _reauth_ms(properties: Mapping[str, str], mechanism: str) -> int:
    name = "connections.max.reauth.ms"
    text = properties.get(f"{mechanism.lower()}.{name}", properties.get(name, "0"))
    try:
        return max(0, int(text))
    except ValueError:
        raise SecurityError(f"{name}={text}: must be a whole number") from None


def _jaas_of(properties: Mapping[str, str], listener: str, mechanism: str) -> LoginModule:
    name = f"{mechanism.lower()}.sasl.jaas.config"
    if name not in properties:
        raise SecurityError(f"{listener_prefix(listener)}{name} is missing: it names the users of {mechanism}")
    return parse_jaas(properties[name])


class ListenerSecurity:
    """How one listener protects itself; `tls` and `sasl` None = not."""

    def __init__(self, config: BrokerConfig, listener: str, protocol: int, given: Mapping[str, str]) -> None:
        """Reads key and trust stores. Raises SecurityError."""
        properties = listener_properties(given, listener)
        self.name = listener
        self.tls: ServerTls | None = None
        self.sasl = ListenerSasl(config, listener, given) if protocol in (SASL_PLAINTEXT, SASL_SSL) else None
        self._mapper: PrincipalMapper = principal_mapper(properties.get("ssl.principal.mapping.rules", "DEFAULT"))
        if protocol in (SSL, SASL_SSL):
            if self.sasl is not None and f"{listener_prefix(listener)}ssl.client.auth" not in given:
                # As in Kafka, SASL_SSL asks for certificates only when its listener's own property says so.
                properties.pop("ssl.client.auth", None)
            self.tls = ServerTls(server_context(properties))
            warning = certificate_warning(properties)
            if warning is not None:
                logger.warning("listener %s: %s; no client that checks it will connect", listener, warning)

    def take(self, new: ListenerSecurity) -> None:
        """Be as `new` from the next connection on."""
        if self.tls is not None and new.tls is not None:
            self.tls.context = new.tls.context
        self.sasl = new.sasl
        self._mapper = new._mapper

    def certificate_principal(self, certificate: bytes | None) -> str | None:
        """The principal of a client's certificate (DER); anonymous without one, None when no mapping rule applies."""
        if certificate is None:
            return "User:ANONYMOUS"
        name = self._mapper(distinguished_name(certificate))
        return None if name is None else f"User:{name}"


class NodeSecurity:
    """Everything of a node: `listeners` by name, and how it connects to brokers and to controllers (None = in plain text)."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises SecurityError with the listener's name."""
        self._config = config
        self._scram_records: ScramRecords = lambda user, mechanism: None
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
                    lambda e=endpoint: ListenerSecurity(config, e.name, e.security_protocol, given),  # type: ignore[misc]
                )
        return found

    def _make_clients(self, given: Mapping[str, str]) -> tuple[ClientSecurity | None, ClientSecurity | None]:
        config = self._config
        logins = dict(outgoing_logins(config, given))
        inter_broker = _client(config, config.inter_broker_listener, logins, given) if config.is_broker else None
        return inter_broker, _client(config, config.controller_listener, logins, given) if config.controller_listener else None

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Dynamic properties (KIP-226): new connections get new certificates, authorities and users, also when only a file has changed
        behind the same name. What cannot be used is said, and what was there stays."""
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
            logger.warning("the dynamic security properties are not used: %s", error)
            return
        self._dynamic = dynamic
        for name, new in listeners.items():
            self.listeners[name].take(new)
        self.use_scram_records(self._scram_records)
        for old, fresh in ((self.inter_broker, inter_broker), (self.controller, controller)):
            if old is not None and fresh is not None:
                old.take(fresh)
        logger.info("dynamic configuration: listeners %s have new keys, authorities and users", ", ".join(listeners) or "(none)")

    def use_scram_records(self, records: ScramRecords) -> None:
        """Where SCRAM credentials are found."""
        self._scram_records = records
        for listener in self.listeners.values():
            if listener.sasl is not None:
                listener.sasl.scram_records = records


def _client(config: BrokerConfig, listener: str, logins: Mapping[str, str], given: Mapping[str, str]) -> ClientSecurity | None:
    protocol = config.protocol_of(listener)
    properties = listener_properties(given, listener)
    properties.pop("sasl.jaas.config", None)
    if listener in logins:
        properties |= login_properties(config, listener, logins[listener], given)
    return _named(listener, lambda: ClientSecurity.from_properties({**properties, "security.protocol": PROTOCOL_NAMES[protocol]}))


def _named(listener: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except SecurityError as error:
        raise SecurityError(f"listener {listener}: {error}") from error
