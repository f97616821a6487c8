"""Every command that shows something says it as a table, as JSON and as YAML; what it says is the same."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from minikafka.cli.main import COMMANDS, cli
from minikafka.testing import EmbeddedBroker, EmbeddedCluster

#: The commands whose output is Kafka's, a stream of events or a story of its own.
ONE_FORMAT = {
    "completion", "console-consumer", "console-share-consumer", "console-producer", "consumer-perf-test", "demo", "install-shims",
    "producer-perf-test", "share-consumer-perf-test", "sim", "start", "storage", "verifiable-consumer", "verifiable-producer",
    "verifiable-share-consumer",
}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedCluster]:
    with EmbeddedBroker(topics={"t": 2}) as made:
        yield made


def say(broker: EmbeddedCluster, *words: str, stdin: str | None = None) -> str:
    done = CliRunner().invoke(cli, [*words, "-b", broker.bootstrap_servers], input=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


def commands() -> Iterator[tuple[str, click.Command]]:
    for name, (module, attribute, _) in COMMANDS.items():
        command = getattr(importlib.import_module(module), attribute)
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", entry) for inner, entry in command.commands.items())
        else:
            yield name, command


def test_every_command_has_the_formats() -> None:
    without = set()
    for name, command in commands():
        found = [p.type.choices for p in command.params if p.name == "output" and isinstance(p.type, click.Choice)]
        if not any({"json", "jsonl", "yaml"} <= set(choices) for choices in found):
            without.add(name)
    silent = {name for name in without if name.startswith("cluster ")}
    words = ("unregister", "unregister-controller", "up", "kill", "stop", "start", "pause", "resume", "cut", "heal")
    assert silent == {f"cluster {word}" for word in words}
    changes = {f"features {word}" for word in ("upgrade", "downgrade", "disable")}
    changes |= {"transactions abort", "transactions forceTerminateTransaction"}
    changes |= {f"metadata-quorum {word}-controller" for word in ("add", "remove")}
    assert {name.split()[0] for name in without - silent - changes} <= ONE_FORMAT


def test_produce_and_consume(broker: EmbeddedCluster) -> None:
    stored = yaml.safe_load(say(broker, "produce", "t", "-p", "1", "-H", "h=x", "-o", "yaml", stdin="one\ntwo: 2\n"))
    assert [(row["partition"], row["offset"]) for row in stored] == [(1, 0), (1, 1)]
    read: dict[str, Any] = {}
    for output in ("json", "jsonl", "yaml"):
        text = say(broker, "consume", "t", "--from-beginning", "-e", "-o", output)
        read[output] = [json.loads(line) for line in text.splitlines()] if output == "jsonl" else yaml.safe_load(text)
    assert read["json"] == read["jsonl"] == read["yaml"]
    assert [row["value"] for row in read["yaml"]] == ["one", "two: 2"] and read["yaml"][0]["headers"] == [{"key": "h", "value": "x"}]
    assert "headers h=x  epoch 0" in say(broker, "consume", "t", "--from-beginning", "-e", "-o", "wide")


def test_consuming_with_kcats_words(broker: EmbeddedCluster) -> None:
    broker.create_topic("kcat")
    say(broker, "produce", "kcat", "-H", "h=x", stdin="one\ntwo\nthree\n")

    def read(*words: str) -> list[str]:
        return say(broker, "consume", "-t", "kcat", "-e", *words).splitlines()

    assert read("-o", "beginning", "-c", "2", "-f", "%o %s\\n") == ["0 one", "1 two"]
    assert read("-o", "-1") == ["three"] and read("-o", "1") == ["two", "three"] and read("-o", "s@1000", "-c", "1") == ["one"]
    (line,) = read("-J", "-o", "-1")
    found = json.loads(line)
    assert list(found) == ["topic", "partition", "offset", "tstype", "ts", "headers", "key", "payload"]
    assert (found["payload"], found["headers"], found["tstype"]) == ("three", ["h", "x"], "create")
    assert CliRunner().invoke(cli, ["consume", "-t", "kcat", "-o", "jason", "-b", broker.bootstrap_servers]).exit_code == 2


def test_topics_wide_has_epochs_and_offsets(broker: EmbeddedCluster) -> None:
    header, first, *_ = say(broker, "topics", "--describe", "--topic", "t", "-o", "wide").splitlines()
    columns = "TOPIC PARTITION LEADER LEADER-EPOCH REPLICAS ISR OFFLINE LOG-START-OFFSET HIGH-WATERMARK"
    assert header.split() == columns.split()
    assert first.split()[:7] == ["t", "0", "1", "0", "1", "1", "-"]
    described = [yaml.safe_load(say(broker, "topics", "--describe", "--topic", "t", "-o", output)) for output in ("json", "yaml")]
    assert described[0] == described[1] and len(described[0][0]["partitions"]) == 2
