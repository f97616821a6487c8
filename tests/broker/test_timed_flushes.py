"""flush.ms: every log.flush.scheduler.interval.ms, logs are synced whose last sync is older (LogManager.flushDirtyLogs)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.batches import T0, batch
from helpers.live_node import broker_port, live_node
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.config.topic_config import log_config
from minikafka.broker.node import Node
from minikafka.client.admin import Admin
from minikafka.steps import at_once
from minikafka.storage.config import INT64_MAX, LogConfig
from minikafka.storage.due_work import STEP_LOGS, overdue
from minikafka.storage.filesystem import OsFile
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log

NODE = {
    "process.roles": "broker,controller", "node.id": "1", "controller.listener.names": "C", "controller.quorum.voters": "1@h:1",
    "listeners": "PLAINTEXT://:0,C://:1",
}  # fmt: skip


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


def log_of(flush_ms: int, number: int = 0) -> Log:
    return load_log(MemoryFileSystem(), f"/data/t-{number}", "t", number, LogConfig(flush_ms=flush_ms), wall_ms=T0)


def append(log: Log) -> None:
    log.append_as_leader(memoryview(batch(b"v")), 0, T0)


def test_a_log_is_due_when_its_last_sync_is_old_enough() -> None:
    log, never, now_ms = log_of(100), log_of(INT64_MAX, 1), 1_000
    found: list[Log] = []

    def look(after_ms: int) -> list[Log]:
        nonlocal now_ms
        now_ms += after_ms
        return at_once(overdue([log, never], now_ms, now_ms - after_ms))

    append(never)
    assert look(50) == [], "it is as old as the look before"
    append(log)
    assert look(40) == [] and look(9) == [] and look(1) == [log]
    log.flush()
    assert look(50) == []
    append(log)
    assert look(49) == [] and look(1) == [log] and look(1) == [log]
    log.flush(0)
    found = look(1)
    assert found == [log] and log.durability.should_sync_ahead
    log.take_offline(log.fail("test", OSError(5, "injected")))
    assert look(1000) == []


def test_a_log_that_has_nothing_to_sync_is_due_with_its_next_record() -> None:
    """As in Apache Kafka, where the time since the last sync counts, not that since the record."""
    log = log_of(100)
    assert at_once(overdue([log], 5_000, 0)) == []
    append(log)
    assert at_once(overdue([log], 5_010, 5_000)) == [log]


def test_very_many_logs_are_looked_at_in_steps() -> None:
    logs: list[Any] = [log_of(0, number) for number in range(3 * STEP_LOGS)]
    for log in logs:
        append(log)
    steps, count = overdue(logs, 1, 0), 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as stop:
            assert stop.value == logs
            break
    assert count == 3


@pytest.mark.parametrize(
    ("given", "topic", "flush_ms"),
    [
        ({}, {}, INT64_MAX),
        ({"log.flush.scheduler.interval.ms": "700"}, {}, 700),
        ({"log.flush.scheduler.interval.ms": "700", "log.flush.interval.ms": "900"}, {}, 900),
        ({"log.flush.interval.ms": "900"}, {"flush.ms": "40"}, 40),
    ],
)
def test_the_interval_of_a_topic_is_inherited(given: dict[str, str], topic: dict[str, str], flush_ms: int) -> None:
    assert log_config(BrokerConfig.from_properties({**NODE, **given}), topic).flush_ms == flush_ms


class Syncs:
    """Counts the syncs of each log, and notes their threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self.threads: set[int] = set()
        original = OsFile.fsync

        def fsync(file: OsFile) -> None:
            if file.path.endswith(".log") and "/timed-" in file.path:
                self.counts[file.path.split("/")[-2]] += 1
                self.threads.add(threading.get_ident())
            original(file)

        monkeypatch.setattr(OsFile, "fsync", fsync)


def logs_of(node: Node) -> list[Log]:
    assert node.broker is not None
    return [partition.log for partition in node.broker.replicas.partitions.values() if partition.topic == "timed"]


@pytest.mark.parametrize("way", ["broker", "topic", "changed"])
async def test_records_are_synced_in_time_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    syncs = Syncs(monkeypatch)
    properties = {"log.flush.scheduler.interval.ms": "20", "log.flush.interval.ms": "30" if way == "broker" else "10000000"}
    async with live_node(tmp_path, properties) as node, Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        configs = {"flush.ms": "30"} if way == "topic" else {}
        await admin.create_topic("timed", partitions=3, replication_factor=1, configs=configs)
        await until(lambda: len(logs_of(node)) == 3)
        if way == "changed":
            await admin.alter_configs(2, "timed", [("set", "flush.ms", "30")])
        for _ in range(2):
            for log in logs_of(node):
                append(log)
            await until(lambda: all(log.recovery_point == log.log_end_offset for log in logs_of(node)))
        assert set(syncs.counts) == {"timed-0", "timed-1", "timed-2"}
        assert threading.get_ident() not in syncs.threads


async def test_without_a_scheduler_nothing_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka's default, too: followers hold the records."""
    called: list[str] = []
    monkeypatch.setattr("minikafka.broker.partitions.log_upkeep.LogUpkeep._look_for_overdue", lambda upkeep: called.append("looked"))
    async with live_node(tmp_path, {"log.flush.interval.ms": "1"}) as node:
        assert node.broker is not None
        assert "flush.ms" not in node.broker.replicas.upkeep._timers
    assert called == []
