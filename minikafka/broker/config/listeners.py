"""Properties of single listeners: listener.name.NAME.PROPERTY (KIP-103). Security properties are in listener_security.py."""

from __future__ import annotations

from minikafka.broker.config.listener_security import general_name
from minikafka.broker.config.properties import Property
from minikafka.broker.config.table import BROKER_PROPERTIES

#: Limits that can be set for one listener, and altered while the broker runs (KIP-402, KIP-612).
LISTENER_LIMITS = ("max.connections", "max.connection.creation.rate")


def base_of(name: str) -> Property | None:
    """PROPERTY of listener.name.NAME.[MECHANISM.]PROPERTY; None for other names."""
    general = general_name(name)
    return BROKER_PROPERTIES.get(general) if general else None


def limit_of_listener(name: str) -> Property | None:
    """The limit that a property sets for one listener; None for other names."""
    entry = base_of(name)
    return entry if entry is not None and entry.name in LISTENER_LIMITS else None


def listener_problems(given: dict[str, str]) -> list[str]:
    """All invalid limits of listeners, each as a sentence."""
    problems = []
    for name, text in given.items():
        entry = limit_of_listener(name)
        if entry is not None:
            try:
                entry.parse(text)
            except ValueError as error:
                problems.append(f"{name}={text}: {error}")
    return problems
