"""Injected faults as clients see them, and error answers that mirror their requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from minikafka.testing import EmbeddedBroker
from minikafka.testing.mirror import mirrored_failure, partitions_of, patch_errors, without_partitions
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse
from minikafka.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from minikafka.wire.messages.metadata import MetadataRequest, MetadataResponse
from minikafka.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse
from minikafka.wire.registry import api, apis
from minikafka.wire.types import Array, Variable

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 2, "other": 1}) as made:
        yield made


@pytest.fixture(autouse=True)
def no_faults_left(broker: EmbeddedBroker) -> Iterator[None]:
    yield
    broker.clear_faults()


def produce(broker: EmbeddedBroker, topic: str = "t", partition: int = 0, **settings: Any) -> Any:
    """The error of one record, None when it was acknowledged."""
    outcome: list[Any] = []
    producer = confluent_kafka.Producer(broker.client_config(**{"linger.ms": 0, "retry.backoff.ms": 10, "retries": 0, **settings}))
    producer.produce(topic, b"x", partition=partition, on_delivery=lambda error, _: outcome.append(error))
    producer.flush(10)
    return outcome[0]


def end_of(broker: EmbeddedBroker, topic: str = "t", partition: int = 0) -> int:
    return int(broker.replicas(topic, partition)[1]["log_end_offset"])


def test_an_error_before_the_work_writes_nothing(broker: EmbeddedBroker) -> None:
    end = end_of(broker)
    with broker.fault("Produce", topic="t", error="MESSAGE_TOO_LARGE") as fault:
        assert produce(broker).name() == "MSG_SIZE_TOO_LARGE"
        assert fault.hits == 1
    assert end_of(broker) == end
    assert produce(broker) is None


def test_an_error_after_the_work_has_written(broker: EmbeddedBroker) -> None:
    end = end_of(broker)
    with broker.fault("Produce", topic="t", error="MESSAGE_TOO_LARGE", after_work=True):
        assert produce(broker).name() == "MSG_SIZE_TOO_LARGE"
    assert end_of(broker) == end + 1


def test_only_the_named_partition_and_topic_fail(broker: EmbeddedBroker) -> None:
    with broker.fault("Produce", topic="t", partition=1, error="CORRUPT_MESSAGE", count=0) as fault:
        assert produce(broker, partition=0) is None
        assert produce(broker, "other") is None
        assert fault.hits == 0
        assert produce(broker, partition=1) is not None


def test_only_the_named_client_fails(broker: EmbeddedBroker) -> None:
    with broker.fault("Produce", client_id="victim", error="CORRUPT_MESSAGE"):
        assert produce(broker) is None
        assert produce(broker, **{"client.id": "victim"}) is not None


def test_the_count_is_a_budget(broker: EmbeddedBroker) -> None:
    with broker.fault("Produce", error="NOT_LEADER_OR_FOLLOWER", count=2) as fault:
        assert produce(broker, retries=5) is None
        assert fault.hits == 2


def test_a_fetch_error_reaches_the_consumer(broker: EmbeddedBroker) -> None:
    assert produce(broker) is None
    with broker.fault("Fetch", topic="t", error="OFFSET_OUT_OF_RANGE", client_id="reader") as fault:
        settings = {"group.id": "g", "client.id": "reader", "auto.offset.reset": "error"}
        consumer = confluent_kafka.Consumer(broker.client_config(**settings))
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        message = consumer.poll(10)
        assert message is not None and message.error().name() == "_AUTO_OFFSET_RESET"
        assert fault.hits == 1
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        message = consumer.poll(10)
        assert message is not None and message.error() is None
        consumer.close()


def test_administration_can_fail_too(broker: EmbeddedBroker) -> None:
    admin = AdminClient(broker.client_config())
    with broker.fault("CreateTopics", error="POLICY_VIOLATION"):
        with pytest.raises(KafkaException) as caught:
            admin.create_topics([NewTopic("never", 1, 1)])["never"].result(10)
        assert caught.value.args[0].name() == "POLICY_VIOLATION"
    assert "never" not in broker.topics()


def test_a_closed_connection_and_a_late_answer(broker: EmbeddedBroker) -> None:
    async def send(acks: Any) -> float:
        started = asyncio.get_running_loop().time()
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks=acks, retry_backoff_ms=10) as producer:
            await producer.send_and_wait("t", b"x", partition=0)
        return asyncio.get_running_loop().time() - started

    with broker.fault("Produce", action="disconnect") as fault:
        asyncio.run(send("all"))
        assert fault.hits == 1
    with broker.fault("Produce", delay_ms=300) as fault:
        assert asyncio.run(send("all")) > 0.25
        assert fault.hits == 1
    with broker.fault("Produce", error="CORRUPT_MESSAGE") as fault:
        asyncio.run(send(0))
        fault.wait()


def test_joining_a_group_can_fail(broker: EmbeddedBroker) -> None:
    assert produce(broker) is None
    with broker.fault("JoinGroup", error="REBALANCE_IN_PROGRESS") as fault:
        settings = {"group.id": "joiners", "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(broker.client_config(**settings))
        consumer.subscribe(["t"])
        message = consumer.poll(20)
        assert message is not None and message.error().name() == "REBALANCE_IN_PROGRESS"
        assert fault.hits == 1
        consumer.close()


# -- mirrors -----------------------------------------------------------------------------------------------------------


def sample(request_class: Any) -> Any:
    """A request that names topic `t`, partitions 0 and 1, where it has a place for names."""
    request = request_class()
    for name, build in SAMPLES.get(request_class, {}).items():
        setattr(request, name, build())
    return request


SAMPLES: dict[Any, dict[str, Any]] = {
    ProduceRequest: {
        "topic_data": lambda: [
            ProduceRequest.TopicProduceData(
                name="t", partition_data=[ProduceRequest.PartitionProduceData(index=i, records=b"") for i in (0, 1)]
            )
        ]
    },
    FetchRequest: {
        "topics": lambda: [FetchRequest.FetchTopic(topic="t", partitions=[FetchRequest.FetchPartition(partition=i) for i in (0, 1)])]
    },
    ListOffsetsRequest: {
        "topics": lambda: [
            ListOffsetsRequest.ListOffsetsTopic(
                name="t", partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=i) for i in (0, 1)]
            )
        ]
    },
    OffsetCommitRequest: {
        "topics": lambda: [
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name="t", partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=i) for i in (0, 1)]
            )
        ]
    },
    MetadataRequest: {"topics": lambda: [MetadataRequest.MetadataRequestTopic(name="t")]},
}
CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER


def filled(kind: Any, version: int, *, has_nulls: bool) -> Any:
    """A request with one entry in every list, or with null where that may be."""
    made = kind()
    for declared in kind.FIELDS:
        if not isinstance(declared.type, Array) or not declared.versions.low <= version <= declared.versions.high:
            continue
        element = declared.type.element
        if has_nulls and declared.nullable.low <= version <= declared.nullable.high:
            setattr(made, declared.name, None)
        elif hasattr(element, "FIELDS"):
            setattr(made, declared.name, [filled(element, version, has_nulls=has_nulls)])
        else:
            setattr(made, declared.name, ["a" if isinstance(element, Variable) else 1])
    return made


def all_codes(struct: Any) -> Iterator[int]:
    """Every error code of a response."""
    for declared in type(struct).FIELDS:
        value = getattr(struct, declared.name)
        if declared.name.endswith("error_code"):
            yield value
        for item in value if isinstance(value, list) else ():
            if hasattr(item, "FIELDS"):
                yield from all_codes(item)


def test_every_api_of_every_version_has_an_error_answer() -> None:
    """DescribeShareGroupOffsets of all topics ended the connection: null topics were put into the answer."""
    for entry in apis():
        for version in range(entry.min_version, entry.max_version + 1):
            everything, named = (filled(entry.request, version, has_nulls=has_nulls) for has_nulls in (True, False))
            for request in (sample(entry.request), everything, named):
                response = mirrored_failure(request, entry.response, version, CODE)
                response.encode(version)
            assert CODE in list(all_codes(response)), (entry, version)


@pytest.mark.parametrize(
    ("request_class", "response_class", "path"),
    [
        (ProduceRequest, ProduceResponse, "responses.partition_responses"),
        (FetchRequest, FetchResponse, "responses.partitions"),
        (ListOffsetsRequest, ListOffsetsResponse, "topics.partitions"),
        (OffsetCommitRequest, OffsetCommitResponse, "topics.partitions"),
    ],
)
def test_the_code_is_at_every_partition_or_at_the_chosen_one(request_class: Any, response_class: Any, path: str) -> None:
    request = sample(request_class)
    outer, inner = path.split(".")
    api_entry = api(request_class.API_KEY)
    assert api_entry is not None
    version = min(api_entry.max_version, 9)

    def codes(response: Any) -> dict[int, int]:
        found = {}
        for topic in getattr(response, outer):
            assert getattr(topic, "name", None) == "t" or getattr(topic, "topic", None) == "t"
            for p in getattr(topic, inner):
                found[getattr(p, "index", None) if hasattr(p, "index") else p.partition_index] = p.error_code
        return found

    assert list(partitions_of(request)) == [("t", 0), ("t", 1)]
    assert codes(mirrored_failure(request, response_class, version, CODE)) == {0: CODE, 1: CODE}
    chosen = lambda key: key == ("t", 1)  # noqa: E731
    assert codes(mirrored_failure(request, response_class, version, CODE, chosen)) == {1: CODE}
    rest = without_partitions(request, chosen)
    assert list(partitions_of(rest)) == [("t", 0)] and list(partitions_of(request)) == [("t", 0), ("t", 1)]
    assert without_partitions(rest, lambda key: True) is None
    good = mirrored_failure(request, response_class, version, ErrorCode.NONE)
    assert patch_errors(good, CODE, chosen) == 1 and codes(good) == {0: ErrorCode.NONE, 1: CODE}


def test_groups_are_answered_by_groups() -> None:
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)])
    response = mirrored_failure(request, OffsetFetchResponse, 9, CODE)
    assert [(group.group_id, group.error_code) for group in response.groups] == [("g", CODE)]


def test_a_topic_is_answered_by_a_topic() -> None:
    response = mirrored_failure(sample(MetadataRequest), MetadataResponse, 12, CODE)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", CODE)] and not response.brokers
