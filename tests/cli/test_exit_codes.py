"""Exit statuses are those of the page about the command line: 2 for wrong usage, 3 for a cluster that is not there, 1 for a refusal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from minikafka.cli import common
from minikafka.cli.exit_codes import STATUSES, reaches_a_cluster
from minikafka.cli.main import COMMANDS, cli
from minikafka.testing import EmbeddedBroker, EmbeddedCluster

pytestmark = pytest.mark.timeout(60)
#: For every command that asks a cluster: words that are right as usage.
GOOD = {
    "acls": "-b {} --list",
    "audit": "-b {}",
    "bench": "-b {} --seconds 1",
    "broker-api-versions": "-b {}",
    "cluster": "cluster-id -b {}",
    "client-metrics": "-b {} --list",
    "configs": "-b {} --describe --entity-type topics",
    "console-consumer": "-b {} --topic t --timeout-ms 1000",
    "console-producer": "-b {} --topic t",
    "console-share-consumer": "-b {} --topic t --timeout-ms 1000",
    "consume": "-b {} t -e",
    "consumer-groups": "-b {} --list",
    "consumer-perf-test": "-b {} --topic t --num-records 1 --timeout 1000",
    "delegation-tokens": "-b {} --describe",
    "delete-records": "-b {} --offset-json-file FILE",
    "doctor": "-b {}",
    "features": "-b {} describe",
    "get-offsets": "-b {} --topic t",
    "groups": "-b {} --list",
    "health": "-b {}",
    "leader-election": "-b {} --election-type preferred --all-topic-partitions",
    "load": "TABLE --topic t -b {}",
    "log-dirs": "-b {} --describe",
    "metadata-quorum": "-b {} describe --status",
    "produce": "-b {} t",
    "producer-perf-test": "-b {} --topic t --num-records 1 --record-size 1",
    "reassign-partitions": "-b {} --list",
    "share-consumer-perf-test": "-b {} --topic t --num-records 1 --timeout 1000",
    "share-groups": "-b {} --list",
    "streams-groups": "-b {} --list",
    "top": "-b {}",
    "topics": "-b {} --list",
    "transactions": "-b {} list",
    "verifiable-consumer": "-b {} --topic t --group-id g --max-messages 1",
    "verifiable-producer": "-b {} --topic t --max-messages 1",
    "verifiable-share-consumer": "-b {} --topic t --group-id g --max-messages 0",
}
#: Words that the cluster, or the file, refuses.
REFUSED = {
    "audit": "DAMAGED",
    "client-metrics": "-b {} --alter --name n --interval 1",
    "configs": "-b {} --alter --topic nothing --add-config retention.ms=1",
    "consume": "-b {} nothing -e",
    "consumer-groups": "-b {} --describe --group nobody",
    "delegation-tokens": "-b {} --describe",
    "delete-records": "-b {} --offset-json-file FILE",
    "dump-log": "--files DAMAGED/t-0/00000000000000000000.log",
    "get-offsets": "-b {} --topic nothing",
    "health": "-b {} --brokers 3",
    "leader-election": "-b {} --election-type preferred --topic nothing --partition 0",
    "share-groups": "-b {} --describe --group nobody",
    "streams-groups": "-b {} --describe --group nobody",
    "topics": "-b {} --describe --topic nothing",
    "transactions": "-b {} describe --transactional-id nobody",
}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[dict[str, str]]:
    named = tmp_path / "offsets.json"
    named.write_text('{"partitions": [{"topic": "nothing", "partition": 0, "offset": 1}], "version": 1}')
    table = tmp_path / "table.csv"
    table.write_text("value\nx\n")
    damaged = tmp_path / "data"
    (damaged / "t-0").mkdir(parents=True)
    (damaged / "t-0" / "00000000000000000000.log").write_bytes(b"\x00" * 8 + b"\x00\x00\x00\x40" + b"\x01" * 64)
    yield {"FILE": str(named), "TABLE": str(table), "DAMAGED": str(damaged)}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedCluster]:
    with EmbeddedBroker(topics={"t": 1}) as made:
        yield made


def status(name: str, words: str, files: dict[str, str], address: str) -> tuple[int, str]:
    for key, value in files.items():
        words = words.replace(key, value)
    done = CliRunner().invoke(cli, [name, *words.format(address).split()], input="x\n")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return done.exit_code, done.output


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_wrong_usage_is_2(name: str) -> None:
    code, said = status(name, "--no-such-option", {}, "")
    assert (code, "no-such-option" in said) == (2, True)


def test_every_command_that_asks_a_cluster_is_here() -> None:
    assert {name for name in COMMANDS if reaches_a_cluster(name)} == set(GOOD)


@pytest.mark.parametrize("name", GOOD)
def test_no_cluster_is_3(name: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "FIRST_ANSWER_MS", 100)
    code, said = status(name, GOOD[name], files, "127.0.0.1:1")
    assert code == 3, said
    assert "Traceback" not in said and "127.0.0.1:1" in said


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(
    "properties",
    ["security.protocol=FOO", "security.protocol=SASL_SSL\nsasl.mechanism=BAR", "security.protocol=SSL\nssl.truststore.location=/nowhere"],
    ids=["protocol", "mechanism", "file"],
)
def test_wrong_settings_are_2(
    name: str, properties: str, files: dict[str, str], broker: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most commands ended with 1, as if the cluster had refused something."""
    (tmp_path / "client.properties").write_text(properties)
    monkeypatch.setenv("MINIKAFKA_COMMAND_CONFIG", str(tmp_path / "client.properties"))
    code, said = status(name, GOOD[name], files, broker.bootstrap_servers)
    assert (code, properties.splitlines()[-1].split("=")[0] in said) == (2, True), said


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_1(name: str, files: dict[str, str], broker: EmbeddedCluster) -> None:
    code, said = status(name, REFUSED[name], files, broker.bootstrap_servers)
    assert code == 1 and said, said


def test_every_command_with_its_own_statuses_documents_them() -> None:
    assert set(STATUSES) <= set(COMMANDS)
    for meanings in STATUSES.values():
        assert set(meanings) <= {0, 1, 2, 3, 130} and all(meanings.values())


def test_an_interrupt_ends_with_the_shells_status_and_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("minikafka.cli.demo_chapters.play", interrupted)
    done = CliRunner().invoke(cli, ["demo"])
    assert (done.exit_code, done.output.count("\n")) == (130, 1), done.output


def test_an_interrupt_of_the_imports_ends_with_it_too(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    command = [sys.executable, "-m", "minikafka", "--version"]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


#: Interrupts a command, and again when it is about to exit.
INTERRUPTED_TWICE = """
import os, signal, sys
import minikafka.cli.main as command
def interrupt(*arguments):
    os.kill(os.getpid(), signal.SIGINT)
real_exit = sys.exit
class Sys:
    exit = staticmethod(lambda status: (interrupt(), real_exit(status)))
command.sys = Sys
command.click.Group.invoke = interrupt
command.main(["version"])
"""


def test_a_second_interrupt_is_silent_too() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_TWICE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
