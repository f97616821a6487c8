"""/metrics, /healthz and /readyz of a live node, scraped over HTTP and parsed by prometheus-client's own parser."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node
from prometheus_client.parser import text_string_to_metric_families

from minikafka.broker.observe import http as http_module
from minikafka.broker.observe.http import HEAD_BYTES_MAX, METRICS_TYPE, ROWS_AT_ONCE, HttpServer, json_in_steps
from minikafka.client.admin import Admin
from minikafka.client.consumer import Consumer
from minikafka.client.producer import Producer

Labelled = tuple[str, tuple[tuple[str, str], ...]]


async def get(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    def ask() -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


async def scrape(port: int) -> dict[Labelled, float]:
    status, headers, body = await get(port, "/metrics")
    assert (status, headers["Content-Type"], int(headers["Content-Length"])) == (200, METRICS_TYPE, len(body))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def of(topic: str, index: int | None = None) -> tuple[tuple[str, str], ...]:
    return (("topic", topic),) if index is None else (("partition", str(index)), ("topic", topic))


async def test_produced_and_consumed_records_are_counted(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        server = HttpServer(node)
        await server.start("127.0.0.1", 0)
        bootstrap = f"127.0.0.1:{broker_port(node)}"
        async with Admin(bootstrap) as admin:
            await admin.create_topic("seen", partitions=2, replication_factor=1)
        async with Producer(bootstrap) as producer:
            for number in range(30):
                await producer.send("seen", b"x" * 100, partition=number % 2)
        async with Consumer(bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            await consumer.subscribe(["seen"])
            count = 0
            while count < 30:
                count += len(await consumer.poll(1000))
            found = await scrape(server.port)
        assert found["kafka_server_brokertopicmetrics_messagesin_total", of("seen")] == 30
        assert found["kafka_server_brokertopicmetrics_bytesin_total", of("seen")] > 3000
        assert found["kafka_server_brokertopicmetrics_bytesout_total", of("seen")] > 3000
        for index in range(2):
            assert found["kafka_log_log_logendoffset", of("seen", index)] == 15
            assert found["minikafka_partition_high_watermark", of("seen", index)] == 15
            assert found["kafka_cluster_partition_insyncreplicascount", of("seen", index)] == 1
            assert found["kafka_cluster_partition_underreplicated", of("seen", index)] == 0
        assert found["kafka_server_kafkaserver_brokerstate", ()] == 3
        assert found["kafka_controller_kafkacontroller_activecontrollercount", ()] == 1
        assert found["kafka_controller_kafkacontroller_globaltopiccount", ()] == 2
        assert found["kafka_server_replicamanager_underreplicatedpartitions", ()] == 0
        assert found["kafka_server_replicamanager_leadercount", ()] == 2 + 3
        assert found["kafka_coordinator_group_groupmetadatamanager_numgroups", ()] == 1
        assert sum(value for key, value in found.items() if key[0] == "kafka_network_requestmetrics_requests_total") >= 3
        assert found["kafka_server_socket_server_metrics_connection_count", (("listener", "PLAINTEXT"), ("networkProcessor", "0"))] >= 1
        assert found["process_resident_memory_bytes", ()] > 1 << 20
        await server.stop()


async def test_counters_only_rise(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        server = HttpServer(node)
        await server.start("127.0.0.1", 0)
        before = await scrape(server.port)
        async with Producer(f"127.0.0.1:{broker_port(node)}") as producer:
            await (await producer.send("made-by-producing", b"x"))
        after = await scrape(server.port)
        counters = {key for key in before if key[0].endswith("_total")}
        # Of a kind that has not come yet, the newest version stands for all.
        counters -= {key for key in counters if key[0].endswith("_requests_total") and not before[key]}
        assert counters and all(after[key] >= before[key] for key in counters)
        await server.stop()


async def test_the_node_says_how_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_node(tmp_path) as node:
        server = HttpServer(node)
        await server.start("127.0.0.1", 0)

        async def state(path: str) -> tuple[int, Any]:
            status, _, body = await get(server.port, path)
            return status, json.loads(body)

        assert await state("/healthz") == (200, {"alive": True})
        assert await state("/readyz") == (200, {"ready": True, "reason": "in service"})
        assert node.broker is not None
        monkeypatch.setattr(node.broker.lifecycle._core, "fenced", True)
        assert await state("/readyz") == (503, {"ready": False, "reason": "fenced by the controller"})
        monkeypatch.undo()
        monkeypatch.setattr(node.broker.lifecycle._core, "_answered_ms", node.environment.clock.now_ms() - 10_000)
        status, answer = await state("/readyz")
        assert status == 503 and answer["reason"].startswith("no controller has answered a heartbeat for 10")
        monkeypatch.undo()
        node.ready.clear()
        assert await state("/readyz") == (503, {"ready": False, "reason": "starting"})
        assert (await scrape(server.port)).keys() >= {("process_resident_memory_bytes", ())}, "a scrape at any time of a node's life"
        node.ready.set()
        failed = asyncio.get_running_loop().create_future()
        failed.set_result("the disk is gone")
        monkeypatch.setattr(node, "failed", failed)
        assert await state("/healthz") == (503, {"alive": False})
        assert await state("/readyz") == (503, {"ready": False, "reason": "failed: the disk is gone"})
        monkeypatch.undo()
        await server.stop()


async def test_other_requests_are_answered_or_dropped(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        server = HttpServer(node)
        await server.start("127.0.0.1", 0)
        assert (await get(server.port, "/"))[0] == 404
        assert (await get(server.port, "/metrics", "POST"))[0] == 405
        status, headers, body = await get(server.port, "/healthz?verbose=1", "HEAD")
        assert (status, body) == (200, b"") and int(headers["Content-Length"]) > 0
        for nonsense in (b"\r\n\r\n", b"\x00\xff" * 100 + b"\r\n\r\n", b"GET /" + b"a" * (2 * HEAD_BYTES_MAX), b"GET"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(nonsense)
            writer.write_eof()
            await reader.read()
            writer.close()
        assert (await get(server.port, "/healthz"))[0] == 200, "the server goes on"
        await server.stop()


async def asked(port: int, *lines: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("\r\n".join(("GET /readyz HTTP/1.1", *lines, "", "")).encode())
    answer = await reader.read()
    writer.close()
    return answer.decode().partition("\r\n")[0]


async def test_it_answers_under_its_own_names_only(tmp_path: Path) -> None:
    async with live_node(tmp_path, {"minikafka.http.names": "kafka.example.org"}) as node:
        assert node.config.minikafka_http_host == "127.0.0.1"
        server = HttpServer(node)
        await server.start(node.config.minikafka_http_host, 0)
        own = ("127.0.0.1", "127.0.0.1:80", "[::1]:9404", "localhost:9404", "broker-1:9404", "KAFKA.example.org", "10.1.2.3")
        for name in own:
            assert await asked(server.port, f"Host: {name}") == "HTTP/1.1 200 OK", name
        assert await asked(server.port) == "HTTP/1.1 200 OK"
        for name in ("evil.example.org", "127.0.0.1.evil.org:9404", "kafka.example.org.evil.org"):
            assert await asked(server.port, f"hOST:  {name}") == "HTTP/1.1 421 Misdirected Request", name
        await server.stop()


async def test_connections_are_few_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(http_module, "READ_TIMEOUT_S", 0.5)
    async with live_node(tmp_path) as node:
        server = HttpServer(node)
        await server.start("127.0.0.1", 0)
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(5)]
        for reader, _ in silent:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert server.refused_total == 2
        assert await asked(server.port, "Host: localhost") == "HTTP/1.1 200 OK"
        for _, writer in silent:
            writer.close()
        await server.stop()


async def test_silent_connections_do_not_keep_probes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "CONNECTIONS_MAX", 3)
    async with live_node(tmp_path) as node:
        server = HttpServer(node)
        await server.start("127.0.0.1", 0)
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        while server._open < 3:
            await asyncio.sleep(0.01)
        assert await asked(server.port, "Host: localhost") == "HTTP/1.1 200 OK"
        silent.append(await asyncio.open_connection("127.0.0.1", server.port))
        while server._open < 3:
            await asyncio.sleep(0.01)
        monkeypatch.setattr(server, "_waiting", {})
        silent.append(await asyncio.open_connection("127.0.0.1", server.port))
        assert await silent[-1][0].read() == b"", "the others are being answered: none is closed for it"
        for _, writer in silent:
            writer.close()
        await server.stop()


async def test_a_client_that_does_not_read_the_answer_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "WRITE_TIMEOUT_S", 0.3)
    async with live_node(tmp_path) as node:
        server = HttpServer(node)
        await server.start("127.0.0.1", 0)
        monkeypatch.setattr(server._metrics, "steps", lambda: iter([bytes(1 << 20)] * 40))
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1000)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        while not server._open:
            await asyncio.sleep(0.01)
        while server._open:
            await asyncio.sleep(0.01)
        writer.close()
        await server.stop()


async def test_what_the_page_shows_is_encoded_in_steps() -> None:
    """10,000 partitions took 56 ms."""
    rows = [{"topic": "t", "partition": number} for number in range(5 * ROWS_AT_ONCE + 3)]
    value: dict[str, object] = {"cluster_id": "c", "partitions": rows, "groups": None, "events": [], "few": [1, 2], "text": "[]"}
    turns = 0

    def next_turn() -> None:
        nonlocal turns, handle
        turns += 1
        handle = loop.call_soon(next_turn)

    loop = asyncio.get_running_loop()
    handle = loop.call_soon(next_turn)
    encoded = await json_in_steps(value)
    handle.cancel()
    assert json.loads(encoded) == value and encoded.decode() == json.dumps(value) + "\n"
    assert turns >= 6
