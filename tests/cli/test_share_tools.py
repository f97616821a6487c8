"""The tools of share groups against an embedded cluster; `tests/interop/test_share_tools.py` compares them with Apache Kafka's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from minikafka.cli.main import cli
from minikafka.testing import EmbeddedCluster

pytestmark = pytest.mark.timeout(60)
PROPERTIES = {"group.share.heartbeat.interval.ms": "500", "group.share.min.heartbeat.interval.ms": "500"}
EARLIEST = ("--offset-reset-strategy", "earliest")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, topics={"t": 2, "u": 1}, config=PROPERTIES) as made:
        producer = confluent_kafka.Producer(made.client_config())
        for number in range(8):
            producer.produce("t", f"v{number}", key=f"k{number}", partition=number % 2)
            producer.produce("u", f"v{number}")
        assert producer.flush(10) == 0
        yield made


@pytest.fixture
def run(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*arguments: str, status: int = 0) -> Result:
        monkeypatch.setenv("MINIKAFKA_BOOTSTRAP", cluster.bootstrap_servers)
        result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
        assert result.exit_code == status, result.output
        return result

    return call


def events(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def offsets(found: list[dict[str, Any]], name: str) -> Counter[tuple[int, int]]:
    """How often the events `name` speak of each record (partition, offset) of t."""
    entries = [entry for event in found if event["name"] == name for entry in event["partitions"]]
    return Counter((entry["partition"], offset) for entry in entries for offset in entry["offsets"])


EVERYTHING = Counter((partition, offset) for partition in range(2) for offset in range(4))


@pytest.mark.parametrize("mode", ["auto", "sync", "ASYNC"])
def test_a_verifiable_member_reports_what_it_reads_and_acknowledges(run: Any, mode: str) -> None:
    words = ("--topic", "t", "--group-id", f"v-{mode}", "--max-messages", "8", "--verbose", "--acknowledgement-mode", mode, *EARLIEST)
    found = events(run("verifiable-share-consumer", *words))
    names = [event["name"] for event in found]
    assert names[:2] == ["startup_complete", "offset_reset_strategy_set"] and names[-1] == "shutdown_complete"
    assert found[1]["offsetResetStrategy"] == "earliest"
    read = sorted((event["partition"], event["offset"], event["key"], event["value"]) for event in found if event["name"] == "record_data")
    assert read == [(number % 2, number // 2, f"k{number}", f"v{number}") for number in (0, 2, 4, 6, 1, 3, 5, 7)]
    assert offsets(found, "records_consumed") == offsets(found, "offsets_acknowledged") == EVERYTHING
    acknowledged = [event for event in found if event["name"] == "offsets_acknowledged"]
    assert all(event["success"] and "ackTypeCounts" not in event for event in acknowledged)
    assert sum(event["count"] for event in acknowledged) == 8


def test_a_pattern_gives_each_record_its_type_and_a_renewed_one_the_next(run: Any) -> None:
    words = ("--topic", "u", "--group-id", "p", "--max-messages", "9", "--acknowledgement-mode", "sync", *EARLIEST)
    found = events(run("verifiable-share-consumer", *words, "--ack-pattern", "accept, RENEW, reject, accept"))
    acknowledged = [event for event in found if event["name"] == "offsets_acknowledged"]
    assert [(event["count"], event["ackTypeCounts"]) for event in acknowledged] == [
        (8, {"ACCEPT": 4, "RENEW": 2, "REJECT": 2}), (2, {"REJECT": 2}),
    ]  # fmt: skip
    consumed = [event for event in found if event["name"] == "records_consumed"]
    assert [entry["offsets"] for event in consumed for entry in event["partitions"]] == [list(range(8)), [1, 5]]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--ack-pattern", "accept"), "requires --acknowledgement-mode"),
        (("--ack-pattern", "renew,renew", "--acknowledgement-mode", "sync"), "again and again"),
        (("--ack-pattern", "take", "--acknowledgement-mode", "sync"), "'take' is not one of accept, release, reject, renew"),
        (("--offset-reset-strategy", "middle"), "'middle' is not one of"),
    ],
)  # fmt: skip
def test_wrong_words_are_refused(run: Any, words: tuple[str, ...], why: str) -> None:
    assert why in run("verifiable-share-consumer", "--topic", "t", "--group-id", "g", *words, status=2).stderr


def test_members_are_measured(run: Any) -> None:
    for group in ("m", "n"):
        run("configs", "--alter", "--entity-type", "groups", "--entity-name", group, "--add-config", "share.auto.offset.reset=earliest")
    head, row = run("share-consumer-perf-test", "--topic", "t", "--group", "m", "--num-records", "8").stdout.splitlines()
    assert head == "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
    assert row.split(", ")[5] == "8"
    words = ("--topic", "t", "--group", "n", "--num-records", "8", "--threads", "2", "--hide-header", "--show-consumer-stats")
    lines = run("share-consumer-perf-test", *words).stdout.splitlines()
    assert [line.partition(" consumption metrics- ")[0] for line in lines[:-1]] == [
        f"Share consumer {number} having client id perf-share-consumer-client-{number}" for number in (1, 2)
    ]
    assert sum(int(line.split(", ")[5]) for line in lines[:-1]) == int(lines[-1].split(", ")[5]) == 8
    words = ("--topic", "t", "--group", "m", "--num-records", "9", "--timeout", "100", "--show-detailed-stats")
    short = run("share-consumer-perf-test", *words)
    assert "Exiting before consuming" in short.stderr


def test_offsets_are_set_exported_and_taken_from_a_file(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    reset = ("share-groups", "--reset-offsets", "--group", "r")

    def planned(*words: str) -> list[list[str]]:
        return [line.split()[1:] for line in run(*reset, *words).stdout.splitlines()[2:]]

    assert planned("--topic", "t:1", "--to-offset", "3", "--execute") == [["t", "1", "3"]]
    assert planned("--topic", "t", "--to-current", "--dry-run") == [["t", "0", "4"], ["t", "1", "3"]], "the end, where there is no offset"
    exported = run(*reset, "--topic", "t", "--topic", "u", "--to-offset", "99", "--dry-run", "--export")
    assert exported.stdout == "t,0,4\nt,1,4\nu,0,8\n" and "higher than latest" in exported.stderr
    file.write_text("t,0,2\nother,t,1,1\nr,u,0,5\n")
    assert planned("--from-file", str(file), "--execute") == [["t", "0", "2"], ["u", "0", "5"]]
    assert planned("--all-topics", "--to-current", "--dry-run") == [["t", "0", "2"], ["t", "1", "3"], ["u", "0", "5"]]
    assert "--dry-run or --execute" in run(*reset, "--topic", "t", "--to-current", "--export", status=2).stderr
    assert "one of --to-earliest" in run(*reset, "--from-file", str(file), "--to-current", "--dry-run", status=2).stderr
    assert "--all-topics or --from-file" in run(*reset, "--to-current", "--dry-run", status=2).stderr
