"""The `Finding` of `minikafka doctor`, and its advice about a listener that rejects a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: (part of a TLS or SASL error, advice). The first match applies.
REFUSALS = (
    ("is not enabled there", "Set sasl.mechanism to one of those, or add yours to the brokers' sasl.enabled.mechanisms."),
    ("expired", "Renew the certificate, or correct this machine's clock."),
    ("not yet valid", "Correct this machine's clock: the certificate is not valid until later."),
    ("ostname mismatch", "Connect by a name in the certificate, or add this name to the certificate (subjectAltName)."),
    ("IP address mismatch", "Connect by a name in the certificate, or add this address to the certificate (subjectAltName)."),
    ("requires a client certificate", "Set ssl.keystore.location, or ssl.certificate.location and ssl.key.location."),
    (
        "certificate is not accepted",
        "Trust the authority that signed it: set ssl.truststore.location (PEM: ssl.truststore.type=PEM) or ssl.ca.location.",
    ),
    ("uthentication failed", "Check the user and password (sasl.jaas.config, sasl.username, sasl.password)."),
)
COMPARE = "Compare security.protocol, ssl.* and sasl.* of --command-config (or -X) with what the listener requires."


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: `state` is ok, warning or error; `advice` says how to fix it."""

    check: str
    state: str
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Heard:
    """What listens at an address, found without logging in: `what` is kafka, http, other or silent. `mechanisms` is None without SASL."""

    what: str
    is_tls: bool = False
    is_controller: bool = False
    mechanisms: tuple[str, ...] | None = None

    @property
    def protocol(self) -> str:
        """The security.protocol that the listener requires."""
        return ("SASL_" if self.mechanisms is not None else "") + ("SSL" if self.is_tls else "PLAINTEXT")


def mismatch(heard: Heard, properties: Mapping[str, str]) -> tuple[str, str] | None:
    """What is wrong and how to fix it, if the client's settings do not match the listener; None if they match."""
    if heard.what == "http":
        return (
            "an HTTP server answers, not a Kafka broker",
            "Use the brokers' port: 9092 by default. 9404 serves metrics, 8081 is usual for a schema registry.",
        )
    if heard.what != "kafka":
        return None
    if heard.is_controller:
        return (
            "this is a controller listener, which clients cannot use",
            "Use the port of a listener that is not in controller.listener.names.",
        )
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol != heard.protocol:
        more = f" -X sasl.mechanism={heard.mechanisms[0]} -X sasl.username=... -X sasl.password=..." if heard.mechanisms else ""
        return f"the listener speaks {heard.protocol}, this client {protocol}", f"Connect with -X security.protocol={heard.protocol}{more}"
    return None


def refusal_advice(text: str, otherwise: str = COMPARE) -> str:
    """How to fix a TLS or SASL error with this text."""
    return next((advice for part, advice in REFUSALS if part in text), otherwise)
