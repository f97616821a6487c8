"""minikafka's tools of share groups, and `cluster api-versions`, beside those of Apache Kafka 4.4: the same cluster, the same output."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from helpers.apache_kafka import NEXT, run_tool
from helpers.ledger import create_topic
from helpers.shell import minikafka

from minikafka.testing.cluster import ProcessCluster

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(400)]
PROPERTIES = {
    "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
    "group.share.heartbeat.interval.ms": "500", "group.share.min.heartbeat.interval.ms": "500",
}  # fmt: skip


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Of a cluster with 15 records in each partition of t, and 30 of u."""
    with ProcessCluster(1, properties=PROPERTIES) as cluster:
        create_topic(cluster.bootstrap, "t", 2, 1)
        create_topic(cluster.bootstrap, "u", 1, 1)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for number in range(30):
            producer.produce("t", f"v{number}", partition=number % 2)
            producer.produce("u", f"v{number}")
        assert producer.flush(30) == 0
        yield cluster.bootstrap


def theirs(main_class: str, *words: str) -> str:
    return run_tool(f"org.apache.kafka.tools.{main_class}", *words, version=NEXT)


def ours(*words: str) -> str:
    done = minikafka(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines(text: str) -> list[list[str]]:
    return sorted(line.split() for line in text.splitlines() if line.strip())


@pytest.mark.parametrize(
    "words",
    [
        "--topic t --to-offset 4 --execute",
        "--topic t:0 --topic u --to-offset 99 --dry-run --export",
        "--topic t:0 --to-offset -3 --dry-run",
        "--topic t --topic u --to-current --execute",
        "--all-topics --to-current --dry-run --export",
        "--from-file FILE --execute",
        "--all-topics --to-current --dry-run",
    ],
)
def test_offsets_are_reset_alike(bootstrap: str, words: str, tmp_path: Path) -> None:
    """One after the other on one group."""
    file = tmp_path / "offsets.csv"
    file.write_text("g,t,0,3\nother,t,1,5\ng,u,0,99\n")
    arguments = ["--bootstrap-server", bootstrap, "--group", "g", "--reset-offsets", *words.replace("FILE", str(file)).split()]
    found, expected = ours("share-groups", *arguments), theirs("consumer.group.ShareGroupCommand", *arguments)
    assert lines(found) == lines(expected) != []


def test_apis_of_a_node_are_shown_alike(bootstrap: str) -> None:
    found = ours("cluster", "api-versions", "--bootstrap-server", bootstrap)
    expected = theirs("ClusterTool", "api-versions", "--bootstrap-server", bootstrap)

    def served(text: str) -> list[str]:
        # Apache Kafka's tool also names what a node does not serve.
        return [line.strip(", \t") for line in text.splitlines() if "UNSUPPORTED" not in line]

    assert served(found) == served(expected)


def told(output: str) -> dict[str, object]:
    """What a verifiable member says, without what depends on how records come together."""
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    found: dict[str, object] = {"events": {event["name"] for event in events} - {"shutdown_requested"}}
    for name in ("records_consumed", "offsets_acknowledged"):
        chosen = [event for event in events if event["name"] == name]
        found[name] = Counter(
            (entry["topic"], entry["partition"], offset) for event in chosen for entry in event["partitions"] for offset in entry["offsets"]
        )
        found[f"fields of {name}"] = {tuple(sorted(event)) for event in chosen}
        types = Counter[str]()
        for event in chosen:
            types.update(event.get("ackTypeCounts", {}))
        found[f"types of {name}"] = types
    found["records"] = sorted((event["offset"], event["key"], event["value"]) for event in events if event["name"] == "record_data")
    return found


@pytest.mark.parametrize(
    "words", ["--acknowledgement-mode sync --ack-pattern accept,renew,reject,renew,accept", "--verbose --acknowledgement-mode async"]
)
def test_a_verifiable_member_says_the_same(bootstrap: str, words: str) -> None:
    given = ["--bootstrap-server", bootstrap, "--topic", "u", "--offset-reset-strategy", "earliest", *words.split()]
    expected_records = 42 if "renew" in words else 30
    found, expected = (
        told(tool(*given, "--group-id", f"{name} {re.sub('[^a-z]', '', words)}", "--max-messages", str(expected_records)))
        for name, tool in (
            ("ours", lambda *given: ours("verifiable-share-consumer", *given)),
            ("theirs", lambda *given: theirs("VerifiableShareConsumer", *given)),
        )
    )
    assert found == expected
    assert sum(found["offsets_acknowledged"].values()) == expected_records  # type: ignore[attr-defined]
