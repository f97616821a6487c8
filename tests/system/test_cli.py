"""The `minikafka` command as people and scripts use it: real processes, a live cluster, exit codes, and errors that can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from helpers.shell import minikafka

from minikafka.testing.cluster import ProcessCluster, free_ports

USAGE, REFUSED, UNREACHABLE = 2, 1, 3
pytestmark = pytest.mark.timeout(120)


class Shell:
    """Commands against one cluster, which the environment names."""

    def __init__(self, bootstrap: str) -> None:
        self._environment = {"MINIKAFKA_BOOTSTRAP": bootstrap}

    def __call__(self, *arguments: str, stdin: str = "") -> CompletedProcess[str]:
        return minikafka(*arguments, stdin=stdin, environment=self._environment)

    def ok(self, *arguments: str, stdin: str = "") -> str:
        done = self(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{arguments}: {done.returncode} {done.stderr}"
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "-o", "json"))


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with ProcessCluster(3, directory=tmp_path_factory.mktemp("cluster")) as cluster:
        yield Shell(cluster.bootstrap)


def is_for_people(done: CompletedProcess[str], status: int, *words: str) -> None:
    assert done.returncode == status, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 6, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_a_topics_life(shell: Shell) -> None:
    created = shell.ok(
        "topics", "--create", "--topic", "life", "--partitions", "3", "--replication-factor", "2", "--config", "retention.ms=60000",
    )  # fmt: skip
    assert created == "Created topic life.\n"
    assert "life" in shell.ok("topics", "--list").splitlines()
    lines = shell.ok("topics", "--describe", "--topic", "life").splitlines()
    assert lines[0].startswith("Topic: life\tTopicId: ")
    assert lines[0].endswith("\tPartitionCount: 3\tReplicationFactor: 2\tConfigs: retention.ms=60000")
    assert [line.split("\t")[2] for line in lines[1:]] == ["Partition: 0", "Partition: 1", "Partition: 2"]
    described = shell.json("topics", "--describe", "--topic", "life")[0]
    assert (described["topic"], described["configs"], len(described["partitions"])) == ("life", {"retention.ms": "60000"}, 3)
    assert all(len(p["replicas"]) == 2 and p["leader"] in p["replicas"] for p in described["partitions"])
    shell.ok("topics", "--alter", "--topic", "life", "--partitions", "5")
    assert len(shell.json("topics", "--describe", "--topic", "life")[0]["partitions"]) == 5
    shell.ok("topics", "--create", "--topic", "life", "--if-not-exists")
    is_for_people(shell("topics", "--create", "--topic", "life"), REFUSED, "life", "TOPIC_ALREADY_EXISTS")
    shell.ok("topics", "--delete", "--topic", "life")
    assert "life" not in shell.ok("topics", "--list").splitlines()
    shell.ok("topics", "--delete", "--topic", "life", "--if-exists")
    is_for_people(shell("topics", "--delete", "--topic", "life"), REFUSED, "life", "UNKNOWN_TOPIC_OR_PARTITION")
    is_for_people(shell("topics", "--describe", "--topic", "life"), REFUSED, "life")


def test_topics_that_cannot_be(shell: Shell) -> None:
    is_for_people(shell("topics", "--create", "--topic", "a b"), REFUSED, "INVALID_TOPIC_EXCEPTION")
    is_for_people(shell("topics", "--create", "--topic", "t", "--replication-factor", "9"), REFUSED, "INVALID_REPLICATION_FACTOR")
    is_for_people(shell("topics", "--create", "--topic", "t", "--config", "retention.mss=1"), REFUSED, "retention.mss")
    is_for_people(shell("topics", "--create", "--topic", "t", "--config", "retention.ms"), USAGE, "name=value")
    is_for_people(shell("topics", "--create", "--topic", "t", "--partitions", "0"), USAGE, "--partitions")
    is_for_people(shell("topics", "--create", "--topic", "t", "--replica-assignment", "1:x"), USAGE, "1:x")
    is_for_people(shell("topics", "--create"), USAGE, "--topic")
    is_for_people(shell("topics"), USAGE, "--create")


def test_lines_in_lines_out(shell: Shell) -> None:
    shell.ok("topics", "--create", "--topic", "lines", "--partitions", "1")
    shell.ok("produce", "lines", stdin="one\ntwo\n\nvier: ä€\n")
    everything = ("consume", "lines", "--from-beginning", "--exit-at-end")
    assert shell.ok(*everything) == "one\ntwo\n\nvier: ä€\n"
    assert shell.ok(*everything, "-f", "%t %p %o [%s] %S\\n").splitlines()[1] == "lines 0 1 [two] 3"
    assert shell.ok(*everything, "-n", "1") == "one\n"
    assert shell.ok("consume", "lines", "--offset", "end-1", "-e") == "vier: ä€\n"
    assert shell.ok("consume", "lines", "--offset", "1", "-e", "-n", "1") == "two\n"
    assert shell.ok("consume", "lines", "--offset", "latest", "-e") == ""
    assert shell("consume", "lines", "--from-beginning", "-e").stderr == "Processed a total of 4 messages\n"
    assert shell.ok("consume", "lines", "--timeout-ms", "300") == "", "without --from-beginning only what comes"


def test_keys_headers_nulls_and_partitions(shell: Shell) -> None:
    shell.ok("topics", "--create", "--topic", "keyed", "--partitions", "4")
    how = ("-K", ":", "-H", "a=1", "-H", "b", "--null-marker", "NIL", "-p", "2")
    shell.ok("produce", "--topic", "keyed", *how, stdin="k:v\nNIL:w\nk:NIL\n")
    rows = [json.loads(line) for line in shell.ok("consume", "keyed", "-p", "2", "--from-beginning", "-e", "-o", "jsonl").splitlines()]
    assert [(row["key"], row["value"], row["partition"]) for row in rows] == [("k", "v", 2), (None, "w", 2), ("k", None, 2)]
    assert rows[0]["headers"] == [{"key": "a", "value": "1"}, {"key": "b", "value": None}]
    shown = shell.ok("consume", "keyed", "-p", "2", "--from-beginning", "-e", "-f", "%k|%s|%K|%S|%h\\n")
    assert shown == "k|v|1|1|a=1,b=\n|w|-1|1|a=1,b=\nk||1|-1|a=1,b=\n"


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_json_lines_round_trip(shell: Shell, codec: str) -> None:
    records: list[dict[str, Any]] = [
        {"key": "k", "value": "v", "partition": 0, "timestamp": 1700000000123, "headers": [{"key": "h", "value": "x"}]},
        {"key": None, "value": {"nested": [1, 2]}, "partition": 0, "timestamp": 1700000000124},
        {"key": "gone", "value": None, "partition": 0, "timestamp": 1700000000125},
    ]
    topic = f"json-{codec}"
    shell.ok("topics", "--create", "--topic", topic, "--partitions", "2")
    stored = shell.ok("produce", topic, "-f", "jsonl", "-z", codec, "-o", "jsonl", stdin="".join(json.dumps(r) + "\n" for r in records))
    assert [json.loads(line)["offset"] for line in stored.splitlines()] == [0, 1, 2]
    read = json.loads(shell.ok("consume", topic, "--from-beginning", "-e", "-o", "json"))
    assert [(r["key"], r["value"], r["timestamp"]) for r in read] == [
        ("k", "v", 1700000000123),
        (None, '{"nested": [1, 2]}', 1700000000124),
        ("gone", None, 1700000000125),
    ]
    again = shell.ok("consume", topic, "--offset", "@1700000000124", "-p", "0", "-e", "-o", "jsonl")
    assert [json.loads(line)["offset"] for line in again.splitlines()] == [1, 2]
    copied = shell.ok("produce", f"{topic}-copy", "-f", "jsonl", stdin=again)
    assert copied == "", "what consume prints, produce takes"


def test_bad_records_say_which_line(shell: Shell) -> None:
    is_for_people(shell("produce", "lines", "-f", "jsonl", stdin='{"value": "x"}\nnot json\n'), REFUSED, "line 2", "not JSON")
    is_for_people(shell("produce", "lines", "-f", "jsonl", stdin="[1]\n"), REFUSED, "line 1", "object")
    is_for_people(shell("produce", "lines", "-f", "jsonl", stdin='{"valeu": 1}\n'), REFUSED, "line 1", "valeu")
    is_for_people(shell("produce", "lines", "-K", ":", stdin="none\n"), REFUSED, "line 1", "':'")
    is_for_people(shell("produce", stdin="x\n"), USAGE, "topic")
    is_for_people(shell("consume", "no-such-topic", "-e"), REFUSED, "no-such-topic", "UNKNOWN_TOPIC_OR_PARTITION")
    is_for_people(shell("consume", "lines", "-p", "99"), REFUSED, "no partition 99")
    is_for_people(shell("consume", "lines", "--offset", "yesterday", "-e"), USAGE, "yesterday")
    is_for_people(shell("consume", "lines", "-g", "g", "-p", "0"), USAGE, "--group")


def test_a_partition_that_is_not_there(shell: Shell) -> None:
    is_for_people(shell("produce", "lines", "-f", "jsonl", stdin='{"value": "x", "partition": 77}\n'), REFUSED, "77")


def test_a_group_goes_on_where_it_was_and_is_described(shell: Shell) -> None:
    shell.ok("topics", "--create", "--topic", "grouped", "--partitions", "2")
    shell.ok("produce", "grouped", "-p", "0", stdin="a\nb\nc\n")
    reading = ("consume", "grouped", "-g", "readers", "--from-beginning")
    assert shell.ok(*reading, "-n", "2") == "a\nb\n"
    assert shell.ok(*reading, "-n", "1") == "c\n"
    shell.ok("produce", "grouped", "-p", "1", stdin="d\n")
    assert "readers" in shell.ok("consumer-groups", "--list").splitlines()
    state = shell.json("consumer-groups", "--describe", "--group", "readers", "--state")[0]
    assert (state["state"], state["members"]) == ("Empty", 0)
    rows = shell.json("consumer-groups", "--describe", "--group", "readers")
    assert {(row["topic"], row["partition"]): (row["current_offset"], row["log_end_offset"], row["lag"]) for row in rows} == {
        ("grouped", 0): (3, 3, 0),
        ("grouped", 1): (0, 1, 1),
    }
    heading = shell.ok("consumer-groups", "--describe", "--group", "readers").split("\n")[1].split()
    assert heading == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
    assert shell.ok(*reading, "-n", "1") == "d\n"
    is_for_people(shell("consumer-groups", "--describe"), USAGE, "--group")
    is_for_people(shell("consumer-groups", "--describe", "--group", "nobody"), REFUSED, "nobody")


def test_configurations(shell: Shell) -> None:
    shell.ok("topics", "--create", "--topic", "tuned", "--partitions", "1")
    changed = shell.ok("configs", "--alter", "--topic", "tuned", "--add-config", "max.message.bytes=5000,cleanup.policy=[compact,delete]")
    assert changed == "Completed updating config for topic tuned.\n"

    def dynamic() -> dict[str, str]:
        return {row["name"]: row["value"] for row in shell.json("configs", "--describe", "--topic", "tuned")}

    assert dynamic() == {"max.message.bytes": "5000", "cleanup.policy": "compact,delete"}
    shell.ok("configs", "--alter", "--entity-type", "topics", "--entity-name", "tuned", "--delete-config", "cleanup.policy")
    assert dynamic() == {"max.message.bytes": "5000"}
    everything = shell.json("configs", "--describe", "--topic", "tuned", "--all")
    default = {"source": "DEFAULT_CONFIG", "name": "log.cleanup.policy", "value": "delete"}
    shown = {"name": "cleanup.policy", "value": "delete", "source": "DEFAULT_CONFIG", "read_only": False, "synonyms": [default]}
    assert shown in everything
    synonyms = "synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=5000, DEFAULT_CONFIG:message.max.bytes=1048588}"
    assert f"max.message.bytes=5000 sensitive=false {synonyms}" in shell.ok("configs", "--describe", "--topic", "tuned")
    is_for_people(shell("produce", "tuned", stdin="x" * 9000 + "\n"), REFUSED, "MESSAGE_TOO_LARGE")
    alter = ("configs", "--alter", "--topic", "tuned")
    is_for_people(shell(*alter, "--add-config", "max.message.bytes=many"), REFUSED, "max.message.bytes", "many")
    is_for_people(shell(*alter, "--add-config", "nonsense=1"), REFUSED, "nonsense")
    is_for_people(shell(*alter), USAGE, "--add-config")
    is_for_people(shell("configs", "--describe"), USAGE, "--entity-type")
    is_for_people(shell("configs", "--describe", "--topic", "missing"), REFUSED, "missing")


def test_an_unreachable_broker_is_named() -> None:
    port = free_ports(1)[0]
    for arguments in (("topics", "--list"), ("consumer-groups", "--list"), ("configs", "--describe", "--topic", "t")):
        done = minikafka(*arguments, environment={"MINIKAFKA_BOOTSTRAP": f"127.0.0.1:{port}"})
        is_for_people(done, UNREACHABLE, f"127.0.0.1:{port}")
    is_for_people(minikafka("topics", "-b", "nonsense:port", "--list"), USAGE, "nonsense:port")


def test_misspelt_commands_and_options() -> None:
    is_for_people(minikafka("topic", "--list"), USAGE, "Did you mean topics?")
    is_for_people(minikafka("topics", "--lst"), USAGE, "--lst")
    assert minikafka("--version").stdout.startswith("minikafka, version ")
    assert "Bulk-load a table" in minikafka("--help").stdout


def test_storage_is_formatted_once_and_described(tmp_path: Path) -> None:
    cluster_id = minikafka("storage", "random-uuid").stdout.strip()
    assert len(cluster_id) == 22
    broker, controller = free_ports(2)
    config = tmp_path / "server.properties"
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}\nlog.dirs={tmp_path}/a,{tmp_path}/b\n"
    )
    done = minikafka("storage", "info", "--config", str(config))
    assert done.returncode == 1 and "Found problem" in done.stdout and "Traceback" not in done.stderr
    formatted = minikafka("storage", "format", "-t", cluster_id, "-c", str(config))
    assert formatted.returncode == 0 and formatted.stdout.count("Formatting") == 2, formatted
    for name in ("a", "b"):
        assert f"cluster.id={cluster_id}" in (tmp_path / name / "meta.properties").read_text()
    done = minikafka("storage", "info", "--config", str(config))
    assert done.returncode == 0 and f"{tmp_path}/a" in done.stdout, done
    is_for_people(minikafka("storage", "format", "-t", cluster_id, "-c", str(config)), REFUSED, "already formatted")
    assert minikafka("storage", "format", "-t", cluster_id, "-c", str(config), "--ignore-formatted").returncode == 0
    is_for_people(minikafka("storage", "format", "-t", cluster_id, "-c", str(tmp_path / "none")), USAGE, "none")


def test_a_configuration_with_several_mistakes_is_refused_with_all_of_them(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("process.roles=broker\nnode.id=x\nnum.partitons=3\nlisteners=PLAINTEXT://:70000\n")
    done = minikafka("start", "--config", str(config))
    assert done.returncode == USAGE and "Traceback" not in done.stderr
    for word in ("node.id", "num.partitons", "num.partitions", "70000"):
        assert word in done.stderr, done.stderr
