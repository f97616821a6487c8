"""A node that listens on IPv6 addresses, and clients that reach it there."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import Producer as LibrdkafkaProducer
from helpers.live_node import broker_port, live_node

from minikafka.cli.listeners import listeners_of, table
from minikafka.client.consumer import Consumer
from minikafka.client.producer import Producer


def free_port() -> int:
    """A free port of ::1; the test is skipped if the machine has no IPv6."""
    try:
        with socket.socket(socket.AF_INET6) as holder:
            holder.bind(("::1", 0))
            return int(holder.getsockname()[1])
    except OSError:
        pytest.skip("no IPv6 on this machine")


def by_librdkafka(bootstrap: str) -> list[bytes]:
    """Produce one record, and read the topic in a group."""
    producer = LibrdkafkaProducer({"bootstrap.servers": bootstrap})
    producer.produce("t", b"of librdkafka")
    assert producer.flush(30) == 0
    consumer = LibrdkafkaConsumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found: list[bytes] = []
    while len(found) < 2:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


@pytest.mark.timeout(90)
async def test_clients_reach_a_node_by_ipv6_addresses(tmp_path: Path) -> None:
    port = free_port()
    listeners = {
        "listeners": f"PLAINTEXT://[::1]:0,CONTROLLER://[::1]:{port}", "controller.quorum.voters": f"1@[::1]:{port}",
    }  # fmt: skip
    async with live_node(tmp_path, listeners) as node:
        bootstrap = f"[::1]:{broker_port(node)}"
        assert [row.split()[2:4] for row in table(listeners_of(node))[1:]] == [[f"[::1]:{port}", "-"], [bootstrap, bootstrap]]
        async with Producer(bootstrap) as producer:
            await producer.send("t", b"bundled")
        assert await asyncio.to_thread(by_librdkafka, bootstrap) == [b"bundled", b"of librdkafka"]
        async with Consumer(bootstrap, group_id="h", auto_offset_reset="earliest") as consumer:
            await consumer.subscribe(["t"])
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [record.value for record in await consumer.poll(1000)]
        assert found == [b"bundled", b"of librdkafka"]
