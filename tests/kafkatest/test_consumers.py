"""Follows Apache Kafka's `client/consumer_test.py` and `client/share_consumer_test.py`: members of a group, and brokers, are bounced while
records are written. The committed offsets never lie beyond what was read; nothing that was acknowledged is delivered again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence, Set
from pathlib import Path

import pytest
from helpers.shell import minikafka
from kafkatest.verifiable import Consumer, Producer, ShareConsumer, bounce, create, in_sync

from minikafka.testing.cluster import ProcessCluster

pytestmark = [pytest.mark.java, pytest.mark.kafkatest, pytest.mark.timeout(500)]
TOPIC, PARTITIONS = "test_topic", 6
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
HARD = pytest.mark.parametrize("hard", [False, True], ids=["clean_bounce", "hard_bounce"])


def members(
    stack: contextlib.ExitStack, cluster: ProcessCluster, directory: Path, protocol: str, *, static: bool = False
) -> list[Consumer]:
    """Three members, each of which has partitions."""
    found = []
    for number in range(3):
        identity = ("--group-instance-id", f"instance-{number}") if static else ()
        member = Consumer(directory, cluster.bootstrap, TOPIC, f"consumer-{number}", *identity, protocol=protocol)
        found.append(stack.enter_context(member.running()))
    balanced(found)
    return found


def balanced(group: Sequence[Consumer]) -> None:
    """Wait until the members own every partition, each one once."""

    def is_balanced() -> bool:
        owned = sorted(partition for member in group for partition in member.assignment)
        return owned == list(range(PARTITIONS)) and all(member.assignment for member in group)

    group[0].wait_for(is_balanced, f"a balanced assignment, not {[member.assignment for member in group]}")


def everything_is_read(group: Sequence[Consumer], producer: Producer) -> None:
    wanted = set(producer.acknowledged)
    group[0].wait_for(lambda: wanted <= {place for member in group for place in member.records}, "every acknowledged record")


def commits_are_of_what_was_read(group: Sequence[Consumer]) -> None:
    """No commit is beyond the last record that some member has read (EventHandler.handle_offsets_committed)."""
    read: dict[tuple[str, int], int] = {}
    for member in group:
        for topic, partition, offset in member.records:
            read[topic, partition] = max(read.get((topic, partition), -1), offset)
    for member in group:
        for event in member.events("offsets_committed"):
            for place in event["offsets"] if event.get("success") else ():
                assert place["offset"] <= read.get((place["topic"], place["partition"]), -1) + 1, event


@PROTOCOLS
@HARD
def test_consumer_bounce(tmp_path: Path, protocol: str, hard: bool) -> None:
    with ProcessCluster(3, controllers=3) as cluster, contextlib.ExitStack() as stack:
        create(cluster, TOPIC, PARTITIONS)
        producer = Producer(tmp_path, cluster.bootstrap, TOPIC)
        stack.enter_context(producer.running())
        group = members(stack, cluster, tmp_path, protocol)
        for member in group:
            producer.more(100)
            if hard:
                member.kill()
            else:
                member.stop()
            before = len(member.events("partitions_assigned"))
            member.start()
            member.wait_for(lambda member=member, before=before: len(member.events("partitions_assigned")) > before, "an assignment")  # type: ignore[misc]
        producer.more(100)
        producer.stop()
        everything_is_read(group, producer)
        commits_are_of_what_was_read(group)


@PROTOCOLS
@HARD
def test_broker_rolling_bounce(tmp_path: Path, protocol: str, hard: bool) -> None:
    with ProcessCluster(3, controllers=3) as cluster, contextlib.ExitStack() as stack:
        create(cluster, TOPIC, PARTITIONS)
        producer = Producer(tmp_path, cluster.bootstrap, TOPIC)
        stack.enter_context(producer.running())
        group = members(stack, cluster, tmp_path, protocol)
        for node_id in cluster.nodes:
            bounce(cluster, node_id, hard=hard)
            in_sync(cluster, TOPIC)
            producer.more(100)
        producer.stop()
        everything_is_read(group, producer)
        commits_are_of_what_was_read(group)
        assert all(count == 1 for member in group for count in member.records.values()) or hard


@PROTOCOLS
def test_static_consumer_bounce(tmp_path: Path, protocol: str) -> None:
    """A static member that comes back in time costs the others no partition."""
    with ProcessCluster(3, controllers=3) as cluster, contextlib.ExitStack() as stack:
        create(cluster, TOPIC, PARTITIONS)
        producer = Producer(tmp_path, cluster.bootstrap, TOPIC)
        stack.enter_context(producer.running())
        group = members(stack, cluster, tmp_path, protocol, static=True)
        before = [len(member.events("partitions_revoked")) for member in group[1:]]
        # Killed, it would be refused with group.protocol=consumer until its session ends (UNRELEASED_INSTANCE_ID).
        group[0].stop()
        group[0].start()
        producer.more(200)
        producer.stop()
        everything_is_read(group, producer)
        assert [len(member.events("partitions_revoked")) for member in group[1:]] == before


def nothing_is_left(cluster: ProcessCluster, partitions: Set[int]) -> bool:
    """Whether every record of these partitions is acknowledged, those that killed members had, too."""
    told = minikafka("share-groups", "-b", cluster.bootstrap, "--describe", "--group", "shared", "-o", "json")
    return partitions <= {row["partition"] for row in json.loads(told.stdout) if row["lag"] == 0}


@HARD
@pytest.mark.parametrize("target", ["brokers", "members"])
def test_share_group(tmp_path: Path, target: str, hard: bool) -> None:
    with ProcessCluster(3, controllers=3) as cluster, contextlib.ExitStack() as stack:
        create(cluster, TOPIC, PARTITIONS)
        producer = Producer(tmp_path, cluster.bootstrap, TOPIC)
        stack.enter_context(producer.running())
        group = [stack.enter_context(ShareConsumer(tmp_path, cluster.bootstrap, TOPIC, f"share-{number}").running()) for number in range(2)]
        for node_id, member in zip(cluster.nodes, [*group, group[0]], strict=True):
            for each in group:
                each.wait_for(each.is_served, "the first acknowledgement")
            if target == "brokers":
                bounce(cluster, node_id, hard=hard)
                in_sync(cluster, TOPIC)
            else:
                if hard:
                    member.kill()
                else:
                    member.stop()
                member.start()
            producer.more(100)
        producer.stop()
        wanted = set(producer.acknowledged).difference(*(member.unanswered for member in group))
        group[0].wait_for(lambda: wanted <= {place for member in group for place in member.acknowledged}, "every acknowledgement")
        counts = sum((member.acknowledged for member in group), start=group[0].acknowledged - group[0].acknowledged)
        assert {place: count for place, count in counts.items() if count > 1} == {}, "acknowledged, and delivered again"
        group[0].wait_for(lambda: nothing_is_left(cluster, {place[1] for place in producer.acknowledged}), "the share group's lag to be 0")
