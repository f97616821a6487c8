"""librdkafka and Java push their metrics (KIP-714): they ask, push at the interval that they are told, and once more when they end."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from helpers.apache_kafka import NEXT, java
from helpers.live_node import broker_port, live_node

from minikafka.client.quotas import QuotaAdmin

CLIENT_METRICS = 16


async def test_librdkafka_logs_nothing_where_nobody_subscribes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "librdkafka")
    async with live_node(tmp_path) as node:
        assert node.broker is not None
        clients, address = node.broker.client_metrics, f"127.0.0.1:{broker_port(node)}"

        async def first_record(client_id: str) -> confluent_kafka.Producer:
            settings = {"bootstrap.servers": address, "client.id": client_id}
            producer = confluent_kafka.Producer(settings, logger=logging.getLogger("librdkafka"))
            producer.produce("t", b"x")
            assert await asyncio.to_thread(producer.flush, 60) == 0
            return producer

        before = await first_record("before")
        async with QuotaAdmin(address) as admin:
            await admin.alter_configs(CLIENT_METRICS, "s", [("set", "metrics", "*")])
        while not clients.subscriptions:
            await asyncio.sleep(0.01)
        after = await first_record("after")
        # The first producer has had at least as long as the second one needs.
        while not any("GETSUBSCRIPTIONS" in line for line in caplog.messages):
            after.poll(0)
            await asyncio.sleep(0.01)
        before.poll(0)
        assert [instance.attributes["client_id"] for instance in clients.instances.by_id.values()] == ["after"]
        assert sum("GETSUBSCRIPTIONS" in line for line in caplog.messages) == 1


async def test_a_producer_of_librdkafka_tells_its_metrics(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:
        assert node.broker is not None
        clients, address = node.broker.client_metrics, f"127.0.0.1:{broker_port(node)}"
        async with QuotaAdmin(address) as admin:
            wanted: list[tuple[str, str, str | None]] = [
                ("set", "metrics", "*"), ("set", "interval.ms", "100"), ("set", "match", "client_id=shop,client_software_name=.*"),
            ]  # fmt: skip
            await admin.alter_configs(CLIENT_METRICS, "s", wanted)
            await admin.create_topic("t", partitions=1, replication_factor=1)
        while not clients.subscriptions:
            await asyncio.sleep(0.01)
        producers = {
            name: confluent_kafka.Producer({"bootstrap.servers": address, "client.id": name, "enable.metrics.push": True})
            for name in ("shop", "other")
        }
        while clients.pushes < 3 or len(clients.instances.by_id) < 2:
            for producer in producers.values():
                producer.produce("t", b"x")
                producer.poll(0)
            await asyncio.sleep(0.02)
        pushing: Any = next(i for i in clients.instances.by_id.values() if i.attributes["client_id"] == "shop")
        assert (pushing.requested.metrics, pushing.requested.interval_ms) == (("*",), 100)
        assert [i.requested.metrics for i in clients.instances.by_id.values() if i is not pushing] == [()]
        for name in list(producers):
            await asyncio.to_thread(producers.pop(name).flush, 10)
        while clients.instances.by_id and not pushing.is_terminating:
            await asyncio.sleep(0.01)
        assert pushing.is_terminating and clients.unreadable == 0
        if importlib.util.find_spec("opentelemetry.proto") is not None:
            reported = {name for name, _ in clients.series.by_instance[pushing.instance_id].counters}
            assert "org.apache.kafka.producer.connection.creation.total" in reported


@pytest.mark.java
@pytest.mark.timeout(300)
async def test_a_producer_of_java_tells_its_metrics(tmp_path: Path) -> None:
    """It pushes while it runs, compressed as it prefers, and once more when it ends. A push that is late, on a busy machine, would keep it
    from pushing for five minutes; so its requests have a minute."""
    async with live_node(tmp_path) as node:
        assert node.broker is not None
        clients, address = node.broker.client_metrics, f"127.0.0.1:{broker_port(node)}"
        async with QuotaAdmin(address) as admin:
            wanted: list[tuple[str, str, str | None]] = [
                ("set", "metrics", "org.apache.kafka.producer."), ("set", "interval.ms", "100"),
                ("set", "match", "client_software_name=apache-kafka-java,client_software_version=4\\.4.*"),
            ]  # fmt: skip
            await admin.alter_configs(CLIENT_METRICS, "s", wanted)
            await admin.create_topic("t", partitions=1, replication_factor=1)
        while not clients.subscriptions:
            await asyncio.sleep(0.01)
        words = ("--topic", "t", "--bootstrap-server", address, "--request-timeout-ms", "60000", "--command-property", "client.id=shop")
        command = [*java(version=NEXT), "org.apache.kafka.tools.ConsoleProducer", *words]
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)
        assert process.stdin is not None
        try:
            while clients.pushes < 3:
                process.stdin.write(b"x\n")
                await process.stdin.drain()
                await asyncio.sleep(0.1)
            pushing: Any = next(iter(clients.instances.by_id.values()))
            assert pushing.attributes["client_id"] == "shop" and pushing.attributes["client_software_name"] == "apache-kafka-java"
            process.stdin.close()
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
        assert pushing.is_terminating and clients.unreadable == 0
        reported = clients.series.by_instance[pushing.instance_id]
        names = {name for name, _ in (*reported.counters, *reported.gauges)}
        assert "org.apache.kafka.producer.connection.creation.total" in names
        assert all(name.startswith("org.apache.kafka.producer.") for name in names)
