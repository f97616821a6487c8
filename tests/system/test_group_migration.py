"""Java's consumer of both protocols and librdkafka's classic one in one group, which changes its protocol under them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from helpers.apache_kafka import java

from minikafka.testing.cluster import ProcessCluster
from minikafka.testing.wait import LoadAdjustedDeadline

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]
PARTITIONS, RECORDS = 6, 300
EVERYTHING = set(range(PARTITIONS))


class JavaMember:
    """org.apache.kafka.tools.VerifiableConsumer: what it owns and has read, as it prints it."""

    def __init__(self, bootstrap: str, protocol: str, output: Path) -> None:
        self._path = output
        arguments = ["--bootstrap-server", bootstrap, "--topic", "t", "--group-id", "g", "--reset-policy", "earliest"]
        arguments += ["--group-protocol", protocol]
        if protocol == "classic":
            arguments += ["--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"]
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                [*java(heap_mb=128), "org.apache.kafka.tools.VerifiableConsumer", *arguments], stdout=file, stderr=file
            )

    def events(self) -> list[dict[str, Any]]:
        found = []
        for line in self._path.read_text(errors="replace").splitlines():
            if line.startswith("{"):
                found.append(json.loads(line))
        return found

    def last_lines(self) -> str:
        return "\n".join(self._path.read_text(errors="replace").splitlines()[-30:])

    def owned(self) -> set[int]:
        owned: set[int] = set()
        for event in self.events():
            found = {entry["partition"] for entry in event.get("partitions", ()) if "partition" in entry}
            if event["name"] == "partitions_assigned":
                owned |= found
            elif event["name"] == "partitions_revoked":
                owned -= found
        return owned

    def read(self) -> int:
        return sum(event["count"] for event in self.events() if event["name"] == "records_consumed")

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@contextmanager
def started(*arguments: Any) -> Iterator[JavaMember]:
    member = JavaMember(*arguments)
    try:
        yield member
    finally:
        member.process.kill()
        member.process.wait()


class Native:
    """librdkafka's consumer."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"partition.assignment.strategy": "cooperative-sticky", "auto.offset.reset": "earliest"}
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "session.timeout.ms": 10_000, **settings})
        self.consumer.subscribe(["t"])

    def owned(self) -> set[int]:
        self.consumer.poll(0.05)
        return {entry.partition for entry in self.consumer.assignment()}


def wait_for(condition: Callable[[], bool], what: str, members: list[JavaMember]) -> None:
    deadline = LoadAdjustedDeadline(60)
    while not condition():
        assert not deadline.is_over, "\n\n".join([f"waited for: {what}", *(member.last_lines() for member in members)])
        time.sleep(0.05)


def type_of(bootstrap: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_consumer_groups().result(10)
    return next((str(group.type).rpartition(".")[2] for group in found.valid if group.group_id == "g"), "")


def is_shared(*owned: set[int]) -> bool:
    union = set[int]().union(*owned)
    return union == EVERYTHING and sum(map(len, owned)) == PARTITIONS and all(owned)


def test_members_of_both_protocols_share_a_group(tmp_path: Path) -> None:
    """The members join one after the other: the assignments of librdkafka's sticky leader carry user data, and a group that has some
    is not upgraded, as on Apache Kafka."""
    with (
        ProcessCluster(1, properties={"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}) as cluster,
        ExitStack() as members,
    ):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        a = members.enter_context(started(cluster.bootstrap, "classic", tmp_path / "a"))
        wait_for(lambda: is_shared(a.owned()), "the classic one has everything", [a])
        b = members.enter_context(started(cluster.bootstrap, "consumer", tmp_path / "b"))
        wait_for(lambda: is_shared(a.owned(), b.owned()), "both protocols share", [a, b])
        native = Native(cluster.bootstrap)
        wait_for(lambda: is_shared(a.owned(), b.owned(), native.owned()), "all three share", [a, b])
        assert type_of(cluster.bootstrap) == "CONSUMER"
        b.end()
        wait_for(lambda: is_shared(a.owned(), native.owned()), "the classic ones share", [a, b])
        assert type_of(cluster.bootstrap) == "CLASSIC"
        native.consumer.close()
        wait_for(lambda: is_shared(a.owned()), "one has everything", [a, b])
