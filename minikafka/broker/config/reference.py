"""Generates the reference page of properties, and attributes.py, from the tables."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.broker.config.properties import Property
from minikafka.broker.config.table import BROKER_PROPERTIES
from minikafka.broker.config.topic_config import TOPIC_PROPERTIES

INTRODUCTION = """\
# Configuration

minikafka knows every broker property of Apache Kafka 4.4, with Kafka's type, default and range. This page is generated from the table that
validates properties and answers DescribeConfigs (`minikafka configs --reference`). You can change a *dynamic* property while the broker
runs, with `minikafka configs --alter`. An unknown name is an error with a suggestion. A broker reports all problems at once, and at its
start it lists the properties that have no effect.

Properties come from `server.properties`. `KAFKA_*` variables override it (`_` is `.`, `__` is `_`, `___` is `-`; Bitnami's `KAFKA_CFG_`
works too), and `--override` overrides both.
"""


def _range(entry: Property) -> str:
    if entry.choices:
        return ", ".join(entry.choices)
    if entry.low is not None and entry.high is not None:
        return f"{entry.low:g} to {entry.high:g}" if abs(entry.high) < 1e6 else f"{int(entry.low)} to {int(entry.high)}"
    if entry.low is not None:
        return f"from {int(entry.low)}"
    return "" if entry.high is None else f"up to {int(entry.high)}"


def _table(entries: Iterable[Property], *, refusal: bool = False) -> list[str]:
    lines = ["| property | type | default | range | dynamic | what it does |", "|---|---|---|---|---|---|"]
    for entry in sorted(entries, key=lambda entry: entry.name):
        default = "" if entry.default is None else f"`{entry.default}`" if entry.default else "empty"
        doc = entry.doc + (f" Refused: {entry.refusal}." if refusal else "")
        if entry.synonyms:
            doc += " Also: " + ", ".join(entry.synonyms) + "."
        cells = [f"`{entry.name}`", entry.kind, default, _range(entry), "yes" if entry.dynamic else "", doc]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


def reference_page() -> str:
    """Markdown."""
    shown = [entry for entry in BROKER_PROPERTIES if not entry.internal]
    own = [entry for entry in shown if entry.name.startswith("minikafka.")]
    full = [entry for entry in shown if entry.effect == "full" and entry not in own]
    lines = [INTRODUCTION, f"## Brokers: with effect ({len(full)})", "", *_table(full)]
    lines += [f"## Brokers: minikafka's own ({len(own)})", "", *_table(own)]
    refused = [entry for entry in shown if entry.effect == "refused"]
    lines += [
        f"## Brokers: refused ({len(refused)})",
        "",
        "Only the default is accepted. Any other value would promise a function that this broker does not have.",
        "",
    ]
    lines += _table(refused, refusal=True)
    accepted = [entry for entry in shown if entry.effect == "accepted"]
    lines += [f"## Brokers: accepted without effect ({len(accepted)})", "", *_table(accepted)]
    lines += [f"## Topics ({len(list(TOPIC_PROPERTIES))})", "", *_table(TOPIC_PROPERTIES)]
    internal = sorted(entry.name for entry in BROKER_PROPERTIES if entry.internal)
    lines += [f"Known but hidden by Kafka ({len(internal)}): " + ", ".join(f"`{name}`" for name in internal) + "."]
    return "\n".join(lines) + "\n"


_TYPES = {"boolean": "bool", "short": "int", "int": "int", "long": "int", "double": "float", "list": "list[str]"}
_ATTRIBUTES_HEAD = '''"""The properties with an effect, as typed attributes of BrokerConfig and Settings.

Generated from the property table by reference.attributes_module; a test compares them. Properties without an effect are left out, so that
no code reads them.
"""

from __future__ import annotations


class BrokerProperties:
    """None: the property is unset and has no default."""

'''


def attributes_module() -> str:
    """The text of attributes.py."""
    shown = sorted((entry for entry in BROKER_PROPERTIES if entry.effect == "full"), key=lambda entry: entry.attribute)
    return _ATTRIBUTES_HEAD + "".join(f"    {entry.attribute}: {_type_of(entry)}\n" for entry in shown)


def _type_of(entry: Property) -> str:
    if entry.convert is not None:
        return str(entry.convert.__annotations__["return"])
    name = _TYPES.get(entry.kind, "str")
    return f"{name} | None" if entry.default is None else name
