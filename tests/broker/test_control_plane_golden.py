"""The bytes that Apache Kafka's clients sent and what our broker and controller answer, against what Kafka 4.3 answered."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import metadata_logs
from helpers.control_plane import ControlPlane, Exchange, ask, exchanges

from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.records.metadata_records import NoOpRecord

#: Offsets of the golden log: before the hand-made client created topics, before it deleted them, and before it set quotas.
BEFORE_CREATION, BEFORE_DELETION, AFTER_DELETION = 50, 97, 103
#: Topic properties that Apache Kafka 4.3, which wrote the golden answers, does not have.
SINCE_4_4 = {"errors.deadletterqueue.group.enable", "max.decompressed.message.bytes", "remote.copy.lag.bytes", "remote.copy.lag.ms"}


def golden_records(end_offset: int) -> list[Any]:
    """The golden node's log; control records are stood in for by no-ops, so that offsets are its own."""
    path = metadata_logs.directory("kraft-standalone/stopped") / "00000000000000000000.log"
    records: list[Any] = [NoOpRecord() for _ in range(end_offset)]
    for offset, _, record, _ in metadata_logs.records(path):
        if offset < end_offset:
            records[offset] = record
    return records


async def answer(plane: ControlPlane, exchange: Exchange) -> bytes:
    dispatcher, listener = (plane.controller_dispatcher, "CONTROLLER") if exchange.on_controller else (plane.dispatcher, "PLAINTEXT")
    return await ask(dispatcher, listener, exchange.request)


async def make_topics(plane: ControlPlane) -> None:
    """The topics that the hand-made client had created before, one for each version of CreateTopics."""
    made = [CreateTopicsRequest.CreatableTopic(name=f"made-{version}", num_partitions=2, replication_factor=1) for version in range(2, 8)]
    await plane.request(CreateTopicsRequest(topics=made))


def leave_out_new_properties(topic: Any) -> None:
    topic.configs = topic.configs and [entry for entry in topic.configs if entry.name not in SINCE_4_4]


def some(name: str, **options: Any) -> list[Any]:
    found = exchanges(name, **options)
    assert found
    return [pytest.param(exchange, id=f"{name}-v{exchange.version}-{index}") for index, exchange in enumerate(found)]


SAME_BYTES = [
    (BEFORE_CREATION, some("60-DescribeCluster") + some("60-DescribeCluster", origin="java client")),
    (BEFORE_CREATION, some("62-BrokerRegistration") + some("63-BrokerHeartbeat") + some("67-AllocateProducerIds")),
    (BEFORE_CREATION, some("56-AlterPartition") + some("64-UnregisterBroker") + some("57-UpdateFeatures")),
    (BEFORE_CREATION, some("44-IncrementalAlterConfigs") + some("33-AlterConfigs")),
    (BEFORE_CREATION, some("45-AlterPartitionReassignments") + some("49-AlterClientQuotas")),
    (BEFORE_CREATION, some("75-DescribeTopicPartitions", origin="java client")),
    (AFTER_DELETION, some("75-DescribeTopicPartitions")),
]


@pytest.mark.parametrize(("end_offset", "exchange"), [pytest.param(end, p.values[0], id=p.id) for end, ps in SAME_BYTES for p in ps])
async def test_the_same_bytes_as_kafka(end_offset: int, exchange: Exchange) -> None:
    plane = ControlPlane(golden_records(end_offset))
    got = await answer(plane, exchange)
    assert exchange.decode(got) == exchange.decode(exchange.response)
    assert got == exchange.response


@pytest.mark.parametrize("exchange", some("malformed", origin="malformed"))
async def test_requests_that_make_no_sense(exchange: Exchange) -> None:
    plane = ControlPlane(golden_records(BEFORE_CREATION))
    got, expected = exchange.decode(await answer(plane, exchange)), exchange.decode(exchange.response)
    for topic in (*getattr(got, "topics", ()), *getattr(expected, "topics", ())):
        if hasattr(topic, "topic_id"):
            topic.topic_id = bytes(16)
        if hasattr(topic, "configs"):
            leave_out_new_properties(topic)
    assert got == expected


@pytest.mark.parametrize("exchange", some("03-Metadata"))
async def test_metadata(exchange: Exchange) -> None:
    """Topics come in another order when all are asked for, and the hand-made client's missing topic is not created."""
    plane = ControlPlane(golden_records(BEFORE_CREATION), {"auto.create.topics.enable": "false"})
    got, expected = exchange.decode(await answer(plane, exchange)), exchange.decode(exchange.response)
    topics_before = set(plane.metadata.image.topics_by_name)
    ours = {(topic.name, topic.topic_id): topic for topic in got.topics}
    theirs = {(topic.name, topic.topic_id): topic for topic in expected.topics if topic.name in topics_before or topic.error_code}
    assert theirs
    if len(expected.topics) <= 2:
        assert got == expected
    else:
        assert {key: ours[key] for key in theirs} == theirs
        assert (got.brokers, got.cluster_id, got.controller_id) == (expected.brokers, expected.cluster_id, expected.controller_id)


@pytest.mark.parametrize("exchange", some("19-CreateTopics"))
async def test_create_topics(exchange: Exchange) -> None:
    plane = ControlPlane(golden_records(BEFORE_CREATION))
    got, expected = exchange.decode(await answer(plane, exchange)), exchange.decode(exchange.response)
    for topic in (*got.topics, *expected.topics):
        assert topic.error_code or exchange.version < 7 or topic.topic_id != bytes(16)
        topic.topic_id = bytes(16)
        leave_out_new_properties(topic)
    assert got == expected


@pytest.mark.parametrize("exchange", some("20-DeleteTopics"))
async def test_delete_topics(exchange: Exchange) -> None:
    """Kafka shuffles the answers; the id that was of a topic in the golden run has been deleted there before."""
    plane = ControlPlane(golden_records(BEFORE_CREATION))
    await make_topics(plane)
    got, expected = exchange.decode(await answer(plane, exchange)), exchange.decode(exchange.response)

    def rows(response: Any) -> list[Any]:
        return sorted((r.name or "", r.error_code, r.error_message, r.topic_id if r.error_code else b"") for r in response.responses)

    assert rows(got) == rows(expected)


@pytest.mark.parametrize("exchange", some("37-CreatePartitions"))
async def test_create_partitions(exchange: Exchange) -> None:
    plane = ControlPlane(golden_records(BEFORE_CREATION))
    await make_topics(plane)
    got, expected = exchange.decode(await answer(plane, exchange)), exchange.decode(exchange.response)
    assert sorted(map(repr, got.results)) == sorted(map(repr, expected.results))


@pytest.mark.parametrize("exchange", some("43-ElectLeaders"))
async def test_elect_leaders(exchange: Exchange) -> None:
    plane = ControlPlane(golden_records(AFTER_DELETION))
    got, expected = exchange.decode(await answer(plane, exchange)), exchange.decode(exchange.response)
    assert sorted(map(repr, got.replica_election_results)) == sorted(map(repr, expected.replica_election_results))
    assert got.error_code == expected.error_code


@pytest.mark.parametrize("exchange", some("32-DescribeConfigs") + some("32-DescribeConfigs", origin="librdkafka"))
async def test_describe_configs(exchange: Exchange) -> None:
    """Documentation is in our words; Kafka's order is that of a hash table."""
    plane = ControlPlane(golden_records(113 if b"rd" in exchange.request[-12:] else AFTER_DELETION))
    got, expected = exchange.decode(await answer(plane, exchange)), exchange.decode(exchange.response)
    assert [(r.error_code, r.error_message, r.resource_name) for r in got.results] == [
        (r.error_code, r.error_message, r.resource_name) for r in expected.results
    ]
    for ours, theirs in zip(got.results, expected.results, strict=True):
        own = {entry.name: entry for entry in ours.configs}
        for entry in theirs.configs:
            if exchange.decode(exchange.response).results[0].resource_name == "missing":
                own[entry.name].documentation = entry.documentation
            assert own.pop(entry.name) == entry
        assert own.keys() <= SINCE_4_4


def about_topics(exchange: Exchange) -> bool:
    """Whether the request in an envelope is not DescribeQuorum (key 55), which is the quorum's own business."""
    return b"\x00\x37" not in exchange.request[11:15]


@pytest.mark.parametrize("exchange", [p for p in some("58-Envelope", origin="kafka broker") if about_topics(p.values[0])])
async def test_envelopes_of_kafkas_brokers(exchange: Exchange) -> None:
    plane = ControlPlane(golden_records(BEFORE_CREATION))
    got, expected = exchange.decode(await answer(plane, exchange)), exchange.decode(exchange.response)
    assert got == expected


@pytest.mark.parametrize("exchange", some("48-DescribeClientQuotas"))
async def test_quotas(exchange: Exchange) -> None:
    plane = ControlPlane(golden_records(113))
    assert await answer(plane, exchange) == exchange.response


async def test_config_resources() -> None:
    plane = ControlPlane(golden_records(AFTER_DELETION))
    for exchange in exchanges("74-ListConfigResources"):
        got, expected = exchange.decode(await answer(plane, exchange)), exchange.decode(exchange.response)
        assert sorted(map(repr, got.config_resources)) == sorted(map(repr, expected.config_resources))
