"""Groups of the consumer protocol (KIP-848) beside Apache Kafka 4.4: the same requests, good and bad, the same answers and records."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.apache_kafka import NEXT, KafkaBroker, run_tool
from helpers.asked import BEAT, QUICK, Asked, prepare, retry, written
from helpers.migration_story import migrations

from minikafka.core.group.consumer.topics import topic_hash
from minikafka.core.xxh3 import xxh3_64
from minikafka.testing.cluster import ProcessCluster
from minikafka.wire.batch import iterate_batches
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.list_groups import ListGroupsRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest
from minikafka.wire.records.frame import decode_group_key, decode_group_value

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]
def refusals(asked: Asked) -> None:
    """What no group takes."""
    asked.beat("nobody's group", "m", 4)
    asked.beat("leaves nobody's group", "m", -1)
    asked.join("no member id", "", "a")
    asked.join("no group id", "m", "a", group_id="")
    asked.join("an empty instance id", "m", "a", instance_id="")
    asked.join("an empty rack", "m", "a", rack_id="")
    asked.join("no rebalance time-out", "m", "a", rebalance_timeout_ms=-1)
    asked.join("owns something", "m", "a", owned={"a": [0]})
    asked.join("no subscription", "m", subscribed_topic_names=None)
    asked.join("an epoch below all", "m", "a", epoch=-3)
    asked.join("leaves for a while without an instance", "m", "a", epoch=-2)
    asked.join("an unknown assignor", "m", "a", server_assignor="best")
    bad = asked.join("a bad pattern", "m", subscribed_topic_names=None, subscribed_topic_regex="a(")
    # The words of the library differ.
    asked.heard[-1] = f"a bad pattern: {bad.error_code}"


def membership(asked: Asked) -> None:
    """Joins, rebalances, fencing, leaving."""
    asked.join("m1 joins", "m1", "a")
    asked.beat("m1 goes on", "m1", 2)
    asked.beat("m1 from the future", "m1", 9)
    asked.join("m2 joins", "m2", "a", rack_id="r", server_assignor="uniform")
    asked.beat("m1 is told", "m1", 2, owned={"a": [0, 1, 2, 3]})
    asked.beat("m2 waits", "m2", 3)
    asked.beat("m1 gives up", "m1", 2, owned={"a": [0, 1]})
    asked.beat("m1 repeats", "m1", 2, owned={"a": [0, 1]})
    asked.beat("m1 repeats with more", "m1", 2, owned={"a": [0, 1, 2]})
    asked.beat("m2 takes", "m2", 3)
    asked.beat("m2 tells all", "m2", 3, rebalance_timeout_ms=60_000, subscribed_topic_names=["a"], owned={"a": [2, 3]})
    asked.join("s1 joins", "s1", "a", "b", instance_id="i1")
    asked.join("s2 wants its place", "s2", "a", "b", instance_id="i1")
    asked.beat("s1 leaves for a while", "s1", -2, instance_id="i1")
    asked.join("s2 takes its place", "s2", "a", "b", instance_id="i1")
    asked.beat("s1 is fenced", "s1", 4, instance_id="i1")
    asked.beat("nobody's instance", "s1", 4, instance_id="i9")
    asked.beat("s2 leaves for good", "s2", -1, instance_id="i1")
    asked.beat("m2 leaves", "m2", -1)
    asked.beat("m2 is gone", "m2", 3)


def offsets(asked: Asked) -> None:
    """Commits and reads need the epoch."""
    epoch = asked.beat("m1 takes all", "m1", 3, owned={"a": [0, 1]}).member_epoch
    asked.beat("m1 has all", "m1", epoch, owned={"a": [0, 1, 2, 3]})
    topic, part = OffsetCommitRequest.OffsetCommitRequestTopic, OffsetCommitRequest.OffsetCommitRequestPartition
    for member, at, version, partitions in (
        ("m1", epoch, 9, [0, 3]), ("m1", epoch - 1, 9, [0]), ("m1", epoch - 1, 9, [0, 3]), ("m1", epoch + 1, 9, [0]), ("m9", epoch, 9, [0]),
        ("", -1, 9, [0]), ("m1", epoch, 8, [0]),
    ):  # fmt: skip
        parts = [part(partition_index=index, committed_offset=5, committed_metadata="") for index in partitions]
        topics = [topic(name="a", partitions=parts)]
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=at, member_id=member, topics=topics)
        asked.tell(f"commit of {member} at {at - epoch} v{version}", request, version)
    fetch = OffsetFetchRequest
    for who, at in (("m1", epoch), ("m1", epoch - 1), ("m9", epoch), (None, -1)):
        topics = [fetch.OffsetFetchRequestTopics(name="a", partition_indexes=[0, 1])]
        groups = [fetch.OffsetFetchRequestGroup(group_id="g", member_id=who, member_epoch=at, topics=topics)]
        asked.tell(f"fetch of {who} at {at - epoch}", fetch(groups=groups), 9)


def administration(asked: Asked) -> None:
    """What tools see of it."""
    asked.tell("described", ConsumerGroupDescribeRequest(group_ids=["g", "none", ""]), 1)
    asked.tell("described as classic", DescribeGroupsRequest(groups=["g", "none"]), 6)
    asked.tell("listed", ListGroupsRequest(states_filter=["stable"], types_filter=["consumer"]), 5)
    asked.tell("listed as classic", ListGroupsRequest(types_filter=["classic"]), 5)
    asked.tell("not empty", DeleteGroupsRequest(groups_names=["g"]), 2)


def patterns(asked: Asked) -> None:
    """A group by pattern; the resolution comes when it comes."""
    asked.join("r1 joins", "r1", group_id="r", subscribed_topic_names=None, subscribed_topic_regex="a|b")

    def is_resolved() -> bool:
        fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_regex": "a|b", "topic_partitions": []}
        answer = asked.ask(BEAT(group_id="r", member_id="r1", member_epoch=0, **fields), 1)  # type: ignore[arg-type]
        return bool(answer.member_epoch == 2)

    retry(is_resolved)
    both = {"a": [0, 1, 2, 3], "b": [0, 1]}
    asked.beat("r1 has both", "r1", 2, group_id="r", rebalance_timeout_ms=60_000, subscribed_topic_regex="a|b", owned=both)
    asked.tell("described", ConsumerGroupDescribeRequest(group_ids=["r"]), 1)
    asked.beat("r1 leaves", "r1", -1, group_id="r")


def ending(asked: Asked) -> None:
    """An empty group gives way to a classic one, which gives way to a consumer group, which is deleted."""
    asked.beat("m1 leaves", "m1", -1)
    asked.tell("is empty", ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
    asked.join("p1 joins", "p1", "b", group_id="p")
    asked.beat("p1 wants another assignor", "p1", 2, group_id="p", server_assignor="range")
    asked.beat("p1 wants the one before", "p1", 3, group_id="p", server_assignor="uniform")
    asked.beat("p1 leaves", "p1", -1, group_id="p")
    asked.join("p2 comes at once", "p2", "b", group_id="p")
    asked.beat("p2 leaves", "p2", -1, group_id="p")
    asked.join("o1 joins", "o1", "b", group_id="o", server_assignor="range")
    asked.beat("o1 leaves", "o1", -1, group_id="o")
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\1b\0\0\0\0")
    classic = JoinGroupRequest(
        group_id="o", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=[protocol]
    )
    answer = asked.ask(classic, 3)
    asked.heard.append(f"a classic member comes: {answer.error_code} {answer.generation_id}")
    asked.tell("deleted", DeleteGroupsRequest(groups_names=["g"]), 2)
    asked.tell("is gone", ConsumerGroupDescribeRequest(group_ids=["g"]), 1)


def story(bootstrap: str) -> Asked:
    asked = Asked(bootstrap)
    prepare(asked)
    for part in (refusals, membership, offsets, administration, patterns, ending, migrations):
        part(asked)
    return asked


def hashes(directory: Path) -> set[int]:
    """Hashes of subscribed topics in the log."""
    found = set()
    for batch in iterate_batches(memoryview((directory / "00000000000000000000.log").read_bytes())):
        for record in batch.records():
            key = decode_group_key(bytes(record.key or b""))
            if type(key).__name__ == "ConsumerGroupMetadataKey" and record.value is not None:
                found.add(decode_group_value(key, bytes(record.value)).metadata_hash)
    return found


class Topic:
    """A topic of one replica on a broker without a rack."""

    def __init__(self, name: str, topic_id: bytes, partition_count: int) -> None:
        self.name, self.topic_id, self.partition_count = name, topic_id, partition_count

    def racks(self, index: int) -> list[str]:
        return ["here"]


#: Patterns are resolved in the background: how often their member is answered before depends on the machine.
PATTERNS = "'group_id': 'r'"


def apart(batches: list[str]) -> tuple[list[str], set[str]]:
    """All batches but those of the group by pattern, and that one's records, each once."""
    of_patterns = [batch for batch in batches if PATTERNS in batch]
    return [batch for batch in batches if PATTERNS not in batch], set(" | ".join(of_patterns).split(" | "))


#: From here on Apache Kafka writes in one batch what is written in two here.
END = "ConsumerGroupMetadataKey {'group_id': 'o'} None"


def test_answers_and_records_are_those_of_apache_kafka(tmp_path: Path) -> None:
    properties = {**QUICK, "broker.rack": "here", "group.initial.rebalance.delay.ms": "0"}
    with ProcessCluster(1, directory=tmp_path / "ours", properties=properties) as cluster:
        ours = story(cluster.bootstrap)
        our_directory = next((tmp_path / "ours").rglob("__consumer_offsets-0"))
        (our_records, our_patterns), our_hashes = apart(written(ours, our_directory)), hashes(our_directory)
    kafka = KafkaBroker(tmp_path / "kafka", properties, version=NEXT)
    kafka.format()
    with kafka.running():
        theirs = story(kafka.bootstrap)
    their_directory = kafka.data / "__consumer_offsets-0"
    assert ours.heard == theirs.heard
    their_records, their_patterns = apart(written(theirs, their_directory))
    assert our_patterns == their_patterns
    ends = next(number for number, batch in enumerate(our_records) if END in batch)
    assert our_records[:ends] == their_records[:ends]
    assert sorted(" | ".join(our_records[ends:]).split(" | ")) == sorted(" | ".join(their_records[ends:]).split(" | "))
    for asked, found in ((ours, our_hashes), (theirs, hashes(their_directory))):
        topics = {name: topic_hash(Topic(name, asked.ids[name], count)) for name, count in (("a", 4), ("b", 2))}
        both = [topics["a"].to_bytes(8, "little", signed=True), topics["b"].to_bytes(8, "little", signed=True)]
        assert found == {0, xxh3_64(both[0]), xxh3_64(both[1]), xxh3_64(b"".join(both))}


def test_the_java_consumer_reads_and_its_tool_describes() -> None:
    with ProcessCluster(1, properties={"offsets.topic.num.partitions": "1"}) as cluster:
        server = ["--bootstrap-server", cluster.bootstrap]
        run_tool("org.apache.kafka.tools.TopicCommand", *server, "--create", "--topic", "j", "--partitions", "3")
        run_tool(
            "org.apache.kafka.tools.ProducerPerformance", "--topic", "j", "--num-records", "3000", "--record-size", "10",
            "--throughput", "-1", "--producer-props", f"bootstrap.servers={cluster.bootstrap}",
        )  # fmt: skip
        read = run_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", *server, "--topic", "j", "--group", "java", "--from-beginning",
            "--max-messages", "3000", "--timeout-ms", "30000", "--consumer-property", "group.protocol=consumer",
        )  # fmt: skip
        assert "Processed a total of 3000 messages" in read
        group = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
        lines = run_tool(group, *server, "--describe", "--group", "java").splitlines()
        assert sum(int(line.split()[3]) for line in lines if line.startswith("java ")) == 3000
        listed = run_tool(group, *server, "--list", "--type", "--state").splitlines()
        assert ["java", "Consumer", "Empty"] in [line.split() for line in listed]
        assert "successful" in run_tool(group, *server, "--delete", "--group", "java")
