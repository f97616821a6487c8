"""Listeners in the syntax of properties: NAME://host:port."""

from __future__ import annotations

from minikafka.addresses import host_port, split_host_port
from minikafka.late_dataclass import dataclass

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = range(4)
SECURITY_PROTOCOLS = {"PLAINTEXT": PLAINTEXT, "SSL": SSL, "SASL_PLAINTEXT": SASL_PLAINTEXT, "SASL_SSL": SASL_SSL}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener: its name, address and security protocol (PLAINTEXT ...)."""

    name: str
    host: str
    port: int
    security_protocol: int = PLAINTEXT

    def __str__(self) -> str:
        return f"{self.name}://{host_port(self.host, self.port)}"


def on_every_address(text: str) -> str:
    """The same listener, bound to every address."""
    name, _, address = text.partition("://")
    every = "[::]" if address.startswith("[") else "0.0.0.0"
    return f"{name}://{every}:{address.rpartition(':')[2]}"


def parse_endpoints(name: str, texts: list[str], protocols: dict[str, int], problems: list[str]) -> list[Endpoint]:
    """Parse listeners (NAME://host:port) of the property `name`. Appends a sentence to `problems` for each invalid one."""
    endpoints: list[Endpoint] = []
    for text in texts:
        listener, separator, address = text.partition("://")
        try:
            host, port = split_host_port(address if separator else "", is_any_host=True)
        except ValueError:
            problems.append(f"{name}={text}: must be NAME://host:port")
            continue
        listener = listener.upper()
        if listener not in protocols:
            problems.append(f"{name}={text}: listener.security.protocol.map does not define the protocol of {listener}")
            continue
        if listener in {e.name for e in endpoints}:
            problems.append(f"{name}={text}: the name {listener} is used twice")
            continue
        endpoints.append(Endpoint(listener, host, port, protocols[listener]))
    return endpoints
