"""The table of properties against Apache Kafka 4.4's own (tests/golden/broker_properties-4.4.tsv, printed by KafkaConfig.configDef), and
what follows from it: validation, did-you-mean, refusals, the reference page."""

from __future__ import annotations

import ast
import csv
import importlib
import re
from pathlib import Path

import pytest

from minikafka.broker.config import attributes
from minikafka.broker.config.broker_config import BrokerConfig, ConfigurationError
from minikafka.broker.config.reference import attributes_module, reference_page
from minikafka.broker.config.rules import fault_of
from minikafka.broker.config.table import BROKER_PROPERTIES
from minikafka.broker.config.topic_config import TOPIC_PROPERTIES

GOLDEN = Path(__file__).parents[1] / "golden" / "broker_properties-4.4.tsv"
PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
#: Parsed here as lists, described to clients as lists: Kafka has one string.
OTHER_TYPE = {"listener.security.protocol.map"}
#: Dynamic in Kafka, read at start here.
STATIC_HERE = {"listeners", "listener.security.protocol.map"}
NODE = {
    "process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "C", "controller.quorum.voters": "1@h:1",
    "listeners": "PLAINTEXT://:0,C://:1",
}  # fmt: skip


def golden() -> list[dict[str, str]]:
    with GOLDEN.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_every_property_of_kafka_is_known() -> None:
    assert len(golden()) == 379
    assert not [row["name"] for row in golden() if row["name"] not in BROKER_PROPERTIES]


@pytest.mark.parametrize("row", golden(), ids=lambda row: row["name"])
def test_it_is_as_in_kafka(row: dict[str, str]) -> None:
    entry = BROKER_PROPERTIES.get(row["name"])
    assert entry is not None and entry.doc.endswith(".")
    if row["name"] not in OTHER_TYPE:
        assert entry.kind.upper() == row["type"]
    assert (entry.default or "") == {"<null>": "", "<none>": ""}.get(row["default"], row["default"])
    assert entry.internal == (row["internal"] == "true")
    if row["name"] not in STATIC_HERE:
        assert entry.dynamic == (row["update mode"] != "read-only"), row["update mode"]
    limits = re.fullmatch(r"\[(-?[\d.]+)?,?\.\.\.,?(-?[\d.]+)?\]", row["validator"])
    if limits is not None and limits[1]:
        assert entry.low is not None and entry.low >= float(limits[1])
    if limits is not None and limits[2]:
        assert entry.high is not None and entry.high <= float(limits[2])
    if entry.default is not None:
        entry.parse(entry.default)


def test_settings_that_cannot_be_honoured_are_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        BrokerConfig.from_properties({**NODE, "authorizer.class.name": "com.example.Authorizer"})
    assert "every request would be allowed" in str(caught.value)
    standard = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    for name in ("", standard):
        BrokerConfig.from_properties({**NODE, "authorizer.class.name": name, "super.users": "User:admin;User:CN=a,O=b"})
    with pytest.raises(ConfigurationError, match=r"super\.users=admin: a principal is a type and a name"):
        BrokerConfig.from_properties({**NODE, "authorizer.class.name": standard, "super.users": "User:admin; admin"})


def test_what_has_no_effect_is_said() -> None:
    config = BrokerConfig.from_properties({**NODE, "num.io.threads": "16", "ssl.keystore.type": "PEM", "ssl.provider": "x"})
    assert config.warnings == ["num.io.threads is accepted without effect", "ssl.provider is accepted without effect"]


def test_a_misspelt_name_is_corrected() -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.keystore\.locaton is not a property; did you mean ssl\.keystore\.location\?"):
        BrokerConfig.from_properties({**NODE, "ssl.keystore.locaton": "x"})


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("cleanup.policy", "compact, delete"), ("compression.type", "uncompressed, zstd, lz4, snappy, gzip, producer")],
)
def test_a_choice_that_is_none_is_refused_in_kafkas_words(name: str, allowed: str) -> None:
    """Texts as Apache Kafka 4.3.0 answered them; it has no codec "none"."""
    entry = TOPIC_PROPERTIES.get(name)
    assert entry is not None
    assert fault_of(entry, "none") == f"Invalid value none for configuration {name}: String must be one of: {allowed}"


def test_the_page_is_up_to_date() -> None:
    """`minikafka configs --reference > docs/configuration.md` updates the page."""
    assert PAGE.read_text() == reference_page()


def test_the_typed_attributes_are_those_of_the_table() -> None:
    """To make them: python -c "from minikafka.broker.config.reference import attributes_module; print(attributes_module(), end='')"."""
    assert Path(attributes.__file__).read_text() == attributes_module()
    config = BrokerConfig.from_properties(NODE)
    missing = [name for name in attributes.BrokerProperties.__annotations__ if not hasattr(config, name)]
    assert not missing


#: Where properties are declared and described, not served.
TABLES = ("table.py", "attributes.py", "without_effect.py", "security_properties.py", "reference.py", "config_descriptions.py", "rules.py")
#: Topic properties whose value a log has under another name.
NAMES_IN_LOGS = {"internal.segment.bytes": "segment_bytes"}


class Reads(ast.NodeVisitor):
    """Attributes that are read, names that occur as they are, and patterns of names that are put together."""

    def __init__(self) -> None:
        self.attributes: set[str] = set()
        self.names: set[str] = set()
        self.patterns: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self.attributes.add(node.attr)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.names.add(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        parts = [part.value if isinstance(part, ast.Constant) else None for part in node.values]
        if sum(len(str(part)) for part in parts if part is not None) >= len("group.."):
            self.patterns.add("".join(".+" if part is None else re.escape(str(part)) for part in parts))
        self.generic_visit(node)


def reads(*packages: str) -> Reads:
    found = Reads()
    for package in packages:
        for path in Path(importlib.import_module(package).__path__[0]).rglob("*.py"):
            if path.name not in TABLES and path.name != "topic_config.py":
                found.visit(ast.parse(path.read_text()))
    return found


def is_read(name: str, found: Reads) -> bool:
    attribute = NAMES_IN_LOGS.get(name, name.replace(".", "_"))
    is_named = attribute in found.attributes or name in found.names
    return is_named or any(re.fullmatch(pattern, text) for pattern in found.patterns for text in (name, attribute))


def test_what_counts_as_served_is_read_somewhere() -> None:
    """flush.ms and six others were documented, and nothing read them."""
    found = reads(*(f"minikafka.{name}" for name in ("broker", "cli", "core", "net", "security", "storage")))
    topics = {entry.name for entry in TOPIC_PROPERTIES if entry.effect == "full" and is_read(entry.name, found)}
    assert {entry.name for entry in TOPIC_PROPERTIES if entry.effect == "full"} == topics
    inherited = {name for entry in TOPIC_PROPERTIES if entry.name in topics for name in entry.synonyms}
    served = [entry.name for entry in BROKER_PROPERTIES if entry.effect == "full" and entry.name not in inherited]
    assert not [name for name in served if not is_read(name, found)]
