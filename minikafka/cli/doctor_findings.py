"""What `minikafka doctor` finds, and what it says of a listener that does not take a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Parts of what TLS and SASL say -> what to do. The first that fits counts.
REFUSALS = (
    ("is not enabled there", "Set sasl.mechanism to one of those, or add yours to sasl.enabled.mechanisms of the brokers."),
    ("expired", "Renew the certificate, or set the clock of this machine."),
    ("not yet valid", "Set the clock of this machine: the certificate begins later."),
    ("ostname mismatch", "Connect under a name of the certificate, or give the certificate this name (subjectAltName)."),
    ("IP address mismatch", "Connect under a name of the certificate, or give the certificate this address (subjectAltName)."),
    (
        "certificate verify failed",
        "Name the authority that signed it: ssl.truststore.location (PEM: ssl.truststore.type=PEM), or ssl.ca.location.",
    ),
    ("certificate required", "The listener asks clients for certificates: set ssl.keystore.location, or ssl.certificate.location."),
    ("uthentication failed", "Compare user and password (sasl.jaas.config, sasl.username, sasl.password) with what the brokers know."),
)
COMPARE = "Compare security.protocol, ssl.* and sasl.* of --command-config (or -X) with what the listener wants."


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: `state` is ok, warning or error; `advice` is what to do."""

    check: str
    state: str
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Heard:
    """What an address says when it is asked without a login: `what` is kafka, http, other or silent. `mechanisms` None: no SASL."""

    what: str
    is_tls: bool = False
    is_controller: bool = False
    mechanisms: tuple[str, ...] | None = None

    @property
    def protocol(self) -> str:
        """The security.protocol that the listener wants."""
        return ("SASL_" if self.mechanisms is not None else "") + ("SSL" if self.is_tls else "PLAINTEXT")


def mismatch(heard: Heard, properties: Mapping[str, str]) -> tuple[str, str] | None:
    """What is wrong and what to do, when the listener wants something else than the client is set to; None when they fit."""
    if heard.what == "http":
        return (
            "an HTTP server answers, no Kafka broker",
            "Give the brokers' port: 9092 by default; 9404 has metrics, 8081 a schema registry.",
        )
    if heard.what != "kafka":
        return None
    if heard.is_controller:
        return (
            "this is a listener of controllers, which takes no clients",
            "Give a port of listeners that is not in controller.listener.names.",
        )
    wanted = properties.get("security.protocol", "PLAINTEXT").upper()
    if wanted != heard.protocol:
        more = f" -X sasl.mechanism={heard.mechanisms[0]} -X sasl.username=... -X sasl.password=..." if heard.mechanisms else ""
        return f"the listener speaks {heard.protocol}, this client {wanted}", f"Connect with -X security.protocol={heard.protocol}{more}"
    return None


def refusal_advice(text: str) -> str:
    """What to do about a refusal of TLS or SASL."""
    return next((advice for part, advice in REFUSALS if part in text), COMPARE)
