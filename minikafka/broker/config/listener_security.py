"""Security properties of listeners, of connections to other nodes and of the authorizer, and their validation.

A property of one listener takes precedence over the general one: `listener.name.internal.ssl.keystore.location` over
`ssl.keystore.location`. Properties of a mechanism contain its name: `listener.name.internal.plain.sasl.jaas.config` (KIP-103, SaslConfigs,
ChannelBuilders).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from minikafka.broker.config.endpoints import SASL_PLAINTEXT, SASL_SSL, SSL, Endpoint
from minikafka.broker.config.security_properties import SECURITY, STANDARD_AUTHORIZER
from minikafka.late_dataclass import dataclass
from minikafka.security.client import MECHANISMS
from minikafka.security.errors import SecurityError
from minikafka.security.jaas import LoginModule, parse_jaas
from minikafka.security.principals import principal_mapper

_USER_PREFIX = "user_"
_GENERAL = ("ssl.", "sasl.", "connections.max.reauth.ms")


class ListenerConfig(Protocol):
    """The part of BrokerConfig that these rules read."""

    given: dict[str, str]
    is_broker: bool
    broker_listeners: list[Endpoint]
    controller_listeners: list[Endpoint]
    inter_broker_listener: str
    controller_listener: str
    authorizer_class_name: str
    super_users: str
    connection_failed_authentication_delay_ms: int
    sasl_server_max_receive_size: int
    socket_request_max_bytes: int

    def protocol_of(self, listener: str) -> int:
        """The security protocol of a listener of this cluster."""


def listener_properties(given: Mapping[str, str], listener: str) -> dict[str, str]:
    """The properties of one listener, as text, by names without its prefix."""
    prefix = listener_prefix(listener)
    own = {name[len(prefix) :]: text for name, text in given.items() if name.lower().startswith(prefix)}
    return {name: text for name, text in given.items() if name.startswith(_GENERAL)} | own


def listener_prefix(listener: str) -> str:
    """The prefix listener.name.NAME., in lower case."""
    return f"listener.name.{listener.lower()}."


def general_name(name: str) -> str:
    """PROPERTY of listener.name.NAME.[MECHANISM.]PROPERTY; "" for other names."""
    parts = name.split(".", 3)
    if name[:14].lower() != "listener.name." or len(parts) < 4:
        return ""
    mechanism, _, inner = parts[3].partition(".")
    return inner if mechanism.upper() in (*MECHANISMS, "OAUTHBEARER", "GSSAPI") else parts[3]


def is_security_property(name: str) -> bool:
    """Whether the name is a security property of one listener that has an effect."""
    general = general_name(name)
    return any(entry.name == general for entry in SECURITY)


def security_problems(config: ListenerConfig) -> list[str]:
    """All problems that can be found without reading files, each as a sentence."""
    problems: list[str] = []
    for endpoint in [*config.broker_listeners, *config.controller_listeners]:
        if endpoint.security_protocol in (SASL_PLAINTEXT, SASL_SSL):
            problems += _problems(endpoint.name, partial(sasl_properties, config, endpoint.name))
        if endpoint.security_protocol in (SSL, SASL_SSL):
            rules = listener_properties(config.given, endpoint.name).get("ssl.principal.mapping.rules", "DEFAULT")
            problems += _problems(endpoint.name, partial(principal_mapper, rules))
    for listener, mechanism in outgoing_logins(config):
        problems += _problems(listener, partial(login_properties, config, listener, mechanism))
    if config.authorizer_class_name not in ("", STANDARD_AUTHORIZER):
        problems.append(
            f"authorizer.class.name={config.authorizer_class_name}: Java classes are not loaded, and every request would be"
            f" allowed; set {STANDARD_AUTHORIZER}"
        )
    problems += [
        f"super.users={principal}: a principal is a type and a name, such as User:admin; several are separated by semicolons"
        for principal in super_users(config)
        if not all(principal.partition(":"))
    ]
    return problems


def super_users(config: ListenerConfig) -> list[str]:
    """The principals of super.users."""
    return [principal.strip() for principal in config.super_users.split(";") if principal.strip()]


def _problems(listener: str, attempt: Callable[[], object]) -> list[str]:
    try:
        attempt()
    except SecurityError as error:
        return [f"listener {listener}: {error}"]
    return []


def outgoing_logins(config: ListenerConfig, given: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """(listener, SASL mechanism) of this node's outgoing connections with SASL."""
    found = []
    given = config.given if given is None else given
    if config.is_broker and config.protocol_of(config.inter_broker_listener) in (SASL_PLAINTEXT, SASL_SSL):
        found.append((config.inter_broker_listener, given.get("sasl.mechanism.inter.broker.protocol", "GSSAPI")))
    controller = config.controller_listener
    if controller and config.protocol_of(controller) in (SASL_PLAINTEXT, SASL_SSL):
        found.append((controller, given.get("sasl.mechanism.controller.protocol", "GSSAPI")))
    return found


def login_properties(config: ListenerConfig, listener: str, mechanism: str, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """sasl.mechanism and sasl.jaas.config for a login of this node. Raises SecurityError."""
    mechanism = mechanism.upper()
    if mechanism not in MECHANISMS:
        which = "sasl.mechanism.controller.protocol" if listener == config.controller_listener else "sasl.mechanism.inter.broker.protocol"
        raise SecurityError(f"{which}={mechanism}: must be one of {', '.join(MECHANISMS)}")
    name = f"{mechanism.lower()}.sasl.jaas.config"
    text = listener_properties(config.given if given is None else given, listener).get(name)
    if text is None:
        raise SecurityError(f"{listener_prefix(listener)}{name} is missing: this node needs a username and a password to log in")
    parse_jaas(text).credentials()
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": text}


@dataclass(frozen=True, slots=True)
class SaslProperties:
    """SASL settings of one listener. `users`: PLAIN passwords by user; `session_lifetime_ms`: by mechanism, 0 = unlimited (KIP-368)."""

    mechanisms: list[str]
    failed_delay_ms: int
    frame_bytes_max: int
    session_lifetime_ms: dict[str, int]
    users: dict[str, str]


def sasl_properties(config: ListenerConfig, listener: str, given: Mapping[str, str] | None = None) -> SaslProperties:
    """SASL settings of a listener. `given` replaces `config.given`. Raises SecurityError."""
    properties = listener_properties(config.given if given is None else given, listener)
    text = properties.get("sasl.enabled.mechanisms", "GSSAPI")
    mechanisms = [name.strip() for name in text.split(",") if name.strip()]
    if not mechanisms or any(name not in MECHANISMS for name in mechanisms):
        raise SecurityError(f"sasl.enabled.mechanisms={text}: must name some of {', '.join(MECHANISMS)}")
    lifetimes = {name: _session_lifetime_ms(properties, name) for name in mechanisms}
    users: dict[str, str] = {}
    if "PLAIN" in mechanisms:
        module = _jaas_of(properties, listener, "PLAIN")
        users = {key.removeprefix(_USER_PREFIX): value for key, value in module.options.items() if key.startswith(_USER_PREFIX)}
    for name in mechanisms:
        if f"{name.lower()}.sasl.jaas.config" in properties:
            _jaas_of(properties, listener, name)
    return SaslProperties(
        mechanisms=mechanisms,
        failed_delay_ms=config.connection_failed_authentication_delay_ms,
        frame_bytes_max=min(config.sasl_server_max_receive_size, config.socket_request_max_bytes),
        session_lifetime_ms=lifetimes,
        users=users,
    )


def _session_lifetime_ms(properties: Mapping[str, str], mechanism: str) -> int:
    name = "connections.max.reauth.ms"
    text = properties.get(f"{mechanism.lower()}.{name}", properties.get(name, "0"))
    try:
        return max(0, int(text))
    except ValueError:
        raise SecurityError(f"{name}={text}: must be a whole number") from None


def _jaas_of(properties: Mapping[str, str], listener: str, mechanism: str) -> LoginModule:
    name = f"{mechanism.lower()}.sasl.jaas.config"
    if name not in properties:
        raise SecurityError(f"{listener_prefix(listener)}{name} is missing: it defines the users of {mechanism}")
    return parse_jaas(properties[name])
