"""A compacted topic and `__consumer_offsets` shrink while clients use them, and are what they were after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.broker.node import Node
from minikafka.client.admin import Admin
from minikafka.client.consumer import Consumer
from minikafka.client.producer import Producer
from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import FileSystem
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log

KEYS = 10
ROUNDS = 30
PROPERTIES = {"log.cleaner.backoff.ms": "20", "log.segment.delete.delay.ms": "0", "offsets.topic.num.partitions": "1"}


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def log_of(node: Node, topic: str) -> Log:
    return next(log for directory in node.directories for (name, _), log in directory.logs.items() if name == topic)


async def contents(bootstrap: str, topic: str) -> dict[bytes | None, bytes | None]:
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([(topic, 0)])
        found: dict[bytes | None, bytes | None] = {}
        while records := await consumer.poll(300):
            found.update({record.key: record.value for record in records})
        return found


async def test_a_compacted_topic_keeps_the_last_value_of_each_key(tmp_path: Path) -> None:
    last = {b"k%d" % key: b"%d" % (ROUNDS - 1) for key in range(KEYS)}
    async with live_node(tmp_path, PROPERTIES) as node:
        bootstrap = f"127.0.0.1:{broker_port(node)}"
        async with Admin(bootstrap) as admin:
            await admin.create_topic(
                "c", partitions=1, replication_factor=1,
                configs={"cleanup.policy": "compact", "internal.segment.bytes": "600", "min.cleanable.dirty.ratio": "0.01"},
            )  # fmt: skip
        async with Producer(bootstrap, linger_ms=0) as producer:
            for number in range(ROUNDS):
                for key in range(KEYS):
                    await producer.send("c", b"%d" % number, key=b"k%d" % key, partition=0)
                await producer.flush()
        log = log_of(node, "c")
        end = log.log_end_offset
        await until(lambda: sum(s.size for s in log.segments[:-1]) < 3000)
        assert await contents(bootstrap, "c") == last
        assert (tmp_path / "data-0" / "cleaner-offset-checkpoint").exists()
        assert node.broker is not None
        assert node.broker.cleaner.rounds > 0
    async with live_node(tmp_path, PROPERTIES) as node:
        assert log_of(node, "c").log_end_offset == end
        assert await contents(f"127.0.0.1:{broker_port(node)}", "c") == last


async def test_committed_offsets_are_compacted_and_survive(tmp_path: Path) -> None:
    async with live_node(tmp_path, PROPERTIES) as node:
        bootstrap = f"127.0.0.1:{broker_port(node)}"
        async with Admin(bootstrap) as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1)
            async with Producer(bootstrap, linger_ms=0) as producer:
                await producer.send("t", b"v", partition=0)
            async with Consumer(bootstrap, group_id="g", enable_auto_commit=False) as consumer:
                await consumer.commit({("t", 0): 0})
                await admin.alter_configs(
                    2, "__consumer_offsets", [("set", "internal.segment.bytes", "500"), ("set", "min.cleanable.dirty.ratio", "0.01")]
                )
                for offset in range(1, 200):
                    await consumer.commit({("t", 0): offset})
        log = log_of(node, "__consumer_offsets")
        await until(lambda: log.log_end_offset >= 200 and sum(s.size for s in log.segments) < 2000)
    async with live_node(tmp_path, PROPERTIES) as node, Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        assert await admin.group_offsets("g") == {("t", 0): 199}


async def test_logs_are_opened_with_the_configuration_of_their_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live_node(tmp_path, PROPERTIES) as node, Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        await admin.create_topic("c", partitions=1, replication_factor=1, configs={"cleanup.policy": "compact,delete"})
        await admin.alter_configs(4, "", [("set", "log.retention.ms", "1234567")])
    opened: list[LogConfig] = []

    def load(filesystem: FileSystem, path: str, topic: str, partition: int, config: LogConfig, **options: Any) -> Log:
        opened.append(config)
        return load_log(filesystem, path, topic, partition, config, **options)

    monkeypatch.setattr("minikafka.storage.log_dir.load_log", load)
    async with live_node(tmp_path, PROPERTIES):
        pass
    assert [(config.cleanup_policy, config.retention_ms) for config in opened] == [(frozenset({"compact", "delete"}), 1234567)]
