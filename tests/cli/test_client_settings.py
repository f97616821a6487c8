"""`-X` of produce and consume: Kafka's names and librdkafka's, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from minikafka.cli.client_settings import CONSUMER, PRODUCER
from minikafka.cli.main import cli
from minikafka.client import ClientError, Consumer, Producer


class Recorded(Exception):
    pass


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments that the command gives its client; the command ends there."""
    found: dict[str, Any] = {}

    def record(self: Any, bootstrap: str, **arguments: Any) -> None:
        found.update(arguments)
        raise ClientError("recorded")

    monkeypatch.setattr(Producer, "__init__", record)
    monkeypatch.setattr(Consumer, "__init__", record)
    return found


def run(*words: str) -> Any:
    return CliRunner().invoke(cli, list(words), input="x\n")


def test_settings_of_a_producer_under_both_names(given: dict[str, Any]) -> None:
    run(
        "produce",
        "t",
        "-X",
        "request.required.acks=1",
        "-X",
        "compression.codec=lz4",
        "-X",
        "queue.buffering.max.ms=7",
        "-X",
        "batch.size=9",
    )
    expected = {
        "acks": "1",
        "compression": "lz4",
        "linger_ms": 7.0,
        "batch_size": 9,
        "enable_idempotence": False,
        "delivery_timeout_ms": 120_000,
    }
    assert given == expected


def test_an_option_counts_more_than_a_setting(given: dict[str, Any]) -> None:
    run("produce", "t", "--acks", "0", "-X", "acks=all")
    assert given["acks"] == "0" and given["enable_idempotence"] is False


def test_settings_of_a_consumer(given: dict[str, Any]) -> None:
    run("consume", "t", "-X", "group.id=g", "-X", "auto.offset.reset=earliest", "-X", "isolation.level=read_committed")
    assert (given["group_id"], given["auto_offset_reset"], given["isolation_level"]) == ("g", "earliest", "read_committed")


def test_every_setting_is_an_argument_of_the_client() -> None:
    from inspect import signature

    for client, settings in ((Producer, PRODUCER), (Consumer, CONSUMER)):
        assert {setting.argument for setting in settings.values()} <= set(signature(client).parameters)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("produce", "t", "-X", "acks=2"), "acks=2: must be one of all, -1, 0, 1"),
        (("produce", "t", "-X", "linger.ms=soon"), "linger.ms=soon"),
        (("produce", "t", "-X", "group.id=g"), "group.id has no effect on `produce`"),
        (("consume", "t", "-X", "acks=all"), "acks has no effect on `consume`"),
        (("topics", "--list", "-X", "acks=all"), "takes only connection properties"),
        (("console-consumer", "--topic", "t", "-X", "group.id=g"), "give it with --command-property"),
        (("producer-perf-test", "--topic", "t", "-X", "acks=all"), "give it with --command-property"),
        (("produce", "t", "-X", "ack=all"), "there is no property ack; did you mean acks?"),
        (("consume", "t", "-X", "max.poll.records=5"), "max.poll.records has no effect on `consume`, which takes auto.commit.interval.ms"),
        (("produce", "t", "-X", "retries=3"), "delivery.timeout.ms, enable.idempotence, linger.ms, request.timeout.ms, security.protocol"),
        (("produce", "t", "-X", "lingerms=1"), "there is no property lingerms; did you mean linger.ms?"),
        (("consume", "t", "-f", "%q"), "%q is unknown; use %t"),
        (("consume", "t", "-f", "%s %"), "% is unknown"),
        (("sim", "--seeds", "5..1"), "B must be larger than A"),
        (("sim", "--seeds", "5..5"), "B must be larger than A"),
    ],
)
def test_what_has_no_effect_is_refused(words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert done.exit_code == 2 and message in done.output, done.output


def test_percent_signs_and_escapes_of_a_format_are_known(given: dict[str, Any]) -> None:
    assert "is unknown" not in run("consume", "t", "-f", "%t%%%s\\n").output


@pytest.mark.parametrize(
    ("command", "such"), [("topics", "A connection property"), ("produce", "acks, batch.size"), ("consume", "group.id")]
)
def test_the_help_of_x_says_what_the_command_takes(command: str, such: str) -> None:
    assert such in run(command, "--help").output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("produce t -X linger.ms=nan", "linger.ms=nan: must be a finite number, 0 or more"),
        ("produce t -X linger.ms=soon", "linger.ms=soon: must be a number"),
        ("produce t -X delivery.timeout.ms=-5", "delivery.timeout.ms=-5: must be from 0 to 2147483647"),
        ("produce t -X batch.size=x", "batch.size=x: must be a whole number"),
        ("consume t -X fetch.min.bytes=-1", "fetch.min.bytes=-1: must be from 0 to 2147483647"),
        ("console-producer --topic t --request-required-acks two", "'two' is not one of"),
        ("console-producer --topic t --compression-codec zip", "'zip' is not one of"),
        ("verifiable-producer --topic t --throughput nan", "'nan' is not a finite number."),
        ("producer-perf-test --topic t --num-records 1 --record-size 1 --throughput inf", "'inf' is not a finite number."),
        ("audit --processes 9223372036854775808", "is not in the range 0<=x<=1024"),
        ("cluster up --directory=", "Invalid value for --directory: the name is empty"),
    ],
)
def test_numbers_and_words_that_no_client_can_use(words: str, said: str) -> None:
    done = run(*words.split())
    assert said in done.output and done.exit_code == 2, done.output


@pytest.mark.parametrize("host", ["x" * 300, "a..b"])
def test_a_host_that_no_name_service_can_be_asked_for(host: str) -> None:
    done = run("get-offsets", "--topic", "t", "-b", f"{host}:9092")
    assert "this is no name of a host" in done.output and done.exit_code == 3, done.output


def test_a_topic_that_is_no_text() -> None:
    """`consume` waited for it, silently."""
    name = b"bad\xff"
    done = subprocess.run([sys.executable, "-m", "minikafka", "consume", "--topic", name], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr == "error: b'bad\\xff' is not valid UTF-8, and no file has this name\n"
