"""`minikafka configs` for everything that brokers keep properties or quotas of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from minikafka.cli.main import cli
from minikafka.testing import EmbeddedBroker, EmbeddedCluster


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedCluster]:
    with EmbeddedBroker(topics={"t": 1}) as made:
        yield made


def configs(broker: EmbeddedCluster, words: str) -> Result:
    return CliRunner().invoke(cli, ["configs", *words.split(), "-b", broker.bootstrap_servers])


def said(broker: EmbeddedCluster, words: str) -> str:
    done = configs(broker, words)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(("whose", "setting", "completed", "header"), [
    ("--entity-type topics --entity-name t", "retention.ms=5000", "config for topic t", "Dynamic configs for topic t"),
    ("--entity-type brokers --entity-name 1", "log.cleaner.threads=2", "config for broker 1", "Dynamic configs for broker 1"),
    ("--entity-type brokers --entity-default", "message.max.bytes=99999", "default config for brokers in the cluster",
     "Default configs for brokers in the cluster"),
    ("--entity-type groups --entity-name g", "consumer.session.timeout.ms=50000", "config for group g", "Dynamic configs for group g"),
    ("--entity-type client-metrics --entity-name m", "interval.ms=1000", "config for client-metric m",
     "Dynamic configs for client-metric m"),
])  # fmt: skip
def test_properties(broker: EmbeddedCluster, whose: str, setting: str, completed: str, header: str) -> None:
    assert said(broker, f"--alter {whose} --add-config {setting}") == f"Completed updating {completed}.\n"
    name, _, value = setting.partition("=")
    lines = said(broker, f"--describe {whose}").splitlines()
    assert lines[0] == f"{header} are:"
    line = next(line for line in lines if line.startswith(f"  {name}="))
    assert line.startswith(f"  {name}={value} sensitive=false synonyms={{DYNAMIC_") and f":{name}={value}" in line
    assert f"{header} are:" in said(broker, f"--describe --entity-type {whose.split()[1]}")
    said(broker, f"--alter {whose} --delete-config {name}")
    assert line not in said(broker, f"--describe {whose}").splitlines()


@pytest.mark.parametrize(("whose", "words"), [
    ("--entity-type users --entity-name alice", "user-principal 'alice'"),
    ("--entity-type users --entity-default", "the default user-principal"),
    ("--entity-type clients --entity-name app", "client-id 'app'"),
    ("--entity-type users --entity-name bob --entity-type clients --entity-default", "user-principal 'bob', the default client-id"),
    ("--entity-type users --entity-default --entity-type clients --entity-name app", "the default user-principal, client-id 'app'"),
    ("--user carol --client app", "user-principal 'carol', client-id 'app'"),
])  # fmt: skip
def test_quotas(broker: EmbeddedCluster, whose: str, words: str) -> None:
    assert "Completed updating" in said(broker, f"--alter {whose} --add-config producer_byte_rate=1024,consumer_byte_rate=2048")
    assert f"Quota configs for {words} are consumer_byte_rate=2048.0, producer_byte_rate=1024.0\n" in said(broker, f"--describe {whose}")
    said(broker, f"--alter {whose} --delete-config producer_byte_rate,consumer_byte_rate")
    assert "Quota configs for" not in configs(broker, f"--describe {whose}").output


def test_quotas_of_addresses_as_json(broker: EmbeddedCluster) -> None:
    said(broker, "--alter --ip 10.0.0.1 --add-config connection_creation_rate=5")
    found = json.loads(said(broker, "--describe --entity-type ips -o json"))
    assert found == [{"ip": "10.0.0.1", "connection_creation_rate": 5.0}]


def test_passwords_and_quotas_of_a_user_stand_together(broker: EmbeddedCluster) -> None:
    said(broker, "--alter --user dora --add-config SCRAM-SHA-256=[iterations=4096,password=secret]")
    said(broker, "--alter --user dora --add-config request_percentage=50")
    shown = said(broker, "--describe --user dora")
    assert "SCRAM credential configs for user-principal 'dora' are SCRAM-SHA-256=iterations=4096" in shown
    assert "Quota configs for user-principal 'dora' are request_percentage=50.0" in shown


@pytest.mark.parametrize(("words", "code", "complaint"), [
    ("--describe", 2, "specify an entity"),
    ("--alter --entity-type topics --add-config a=1", 2, "specify the entity: --entity-name"),
    ("--alter --user u", 2, "--add-config"),
    ("--alter --user u --add-config producer_byte_rate=fast", 2, "Cannot parse quota configuration value for producer_byte_rate: fast"),
    ("--alter --user u --add-config nonsense=1", 1, "nonsense"),
    ("--describe --user nobody", 0, "user nobody has neither a password nor a quota"),
    ("--alter --user u --delete-config producer_byte_rate", 1, "Invalid config(s): producer_byte_rate"),
    ("--describe --user u --ip 10.0.0.1", 2, "only users and clients"),
    ("--describe --entity-type users --entity-name a --entity-name b", 2, "more names than types"),
    ("--alter --entity-type topics --entity-default --add-config a=1", 2, "have no default"),
])  # fmt: skip
def test_wrong_usage(broker: EmbeddedCluster, words: str, code: int, complaint: str) -> None:
    done: Any = configs(broker, words)
    assert done.exit_code == code and complaint in done.output, done.output


def client_metrics(broker: EmbeddedCluster, *words: str) -> Result:
    return CliRunner().invoke(cli, ["client-metrics", "-b", broker.bootstrap_servers, *words])


def test_subscriptions_to_clients_metrics_as_the_tool_of_kafka_shows_them(broker: EmbeddedCluster) -> None:
    said = [
        client_metrics(broker, "--alter", "--name", "q", "--match", "client_id=a", "--match", "client_software_name=b").stdout,
        client_metrics(broker, "--alter", "--name", "q", "--interval", "5000", "--metrics", "m1,m2").stdout,
        client_metrics(broker, "--describe", "--name", "q").stdout,
        client_metrics(broker, "--alter", "--name", "q", "--interval", "", "--match", "").stdout,
        client_metrics(broker, "--describe").stdout,
        client_metrics(broker, "--list").stdout,
        client_metrics(broker, "--delete", "--name", "q").stdout,
        client_metrics(broker, "--describe", "--name", "q").stdout,
        client_metrics(broker, "--list").stdout,
    ]
    shown = "Client metrics configs for q are:\n  interval.ms={}\n  match={}\n  metrics=m1,m2\n"
    assert said == [
        "Altered client metrics config for q.\n",
        "Altered client metrics config for q.\n",
        shown.format("5000", "client_id=a,client_software_name=b"),
        "Altered client metrics config for q.\n",
        shown.format("300000", ""),
        "q\n",
        "Deleted client metrics config for q.\n",
        "The client metric resource q doesn't exist and doesn't have dynamic config.\n",
        "",
    ]
    made = client_metrics(broker, "--alter", "--generate-name", "--metrics", "*").stdout
    name = made.removeprefix("Altered client metrics config for ").removesuffix(".\n")
    assert len(name) == 22 and json.loads(client_metrics(broker, "--describe", "-o", "json").stdout) == [
        {"name": name, "interval.ms": "300000", "match": "", "metrics": "*"}
    ]
    refused = client_metrics(broker, "--alter", "--name", "q", "--interval", "5")
    assert refused.exit_code == 1 and "interval must be between 100 and 3600000 (1 hour)" in refused.output


@pytest.mark.parametrize(("words", "why"), [
    ("", "Command must include exactly one action: --alter, --delete, --describe or --list."),
    ("--list --describe", "Command must include exactly one action: --alter, --delete, --describe or --list."),
    ("--list --name q", "Option \"[list]\" can't be used with option \"[name]\""),
    ("--describe --generate-name", "Option \"[describe]\" can't be used with option \"[generate-name]\""),
    ("--alter --metrics a", "One of --name or --generate-name must be specified with --alter."),
    ("--alter --name q --generate-name", "One of --name or --generate-name must be specified with --alter."),
    ("--delete", "A client metrics resource name must be specified with --delete."),
    ("--alter --name z --interval abc", "Invalid interval value. Enter an integer, or leave empty to reset."),
])  # fmt: skip
def test_arguments_that_kafkas_tool_refuses(words: str, why: str) -> None:
    refused = CliRunner().invoke(cli, ["client-metrics", *words.split()])
    assert refused.exit_code == 2 and why in refused.output
