"""Dead-letter queues of share groups (KIP-1191): what a group gives up is in the topic that it names, with Apache Kafka 4.4.0's headers."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from helpers.asked import Asked, retry
from helpers.coordinator_world import coordinator_log

from minikafka.broker.cold_reads import ColdReads
from minikafka.broker.share import dead_letters
from minikafka.broker.supervise import Supervisor
from minikafka.client.share_consumer import ACCEPT, REJECT, RELEASE, ShareConsumer, SharedRecord
from minikafka.core.share.partition import DeadLetter
from minikafka.core.share.state import SharePartitionKey
from minikafka.storage.slice import FileSlice
from minikafka.testing import EmbeddedCluster
from minikafka.wire.batch import build_batch, iterate_batches
from minikafka.wire.compression import CompressionType
from minikafka.wire.errors import CorruptRecord, ErrorCode
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.produce import ProduceResponse
from minikafka.wire.messages.update_features import UpdateFeaturesRequest
from minikafka.wire.record import Record

PROPERTIES = {
    "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1", "group.share.assignment.interval.ms": "0",
    "offsets.topic.replication.factor": "1", "errors.deadletterqueue.auto.create.topics.enable": "true",
}  # fmt: skip
BROKER, GROUP = 4, 32
UPGRADE = 1
REJECTED, TOO_OFTEN = b"Offset rejected by client.", b"Offset delivery count exceeded the threshold."


def configure(asked: Asked, kind: int, name: str, **values: str) -> ErrorCode:
    """`values` with `_` for `.`."""
    request = IncrementalAlterConfigsRequest
    configs = [request.AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value) for key, value in values.items()]
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return ErrorCode(asked.ask(request(resources=[resource]), 1).responses[0].error_code)


def with_dead_letters(asked: Asked) -> None:
    """share.version 2."""
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="share.version", max_version_level=2, upgrade_type=UPGRADE)
    assert asked.ask(UpdateFeaturesRequest(feature_updates=[update]), 1).error_code == ErrorCode.NONE


def letters(cluster: EmbeddedCluster, topic: str, count: int) -> list[tuple[bytes | None, bytes | None, dict[str, bytes]]]:
    """Key, value and headers of the first records of a topic."""
    consumer = Consumer(cluster.client_config("confluent", **{"group.id": "reader", "auto.offset.reset": "earliest"}))
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes | None, bytes | None, dict[str, bytes]]] = []
    retry(lambda: bool(found.extend(
        (message.key(), message.value(), dict(message.headers() or [])) for message in consumer.consume(10, 0.2) if not message.error()
    )) or len(found) >= count)  # fmt: skip
    consumer.close()
    return found


@asynccontextmanager
async def member(cluster: EmbeddedCluster) -> AsyncIterator[ShareConsumer]:
    async with ShareConsumer(cluster.bootstrap_servers, "g") as consumer:
        await consumer.subscribe(["t"])
        yield consumer


async def handle(consumer: ShareConsumer, how: dict[bytes, int], deliveries: int) -> list[SharedRecord]:
    """Acknowledge records by value until there were so many deliveries."""
    seen: list[SharedRecord] = []
    while len(seen) < deliveries:
        for record in await consumer.poll(500):
            seen.append(record)
            consumer.acknowledge(record, how[record.value or b""])
    return seen


def headers(offset: int, count: int, message: bytes) -> dict[str, bytes]:
    named = {"topic": b"t", "partition": b"0", "offset": b"%d" % offset, "group": b"g", "delivery.count": b"%d" % count, "message": message}
    return {f"__dlq.errors.{name}": value for name, value in named.items()}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, topics=["t"], config=PROPERTIES) as made:
        yield made


def prepared(cluster: EmbeddedCluster) -> Asked:
    asked = Asked(cluster.bootstrap_servers)
    assert configure(asked, GROUP, "g", share_auto_offset_reset="earliest", share_delivery_count_limit="2") is ErrorCode.NONE
    producer = Producer(cluster.client_config("confluent"))
    for name in (b"bad", b"good", b"slow"):
        producer.produce("t", key=b"k-" + name, value=name)
    assert producer.flush(20) == 0
    return asked


HOW = {b"bad": REJECT, b"good": ACCEPT, b"slow": RELEASE}


def test_rejected_records_and_those_delivered_too_often_are_in_the_topic_that_the_broker_makes(cluster: EmbeddedCluster) -> None:
    asked = prepared(cluster)
    with_dead_letters(asked)
    names = {"errors_deadletterqueue_topic_name": "dlq.g", "errors_deadletterqueue_copy_record_enable": "true"}
    assert configure(asked, GROUP, "g", **names) is ErrorCode.NONE

    async def story() -> None:
        async with member(cluster) as consumer:
            seen = await handle(consumer, HOW, 4)
            assert sorted((record.value, record.delivery_count) for record in seen) == [
                (b"bad", 1), (b"good", 1), (b"slow", 1), (b"slow", 2)
            ]  # fmt: skip

    asyncio.run(story())
    assert sorted(letters(cluster, "dlq.g", 2), key=str) == [
        (b"k-bad", b"bad", headers(0, 1, REJECTED)),
        (b"k-slow", b"slow", headers(2, 2, TOO_OFTEN)),
    ]


def test_only_the_headers_are_written_to_a_topic_that_is_there_unless_the_group_says_otherwise(cluster: EmbeddedCluster) -> None:
    asked = prepared(cluster)
    with_dead_letters(asked)
    kind = CreateTopicsRequest
    configs = [kind.CreatableTopicConfig(name="errors.deadletterqueue.group.enable", value="true")]
    topic = kind.CreatableTopic(name="dlq.there", num_partitions=1, replication_factor=1, configs=configs)
    assert asked.ask(kind(topics=[topic], timeout_ms=10_000), 7).topics[0].error_code == ErrorCode.NONE
    assert configure(asked, GROUP, "g", errors_deadletterqueue_topic_name="dlq.there") is ErrorCode.NONE

    async def story() -> None:
        async with member(cluster) as consumer:
            await handle(consumer, dict.fromkeys(HOW, REJECT), 3)

    asyncio.run(story())
    assert letters(cluster, "dlq.there", 3) == [(None, None, headers(offset, 1, REJECTED)) for offset in range(3)]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("other", "errors.deadletterqueue.group.enable is not set for other"),
        ("elsewhere", "the name of elsewhere does not begin with dlq."),
        ("dlq.missing", "there is no topic dlq.missing, and errors.deadletterqueue.auto.create.topics.enable is false"),
    ],
)
def test_records_that_cannot_be_put_there_are_given_up_all_the_same(
    cluster: EmbeddedCluster, name: str, reason: str
) -> None:
    asked = prepared(cluster)
    with_dead_letters(asked)
    cluster.create_topic("other")
    if name == "dlq.missing":
        assert configure(asked, BROKER, "", errors_deadletterqueue_auto_create_topics_enable="false") is ErrorCode.NONE
    assert configure(asked, GROUP, "g", errors_deadletterqueue_topic_name=name) is ErrorCode.NONE

    async def story() -> None:
        async with member(cluster) as consumer:
            await handle(consumer, HOW, 4)

    asyncio.run(story())
    retry(lambda: f"could not write records 0 to 0 to the dead-letter queue: {reason}" in cluster.logs(1000))


def test_a_queue_that_is_deleted_is_made_again_for_the_next_record(cluster: EmbeddedCluster) -> None:
    asked = prepared(cluster)
    with_dead_letters(asked)
    assert configure(asked, GROUP, "g", errors_deadletterqueue_topic_name="dlq.gone") is ErrorCode.NONE
    producer = Producer(cluster.client_config("confluent"))

    async def story() -> None:
        async with member(cluster) as consumer:
            await handle(consumer, HOW, 4)
            assert await consumer.poll(100) == [], "acknowledgements go with it"
            assert len(await asyncio.to_thread(letters, cluster, "dlq.gone", 2)) == 2
            cluster.delete_topic("dlq.gone")
            producer.produce("t", value=b"bad")
            await asyncio.to_thread(producer.flush, 20)
            await handle(consumer, HOW, 1)

    asyncio.run(story())
    assert letters(cluster, "dlq.gone", 1) == [(None, None, headers(3, 1, REJECTED))]


def test_a_queue_cannot_be_an_internal_topic(cluster: EmbeddedCluster) -> None:
    asked = prepared(cluster)
    assert configure(asked, GROUP, "g", errors_deadletterqueue_topic_name="__t") is ErrorCode.INVALID_CONFIG


def batches(letter: DeadLetter, value: bytes, bytes_max: int) -> list[tuple[int, int]]:
    """(offsets, bytes) of each batch of one entry."""
    found, offset = [], letter.first_offset
    contents = {place: (None, value) for place in range(letter.first_offset, letter.last_offset + 1)}
    while offset <= letter.last_offset:
        left = letter._replace(first_offset=offset)
        batch, following = dead_letters._batch(SharePartitionKey("g", b"i" * 16, 0), "t", left, contents, bytes_max, 1)
        found.append((following - offset, len(batch)))
        offset = following
    return found


def test_no_batch_is_larger_than_the_topic_takes_or_than_one_turn_makes() -> None:
    many = DeadLetter(7, 7 + 2 * dead_letters.RECORDS_MAX, 1, True)
    assert [count for count, _ in batches(many, b"", 1 << 20)] == [dead_letters.RECORDS_MAX, dead_letters.RECORDS_MAX, 1]
    large = batches(DeadLetter(0, 9, 1, True), b"x" * 3000, 10_000)
    assert [count for count, _ in large] == [2, 2, 2, 2, 2] and max(size for _, size in large) <= 10_000


def test_a_record_that_the_topic_does_not_take_goes_without_its_contents_and_keeps_no_other_away() -> None:
    contents = {place: (b"key", b"x" * size) for place, size in enumerate((10, 20_000, 9_500, 10))}
    found: list[tuple[int, bytes | None, bytes | None]] = []
    offset = 0
    while offset < 4:
        key = SharePartitionKey("g", b"i" * 16, 0)
        batch, following = dead_letters._batch(key, "t", DeadLetter(offset, 3, 1, True), contents, 10_000, 1)
        assert len(batch) <= 10_000
        records = next(iterate_batches(memoryview(batch))).records()
        found += [(offset + number, record.key, record.value) for number, record in enumerate(records)]
        offset = following
    assert [(place, None if value is None else len(value)) for place, _, value in found] == [(0, 10), (1, None), (2, 9_500), (3, 10)]
    assert found[1][1] is None


def copying_queues() -> dead_letters.DeadLetterQueues:
    """Queues that copy the contents of records to the topic "dlq", without a cluster."""
    loop = asyncio.get_running_loop()
    rules = SimpleNamespace(dead_letter_topic="dlq", copies_dead_letters=True)
    settings: Any = SimpleNamespace(rules=lambda group: rules, fault_of_dead_letter_topic=lambda topic: None, message_bytes_max=1 << 20)
    image = SimpleNamespace(topics_by_name={"dlq": None}, config=lambda kind, name: {})
    anything: Any = SimpleNamespace(
        image=image, inter_broker_listener="P", clock=SimpleNamespace(wall_ms=lambda: 1),
        run_blocking=lambda function, *arguments: loop.run_in_executor(None, function, *arguments),
    )  # fmt: skip
    anything.cold_reads = ColdReads(anything.run_blocking, Supervisor(loop))
    return dead_letters.DeadLetterQueues(anything, anything, anything, anything, anything, settings)


async def test_records_of_a_disk_that_fails_are_written_without_contents_and_it_goes_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 8503520."""
    log = coordinator_log("t")
    log.append_as_leader(memoryview(build_batch([Record(0, 1, b"key", b"value")])), 0, 1)
    log.update_high_watermark(log.log_end_offset)
    queues, found = copying_queues(), list[Record]()

    async def written(topic: str, source: int, batch: bytes) -> None:
        found.extend(next(iterate_batches(memoryview(batch))).records())

    def fails(piece: FileSlice) -> bytes:
        raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(queues, "_written", written)
    monkeypatch.setattr(FileSlice, "read", fails)
    partition: Any = SimpleNamespace(topic="t", key=("t", 0), log=log)
    await queues.enqueue(SharePartitionKey("g", b"i" * 16, 0), partition, DeadLetter(0, 0, 1, True))
    assert [(record.key, record.value) for record in found] == [(None, None)] and log.failure is not None


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP])
async def test_contents_are_copied_of_more_records_than_one_read_has(
    compression: CompressionType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log, count = coordinator_log("t"), 2 * dead_letters.READ_BYTES // 1000
    for first in range(0, count, 10):
        records = [Record(first + number, 1, b"%d" % (first + number), b"x" * 1000) for number in range(10)]
        log.append_as_leader(memoryview(build_batch(records, compression=compression)), 0, 1)
    log.update_high_watermark(log.log_end_offset)
    count = log.log_end_offset
    queues = copying_queues()
    found: list[tuple[bytes, int]] = []

    async def written(topic: str, source: int, batch: bytes) -> None:
        for record in next(iterate_batches(memoryview(batch))).records():
            found.append((bytes(record.key or b""), len(record.value or b"")))

    monkeypatch.setattr(queues, "_written", written)
    partition: Any = SimpleNamespace(topic="t", key=("t", 0), log=log)
    await queues.enqueue(SharePartitionKey("g", b"i" * 16, 0), partition, DeadLetter(3, count - 5, 1, True))
    assert found == [(b"%d" % offset, 1000) for offset in range(3, count - 4)]

    async def refused(topic: str, source: int, batch: bytes) -> str:
        return "no"

    monkeypatch.setattr(queues, "_written", refused)
    await queues.enqueue(SharePartitionKey("g", b"i" * 16, 0), partition, DeadLetter(3, 9, 1, True))
    assert "could not write records 3 to 9 to the dead-letter queue: no" in caplog.text


@pytest.mark.parametrize(("failures", "fault"), [(0, None), (4, None), (5, "writing to dlq: ")])
async def test_a_write_is_tried_so_often(failures: int, fault: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "BACKOFF_MS", 0)
    assert dead_letters.TRIES_MAX == 5
    sent: list[Any] = []

    def send(host: str, port: int, request: Any, answered: Any) -> None:
        sent.append(request)
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if len(sent) <= failures else ErrorCode.NONE
        kind = ProduceResponse.TopicProduceResponse
        partitions = [ProduceResponse.PartitionProduceResponse(error_code=code)]
        asyncio.get_running_loop().call_soon(answered, ProduceResponse(responses=[kind(partition_responses=partitions)]), None)

    topic = SimpleNamespace(topic_id=b"i" * 16, partitions={index: SimpleNamespace(leader=1) for index in range(2)})
    broker = SimpleNamespace(listeners={"P": ("host", 1)})
    image = SimpleNamespace(topics_by_name={"dlq": topic}, brokers={1: broker})
    anything: Any = SimpleNamespace(image=image, send=send, inter_broker_listener="P")
    queues = dead_letters.DeadLetterQueues(anything, anything, anything, anything, anything, anything)
    found = await queues._written("dlq", 5, b"batch")
    assert (found is None) if fault is None else (found or "").startswith(fault)
    assert len(sent) == min(failures + 1, 5)
    assert sent[0].topic_data[0].partition_data[0].index == 1, "the source's partition, as far as there are so many"


def test_contents_of_a_batch_whose_bits_have_flipped_are_not_copied() -> None:
    batch = bytearray(build_batch([Record(0, 1, b"key", b"value")]))
    assert dead_letters._records(bytes(batch), 0, 0) == ({0: (b"key", b"value")}, 1)
    batch[-3] ^= 1
    with pytest.raises(CorruptRecord):
        dead_letters._records(bytes(batch), 0, 0)
