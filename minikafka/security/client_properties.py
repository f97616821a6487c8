"""Names of the client properties that say how to connect: Kafka's, librdkafka's equivalents, and names that are refused.

Names are checked because a misspelt one would otherwise connect without TLS or without authentication. The only input besides the
arguments are the PEM files that librdkafka's properties name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from minikafka.security.errors import SecurityError

#: Kafka's names that have an effect.
EFFECTIVE = frozenset(
    (
        "security.protocol",
        "sasl.jaas.config",
        "sasl.mechanism",
        "sasl.password",
        "sasl.username",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)
#: Names of Kafka's clients and brokers that are allowed in a file but have no effect on a client here.
WITHOUT_EFFECT = frozenset(
    (
        "security.inter.broker.protocol",
        "security.providers",
        "sasl.client.callback.handler.class",
        "sasl.enabled.mechanisms",
        "sasl.mechanism.controller.protocol",
        "sasl.mechanism.inter.broker.protocol",
        "sasl.server.callback.handler.class",
        "sasl.server.max.receive.size",
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.principal.mapping.rules",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    )
)
FAMILIES_WITHOUT_EFFECT = ("sasl.kerberos.", "sasl.login.", "sasl.oauthbearer.")
#: librdkafka's names -> Kafka's, where the value is the same.
RENAMED = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
#: librdkafka's names -> Kafka's, where Kafka's value is the content of librdkafka's file.
READ = {"ssl.certificate.location": "ssl.keystore.certificate.chain", "ssl.key.location": "ssl.keystore.key"}
#: Names that are refused -> why, or what to do instead.
REFUSED = {
    "bootstrap.servers": "give -b HOST:PORT (or MINIKAFKA_BOOTSTRAP)",
    "metadata.broker.list": "give -b HOST:PORT (or MINIKAFKA_BOOTSTRAP)",
    "enable.ssl.certificate.verification": "certificates are always checked (ssl.endpoint.identification.algorithm=none skips host names)",
    "ssl.crl.location": "revocation lists are not read",
    "ssl.curves.list": "OpenSSL chooses the curves",
    "ssl.engine.location": "OpenSSL engines are not loaded",
    "ssl.sigalgs.list": "OpenSSL chooses the signature algorithms",
    "ssl.providers": "OpenSSL providers are not loaded",
}
PREFIXES = ("security.", "ssl.", "sasl.")


def client_properties(given: Mapping[str, str], *, only_connection: bool = False) -> dict[str, str]:
    """`given` under Kafka's names. Properties that do not say how to connect are passed through, or refused if `only_connection`.

    Raises SecurityError for an unknown or refused name, and for a file of librdkafka's properties that cannot be read."""
    found: dict[str, str] = {}
    origin: dict[str, str] = {}
    for name, value in given.items():
        check_name(name, only_connection=only_connection)
        kafka = RENAMED.get(name) or READ.get(name) or name
        if origin.setdefault(kafka, name) != name:
            raise SecurityError(f"{name} and {origin[kafka]} set the same property: give only one of them")
        found[kafka] = _content(name, value) if name in READ else value
    if found.get("ssl.endpoint.identification.algorithm", "").strip().lower() == "none":
        # librdkafka's value; Kafka's is "".
        found["ssl.endpoint.identification.algorithm"] = ""
    return found


def may_say_how_to_connect(name: str) -> bool:
    """Whether `check_name` judges the name; others are settings of a producer or consumer, or of nothing."""
    return name.startswith(PREFIXES) or name in REFUSED or name in RENAMED or name in READ


def check_name(name: str, *, only_connection: bool) -> None:
    """Raises SecurityError for a name that seems to say how to connect but would be ignored."""
    if name in EFFECTIVE or name in RENAMED or name in READ:
        return
    if name in REFUSED and (only_connection or name.startswith(PREFIXES) or name.startswith("enable.ssl.")):
        raise SecurityError(f"{name} is not supported: {REFUSED[name]}")
    has_no_effect = name in WITHOUT_EFFECT or name.startswith(FAMILIES_WITHOUT_EFFECT)
    if has_no_effect and not only_connection:
        return
    if has_no_effect:
        raise SecurityError(f"{name} has no effect here")
    if only_connection or name.startswith(PREFIXES):
        raise SecurityError(f"{name} is not a connection property{_suggestion(name)}")


def _suggestion(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, [*EFFECTIVE, *RENAMED, *READ], n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close else ": those are security.protocol, sasl.* and ssl.*"


def _content(name: str, location: str) -> str:
    try:
        return Path(location).read_text("ascii", "replace")
    except OSError as error:
        raise SecurityError(f"{name}={location}: {error.strerror or error}") from error
