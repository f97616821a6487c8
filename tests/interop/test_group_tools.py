"""minikafka's tools of groups beside those of Apache Kafka 4.4: groups of three types with members in them, the same output."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest
from helpers.apache_kafka import NEXT, run_tool, wait_until
from helpers.ledger import create_topic
from helpers.shell import minikafka

from minikafka.client.share_consumer import ShareConsumer
from minikafka.testing.cluster import ProcessCluster

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(400)]
PROPERTIES = {
    "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
    "group.share.session.timeout.ms": "60000", "group.consumer.session.timeout.ms": "60000",
}  # fmt: skip
GROUP_COMMAND, SHARE_COMMAND = "consumer.group.ConsumerGroupCommand", "consumer.group.ShareGroupCommand"


@contextmanager
def member(bootstrap: str, group: str, protocol: str) -> Iterator[None]:
    """A consumer that owns both partitions of t and has committed one."""
    more = {} if protocol == "consumer" else {"session.timeout.ms": 60_000, "group.instance.id": "i"}
    base = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, "client.id": "c", "log_level": 0}
    found = confluent_kafka.Consumer({**base, **more})
    found.subscribe(["t"])

    def is_assigned() -> bool:
        found.poll(0.1)
        return len(found.assignment()) == 2

    wait_until(is_assigned, 60, "an assignment")
    found.commit(offsets=[confluent_kafka.TopicPartition("t", 0, 3)], asynchronous=False)
    try:
        yield
    finally:
        found.close()


@contextmanager
def sharing(bootstrap: str, group: str) -> Iterator[None]:
    """A member of a share group that has its partitions."""
    loop, is_over = asyncio.new_event_loop(), asyncio.Event()
    has_joined = threading.Event()

    async def work() -> None:
        async with ShareConsumer(bootstrap, group, client_id="sharer") as consumer:
            await consumer.subscribe(["t"])
            while not consumer._assigned:
                await consumer.poll(100)
            has_joined.set()
            await is_over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(work(),))
    thread.start()
    try:
        assert has_joined.wait(60)
        yield
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with ProcessCluster(1, properties=PROPERTIES) as cluster:
        create_topic(cluster.bootstrap, "t", 2, 1)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for number in range(10):
            producer.produce("t", f"v{number}", partition=number % 2)
        assert producer.flush(30) == 0
        where = cluster.bootstrap
        with member(where, "modern", "consumer"), member(where, "old", "classic"), sharing(where, "shared"):
            yield where


def lines(text: str) -> list[list[str]]:
    """Words of each line, without the time that the other tool's lines may begin with."""
    return sorted(re.sub(r"^\[[^]]*\] ", "", line).split() for line in text.splitlines() if line.strip())


@pytest.mark.parametrize(
    ("main_class", "name", "words"),
    [
        (GROUP_COMMAND, "consumer-groups", "--list"),
        (GROUP_COMMAND, "consumer-groups", "--list --state"),
        (GROUP_COMMAND, "consumer-groups", "--list --type --state"),
        *(
            (GROUP_COMMAND, "consumer-groups", words)
            for words in (
                "--list --type classic", "--list --type", "--list --state stable,empty", "--list --state Stable --type consumer",
                "--describe --all-groups", "--describe --all-groups --state --verbose",
            )
        ),
        *(
            (GROUP_COMMAND, "consumer-groups", f"--describe --group {group}{view}")
            for group in ("modern", "old")
            for view in ("", " --verbose", " --members", " --members --verbose", " --state", " --state --verbose")
        ),
        (GROUP_COMMAND, "consumer-groups", "--describe --all-groups --members"),
        *(
            (SHARE_COMMAND, "share-groups", words)
            for words in (
                "--list", "--list --state", "--describe --group shared", "--describe --group shared --verbose",
                "--describe --group shared --members", "--describe --group shared --members --verbose", "--describe --group shared --state",
                "--describe --group shared --state --verbose",
            )
        ),
        ("GroupsCommand", "groups", "--list"),
        ("GroupsCommand", "groups", "--list --share"),
        ("GroupsCommand", "groups", "--list --consumer"),
        ("GroupsCommand", "groups", "--list --group-type classic"),
    ],
)  # fmt: skip
def test_groups_are_shown_alike(bootstrap: str, main_class: str, name: str, words: str) -> None:
    arguments = ["--bootstrap-server", bootstrap, *words.split()]
    expected = run_tool(f"org.apache.kafka.tools.{main_class}", *arguments, version=NEXT)
    done = minikafka(name, *arguments)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == lines(expected) != []


@pytest.mark.parametrize(
    "words", ["--topic t --to-earliest --execute", "--topic t --to-current --dry-run", "--topic t:1 --to-offset 2 --export"]
)
def test_offsets_of_a_new_group_are_set_alike(bootstrap: str, words: str) -> None:
    arguments = ["--bootstrap-server", bootstrap, "--reset-offsets", "--group", "new"]
    expected = run_tool(f"org.apache.kafka.tools.{GROUP_COMMAND}", *arguments, *words.split(), version=NEXT)
    run_tool(f"org.apache.kafka.tools.{GROUP_COMMAND}", "--bootstrap-server", bootstrap, "--delete", "--group", "new", version=NEXT)
    done = minikafka("consumer-groups", *arguments, *words.split())
    assert done.returncode == 0, done.stderr
    warning = ["WARN:", "No", "action"]
    assert [line for line in lines(done.stdout) if line[:3] != warning] == [line for line in lines(expected) if line[:3] != warning] != []
    minikafka("consumer-groups", "-b", bootstrap, "--delete", "--group", "new")
