"""A writer that remembers its acknowledged records, and the check that each is there once, in order, at its acknowledged offset."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from helpers.apache_kafka import wait_until

from minikafka.spark import report as reporting
from minikafka.spark.audit import AuditOptions, run_audit
from minikafka.spark.engine_local import LocalEngine

#: The group's coordinator moves to another node, on a busy machine for longer than a commit waits.
MOVING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError._TIMED_OUT,
)  # fmt: skip


def silent(*_: Any) -> None:
    """Connection errors are expected where nodes are killed."""


class Writer:
    """An idempotent producer (acks=all) that writes to all partitions of a topic in a thread until `stop`; a context manager."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, *, per_second: int = 500) -> None:
        self.topic = topic
        self.partitions = partitions
        #: (partition, offset) of each acknowledged value; None where librdkafka knows of the success by that of a later batch only
        self.acknowledged: dict[bytes, tuple[int, int | None]] = {}
        self.failures: list[str] = []
        self._bootstrap = bootstrap
        self._pause_s = 1 / per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 5, "error_cb": silent,
             "delivery.timeout.ms": 60_000, "request.timeout.ms": 5_000, "reconnect.backoff.max.ms": 500, "log_level": 0}
        )  # fmt: skip
        number = 0
        while not self._stop.wait(self._pause_s):
            producer.produce(self.topic, b"%d" % number, partition=number % self.partitions, on_delivery=self._delivered)
            producer.poll(0)
            number += 1
        left = producer.flush(60)
        if left:
            self.failures.append(f"{left} records were neither acknowledged nor failed")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[message.value()] = (message.partition(), message.offset())

    def wait_for_more(self, count: int = 200, timeout_s: float = 40.0) -> None:
        """Until `count` further records have been acknowledged."""
        goal = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= goal, timeout_s, f"{count} more acknowledged records")

    def stop(self) -> None:
        """Stop, and wait until the fate of every record is known."""
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive()

    def check(self, bootstrap: str) -> int:
        """Every acknowledged record is at its offset, in order of sending, no record is there twice, none failed; how many."""
        assert self.failures == [], self.failures[:5]
        seen: dict[bytes, tuple[int, int]] = {}
        for partition in range(self.partitions):
            last = -1
            for offset, value in read_all(bootstrap, self.topic, partition):
                assert value not in seen, f"{value!r} is at {seen[value]} and at {(partition, offset)}"
                assert int(value) > last, f"{value!r} at offset {offset} of partition {partition} comes after {last}"
                last = int(value)
                seen[value] = (partition, offset)
        lost = {
            value: (partition, offset)
            for value, (partition, offset) in self.acknowledged.items()
            if value not in seen or seen[value][0] != partition or offset not in (None, seen[value][1])
        }
        assert lost == {}, f"{len(lost)} of {len(self.acknowledged)} acknowledged records are not where they were: {list(lost.items())[:5]}"
        return len(self.acknowledged)


class GroupReader:
    """One member of a consumer group that commits what it has read, in a thread until `stop`; a context manager."""

    def __init__(self, bootstrap: str, topic: str, group: str = "interop", protocol: str = "classic") -> None:
        """`protocol`: its group.protocol."""
        self._protocol = protocol
        self.seen: Counter[bytes] = Counter()
        self.failures: list[str] = []
        self._bootstrap, self._topic, self._group = bootstrap, topic, group
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> GroupReader:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        # With the consumer protocol, the broker tells both.
        times = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 500} if self._protocol == "classic" else {}
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": self._group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
             "group.protocol": self._protocol, "reconnect.backoff.max.ms": 500, "error_cb": silent, "log_level": 0, **times}
        )  # fmt: skip
        consumer.subscribe([self._topic])
        while not self._stop.is_set():
            messages = consumer.consume(1000, 0.2)
            for message in messages:
                if message.error() is not None:
                    self.failures.append(str(message.error()))
                else:
                    self.seen[message.value()] += 1
            if messages:
                self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            # The next commit covers this, too.
            if not error.args[0].retriable() and error.args[0].code() not in MOVING:
                self.failures.append(str(error))

    def wait_until_seen(self, values: Collection[bytes], timeout_s: float = 40.0) -> None:
        """Until every one of `values` has been read."""
        wait_until(lambda: all(value in self.seen for value in values), timeout_s, "the group to read everything")

    def stop(self) -> None:
        """Leave the group."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def read_all(bootstrap: str, topic: str, partition: int, timeout_s: float = 40.0) -> list[tuple[int, bytes]]:
    """(offset, value) of every record of one partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "error_cb": silent, "check.crcs": True, "log_level": 0})
    place = TopicPartition(topic, partition, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=20)
    consumer.assign([place])
    found: list[tuple[int, bytes]] = []

    def is_done() -> bool:
        for message in consumer.consume(5000, 0.2):
            assert message.error() is None, message.error()
            found.append((message.offset(), message.value()))
        return end == 0 or (bool(found) and found[-1][0] + 1 >= end)

    wait_until(is_done, timeout_s, f"reading {topic}-{partition} up to {end}")
    consumer.close()
    return found


def create_topic(bootstrap: str, topic: str, partitions: int, factor: int, **config: str) -> None:
    """Create a topic; `config` with `_` for `.`."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "error_cb": silent, "log_level": 0})
    values = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, factor, config=values)])[topic].result(30)


def audit(directories: list[Path], *, single: bool = False) -> dict[str, Any]:
    """The audit's report; asserts that it passes. `single`: partitions with one replica are judged by their own checks."""
    result = run_audit([str(path) for path in directories], LocalEngine(1), AuditOptions(level="records", self_check=single))
    report = reporting.build(result)
    assert (report["outcome"], report["summary"]["errors"]) == ("PASS", 0), report["findings"]
    return report
