"""Clients that push their metrics (KIP-714), through the handlers and on /metrics; and OTLP, good and bad."""

from __future__ import annotations

import asyncio
import gzip
import random
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.client_metrics import otlp, requests
from minikafka.broker.observe.clients_view import clients_that_push
from minikafka.broker.observe.metrics.node import NodeMetrics
from minikafka.core.client_metrics import instances
from minikafka.core.client_metrics.series import Point
from minikafka.net.channel import Channel
from minikafka.net.server import SocketNetwork
from minikafka.wire.compression import CompressionType, compress
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.api_versions import ApiVersionsRequest
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest
from minikafka.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.push_telemetry import PushTelemetryRequest

TELEMETRY_APIS = {GetTelemetrySubscriptionsRequest.API_KEY, PushTelemetryRequest.API_KEY}


def metrics_data(**values: float) -> bytes:
    """Metrics as Kafka's client writes them: counters as deltas, with a resource, a topic, and an unknown attribute."""
    found = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2", reason="the extra client-metrics is not installed")
    data = found.MetricsData()
    resource = data.resource_metrics.add()
    _attribute(resource.resource.attributes, "group_id", "g")
    scope = resource.scope_metrics.add()
    for name, value in values.items():
        metric = scope.metrics.add(name=name)
        metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, 1
        point = metric.sum.data_points.add(as_double=value)
        for key, text in (("topic", "t"), ("client-id", "not.this"), ("Colour.of", 'r"d')):
            _attribute(point.attributes, key, text)
    return bytes(data.SerializeToString())


def _attribute(attributes: Any, key: str, text: str) -> None:
    attribute = attributes.add(key=key)
    attribute.value.string_value = text


LABELS = (("attributes", 'colour_of=r"d'), ("group_id", "g"), ("topic", "t"))


@pytest.fixture
def parser() -> None:
    pytest.importorskip("opentelemetry.proto", reason="the extra client-metrics is not installed")
    assert otlp.load()


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("codec", list(CompressionType))
def test_a_push_is_read_whatever_its_codec(codec: CompressionType) -> None:
    data = metrics_data(sent=3, left=4)
    found = otlp.read(codec, compress(codec, data), len(data))
    assert found == otlp.Read([Point("sent", LABELS, 3, True, True), Point("left", LABELS, 4, True, True)])
    with pytest.raises(otlp.Unreadable):
        otlp.read(codec, compress(codec, data), len(data) - 1)


@pytest.mark.usefixtures("parser")
def test_gauges_histograms_and_summaries() -> None:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    metrics.add(name="g").gauge.data_points.add(as_int=7)
    metrics.add(name="nan").gauge.data_points.add(as_double=float("nan"))
    metrics.add(name="unset").gauge.data_points.add()
    metrics.add(name="h").histogram.data_points.add(count=2, sum=5.5)
    metrics.add(name="s").summary.data_points.add(count=3, sum=6.5)
    metrics.add(name="down").sum.data_points.add(as_int=-1)
    negative = metrics.add(name="negative").sum
    negative.is_monotonic = True
    negative.data_points.add(as_int=-1)
    metrics.add(name="nothing")
    found = otlp.read(0, data.SerializeToString(), 1 << 20)
    assert [(point.metric, point.value, point.is_counter) for point in found.points] == [
        ("g", 7, False), ("unset", 0, False), ("h.count", 2, True), ("h.sum", 5.5, False), ("s.count", 3, True), ("s.sum", 6.5, False),
        ("down", -1, False),
    ]  # fmt: skip


@pytest.mark.usefixtures("parser")
def test_only_invalid_metrics_data_is_unreadable() -> None:
    generator = random.Random(3)
    good = metrics_data(sent=3, left=4)
    for _ in range(500):
        damaged = bytearray(good)
        for _ in range(generator.randrange(1, 4)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        for codec in range(5):
            for data in (bytes(damaged), generator.randbytes(generator.randrange(64))):
                try:
                    otlp.read(codec, data, 1 << 16)
                except otlp.Unreadable:
                    continue


@pytest.mark.usefixtures("parser")
def test_names_and_their_number_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    long = otlp.read(0, metrics_data(**{"m" * 1000: 1}), 1 << 20).points[0]
    assert len(long.metric) == otlp.TEXT_CHARACTERS_MAX
    monkeypatch.setattr(otlp, "MESSAGES_MAX", 7)
    found = otlp.read(0, metrics_data(**{f"m{number}": number for number in range(10)}), 1 << 20)
    # The resource, the scope, and then a metric and its point by turns.
    assert (len(found.points), found.left) == (2, 1)


class Client:
    """A client on a connection of its own. It does not look into ApiVersions before it asks."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.instance_id = bytes(16)
        self.subscription_id = 0

    async def ask(self) -> Any:
        answer: Any = await self.channel.request(GetTelemetrySubscriptionsRequest(client_instance_id=self.instance_id), 0)
        if not answer.error_code:
            self.instance_id, self.subscription_id = answer.client_instance_id, answer.subscription_id
        return answer

    async def push(self, metrics: bytes, codec: int = 0) -> int:
        request = PushTelemetryRequest(
            client_instance_id=self.instance_id, subscription_id=self.subscription_id, compression_type=codec, metrics=metrics
        )
        answer: Any = await self.channel.request(request, 0)
        return int(answer.error_code)


async def subscribe(channel: Channel, name: str, **values: str | None) -> tuple[int, str | None]:
    kind = IncrementalAlterConfigsRequest
    changes = [
        kind.AlterableConfig(name=key.replace("_", "."), config_operation=0 if value is not None else 1, value=value)
        for key, value in values.items()
    ]
    answer: Any = await channel.request(
        kind(resources=[kind.AlterConfigsResource(resource_type=16, resource_name=name, configs=changes)])
    )
    return answer.responses[0].error_code, answer.responses[0].error_message


async def described(channel: Channel, name: str) -> Any:
    kind = DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(resource_type=16, resource_name=name, configuration_keys=None)
    answer: Any = await channel.request(kind(resources=[resource], include_synonyms=True))
    result = answer.results[0]
    return result.error_message or [(entry.name, entry.value, entry.config_source, entry.config_type) for entry in result.configs]


async def test_a_client_is_asked_for_metrics_and_tells_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_node(tmp_path, {"telemetry.max.bytes": "20000"}) as node:
        assert node.broker is not None
        network = SocketNetwork(asyncio.get_running_loop())
        channel = await Channel.open(network, "127.0.0.1", broker_port(node), client_id="shop")
        client, clients = Client(channel), node.broker.client_metrics
        asked = await client.ask()
        assert (asked.push_interval_ms, asked.requested_metrics) == (300_000, [])
        assert (asked.telemetry_max_bytes, asked.delta_temporality) == (20000, True)
        assert list(asked.accepted_compression_types) == [4, 3, 1, 2]
        assert (await client.ask()).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert await subscribe(channel, "", metrics="a") == (ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        assert await subscribe(channel, "s", bogus="1") == (ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: bogus")
        assert await subscribe(channel, "s", metrics="org.apache.kafka.", interval_ms="100", match="client_id=sh.p") == (0, None)
        assert await described(channel, "s") == [
            ("interval.ms", "100", 7, 3), ("match", "client_id=sh.p", 7, 7), ("metrics", "org.apache.kafka.", 7, 7),
        ]  # fmt: skip
        assert await described(channel, "t") == [("interval.ms", "300000", 5, 3), ("match", "", 5, 7), ("metrics", "", 5, 7)]
        assert await described(channel, "") == "Client metrics subscription name must not be empty"
        asked = await client.ask()
        assert (asked.push_interval_ms, asked.requested_metrics) == (100, ["org.apache.kafka."])
        # The interval is the core's, which has tests of its own.
        monkeypatch.setattr(instances.Instance, "may_push", lambda instance, now_ms: True)
        assert await client.push(b"") == 0
        assert await client.push(b"x" * 20001) == ErrorCode.TELEMETRY_TOO_LARGE
        assert await client.push(gzip.compress(bytes(20001)), 1) == ErrorCode.INVALID_RECORD
        assert await client.push(b"not gzip", 1) == ErrorCode.INVALID_RECORD
        assert (clients.pushes, clients.unreadable) == (3, 2)
        labels = requests._client_labels(clients.instances.by_id[client.instance_id])
        node.broker.client_metrics.series.add(client.instance_id, labels, [Point("sent", LABELS, 3, True, True)], 1 << 60)
        lines = NodeMetrics(node).render().decode().splitlines()
        assert "kafka_server_client_metrics_instance_count 1" in lines
        reported = next(line for line in lines if line.startswith("minikafka_client_metric_total{"))
        assert 'metric="sent",client_id="shop",client_instance_id="' in reported
        assert reported.endswith('client_software_name="minikafka",attributes="colour_of=r\\"d",group_id="g",topic="t"} 3')
        shown = clients_that_push(clients, node.environment.clock.now_ms())
        assert (shown["subscriptions"], shown["count"]) == (["s"], 1)
        assert (shown["clients"][0]["client_id"], shown["clients"][0]["series"]) == ("shop", 1)
        channel.close()
        while clients.instances.by_id:
            await asyncio.sleep(0.001)
        clients._sweep()
        assert clients.series.count == 1


async def test_the_apis_are_offered_while_there_is_a_subscription(tmp_path: Path) -> None:
    """A client that finds them asks at once, and librdkafka logs a line, so newcomers should not be offered them."""

    async def offered(channel: Channel) -> set[int]:
        answer: Any = await channel.request(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
        return {entry.api_key for entry in answer.api_keys} & TELEMETRY_APIS

    async with live_node(tmp_path) as node:
        channel = await Channel.open(SocketNetwork(asyncio.get_running_loop()), "127.0.0.1", broker_port(node), client_id="shop")
        assert await offered(channel) == set()
        assert await subscribe(channel, "s", metrics="a") == (0, None)
        while await offered(channel) != TELEMETRY_APIS:
            await asyncio.sleep(0.001)
        client = Client(channel)
        assert (await client.ask()).requested_metrics == ["a"]
        assert await subscribe(channel, "s", metrics=None) == (0, None)
        while await offered(channel):
            await asyncio.sleep(0.001)
        # A client that has found them before is served.
        asked = await client.ask()
        assert (asked.error_code, asked.requested_metrics) == (0, [])
        channel.close()
    async with live_node(tmp_path) as node:
        channel = await Channel.open(SocketNetwork(asyncio.get_running_loop()), "127.0.0.1", broker_port(node), client_id="shop")
        assert await offered(channel) == set()
        channel.close()


@pytest.mark.usefixtures("parser")
async def test_short_pushes_are_read_at_once_and_long_ones_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_node(tmp_path) as node:
        assert node.broker is not None
        channel = await Channel.open(SocketNetwork(asyncio.get_running_loop()), "127.0.0.1", broker_port(node), client_id="shop")
        client, clients = Client(channel), node.broker.client_metrics
        await client.ask()
        monkeypatch.setattr(instances.Instance, "may_push", lambda instance, now_ms: True)
        short, long = metrics_data(sent=3), metrics_data(**{f"m{number}": number for number in range(200)})
        assert await client.push(short) == 0  # Loads the parser.
        pieces = clients._heavy_work.pieces
        assert [await client.push(compress(codec, short), codec) for codec in CompressionType] == [0] * 5
        assert clients._heavy_work.pieces == pieces
        assert len(compress(CompressionType.ZSTD, long)) < requests.READ_AT_ONCE_BYTES < len(long)
        assert [await client.push(compress(codec, long), codec) for codec in (CompressionType.NONE, CompressionType.ZSTD)] == [0, 0]
        assert clients._heavy_work.pieces == pieces + 2
        assert clients.series.count == 201
        (reported,) = clients.series.by_instance.values()
        assert reported.counters["sent", LABELS] == 18 and reported.counters["m100", LABELS] == 200
        channel.close()
