"""Dead-letter queues of share groups (KIP-1191) beside Apache Kafka 4.4: same work, same records, topics, configurations and errors."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from helpers.apache_kafka import wait_until
from helpers.asked import Asked
from helpers.ledger import create_topic, silent
from helpers.mixed_cluster import BOTH, KAFKA_NEXT, MINI, MixedCluster

from minikafka.client.share_consumer import ACCEPT, REJECT, RELEASE, ShareConsumer, SharedRecord
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest
from minikafka.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.messages.update_features import UpdateFeaturesRequest

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(600)]
TOPIC, GROUP = 2, 32
SET = 0
#: For an Apache Kafka node on a busy machine.
SLOW_S = 240
PROPERTIES = {
    "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
    "group.share.assignment.interval.ms": "0", "broker.session.timeout.ms": "60000", "group.share.record.lock.duration.ms": "60000",
    "group.share.session.timeout.ms": "60000", "errors.deadletterqueue.auto.create.topics.enable": "true", "num.partitions": "2",
}  # fmt: skip
QUEUE, COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
#: (key, value, headers) of the records of each partition, and what members say to each; a released one is delivered twice.
RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
    (b"k0", b"rejected", []), (b"k1", b"accepted", []), (None, b"released", [("h", b"x")]), (b"k3", None, []), (b"", b"", []),
    (b"k5", b"rejected", [("h", b"1"), ("h", b"2")]), (b"k6", b"accepted", []),
]  # fmt: skip
WORDS = {b"accepted": ACCEPT, b"released": RELEASE}
#: Group, and its configuration.
GROUPS: Mapping[str, dict[str, str]] = {
    "copied": {QUEUE: "dlq.copied", COPY: "true"},
    "bare": {QUEUE: "dlq.bare"},
    "narrow": {QUEUE: "dlq.narrow", COPY: "true"},
    "plain": {QUEUE: "dlq.plain", COPY: "true"},
    "elsewhere": {QUEUE: "elsewhere", COPY: "true"},
    "none": {},
}
#: What a group's configuration is refused for, or not.
CONFIGURATIONS = [
    (QUEUE, ""), (QUEUE, "__internal"), (QUEUE, "bad name"), (QUEUE, "."), (QUEUE, "x" * 250), (QUEUE, "nowhere"), (QUEUE, "dlq.fine"),
    (QUEUE, " dlq.spaces "), (COPY, "true"), (COPY, "no"), (COPY, ""), ("errors.deadletterqueue.group.enable", "true"),
]  # fmt: skip


def altered(asked: Asked, kind: int, name: str, values: Mapping[str, str]) -> tuple[str, str | None]:
    """The error, and its message."""
    request = IncrementalAlterConfigsRequest
    configs = [request.AlterableConfig(name=key, config_operation=SET, value=value) for key, value in values.items()]
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    answer = asked.ask(request(resources=[resource]), 1).responses[0]
    return ErrorCode(answer.error_code).name, answer.error_message


def share_version(asked: Asked, level: int) -> None:
    kind = UpdateFeaturesRequest.FeatureUpdateKey
    up, safe_down = 1, 2
    for upgrade_type in (up, safe_down):
        answer = asked.ask(
            UpdateFeaturesRequest(feature_updates=[kind(feature="share.version", max_version_level=level, upgrade_type=upgrade_type)]), 1
        )
        if answer.error_code == ErrorCode.NONE:
            return
    raise AssertionError(answer)


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "gzip", "linger.ms": 100, "error_cb": silent})
    for partition in range(2):
        for key, value, headers in RECORDS:
            producer.produce("t", key=key, value=value, headers=headers, partition=partition)
    assert producer.flush(30) == 0


async def handle(bootstrap: str, group: str) -> Counter[tuple[int, int]]:
    """Acknowledge everything until nothing is delivered any more; the deliveries of each record, by partition and offset."""
    seen: Counter[tuple[int, int]] = Counter()
    expected = 2 * (len(RECORDS) + sum(value == b"released" for _, value, _ in RECORDS))
    async with ShareConsumer(bootstrap, group) as consumer:
        await consumer.subscribe(["t"])
        while seen.total() < expected:
            record: SharedRecord
            for record in await consumer.poll(500):
                seen[record.partition, record.offset] += 1
                consumer.acknowledge(record, WORDS.get(record.value or b"", REJECT))
        for record in await consumer.poll(500):
            seen[record.partition, record.offset] += 1
    return seen


def letters(bootstrap: str, topic: str, partitions: int, count: int) -> list[Any]:
    """(partition, key, value, headers) of every record of a queue; of its offsets, only the order within a source partition is certain."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest", "error_cb": silent})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[Any] = []

    def read() -> bool:
        found.extend(
            (one.partition(), one.key(), one.value(), one.headers(), one.timestamp()[0])
            for one in consumer.consume(100, 0.2) if one.error() is None
        )  # fmt: skip
        return len(found) >= count

    wait_until(read, SLOW_S, f"{count} records in {topic}")
    consumer.close()
    return sorted(found, key=str)


def ends(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """The end of each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "error_cb": silent})
    found = [consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)[1] for partition in range(partitions)]
    consumer.close()
    return found


def configs(asked: Asked, topic: str) -> Any:
    """Those that a topic has of its own."""
    kind = DescribeConfigsRequest
    wanted = kind.DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=None)
    answer = asked.ask(kind(resources=[wanted], include_synonyms=False, include_documentation=False), 4).results[0]
    of_the_topic = 1
    return {one.name: one.value for one in answer.configs if one.config_source == of_the_topic}


def partitions_of(asked: Asked, topic: str) -> int:
    """How many a topic has; 0 if it is missing."""
    kind = MetadataRequest.MetadataRequestTopic
    answer = asked.ask(MetadataRequest(topics=[kind(name=topic)], allow_auto_topic_creation=False), 12)
    return len(answer.topics[0].partitions)


@contextmanager
def node(kind: str, directory: Path, **properties: str) -> Iterator[MixedCluster]:
    """One node that is broker and controller; `properties` with _ for dots."""
    more = {name.replace("_", "."): value for name, value in properties.items()}
    with MixedCluster(directory, [(1, kind, BOTH)], properties={**PROPERTIES, **more}) as cluster:
        cluster.format(options=["--release-version", "4.4"])
        cluster.start(wait=False)
        cluster.wait_for_brokers(SLOW_S)
        yield cluster


def refusals(kind: str, directory: Path) -> dict[str, Any]:
    """What configurations of groups are answered with, by level of share.version, name and value."""
    with node(kind, directory) as cluster:
        asked = Asked(cluster.bootstrap)
        found = {}
        for level in (1, 2):
            share_version(asked, level)
            for name, value in CONFIGURATIONS:
                found[f"{name}={value} at {level}"] = altered(asked, GROUP, "tried", {name: value})
        return found


def buried(kind: str, directory: Path) -> dict[str, Any]:
    """Deliveries to each group, and what is in the queues."""
    with node(kind, directory) as cluster:
        bootstrap, asked = cluster.bootstrap, Asked(cluster.bootstrap)
        share_version(asked, 2)
        create_topic(bootstrap, "t", 2, 1)
        create_topic(bootstrap, "dlq.narrow", 1, 1, errors_deadletterqueue_group_enable="true")
        create_topic(bootstrap, "dlq.plain", 2, 1)
        produce(bootstrap)
        found: dict[str, Any] = {}
        for group, own in GROUPS.items():
            common = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "2"}
            assert altered(asked, GROUP, group, {**common, **own})[0] == "NONE"
            found[f"deliveries to {group}"] = asyncio.run(handle(bootstrap, group))
        given_up = 2 * sum(WORDS.get(value or b"") != ACCEPT for _, value, _ in RECORDS)
        for queue in ("dlq.copied", "dlq.bare", "dlq.narrow"):
            wait_until(partial(partitions_of, asked, queue), SLOW_S, queue)
            found[queue] = letters(bootstrap, queue, partitions_of(asked, queue), given_up), configs(asked, queue)
        for queue in ("dlq.plain", "elsewhere"):
            found[queue] = partitions_of(asked, queue), configs(asked, queue)
        return found


def denied(kind: str, directory: Path) -> dict[str, Any]:
    """What the group and its queues have when the broker has no right to write into a queue, or to create it. The other queue shows when
    both are done: a record is given up for all groups, one after the other."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with node(kind, directory, authorizer_class_name=authorizer, allow_everyone_if_no_acl_found="true") as cluster:
        bootstrap, asked = cluster.bootstrap, Asked(cluster.bootstrap)
        share_version(asked, 2)
        create_topic(bootstrap, "t", 2, 1)
        create_topic(bootstrap, "dlq.closed", 2, 1, errors_deadletterqueue_group_enable="true")
        produce(bootstrap)
        deny(asked)
        found: dict[str, Any] = {}
        for queue in ("dlq.closed", "dlq.uncreated", "dlq.open"):
            values = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "2", QUEUE: queue}
            assert altered(asked, GROUP, queue, values)[0] == "NONE"
            found[f"deliveries to {queue}"] = asyncio.run(handle(bootstrap, queue))
        given_up = 2 * sum(WORDS.get(value or b"") != ACCEPT for _, value, _ in RECORDS)
        wait_until(partial(partitions_of, asked, "dlq.open"), SLOW_S, "dlq.open")
        found["open"] = letters(bootstrap, "dlq.open", 2, given_up)
        found["closed"] = ends(bootstrap, "dlq.closed", 2)
        assert found["closed"] == [0, 0]
        found["uncreated"] = partitions_of(asked, "dlq.uncreated")
        # Records that cannot get into the queue are archived all the same.
        wait_until(lambda: all(lag(asked, queue) == 0 for queue in ("dlq.closed", "dlq.uncreated")), SLOW_S, "the ends of the groups")
        return found


def deny(asked: Asked) -> None:
    """Nobody may write into one queue, or create another; everybody may do all else."""
    kind = CreateAclsRequest.AclCreation
    on_topic, on_cluster, literal, every, write, create, refuse, allow = 2, 4, 3, 2, 4, 5, 2, 3
    rules = [
        (on_topic, "dlq.closed", every, allow), (on_topic, "dlq.closed", write, refuse), (on_topic, "dlq.uncreated", every, allow),
        (on_topic, "dlq.uncreated", create, refuse), (on_cluster, "kafka-cluster", every, allow),
        (on_cluster, "kafka-cluster", create, refuse),
    ]  # fmt: skip
    answer = asked.ask(
        CreateAclsRequest(creations=[
            kind(
                resource_type=resource, resource_name=name, resource_pattern_type=literal, principal="User:ANONYMOUS", host="*",
                operation=operation, permission_type=permission,
            )
            for resource, name, operation, permission in rules
        ]),
        3,
    )  # fmt: skip
    assert [one.error_code for one in answer.results] == [0] * len(rules)


def lag(asked: Asked, group: str) -> int:
    """Records that the group has not done with; -1 if some partition has no state yet."""
    kind = DescribeShareGroupOffsetsRequest
    request = kind(groups=[kind.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)])
    lags = [one.lag for topic in asked.ask(request, 1).groups[0].topics for one in topic.partitions]
    return sum(lags) if len(lags) == 2 and min(lags) >= 0 else -1


@pytest.mark.parametrize("told", [refusals, buried, denied])
def test_dead_letters_are_those_of_apache_kafka(told: Callable[[str, Path], dict[str, Any]], tmp_path: Path) -> None:
    ours, theirs = (told(kind, tmp_path / kind) for kind in (MINI, KAFKA_NEXT))
    assert ours.keys() == theirs.keys()
    assert {what: (ours[what], expected) for what, expected in theirs.items() if ours[what] != expected} == {}
