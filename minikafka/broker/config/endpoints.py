"""Listeners in the syntax of properties: NAME://host:port."""

from __future__ import annotations

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
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def on_every_address(text: str) -> str:
    """The same listener, bound to every address."""
    name, _, address = text.partition("://")
    return f"{name}://0.0.0.0:{address.rpartition(':')[2]}"


def parse_endpoints(name: str, texts: list[str], protocols: dict[str, int], problems: list[str]) -> list[Endpoint]:
    """Parse listeners (NAME://host:port) of the property `name`. Appends a sentence to `problems` for each invalid one."""
    endpoints: list[Endpoint] = []
    for text in texts:
        listener, separator, address = text.partition("://")
        host, _, port = address.rpartition(":")
        if not separator or not port.isdigit() or int(port) > 65535:
            problems.append(f"{name}={text}: must be NAME://host:port")
            continue
        listener = listener.upper()
        if listener not in protocols:
            problems.append(f"{name}={text}: listener.security.protocol.map does not define the protocol of {listener}")
            continue
        if listener in {e.name for e in endpoints}:
            problems.append(f"{name}={text}: the name {listener} is used twice")
            continue
        endpoints.append(Endpoint(listener, host.strip("[]"), int(port), protocols[listener]))
    return endpoints
