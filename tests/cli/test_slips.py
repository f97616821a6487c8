"""What a new user does wrong ends with one line that says what and why, and with the status of the page about the command line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from minikafka.cli import common, last_words
from minikafka.cli.last_words import LOG_END_BYTES, full, last_error
from minikafka.cli.main import cli
from minikafka.testing import EmbeddedCluster

CONFIG = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
log.dirs={}
"""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "FIRST_ANSWER_MS", 300)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("topics --list -b localhost:abc", 2, "error: localhost:abc is not host:port"),
        ("topics --list -b localhost:99999", 2, "error: localhost:99999 is not host:port"),
        (
            "topics --list -b http://localhost:9092",
            2,
            "error: http://localhost:9092 is a URL, and brokers have addresses without one: write localhost:9092\n",
        ),
        ("doctor -b https://localhost:9092/", 2, "write localhost:9092\n"),
        ("consume t -b kafka://localhost", 2, "write localhost\n"),
        ("audit -b http://localhost:9092", 2, "write localhost:9092\n"),
        ("topics --list -b PLAINTEXT://127.0.0.1:1", 3, "no broker answers (127.0.0.1:1: connection refused)"),
        ("topics --list -b ,", 2, "error: no bootstrap servers: give host:port, separated by commas"),
        ("topics --list -b 127.0.0.1:1", 3, "no broker answers (127.0.0.1:1: connection refused)"),
        ("topics --list -X security.protocol=SASL_PLAINTEXT", 2, "sasl.mechanism is missing: must be one of PLAIN, SCRAM-SHA-256"),
        ("bench --batch-sizes foo", 2, "Invalid value for --batch-sizes: foo is not a size"),
        ("bench --fetch-sizes 1TB", 2, "Invalid value for --fetch-sizes: 1TB is not a size"),
        ("storage info -c /nowhere", 2, "Error: cannot read /nowhere: No such file or directory"),
        ("cluster up --log-level loud", 2, "'loud' is not one of"),
        ("version", 2, "There is no command version. Did you mean --version?"),
        ("clutser up", 2, "There is no command clutser. Did you mean cluster?"),
        ("produce", 2, "Which topic? Give its name: minikafka produce TOPIC"),
        ("consume -e", 2, "Which topic? Give its name: minikafka consume TOPIC"),
    ],
)
def test_a_slip(words: str, status: int, said: str) -> None:
    """No cluster is needed to say so."""
    done = CliRunner().invoke(cli, words.split())
    assert said in done.output and done.exit_code == status, done.output
    assert isinstance(done.exception, SystemExit)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("--config foo=bar", 2, "error: foo is not a property"),
        ("--config log.segment.bytes=x", 2, "error: log.segment.bytes=x: must be a whole number"),
        ("--directory FILE/cluster", 1, "error: Not a directory: FILE/cluster"),
    ],
)
def test_a_cluster_that_cannot_start(words: str, status: int, said: str, tmp_path: Path) -> None:
    """Wrong properties, and a directory that cannot be made."""
    file = tmp_path / "file"
    file.touch()
    done = CliRunner().invoke(cli, ["cluster", "up", "--port", "0", "--http-port", "0", *words.replace("FILE", str(file)).split()])
    assert said.replace("FILE", str(file)) in done.output and done.exit_code == status, done.output
    assert isinstance(done.exception, SystemExit)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("", 1, "error: node 1 cannot run: log directory DATA does not exist; minikafka storage format prepares it"),
        ("--log-level loud", 2, "error: log level loud: must be debug, info, warning or error"),
        ("--format --cluster-id abc --override log.dirs=CONFIG/data", 1, "error: node 1 cannot run: Not a directory: CONFIG/data"),
    ],
)
def test_a_node_that_cannot_start(words: str, status: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage that nobody has formatted, or that cannot be; a level that is none."""
    config, data = tmp_path / "server.properties", tmp_path / "data"
    config.write_text(CONFIG.format(data))

    def leave(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr("minikafka.cli.start._leave_process", leave)
    done = CliRunner().invoke(cli, ["start", str(config), *words.replace("CONFIG", str(config)).split()])
    assert said.replace("DATA", str(data)).replace("CONFIG", str(config)) in done.output, done.output
    assert done.exit_code == status


def test_a_level_of_the_log_is_checked_at_once() -> None:
    """Not when the brokers have ended."""
    with pytest.raises(ValueError, match="log_level=loud: must be DEBUG, INFO, WARNING or ERROR"):
        EmbeddedCluster(log_level="loud")


@pytest.mark.parametrize("before", [0, LOG_END_BYTES])
def test_why_a_broker_has_ended(before: int, tmp_path: Path) -> None:
    """`cluster up` says it beside the name of the log."""
    log = tmp_path / "broker.log"
    assert last_error(log) == ""
    log.write_text("x" * before + "2026-11-23 INFO  minikafka.node: starting\n")
    assert last_error(log) == ""
    with log.open("a") as file:
        file.write("2026-11-23 ERROR minikafka.log_dir: a directory is offline\n")
        file.write("2026-11-23 ERROR minikafka.node: the node cannot continue: No space left on device\n")
        file.write("2026-11-23 INFO  minikafka.node: ended\n")
    assert last_error(log) == "the node cannot continue: No space left on device"
    log.write_text("2026-11-23 ERROR minikafka.node: long ago\n" + "x" * LOG_END_BYTES)
    assert last_error(log) == ""


def test_a_silent_address_is_named_while_the_command_still_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """`produce` said nothing for seconds."""
    monkeypatch.setattr("minikafka.client.silence.FIRST_S", 0.05)
    done = CliRunner().invoke(cli, ["produce", "orders", "-b", "127.0.0.1:1"], input="apples\n")
    first, last = done.stderr.splitlines()
    assert first == "no answer from 127.0.0.1:1 yet, still trying ..."
    assert last.startswith("error: no broker answers (127.0.0.1:1: connection refused)")


def test_the_port_of_the_metrics_is_recognised() -> None:
    """It was silent for five seconds, and the command suggested TLS."""
    with EmbeddedCluster(1, first_http_port=0) as cluster:
        said = CliRunner().invoke(cli, ["topics", "--list", "-b", f"127.0.0.1:{cluster.brokers[0].http_port}"])
    assert said.exit_code == 3 and "HTTP" in said.output and "TLS" not in said.output, said.output


def test_what_does_not_exist_is_answered_with_where_to_look() -> None:
    with EmbeddedCluster(1) as cluster:
        topic = CliRunner().invoke(cli, ["consume", "ordrs", "-e", "-b", cluster.bootstrap_servers])
        group = CliRunner().invoke(cli, ["consumer-groups", "--describe", "--group", "shp", "-b", cluster.bootstrap_servers])
    assert (topic.exit_code, group.exit_code) == (1, 1)
    assert topic.stderr.startswith("error: topic ordrs: This server") and topic.stderr.endswith(". See `minikafka topics --list`\n")
    assert group.stderr.startswith("error: group shp: ") and group.stderr.endswith(". See `minikafka groups --list`\n")


@pytest.mark.parametrize(("free_bytes", "said"), [(4096, "is full: free some space, or use another directory"), (1 << 30, "")])
def test_a_full_disk_is_named(free_bytes: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of a broker cannot say it: it is on that disk."""
    monkeypatch.setattr(last_words.shutil, "disk_usage", lambda _: SimpleNamespace(free=free_bytes))
    assert full(tmp_path).endswith(said) and bool(full(tmp_path)) == bool(said)
    monkeypatch.undo()
    assert full(tmp_path / "gone") == ""
