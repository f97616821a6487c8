"""Generates the reference page of properties, and attributes.py, from the tables."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.broker.config.properties import Property
from minikafka.broker.config.table import BROKER_PROPERTIES
from minikafka.broker.config.topic_config import TOPIC_PROPERTIES

INTRODUCTION = """\
# Configuration

minikafka knows every broker property of Apache Kafka 4.4, with Kafka's type, default and range. This page comes from the table that
validates properties and answers DescribeConfigs (`minikafka configs --reference`).

Properties come from `server.properties`. `KAFKA_*` variables override the file: in their names, `_` stands for `.`, `__` for `_` and `___`
for `-`. Bitnami's `KAFKA_CFG_` works too. `--override` overrides both.

The broker reports all problems at once and does not start. An unknown name is a problem, too, and the message suggests the right one.
`minikafka configs --alter` changes a *dynamic* property while the broker runs.
"""
OWN = "Apache Kafka does not know these. Remove them from a file before Apache Kafka reads it."
REFUSED = "The broker accepts only the default of these. Any other value is an error, because the broker could not keep its promise."
ACCEPTED = """\
A file for Apache Kafka may set these. The broker accepts any value that Kafka accepts, and logs at startup that it has no effect. They
belong to features that minikafka does not have, such as tiered storage, or to Apache Kafka's implementation, such as its threads."""
TOPICS = """\
You can change all of them at any time. If a topic does not set one, the value of the *broker property* applies: the dynamic value if there
is one, otherwise the value in the broker's file."""
TOPICS_WITHOUT_EFFECT = """\
These belong to tiered storage, or to a limit that minikafka derives from another property. Two are errors: `remote.storage.enable=true`,
and any value of `max.decompressed.message.bytes` other than the default. The others are accepted and have no effect."""
HIDDEN = "You can set these, but Kafka does not list them when a client asks for the configuration, and neither does minikafka:"


def _range(entry: Property) -> str:
    if entry.choices:
        lower = [choice for choice in entry.choices if choice == choice.lower()]
        any_case = lower and {choice.upper() for choice in lower} == {choice for choice in entry.choices if choice not in lower}
        return ", ".join(lower) + ", or in capitals" if any_case else ", ".join(entry.choices)
    if entry.low is not None and entry.high is not None:
        return f"{entry.low:g} to {entry.high:g}" if abs(entry.high) < 1e6 else f"{int(entry.low)} to {int(entry.high)}"
    if entry.low is not None:
        return f"from {int(entry.low)}"
    return "" if entry.high is None else f"up to {int(entry.high)}"


def _default(entry: Property) -> str:
    return "" if entry.default is None else f"`{entry.default}`" if entry.default else "empty"


def _table(entries: Iterable[Property]) -> list[str]:
    rows = []
    for entry in sorted(entries, key=lambda entry: entry.name):
        doc = entry.doc + (f" Not supported: {entry.refusal}." if entry.effect == "refused" else "")
        if entry.synonyms:
            doc += " Other name: " + ", ".join(entry.synonyms) + "."
        rows.append((f"`{entry.name}`", doc, entry.kind, _default(entry), _range(entry), "yes" if entry.dynamic else ""))
    return _rows(("property", "what it does", "type", "default", "range", "dynamic"), rows)


def _topic_table(entries: Iterable[Property]) -> list[str]:
    rows = []
    for entry in sorted(entries, key=lambda entry: entry.name):
        broker = ", ".join(f"`{name}`" for name in entry.synonyms)
        rows.append((f"`{entry.name}`", entry.doc, entry.kind, _default(entry), _range(entry), broker))
    return _rows(("property", "what it does", "type", "default", "range", "broker property"), rows)


def _rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in rows]
    return [*lines, ""]


def reference_page() -> str:
    """Markdown."""
    shown = [entry for entry in BROKER_PROPERTIES if not entry.internal]
    own = [entry for entry in shown if entry.name.startswith("minikafka.")]
    full = [entry for entry in shown if entry.effect == "full" and entry not in own]
    refused = [entry for entry in shown if entry.effect == "refused"]
    accepted = [entry for entry in shown if entry.effect == "accepted"]
    topics = [entry for entry in TOPIC_PROPERTIES if entry.effect == "full"]
    idle = [entry for entry in TOPIC_PROPERTIES if entry.effect != "full"]
    internal = sorted(entry.name for entry in BROKER_PROPERTIES if entry.internal)
    lines = [INTRODUCTION, f"## Brokers ({len(full)})", "", *_table(full)]
    lines += [f"## Brokers: minikafka's own ({len(own)})", "", OWN, "", *_table(own)]
    lines += [f"## Brokers: only the default is supported ({len(refused)})", "", REFUSED, "", *_table(refused)]
    lines += [f"## Brokers: without effect ({len(accepted)})", "", *ACCEPTED.splitlines(), "", *_table(accepted)]
    lines += [f"## Brokers: hidden ({len(internal)})", "", HIDDEN, "", ", ".join(f"`{name}`" for name in internal) + ".", ""]
    lines += [f"## Topics ({len(topics)})", "", *TOPICS.splitlines(), "", *_topic_table(topics)]
    lines += [f"## Topics: without effect ({len(idle)})", "", *TOPICS_WITHOUT_EFFECT.splitlines(), "", *_topic_table(idle)]
    return "\n".join(lines).rstrip() + "\n"


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
