"""The operators' commands against an embedded cluster, in this process; what they print is what Kafka's tools print."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from minikafka.cli.common import to_yaml
from minikafka.cli.console import FORMATTER_PROPERTIES, READER_PROPERTIES, formatter_of, parse_line
from minikafka.cli.main import COMMANDS, cli
from minikafka.cli.perf import Latencies
from minikafka.cli.reassign import propose
from minikafka.cli.session import partition_filter
from minikafka.client.consumer import ConsumedRecord
from minikafka.client.errors import ClientError
from minikafka.testing import EmbeddedCluster
from minikafka.testing.inspection import brokers_of
from minikafka.testing.wait import wait_until

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, topics={"t": {"partitions": 3}, "u": {"partitions": 1, "replication_factor": 2}}) as made:
        producer = confluent_kafka.Producer(made.client_config())
        for number in range(30):
            producer.produce("t", f"v{number}", key=f"k{number}", partition=number % 3)
        assert producer.flush(10) == 0
        yield made


@pytest.fixture
def run(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*arguments: str, status: int = 0, stdin: str | None = None) -> Result:
        monkeypatch.setenv("MINIKAFKA_BOOTSTRAP", cluster.bootstrap_servers)
        result = CliRunner().invoke(cli, list(arguments), input=stdin, catch_exceptions=False)
        assert result.exit_code == status, result.output
        return result

    return call


def partitions_file(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text(json.dumps({"version": 1, "partitions": list(rows)}))
    return str(path)


# -- leaders and replicas ----------------------------------------------------------------------------------------------


def test_leader_election(run: Any, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    again = run("leader-election", "--election-type", "preferred", "--topic", "t", "--partition", "0")
    assert again.stdout == "Valid replica already elected for partitions t-0\n"
    preferred = cluster.partition("t", 0).replicas[0]
    cluster.broker(preferred).restart()
    cluster.wait_healthy()
    path = partitions_file(tmp_path / "p.json", {"topic": "t", "partition": 0})
    moved = run("leader-election", "--election-type", "PREFERRED", "--path-to-json-file", path)
    assert moved.stdout == "Successfully completed leader election (PREFERRED) for partitions t-0\n"
    assert cluster.leader("t", 0) == preferred
    none = run("leader-election", "--election-type", "preferred", "--topic", "no", "--partition", "0", status=1)
    assert none.stdout.startswith(
        "Error completing leader election (PREFERRED) for partition: no-0: org.apache.kafka.common.errors.UnknownTopic"
    )
    assert "1 replica(s) could not be elected" in none.stderr
    assert "specify the partitions" in run("leader-election", "--election-type", "preferred", status=2).stderr


def test_reassign_partitions(run: Any, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    replicas = cluster.partition("u", 0).replicas
    other = next(broker.node_id for broker in cluster.brokers if broker.node_id not in replicas)
    plan = partitions_file(tmp_path / "plan.json", {"topic": "u", "partition": 0, "replicas": [other, replicas[0]]})
    (tmp_path / "topics.json").write_text('{"version":1,"topics":[{"topic":"u"}]}')

    text = run(
        "reassign-partitions", "--generate", "--topics-to-move-json-file", str(tmp_path / "topics.json"), "--broker-list", "1,2,3"
    ).stdout
    current, proposed = re.findall(r"^(\{.*\})$", text, re.M)
    assert json.loads(current)["partitions"][0]["replicas"] == replicas
    assert str(cluster.broker(replicas[0]).log_dir) in json.loads(current)["partitions"][0]["log_dirs"]
    assert len(set(json.loads(proposed)["partitions"][0]["replicas"])) == 2

    started = run("reassign-partitions", "--execute", "--reassignment-json-file", plan, "--throttle", "100000000").stdout
    assert "Save this to use as the --reassignment-json-file option during rollback" in started
    assert started.endswith("Successfully started partition reassignment for u-0\n")
    cluster.wait_until(lambda: cluster.partition("u", 0).replicas == [other, replicas[0]], "the move")
    done = run("reassign-partitions", "--verify", "--reassignment-json-file", plan).stdout
    assert "Reassignment of partition u-0 is completed." in done and "Clearing topic-level throttles on topic u" in done
    assert "throttled" not in run("configs", "--describe", "--entity-type", "topics", "--entity-name", "u").stdout
    assert run("reassign-partitions", "--list").stdout == "No partition reassignments found.\n"
    assert "None of the specified" in run("reassign-partitions", "--cancel", "--reassignment-json-file", plan).stdout
    bad = partitions_file(tmp_path / "bad.json", {"topic": "u", "partition": 0, "replicas": [1, 1]})
    assert "twice" in run("reassign-partitions", "--execute", "--reassignment-json-file", bad, status=2).stderr
    missing = partitions_file(tmp_path / "missing.json", {"topic": "u", "partition": 7, "replicas": [1]})
    assert "u-7" in run("reassign-partitions", "--execute", "--reassignment-json-file", missing, status=1).stderr


def test_a_plan_spreads_leaders_and_racks() -> None:
    current = {("t", index): [1, 2] for index in range(6)}
    plan = propose(current, {1: "a", 2: "b", 3: "a", 4: "b"}, rack_aware=True)
    racks = {1: "a", 2: "b", 3: "a", 4: "b"}
    assert all(len({racks[n] for n in replicas}) == 2 for replicas in plan.values())
    assert {replicas[0] for replicas in plan.values()} == {1, 2, 3, 4}
    plain = propose(current, {1: None, 2: None, 3: None}, rack_aware=False)
    assert all(len(set(replicas)) == 2 for replicas in plain.values())
    with pytest.raises(ClientError, match="2 replicas"):
        propose(current, {1: None}, rack_aware=False)


# -- looking -----------------------------------------------------------------------------------------------------------


def test_log_dirs(run: Any, cluster: EmbeddedCluster) -> None:
    lines = run("log-dirs", "--describe", "--topic-list", "t", "--broker-list", "1,2").stdout.splitlines()
    assert lines[:2] == ["Querying brokers for log directories information", "Received log directory information from brokers 1,2"]
    report = json.loads(lines[2])
    assert [b["broker"] for b in report["brokers"]] == [1, 2] and report["version"] == 1
    directory = report["brokers"][0]["logDirs"][0]
    assert directory["logDir"] == str(cluster.broker(1).log_dir) and directory["error"] is None
    assert {p["partition"] for p in directory["partitions"]} == {"t-0", "t-1", "t-2"} and directory["partitions"][0]["size"] > 0
    assert "do not exist from --broker-list: 9" in run("log-dirs", "--describe", "--broker-list", "9", status=1).stderr


def test_metadata_quorum(run: Any, cluster: EmbeddedCluster) -> None:
    status = run("metadata-quorum", "describe", "--status").stdout
    assert re.search(rf"^ClusterId:              {re.escape(cluster.cluster_id)}$", status, re.M)
    assert re.search(rf"^LeaderId:               {cluster.controller}$", status, re.M)
    assert re.search(r'^CurrentVoters:          \[\{"id": 1, "endpoints": \["CONTROLLER://127', status, re.M)
    rows = run("metadata-quorum", "describe", "--replication").stdout.splitlines()
    assert rows[0].split() == ["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"]
    assert [row.split()[-1] for row in rows[1:]] == ["Leader", "Follower", "Follower"]
    assert "ms ago" in run("metadata-quorum", "describe", "--replication", "--human-readable").stdout
    assert json.loads(run("metadata-quorum", "describe", "--status", "-o", "json").stdout)[0]["LeaderId"] == cluster.controller


def test_get_offsets(run: Any) -> None:
    assert run("get-offsets", "--topic", "t").stdout == "t:0:10\nt:1:10\nt:2:10\n"
    assert run("get-offsets", "--topic", "t", "--time", "-2", "--partitions", "0,2").stdout == "t:0:0\nt:2:0\n"
    assert run("get-offsets", "--topic-partitions", "t:1-2,u").stdout == "t:1:10\nu:0:0\n"
    assert run("get-offsets", "--topic", "t", "--time", "4102444800000").stdout == ""
    assert run("get-offsets", "--topic", "[tu]", "--time", "max-timestamp").stdout.count("t:") == 3
    assert "Could not match any" in run("get-offsets", "--topic", "zzz", status=1).stderr
    assert "is not a time" in run("get-offsets", "--time", "soon", status=2).stderr
    rules = partition_filter("a:1-3,b.*:7,c:-2,:5-", "--x")
    assert [list(span[:3]) if span else None for _, span in rules] == [[1, 2], [7], [0, 1], [5, 6, 7]]


def test_features_cluster_and_versions(run: Any, cluster: EmbeddedCluster) -> None:
    text = run("features", "describe").stdout
    line = next(line for line in text.splitlines() if "metadata.version" in line)
    assert re.fullmatch(
        r"Feature: metadata.version {26}SupportedMinVersion: 3.3-IV3 {10}SupportedMaxVersion: 4.4-IV2 {10}"
        r"FinalizedVersionLevel: 4.3-IV0 {10}Epoch: \d+",
        line,
    )
    assert run("features", "version-mapping", "--release-version", "4.3").stdout.splitlines()[:2] == [
        "metadata.version=30 (4.3)",
        "kraft.version=1",
    ]
    assert run("features", "upgrade", "--feature", "streams.version=1", "--dry-run").stdout == "streams.version can be upgraded to 1.\n"
    bad = run("features", "upgrade", "--feature", "metadata.version=99", status=1)
    assert bad.stderr.startswith("Could not upgrade metadata.version to 99. ") and "1 out of 1 operation(s) failed." in bad.stderr
    assert run("cluster", "cluster-id").stdout == f"Cluster ID: {cluster.cluster_id}\n"
    rows = run("cluster", "list-endpoints").stdout.splitlines()
    assert rows[0] == "ID         HOST      PORT       RACK       STATE      ENDPOINT_TYPE  "
    assert rows[1] == f"1          127.0.0.1 {cluster.broker(1).port:<10} null       unfenced   broker         "
    assert "77" in run("cluster", "unregister", "--id", "77", status=1).stderr
    apis = run("broker-api-versions").stdout.splitlines()
    assert apis[0] == f"127.0.0.1:{cluster.broker(1).port} (id: 1 rack: null isFenced: false) -> ("
    assert apis[1] == "\tProduce(0): 0 to 13 [usable: 13],"


def test_delete_records(run: Any, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    cluster.create_topic("short")
    run("console-producer", "--topic", "short", stdin="1\n2\n3\n")
    path = partitions_file(tmp_path / "p.json", {"topic": "short", "partition": 0, "offset": 2})
    assert run("delete-records", "--offset-json-file", path).stdout.endswith("partition: short-0\tlow_watermark: 2\n")
    # The log begins in the midst of a batch now, which is as it should be.
    run("console-producer", "--topic", "short", stdin="4\n")
    assert "AUDIT PASS" in run("audit", "--bootstrap-server", cluster.bootstrap_servers, "--topic", "short", "--engine", "local").stdout
    path = partitions_file(tmp_path / "p.json", {"topic": "short", "partition": 0, "offset": 200})
    assert "OffsetOutOfRangeException" in run("delete-records", "--offset-json-file", path, status=1).stdout


# -- records -----------------------------------------------------------------------------------------------------------


def test_console_producer_and_consumer(run: Any, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("console")
    reader = [x for p in ("parse.key=true", "key.separator=:", "parse.headers=true", "null.marker=NIL") for x in ("--reader-property", p)]
    run("console-producer", "--topic", "console", *reader, stdin="h:1,i:2\ta:b:c\nj:\tNIL:x\n")
    show = [x for n in ("key", "headers", "offset", "partition") for x in ("--formatter-property", f"print.{n}=true")]
    result = run("console-consumer", "--topic", "console", "--from-beginning", "--max-messages", "2", *show)
    assert result.stdout == "Partition:0\tOffset:0\th:1,i:2\ta\tb:c\nPartition:0\tOffset:1\tj:\tnull\tx\n"
    assert result.stderr == "Processed a total of 2 messages\n"
    tail = run("console-consumer", "--topic", "console", "--partition", "0", "--offset", "1", "--timeout-ms", "300")
    assert tail.stdout == "x\n"
    assert (
        "No key separator found on line number 1: 'x'"
        in run("console-producer", "--topic", "console", *reader[:2], stdin="x\n", status=1).stderr
    )
    assert "Exactly one of" in run("console-consumer", status=2).stderr


def test_lines_and_records_by_themselves() -> None:
    properties = {**READER_PROPERTIES, "parse.key": "true", "ignore.error": "true"}
    assert parse_line("no separator", 1, properties) == (None, b"no separator", [])
    record = ConsumedRecord("t", 1, 2, -1, None, None, [("h", None)], -1)
    everything = {
        **FORMATTER_PROPERTIES,
        **{name: "true" for name in FORMATTER_PROPERTIES if name.startswith("print.")},
        "null.literal": "-",
    }
    line = formatter_of(everything)(record)
    assert line == b"NO_TIMESTAMP\tPartition:1\tOffset:2\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\th:-\t-\t-\n"


def at_sigterm(*_: Any) -> None:
    """A handler of whoever calls the command."""


def test_verifiable_producer_and_consumer(run: Any, cluster: EmbeddedCluster) -> None:
    cluster.create_topic("verified")
    before = signal.signal(signal.SIGTERM, at_sigterm)
    sent = [
        json.loads(x)
        for x in run("verifiable-producer", "--topic", "verified", "--max-messages", "3", "--repeating-keys", "2").stdout.splitlines()
    ]
    assert [e["name"] for e in sent] == ["startup_complete", *["producer_send_success"] * 3, "shutdown_complete", "tool_data"]
    assert [(e["key"], e["value"], e["offset"]) for e in sent[1:4]] == [("0", "0", 0), ("1", "1", 1), ("0", "2", 2)]
    assert sent[-1]["sent"] == sent[-1]["acked"] == 3 and sent[-1]["target_throughput"] == -1
    arguments = ("verifiable-consumer", "--topic", "verified", "--group-id", "vg", "--max-messages", "3", "--verbose")
    read = [json.loads(x) for x in run(*arguments).stdout.splitlines()]
    names = [e["name"] for e in read]
    assert names[:2] == ["startup_complete", "partitions_assigned"] and names[-2:] == ["partitions_revoked", "shutdown_complete"]
    assert [e["value"] for e in read if e["name"] == "record_data"] == ["0", "1", "2"]
    commits = [e for e in read if e["name"] == "offsets_committed"]
    assert commits[-1]["success"] and commits[-1]["offsets"] == [{"topic": "verified", "partition": 0, "offset": 3}]
    assert signal.signal(signal.SIGTERM, before) is at_sigterm


def test_performance_tools(run: Any, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    cluster.create_topic("fast")
    line = run("producer-perf-test", "--topic", "fast", "--num-records", "500", "--record-size", "50", "--throughput", "-1").stdout
    assert re.fullmatch(
        r"500 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency, \d+ ms 50th, \d+ ms 95th, "
        r"\d+ ms 99th, \d+ ms 99.9th.\n",
        line,
    )
    written = ("producer-perf-test", "--topic", "transacted", "--num-records", "50", "--record-size", "5", "--throughput", "500")
    assert "50 records sent" in run(*written, "--transaction-duration-ms", "20").stdout

    def committed() -> int:
        shown = run("consume", "transacted", "--from-beginning", "--exit-at-end", "--isolation-level", "read_committed").stdout
        return len(shown.splitlines())

    # A commit is answered before its markers are written; each marker takes an offset.
    wait_until(lambda: committed() == 50, "the last transaction", 20)
    assert sum(int(line.rpartition(":")[2]) for line in run("get-offsets", "--topic", "transacted").stdout.splitlines()) > 51
    (tmp_path / "payload").write_text("a\nb\n")
    run(
        "producer-perf-test",
        "--topic",
        "fast",
        "--num-records",
        "9",
        "--payload-file",
        str(tmp_path / "payload"),
        "--command-property",
        "acks=1",
    )
    words = ("producer-perf-test", "--topic", "keyed", "--num-records", "7", "--record-size", "5", "--record-key-range", "3")
    for keys in ("range", "random"):
        run(*words, "--key-distribution", keys)
    read = run("consume", "keyed", "--from-beginning", "--exit-at-end", "-o", "jsonl").stdout.splitlines()
    found = [json.loads(line)["key"] for line in read]
    assert found[:7] == ["0", "1", "2", "0", "1", "2", "0"] and set(found[7:]) <= {"0", "1", "2"}
    assert "needs --record-key-range" in run(*words[:-2], "--key-distribution", "range", status=2).stderr
    head, row = run("consumer-perf-test", "--topic", "fast", "--num-records", "509").stdout.splitlines()
    assert head.startswith("start.time, end.time, data.consumed.in.MB") and row.split(", ")[4] == "509" and len(row.split(", ")) == 10
    short = run("consumer-perf-test", "--topic", "fast", "--num-records", "10000", "--timeout", "100", "--hide-header")
    assert "Exiting before consuming" in short.stderr
    assert Latencies().total().startswith("0 records sent")


def test_consumer_groups(run: Any, cluster: EmbeddedCluster) -> None:
    consumer = confluent_kafka.Consumer(cluster.client_config(**{"group.id": "g", "auto.offset.reset": "earliest", "client.id": "c"}))
    consumer.subscribe(["t"])
    assert consumer.poll(10) is not None
    consumer.commit(asynchronous=False)
    assert "g" in run("consumer-groups", "--list").stdout.splitlines()
    members = run("consumer-groups", "--describe", "--group", "g", "--members", "--verbose").stdout
    assert "t:0,1,2" in members and "#PARTITIONS" in members and "TARGET-ASSIGNMENT" in members
    refused = run("consumer-groups", "--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--execute", status=1)
    assert "is inactive" in refused.stderr
    consumer.close()
    assert "Empty" in run("consumer-groups", "--describe", "--group", "g", "--state").stdout
    run("consumer-groups", "--reset-offsets", "--group", "g", "--topic", "t", "--to-offset", "5", "--execute")
    rows = [line.split() for line in run("consumer-groups", "--describe", "--group", "g").stdout.splitlines() if line.startswith("g")]
    assert rows == [["g", "t", str(n), "5", "10", "5", "-", "-", "-"] for n in range(3)]
    shifted = run("consumer-groups", "--reset-offsets", "--group", "g", "--topic", "t:1", "--shift-by", "-99", "--dry-run")
    assert shifted.stdout.splitlines()[-1].split() == ["g", "t", "1", "0"] and "lower than earliest" in shifted.stderr
    exported = run("consumer-groups", "--reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--export").stdout
    assert exported == "t,0,10\nt,1,10\nt,2,10\n"
    assert "Successful" in run("consumer-groups", "--delete-offsets", "--group", "g", "--topic", "t:0").stdout
    assert run("consumer-groups", "--delete", "--group", "g").stdout == "Deletion of requested consumer groups ('g') was successful.\n"
    assert "GroupIdNotFoundException" in run("consumer-groups", "--delete", "--group", "g", status=1).stderr
    assert "GROUP_ID_NOT_FOUND" in run("consumer-groups", "--describe", "--group", "g", status=1).stderr


def test_share_groups(run: Any, cluster: EmbeddedCluster) -> None:
    """A group without members is made by setting where it begins."""
    refused = run("share-groups", "--describe", "--group", "s", status=1)
    assert refused.stderr == "Error: Share group 's' does not exist.\n"
    planned = run("share-groups", "--reset-offsets", "--group", "s", "--topic", "t", "--to-earliest", "--dry-run").stdout
    assert [line.split() for line in planned.splitlines()[1:]] == [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], *(["s", "t", str(n), "0"] for n in range(3)),
    ]  # fmt: skip
    run("share-groups", "--reset-offsets", "--group", "s", "--topic", "t:0,1", "--to-earliest", "--execute")
    assert run("share-groups", "--list").stdout == "s\n"
    assert run("share-groups", "--list", "--state").stdout == "GROUP           STATE\ns               Empty\n"
    described = run("share-groups", "--describe", "--group", "s")
    assert [line.split() for line in described.stdout.splitlines()[1:]] == [
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"], ["s", "t", "0", "0", "10"], ["s", "t", "1", "0", "10"],
    ]  # fmt: skip
    assert "has no active members" in described.stderr
    assert ["s", "Share", "share"] in [line.split() for line in run("groups", "--list", "--share").stdout.splitlines()]
    forgotten = run("share-groups", "--delete-offsets", "--group", "s", "--topic", "t").stdout
    assert [line.split() for line in forgotten.splitlines()[1:]] == [["TOPIC", "STATUS"], ["t", "Successful"]]
    assert "has no offset information" in run("share-groups", "--describe", "--group", "s").stdout
    assert run("share-groups", "--delete", "--group", "s").stdout == "Deletion of requested share groups ('s') was successful.\n"
    assert "is not a share group" in run("share-groups", "--delete", "--group", "s", status=1).stderr


def test_a_console_of_a_share_group(run: Any) -> None:
    run("share-groups", "--reset-offsets", "--group", "q", "--topic", "t:0", "--to-earliest", "--execute")
    # Partitions that are new to the group begin at 0 if it knows their topic.
    run("share-groups", "--reset-offsets", "--group", "q", "--topic", "t:1,2", "--to-latest", "--execute")
    words = ("--topic", "t", "--group", "q", "--formatter-property", "print.offset=true", "--formatter-property", "print.delivery=true")

    def offsets(*more: str) -> list[str]:
        return ["\t".join(line.split("\t")[:2]) for line in run("console-share-consumer", *words, *more).stdout.splitlines()]

    assert offsets("--max-messages", "2") == ["Offset:0\tDelivery:1", "Offset:1\tDelivery:1"]
    assert offsets("--max-messages", "1", "--release") == ["Offset:2\tDelivery:1"]
    assert offsets("--max-messages", "1", "--reject") == ["Offset:2\tDelivery:2"]
    assert offsets("--max-messages", "1") == ["Offset:3\tDelivery:1"]
    refused = run("console-share-consumer", *words, "--release", "--reject", status=2)
    assert "At most one of" in refused.stderr
    run("share-groups", "--delete", "--group", "q")


# -- is it well --------------------------------------------------------------------------------------------------------


def test_health_top_and_doctor(run: Any, cluster: EmbeddedCluster) -> None:
    report = json.loads(run("health", "-o", "json", "--brokers", "3").stdout)[0]
    assert report["healthy"] and report["brokers"] == [1, 2, 3] and report["cluster_id"] == cluster.cluster_id
    assert "3 of 4 brokers" in run("health", "--brokers", "4", status=1).stdout
    late = run("health", "--exit-when-healthy", "--timeout", "0.3", "--brokers", "4", status=1)
    assert late.stdout.startswith("Healthy:                         false")
    refused = run("health", "-b", "127.0.0.1:1", "--timeout", "0.2", status=3)
    assert "cannot be reached" in refused.stdout
    text = run("top", "--topic", "t").stdout
    assert "t-2" in text and "under-replicated 0" in text and "\x1b[" not in text
    row = json.loads(run("top", "-n", "2", "--interval", "0.1", "--topic", "t", "-o", "jsonl").stdout.splitlines()[-1])
    assert row["log_end_offset"] == 10 and row["rate"] == 0 and set(row["lag"]) == {"1", "2", "3"}
    assert "error" not in run("doctor").stdout
    refusal = run("doctor", "-b", "127.0.0.1:1,nowhere.invalid:9092", status=3).stdout
    assert "the connection is refused" in refusal and "cannot be resolved" in refusal


def test_a_broker_that_is_down_is_seen(run: Any, cluster: EmbeddedCluster) -> None:
    victim = cluster.leader("t", 0)
    cluster.broker(victim).kill()
    alive = [broker for broker in cluster.brokers if broker.node_id != victim]
    cluster.wait_until(lambda: all(victim not in brokers_of(b.address) for b in alive), "everybody to know that the broker is fenced")
    bad = run("health", status=1).stdout
    assert f"brokers down: {victim}" in bad and "t-0" in bad
    assert f"{victim}!" in run("top", "--topic", "t").stdout
    cluster.repair()
    run("health")


# -- the command itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_can_explain_itself(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0 and result.output.startswith("Usage: ")
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.help


def test_shims_and_completion(run: Any, cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("install-shims", str(tmp_path))
    shim = tmp_path / "kafka-get-offsets.sh"
    assert shim.stat().st_mode & 0o111 and 'minikafka get-offsets "$@"' in shim.read_text()
    assert "--force" in run("install-shims", str(tmp_path), status=1).stderr
    assert "_MINIKAFKA_COMPLETE" in run("completion", "bash").stdout
    for words, expected in (
        ("minikafka get", ["get-offsets"]),
        ("minikafka consume --topic ", ["t", "u"]),
        ("minikafka leader-election --election-type ", ["preferred", "unclean"]),
    ):
        monkeypatch.setenv("_MINIKAFKA_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        monkeypatch.setenv("MINIKAFKA_BOOTSTRAP", cluster.bootstrap_servers)
        found = [line.partition(",")[2] for line in CliRunner().invoke(cli, prog_name="minikafka").stdout.splitlines()]
        assert set(expected) <= set(found), (words, found)


def test_yaml_reads_back() -> None:
    yaml = pytest.importorskip("yaml")
    value = [{"a": 1, "b": [1, 2], "c": {"d": None, "e": "x: y"}, "f": []}, {"a": True, "b": [{"x": 1}, {"y": [3]}], "c": {}, "f": "-"}]
    assert yaml.safe_load(to_yaml(value)) == value


def test_bench_measures_everything_and_leaves_nothing(cluster: EmbeddedCluster, run: Any) -> None:
    options = ["--seconds", "0.05", "--batch-sizes", "1KiB,100000", "--fetch-sizes", "64KiB", "--partitions", "2", "-o", "json"]
    rows = json.loads(run("bench", *options).stdout)
    assert [row["measure"] for row in rows] == [
        "produce 1 KiB acks=1",
        "produce 100 KB acks=1",
        "produce 1 KiB acks=all",
        "produce 100 KB acks=all",
        "consume 64 KiB a fetch",
        "round trip of a record, acks=all",
        "send to receive of a record, acks=all",
    ]
    assert all(row["requests_per_s"] > 0 and 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"] for row in rows)
    # One record a request: its batch, and nothing that was written before.
    last = rows[-1]
    assert last["megabytes_per_s"] * 1e6 / last["requests_per_s"] == pytest.approx(1075, rel=0.2)
    assert "minikafka-bench" not in run("topics", "--list").stdout


@pytest.mark.parametrize(("given", "said"), [("3x", "3x is not a size"), ("", "nothing is not a size"), ("2MB", "is not between")])
def test_bench_refuses_sizes_that_are_none(run: Any, given: str, said: str) -> None:
    assert said in run("bench", "--batch-sizes", given, status=2).output
