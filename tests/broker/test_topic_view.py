"""/v1/records and /v1/configs: the last records of a partition and configurations, for the page."""

from __future__ import annotations

import asyncio
import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.observe import shown_records, topic_view
from minikafka.broker.observe.http import HttpServer
from minikafka.broker.observe.shown_records import BYTES_SHOWN_MAX, HEADERS_SHOWN_MAX, last_records, next_offset, shown
from minikafka.client.admin import Admin
from minikafka.client.producer import Producer
from minikafka.wire.batch import build_batch
from minikafka.wire.compression import CompressionType
from minikafka.wire.record import Record


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", ""),
        (b"", "text", ""),
        ("größe".encode(), "text", "größe"),
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b"[" * 2000, "text", "[" * 2000),
        (b"\x00\x00\x00\x00\x07\xff\xfe", "schema", "ff fe"),
        (b"\x00\xff\x00\x00\x07\xff\xfe", "hex", "00 ff 00 00 07 ff fe"),
        (b"\xff\xfe", "hex", "ff fe"),
        (b"\x1b[31m", "hex", "1b 5b 33 31 6d"),
    ],
)
def test_data_are_shown_by_their_format(data: bytes | None, kind: str, text: str) -> None:
    found = shown(data, may_have_schema=True)
    assert (found["format"], found["text"], found["bytes"], found["cut"]) == (kind, text, len(data or b""), False)


def test_long_data_are_cut_between_characters() -> None:
    found = shown("é".encode() * BYTES_SHOWN_MAX + b"x")
    assert (found["format"], found["cut"], found["bytes"]) == ("text", True, 2 * BYTES_SHOWN_MAX + 1)
    assert found["text"] == "é" * (BYTES_SHOWN_MAX // 2)
    assert shown(b"x" + "é".encode() * BYTES_SHOWN_MAX)["text"].startswith("xé")
    assert not shown(b"x" * BYTES_SHOWN_MAX)["cut"] and shown(b"x" * (BYTES_SHOWN_MAX + 1))["cut"]
    assert len(shown(b"\xff" * 10_000)["text"].split()) == BYTES_SHOWN_MAX


def batches(*sizes: int, codec: CompressionType = CompressionType.NONE) -> bytes:
    made, offset = b"", 0
    for size in sizes:
        records = [Record(offset + n, 1000 + n, b"k", b"%d" % (offset + n), [("h", b"v")] * (HEADERS_SHOWN_MAX + 2)) for n in range(size)]
        made += bytes(build_batch(records, base_offset=offset, compression=codec))
        offset += size
    return made


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD])
def test_the_last_records_newest_first(codec: CompressionType) -> None:
    data = batches(10, 3, 4, codec=codec)
    assert next_offset(data, 0) == 17 and next_offset(data[:-1], 0) == 13 and next_offset(b"", 5) == 5
    rows = last_records(data, 2, 17, 6)
    assert [row["offset"] for row in rows] == [16, 15, 14, 13, 12, 11]
    assert rows[0]["value"]["text"] == "16" and (len(rows[0]["headers"]), rows[0]["headers_total"]) == (
        HEADERS_SHOWN_MAX,
        HEADERS_SHOWN_MAX + 2,
    )
    assert [row["offset"] for row in last_records(data, 15, 16, 6)] == [15]


def test_a_batch_that_cannot_be_shown_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_records, "DECOMPRESSED_BYTES_MAX", 100)
    (row,) = last_records(batches(50, codec=CompressionType.ZSTD), 0, 50, 20)
    assert row["offset"] == 49 and "not shown" in row["value"]["text"]


def test_a_batch_with_flipped_bits_is_not_shown() -> None:
    data = bytearray(batches(3))
    data[-3] ^= 1
    (row,) = last_records(bytes(data), 0, 3, 20)
    assert "fails its checksum" in row["value"]["text"]


async def get(port: int, path: str, **question: Any) -> tuple[int, dict[str, Any]]:
    def ask() -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", f"{path}?{urlencode(question)}")
        response = connection.getresponse()
        return response.status, json.loads(response.read())

    return await asyncio.to_thread(ask)


async def test_records_and_configurations_of_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_view, "FETCH_BYTES_MAX", 4000)
    async with live_node(tmp_path, {"ssl.keystore.password": "secret"}) as node:
        server = HttpServer(node)
        await server.start("127.0.0.1", 0)
        async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
            await admin.create_topic("seen", partitions=2, replication_factor=1, configs={"retention.ms": "12345"})
            async with Producer(f"127.0.0.1:{broker_port(node)}", linger_ms=0) as producer:
                for number in range(30):
                    await (await producer.send("seen", b"%d" % number, key=b"k", partition=0))
                status, found = await get(server.port, "/v1/records", topic="seen", partition=0)
                assert (status, found["begin"], found["end"]) == (200, 10, 30)
                assert [row["value"]["text"] for row in found["records"]] == [str(n) for n in range(29, 9, -1)]
                # What is more than a fetch takes: fewer of them, but the last.
                for letter in (b"a", b"b", b"c"):
                    await (await producer.send("seen", letter * 3000, partition=0))
                assert [row["value"]["text"][0] for row in (await get(server.port, "/v1/records", topic="seen"))[1]["records"]] == ["c"]
            assert (await get(server.port, "/v1/records", topic="seen", count=10**9))[1]["end"] == 33
            assert (await get(server.port, "/v1/records", topic="seen", partition=1))[1]["records"] == []
            await admin.delete_records({("seen", 0): 32})
            assert (await get(server.port, "/v1/records", topic="seen"))[1]["begin"] == 32
            await admin.delete_records({("seen", 0): 33})
            assert (await get(server.port, "/v1/records", topic="seen"))[1]["records"] == []
        for question, expected in (
            ({"topic": "no"}, 404),
            ({"topic": "seen", "partition": 2}, 404),
            ({"topic": "seen", "partition": "x"}, 400),
        ):
            assert (await get(server.port, "/v1/records", **question))[0] == expected
        status, found = await get(server.port, "/v1/configs", topic="seen")
        assert (status, found["configs"][0]) == (200, {"name": "retention.ms", "value": "12345", "source": "topic", "sensitive": False})
        status, found = await get(server.port, "/v1/configs", broker=1)
        secret = next(row for row in found["configs"] if row["name"] == "ssl.keystore.password")
        assert status == 200 and secret["sensitive"] and secret["value"] is None
        for question, expected in (
            ({}, 400),
            ({"topic": "no"}, 404),
            ({"broker": 2}, 404),
            ({"broker": "x"}, 400),
            ({"topic": "a", "broker": 1}, 400),
        ):
            assert (await get(server.port, "/v1/configs", **question))[0] == expected
        await server.stop()


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, True),
        ({"minikafka.http.host": "localhost"}, True),
        ({"minikafka.http.host": "::1"}, True),
        ({"minikafka.http.host": "0.0.0.0"}, False),
        ({"minikafka.http.host": ""}, False),
        ({"minikafka.http.host": "0.0.0.0", "minikafka.http.records": "true"}, True),
        ({"minikafka.http.records": "false"}, False),
        ({"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS"}, False),
    ],
)
async def test_records_are_shown_only_to_local_clients(properties: dict[str, str], expected: bool, tmp_path: Path) -> None:
    async with live_node(tmp_path, properties) as node:
        server = HttpServer(node)
        await server.start("127.0.0.1", 0)
        status, found = await get(server.port, "/v1/records", topic="none")
        assert status == (404 if expected else 403)
        assert expected or "minikafka.http.records" in found["error"]
        assert (await get(server.port, "/v1/cluster"))[1]["shows_records"] is expected
        await server.stop()
