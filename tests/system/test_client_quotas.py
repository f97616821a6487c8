"""Client quotas with real clients: they are told to pause, and held to it when they do not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
import pytest
from helpers.apache_kafka import run_tool

from minikafka.client.cluster import Cluster
from minikafka.client.errors import BrokerError
from minikafka.client.producer import Producer
from minikafka.client.quotas import QuotaAdmin
from minikafka.testing import EmbeddedCluster
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.api_versions import ApiVersionsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.fetch import FetchRequest

pytestmark = pytest.mark.timeout(60)
#: Two windows of a second: a second's worth is free, what is beyond is paid for soon.
WINDOWS = {"quota.window.num": "2", "controller.quota.window.num": "2", "auto.create.topics.enable": "true"}
RATE = 400_000
VALUE = b"v" * 50_000
#: 800 kB, half of them at once.
LEAST_S = 0.7


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, config=WINDOWS, topics={"t": 1}) as running:
        yield running


@contextlib.contextmanager
def quota(broker: EmbeddedCluster, entity: str, values: str) -> Iterator[None]:
    """A quota, as "user=u" and "key=value", and its end."""
    kind, name = entity.split("=")
    key, value = values.split("=")

    async def alter(value: float | None) -> None:
        async with QuotaAdmin(broker.bootstrap_servers) as admin:
            await admin.alter_quotas(((kind, name),), {key: value})

    def in_a_loop_of_its_own(value: float | None) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, alter(value)).result()

    in_a_loop_of_its_own(float(value))
    try:
        yield
    finally:
        in_a_loop_of_its_own(None)


def took_s(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def producer(broker: EmbeddedCluster, client_id: str, **config: Any) -> confluent_kafka.Producer:
    return confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": client_id, "linger.ms": 0, **config})


def produce(client: confluent_kafka.Producer, count: int) -> None:
    errors = []
    for _ in range(count):
        client.produce("t", VALUE, on_delivery=lambda error, _: errors.append(error))
    assert client.flush(30) == 0
    assert errors == [None] * count


def test_a_producer_is_throttled_and_informed_and_its_neighbour_is_not(broker: EmbeddedCluster) -> None:
    events: list[Any] = []
    with quota(broker, "client-id=loader", f"producer_byte_rate={RATE}"):
        loader = producer(broker, "loader", **{"throttle_cb": events.append, "batch.num.messages": 1})
        slow = took_s(lambda: (produce(loader, 16), loader.poll(0)))
        quick = took_s(lambda: produce(producer(broker, "other"), 16))
        page = broker.metrics(1)
    assert slow > LEAST_S
    assert quick < slow / 2
    assert events and max(event.throttle_time for event in events) > 0.1
    assert page['kafka_server_produce_throttle_time{user="",clientId="loader"}'] > 0
    assert page['kafka_server_produce_byte_rate{user="",clientId="loader"}'] > RATE / 10
    assert took_s(lambda: produce(producer(broker, "loader"), 16)) < slow / 2, "without its quota"


@pytest.mark.long
def test_a_consumer_gets_everything_at_its_rate(broker: EmbeddedCluster) -> None:
    produce(producer(broker, "filler", **{"batch.num.messages": 1}), 16)
    with quota(broker, "user=ANONYMOUS", f"consumer_byte_rate={RATE}"):
        reader = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "fetch.max.bytes": 1_100_000, "message.max.bytes": 1_000_000,
             "max.partition.fetch.bytes": 60_000}
        )  # fmt: skip
        end = reader.get_watermark_offsets(confluent_kafka.TopicPartition("t", 0), 5)[1]
        reader.assign([confluent_kafka.TopicPartition("t", 0, end - 16)])
        offsets: list[int] = []

        def read() -> None:
            while len(offsets) < 16:
                message = reader.poll(10)
                assert message is not None and message.error() is None
                offsets.append(message.offset())

        assert took_s(read) > LEAST_S
        assert offsets == list(range(end - 16, end))
        reader.close()


async def test_a_batch_that_is_larger_than_the_quota_arrives(broker: EmbeddedCluster) -> None:
    cluster = Cluster(broker.bootstrap_servers, client_id="slow")
    try:
        topic = await cluster.topic("t")
        with quota(broker, "client-id=slow", "consumer_byte_rate=20000"):
            wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=60_000)
            request = FetchRequest(max_wait_ms=0, topics=[FetchRequest.FetchTopic(topic_id=topic.topic_id, partitions=[wanted])])
            request.session_epoch = -1
            first: Any = await cluster.request(request, 1)
            assert len(first.responses[0].partitions[0].records) > 50_000
            assert first.throttle_time_ms > 1000
    finally:
        await cluster.close()


async def test_a_client_that_does_not_pause_is_not_read_from(broker: EmbeddedCluster) -> None:
    """KIP-219: the answer comes at once, the next request waits. Our own client takes no notice of throttle_time_ms."""
    with quota(broker, "client-id=loader", f"producer_byte_rate={RATE}"):
        async with Producer(broker.bootstrap_servers, client_id="loader") as client:
            begun = time.monotonic()
            waits = []
            for _ in range(16):
                sent = time.monotonic()
                await (await client.send("t", VALUE))
                waits.append(time.monotonic() - sent)
            assert time.monotonic() - begun > LEAST_S
            assert min(waits) < 0.1 < max(waits)


@pytest.mark.long
async def test_time_of_requests(broker: EmbeddedCluster) -> None:
    """A hundredth of a percent of the loop's time: any request is too much, and each costs up to a window."""
    cluster = Cluster(broker.bootstrap_servers, client_id="asker")
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    try:
        await cluster.request(request)
        with quota(broker, "client-id=asker", "request_percentage=0.001"):
            begun = time.monotonic()
            answers = [await cluster.request(request) for _ in range(3)]
            assert time.monotonic() - begun > 0.9
            assert answers[0].throttle_time_ms > 100  # type: ignore[attr-defined]
    finally:
        await cluster.close()


async def test_changes_of_topics(broker: EmbeddedCluster) -> None:
    with quota(broker, "client-id=maker", "controller_mutation_rate=5"):
        cluster = Cluster(broker.bootstrap_servers, client_id="maker")
        try:
            topics = [CreateTopicsRequest.CreatableTopic(name=f"m{n}", num_partitions=8, replication_factor=1) for n in range(4)]
            response: Any = await cluster.request(CreateTopicsRequest(topics=topics, timeout_ms=5000))
            codes = [topic.error_code for topic in response.topics]
            assert codes == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.THROTTLING_QUOTA_EXCEEDED], "ten tokens, then debt"
            assert 1000 <= response.throttle_time_ms <= 1200
            begun = time.monotonic()
            again: Any = await cluster.request(CreateTopicsRequest(topics=topics[2:3], timeout_ms=5000))
            assert again.topics[0].error_code == 0
            assert time.monotonic() - begun > 0.9, "the broker did not read while the client should have paused"
        finally:
            await cluster.close()


@pytest.mark.long
async def test_connections_of_an_address(broker: EmbeddedCluster) -> None:
    address = broker.bootstrap_servers.split(":")
    with quota(broker, "ip=127.0.0.1", "connection_creation_rate=5"):
        begun = time.monotonic()
        held = [socket.create_connection((address[0], int(address[1]))) for _ in range(20)]
        ended = []
        for connection in held:
            connection.settimeout(0.05)
            try:
                ended.append(connection.recv(1) == b"")
            except TimeoutError:
                ended.append(False)
        late = 0
        while late == 0 and time.monotonic() - begun < 10:
            await asyncio.sleep(0.05)
            late = sum(_is_closed(connection) for connection in held)
        assert not all(ended) and 0 < late < 20
        for connection in held:
            connection.close()
        await _until_admitted(broker)
    with socket.create_connection((address[0], int(address[1]))) as free:
        assert not _is_closed(free)


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.001)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


async def _until_admitted(broker: EmbeddedCluster) -> None:
    """The quota is taken away over a connection, for which there must be room again."""
    while True:
        try:
            async with QuotaAdmin(broker.bootstrap_servers) as admin:
                await admin.alter_quotas((("ip", "127.0.0.1"),), {"connection_creation_rate": None})
                return
        except (BrokerError, OSError, TimeoutError):
            await asyncio.sleep(0.2)


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(120)
def test_kafkas_own_tools_set_a_quota_and_feel_it(broker: EmbeddedCluster) -> None:
    server = ("--bootstrap-server", broker.bootstrap_servers)
    entity = ("--entity-type", "clients", "--entity-name", "java")
    run_tool("kafka.admin.ConfigCommand", *server, "--alter", *entity, "--add-config", f"producer_byte_rate={RATE}")
    output = run_tool("kafka.admin.ConfigCommand", *server, "--describe", *entity)
    assert "producer_byte_rate=400000.0" in output
    said = run_tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--num-records", "16", "--record-size", "50000", "--throughput", "-1",
        "--print-metrics", "--command-property", f"bootstrap.servers={broker.bootstrap_servers}", "client.id=java", "batch.size=1000",
    )  # fmt: skip
    average = next(line for line in said.splitlines() if "produce-throttle-time-avg" in line)
    assert float(average.rsplit(":", 1)[1]) > 10, average
    run_tool("kafka.admin.ConfigCommand", *server, "--alter", *entity, "--delete-config", "producer_byte_rate")
    assert "producer_byte_rate" not in run_tool("kafka.admin.ConfigCommand", *server, "--describe", *entity)
