"""Kafka Streams 4.3.1 with `group.protocol=streams` beside a cluster whose brokers die: its smoke test, and a checked word count."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from helpers.java_programs import JavaProgram, properties
from helpers.ledger import silent

VERSION = "4.3.1"
STREAMS = (
    *(f"org.apache.kafka:kafka-{part}:{VERSION}" for part in ("streams", "streams-examples", "clients")),
    *(f"org.apache.kafka:kafka-{part}:{VERSION}:jar:test" for part in ("streams", "clients")),
    "org.rocksdb:rocksdbjni:10.1.3",
)
#: Broker properties with which members of streams groups are heard of often, and missed soon.
QUICK_GROUPS = {
    "group.streams.heartbeat.interval.ms": "500", "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.session.timeout.ms": "6000", "group.streams.min.session.timeout.ms": "6000",
    "group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0",
}  # fmt: skip
INPUT, OUTPUT = "streams-plaintext-input", "streams-wordcount-output"
WORD_COUNT = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
SMOKE_TEST = "org.apache.kafka.streams.tests.StreamsSmokeTest"
#: From streams_smoke_test.py of Apache Kafka's system tests.
SMOKE_TOPICS = (
    "echo", "data", "min", "min-suppressed", "min-raw", "max", "sum", "sws-raw", "sws-suppressed", "dif", "cnt", "avg", "wcnt", "tagg",
)  # fmt: skip
WORDS = tuple(f"word{number}" for number in range(40))


def program(main_class: str, output: Path) -> JavaProgram:
    """One of Kafka Streams 4.3.1."""
    return JavaProgram(f"kafka-streams-{VERSION}", STREAMS, main_class, output, is_first=True)


def settings(bootstrap: str, state: Path) -> dict[str, str]:
    """Properties of an application that processes exactly once, in a streams group."""
    return {
        "bootstrap.servers": bootstrap, "group.protocol": "streams", "processing.guarantee": "exactly_once_v2",
        "replication.factor": "3", "commit.interval.ms": "200", "state.dir": str(state), "acks": "all",
    }  # fmt: skip


def create_topics(bootstrap: str, names: dict[str, int]) -> None:
    """Topics with these numbers of partitions, on three brokers."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "error_cb": silent, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, count, 3) for name, count in names.items()]).values():
        future.result(60)


@dataclass
class WordCount:
    """Lines that are written, and the counts that instances of Kafka's word count make of them."""

    bootstrap: str
    directory: Path
    expected: Counter[str] = field(default_factory=Counter)
    counts: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = random.Random(1)
        self._producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "acks": "all", "error_cb": silent, "log_level": 0,
             "delivery.timeout.ms": 120_000, "request.timeout.ms": 5_000, "reconnect.backoff.max.ms": 500}
        )  # fmt: skip
        self._consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest", "enable.auto.commit": False,
             "isolation.level": "read_committed", "error_cb": silent, "log_level": 0, "reconnect.backoff.max.ms": 500}
        )  # fmt: skip
        self._consumer.subscribe([OUTPUT])

    def instance(self, number: int) -> tuple[JavaProgram, str]:
        """An instance of the application, and the name of its properties."""
        values = settings(self.bootstrap, self.directory / f"state-{number}") | {"application.id": "words"}
        made = program(WORD_COUNT, self.directory / f"words-{number}.txt")
        return made, properties(self.directory / f"words-{number}.properties", values)

    def write(self, lines: int) -> None:
        """Lines of some words; all are acknowledged when it returns."""
        for _ in range(lines):
            words = self._chance.choices(WORDS, k=5)
            self.expected.update(words)
            self._producer.produce(INPUT, " ".join(words).encode(), on_delivery=_must_be_written)
            self._producer.poll(0)
        assert self._producer.flush(120) == 0

    def wait(self, timeout_s: float, alive: Callable[[], None] = lambda: None) -> float:
        """Until every word is counted, each time once: the counts of a word are 1, 2, 3 and so on. Seconds that it took. Raises
        AssertionError."""
        began = time.monotonic()
        while time.monotonic() < began + timeout_s:
            alive()
            for record in self._consumer.consume(500, 0.2):
                if record.error() is None:
                    self.counts.setdefault(record.key().decode(), []).append(int.from_bytes(record.value(), "big"))
            for word, counts in self.counts.items():
                assert counts == list(range(1, len(counts) + 1)), (word, counts)
            if all(len(self.counts.get(word, ())) >= count for word, count in self.expected.items()):
                assert {word: len(counts) for word, counts in self.counts.items()} == dict(self.expected)
                return time.monotonic() - began
        missing = {word: count - len(self.counts.get(word, ())) for word, count in self.expected.items()}
        raise AssertionError(f"{sum(missing.values())} of {self.expected.total()} words are not counted after {timeout_s} s")

    def close(self) -> None:
        self._consumer.close()


def _must_be_written(error: object, _: object) -> None:
    assert error is None, error
