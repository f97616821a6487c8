"""Every flag of Apache Kafka 4.4's tools is understood: it does something, is accepted, or says what to do instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from minikafka.cli import kafka_flags
from minikafka.cli.main import COMMANDS, cli
from minikafka.cli.shims import SHIMS
from minikafka.client.cluster import Cluster
from minikafka.client.errors import NoBrokers

#: From what each tool of Apache Kafka 4.4.0 prints for --help.
FLAGS = [line.split("\t") for line in (Path(__file__).parents[1] / "golden" / "tool_flags-4.4.tsv").read_text().splitlines()[1:]]


def options(words: str) -> set[str]:
    """Of a command, and of the groups that it is in."""
    context = click.Context(cli)
    command: click.Command | None = cli
    found: set[str] = set()
    for word in words.split():
        assert isinstance(command, click.Group)
        command = command.get_command(context, word)
        assert command is not None, f"there is no command {words}"
        found |= {option for parameter in command.params if isinstance(parameter, click.Option) for option in parameter.opts}
    return found


@pytest.mark.parametrize("tool", sorted({tool for tool, _ in FLAGS}))
def test_every_flag_is_known(tool: str) -> None:
    wanted = {flag for name, flag in FLAGS if name == tool}
    assert wanted and not wanted - options(tool)


def test_the_list_has_every_tool_there_is_a_script_for() -> None:
    assert set(SHIMS.values()) - {"start"} == {tool.split()[0] for tool, _ in FLAGS}


def refused() -> Iterator[tuple[str, str, str]]:
    for command, flags in kafka_flags.NOT_OFFERED.items():
        yield from ((command, flag, why) for flag, why in flags.items())


@pytest.mark.parametrize(("command", "flag", "why"), list(refused()))
@pytest.mark.parametrize("value", [[], ["x"]])
def test_unsupported_flags_give_the_reason(command: str, flag: str, why: str, value: list[str]) -> None:
    done = CliRunner().invoke(cli, [command, flag, *value])
    assert (done.exit_code, f"{flag}: {why}" in done.output) == (2, True), done.output


@pytest.mark.parametrize(("tool", "why"), list(kafka_flags.TOOLS_NOT_OFFERED.items()))
def test_tools_that_are_not_offered_say_why(tool: str, why: str) -> None:
    assert tool not in COMMANDS, "it is offered by now"
    done = CliRunner().invoke(cli, [tool, "--list"])
    assert (done.exit_code, why in done.output) == (2, True), done.output


def test_classes_of_java_are_refused_and_the_usual_ones_are_not() -> None:
    for words in (
        "console-producer --topic t --line-reader com.example.Reader",
        "console-consumer --topic t --formatter com.example.AvroMessageFormatter",
        "console-consumer --topic t --value-deserializer com.example.AvroDeserializer",
        "dump-log --files x.log --value-decoder-class com.example.Decoder",
    ):
        done = CliRunner().invoke(cli, words.split())
        assert (done.exit_code, "com.example." in done.output) == (2, True), done.output
    done = CliRunner().invoke(cli, ["dump-log", "--files", "/nothing.log", "--value-decoder-class", "--key-decoder-class"])
    assert "/nothing.log: No such file" in done.output


def test_a_number_is_shown_as_kafkas_deserializer_shows_it() -> None:
    from minikafka.cli.console import deserializer

    prefix = "org.apache.kafka.common.serialization."
    assert deserializer(f"{prefix}LongDeserializer", "key")(bytes(7) + b"\x2a") == b"42"
    assert deserializer("IntegerDeserializer", "key")(b"\xff\xff\xff\xff") == b"-1"
    assert deserializer(f"{prefix}BooleanDeserializer", "key")(b"\x01") == b"true"
    assert deserializer(f"{prefix}StringDeserializer", "key")("é".encode()) == "é".encode()


@pytest.mark.parametrize(
    "words",
    ["features describe -b h:1 -X sasl.mechanism=PLAIN", "features -b h:1 describe -Xsasl.mechanism=PLAIN",
     "metadata-quorum describe --status -bh:1",
     "transactions list --bootstrap-server=h:1", "cluster cluster-id -b h:1", "transactions describe --transactional-id -b -b h:1"],
)  # fmt: skip
def test_where_the_cluster_is_may_be_said_before_or_after_a_command(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def refresh(self: Cluster, topics: object) -> None:
        asked.extend(f"{host}:{port}" for host, port in self._bootstrap)
        raise NoBrokers("nobody answers")

    monkeypatch.setattr(Cluster, "refresh", refresh)
    done = CliRunner().invoke(cli, words.split())
    assert (done.exit_code, set(asked)) == (3, {"h:1"}), done.output
