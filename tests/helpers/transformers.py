"""Consume-transform-produce workers in threads, and their rule: they write what they read, once and in order.

Each copies a topic, partition by partition, into another one: records and the group's offsets in one transaction. Some transactions are
aborted on purpose. Whatever happens to the brokers, a committed reader of the copy sees the records of the source, once and in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition
from helpers.history import History
from helpers.workload import Client

from minikafka.client.consumer import Consumer
from minikafka.client.errors import TRANSPORT_ERRORS, ClientError, TransactionFailed
from minikafka.client.transactional import TransactionalProducer
from minikafka.testing.wait import LoadAdjustedDeadline

TRANSACTION_TIMEOUT_MS = 20_000
RECORDS_MAX = 200
ABORTED = 0.1


class Transformer(Client):
    """Copies `source` into `topic` as a member of `group`, under the transactional id `name`."""

    def __init__(self, name: str, bootstrap: str, source: str, topic: str, history: History, group: str, draw: random.Random) -> None:
        super().__init__(name, bootstrap, topic, history)
        self.source = source
        self.group = group
        self.draw = draw
        self.committed = 0
        self.aborted = 0


class ConfluentTransformer(Transformer):
    """librdkafka: after an error that ends a transaction, the worker resumes as its manual says."""

    def work(self) -> None:
        """Copy until stopped."""
        while not self._stopping.is_set():
            try:
                self._live()
            except KafkaException as error:
                self.history.note(f"{self.name} begins anew: {error}")
                time.sleep(0.2)

    def _live(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap, "transactional.id": self.name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2, "socket.timeout.ms": 5000, "reconnect.backoff.max.ms": 500, "log_level": 0,
                # Without it librdkafka may wait forever for a dead coordinator (docs/clients.md).
                "connections.max.idle.ms": 5000,
            }
        )  # fmt: skip
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap, "group.id": self.group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                "isolation.level": "read_committed", "session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "fetch.wait.max.ms": 100,
                "socket.timeout.ms": 5000, "reconnect.backoff.max.ms": 500, "log_level": 0,
            }
        )  # fmt: skip
        try:
            producer.init_transactions(60)
            consumer.subscribe([self.source])
            while not self._stopping.is_set():
                messages = [message for message in consumer.consume(RECORDS_MAX, 0.1) if message.error() is None]
                if messages:
                    self._transaction(producer, consumer, messages)
        finally:
            # librdkafka hangs when it closes a producer that was fenced with records in flight.
            with contextlib.suppress(KafkaException):
                producer.purge()
                producer.flush(5)
            # Closing waits for a coordinator that may be dead: bound it, the session timeout removes the member.
            with contextlib.suppress(KafkaException, RuntimeError):
                consumer.close()

    def _transaction(self, producer: Any, consumer: Any, messages: list[Any]) -> None:
        first: dict[int, int] = {}
        after: dict[int, int] = {}
        producer.begin_transaction()
        try:
            for message in messages:
                first.setdefault(message.partition(), message.offset())
                after[message.partition()] = message.offset() + 1
                producer.produce(self.topic, message.value(), partition=message.partition())
            offsets = [TopicPartition(self.source, index, offset) for index, offset in after.items()]
            _again(lambda: producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 10))
            if self.draw.random() >= ABORTED:
                _again(lambda: producer.commit_transaction(30))
                self.committed += 1
                return
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        _again(lambda: producer.abort_transaction(30))
        self.aborted += 1
        for index, offset in first.items():
            with contextlib.suppress(KafkaException):  # another member has the partition now: it begins where the group has committed
                consumer.seek(TopicPartition(self.source, index, offset))


def _again(work: Callable[[], None]) -> None:
    """Repeat what librdkafka says can be repeated."""
    while True:
        try:
            work()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


class BundledTransformer(Transformer):
    """minikafka's own clients."""

    def work(self) -> None:
        """Copy until stopped."""
        asyncio.run(self._work())

    async def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._live()
            except (ClientError, *TRANSPORT_ERRORS) as error:
                self.history.note(f"{self.name} begins anew: {error!r}")
                await asyncio.sleep(0.2)

    async def _live(self) -> None:
        reading: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500, "enable_auto_commit": False}
        reading |= {"group_id": self.group, "auto_offset_reset": "earliest", "fetch_wait_ms_max": 100, "isolation_level": "read_committed"}
        writing: dict[str, Any] = {"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS, "linger_ms": 2, "request_timeout_ms": 5000}
        async with (
            TransactionalProducer(self.bootstrap, self.name, **writing) as producer,
            Consumer(self.bootstrap, **reading) as consumer,
        ):
            await producer.init_transactions()
            await consumer.subscribe([self.source])
            while not self._stopping.is_set():
                records = await consumer.poll(100, RECORDS_MAX)
                if records:
                    await self._transaction(producer, consumer, records)

    async def _transaction(self, producer: TransactionalProducer, consumer: Consumer, records: list[Any]) -> None:
        after = {(self.source, record.partition): record.offset + 1 for record in records}
        producer.begin()
        try:
            for record in records:
                await producer.send(self.topic, record.value, partition=record.partition)
            await producer.send_offsets_to_transaction(after, consumer.group_metadata)
            if self.draw.random() >= ABORTED:
                await producer.commit()
                self.committed += 1
                return
        except TransactionFailed as error:
            self.history.note(f"{self.name} aborts: {error}")
        await producer.abort()
        self.aborted += 1
        await self._rewind(consumer)

    async def _rewind(self, consumer: Consumer) -> None:
        """Go back to the committed offsets. No earlier position counts: another member may have had the partition meanwhile."""
        while True:
            generation, assignment = consumer.generation, consumer.assignment
            committed = await consumer.committed(assignment)
            if generation == consumer.generation:
                for partition in assignment:
                    consumer.seek(partition, committed[partition] or 0)
                return


def wait_until_copied(bootstrap: str, source: str, group: str, partitions: int, timeout_s: float) -> str:
    """Wait until the group has committed all of the source; the reason if it has not in time, else nothing."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    consumer = confluent_kafka.Consumer(settings | {"isolation.level": "read_committed"})
    deadline = LoadAdjustedDeadline(timeout_s)
    left: object = "nothing was answered"
    try:
        while not deadline.is_over:
            with contextlib.suppress(KafkaException):
                wanted = [TopicPartition(source, index) for index in range(partitions)]
                found = {place.partition: place.offset for place in consumer.committed(wanted, timeout=5)}
                ends = {index: consumer.get_watermark_offsets(TopicPartition(source, index), timeout=5)[1] for index in range(partitions)}
                left = {index: (found[index], end) for index, end in ends.items() if max(0, found[index]) < end}
                if not left:
                    return ""
            time.sleep(0.2)
        return f"group {group} does not come to the end of {source}: {left}"
    finally:
        consumer.close()


def committed_values(bootstrap: str, topic: str, partitions: int, timeout_s: float) -> dict[int, list[str]]:
    """partition -> the values that a committed reader sees, in order. Raises AssertionError when the end is not reached in time."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "copies",
        "enable.auto.commit": False,
        "log_level": 0,
        "enable.partition.eof": True,
    }
    consumer = confluent_kafka.Consumer(settings | {"isolation.level": "read_committed"})
    found: dict[int, list[str]] = {index: [] for index in range(partitions)}
    waiting = set(found)
    deadline = LoadAdjustedDeadline(timeout_s)
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in found])
        while waiting:
            assert not deadline.is_over, f"{topic}: partitions {sorted(waiting)} could not be read within {timeout_s:g} s"
            for message in consumer.consume(2000, 0.2):
                error = message.error()
                if error is None:
                    found[message.partition()].append(message.value().decode())
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    waiting.discard(message.partition())
        return found
    finally:
        consumer.close()


def differences(source: dict[int, list[str]], copy: dict[int, list[str]], name: str) -> list[str]:
    """Duplicate, missing and reordered records of a copy: a line for each partition."""
    found = []
    for index, values in source.items():
        copied = copy.get(index, [])
        if copied == values:
            continue
        at = next((i for i, (one, other) in enumerate(zip(values, copied, strict=False)) if one != other), min(len(values), len(copied)))
        twice, distinct = len(copied) - len(set(copied)), set(copied)
        lost = [value for value in values if value not in distinct]
        found.append(
            f"{name}-{index}: {len(copied)} records of {len(values)}, {twice} twice, {len(lost)} lost {lost[:3]}; "
            f"first difference at {at}: {copied[at : at + 3]} instead of {values[at : at + 3]}"
        )
    return found
