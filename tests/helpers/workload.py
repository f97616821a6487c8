"""Writers and readers in threads that keep a history: confluent-kafka and the bundled client, idempotent, acks=all, readers in groups."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from helpers.history import History, Outcome, Send

from minikafka.client.consumer import Consumer
from minikafka.client.errors import ClientError, DeliveryFailed
from minikafka.client.produce_queue import RecordMetadata
from minikafka.client.producer import Producer
from minikafka.wire.errors import ErrorCode

#: A client that gives a record up may write it again in another producer epoch, which no broker can recognise, so writers do not give up.
MESSAGE_TIMEOUT_MS = 3_600_000
#: After the last send, everything has an answer within this time.
FLUSH_S_MAX = 300
IN_FLIGHT_MAX = 5000
#: Refusals after which a record is certainly not in the log.
CERTAIN_CODES = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG}


class Client:
    """A thread that works until `stop`; `join` raises the exception that ended it."""

    def __init__(self, name: str, bootstrap: str, topic: str, history: History) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.topic = topic
        self.history = history
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Request the end: a writer flushes, a reader leaves its group."""
        self._stopping.set()

    def join(self, timeout_s: float = 60.0) -> None:
        """Wait for the end."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self._failure is not None:
            raise AssertionError(f"{self.name} failed: {self._failure!r}") from self._failure

    def _guarded(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self._failure = error

    def work(self) -> None:
        """What the thread does."""
        raise NotImplementedError


class Writer(Client):
    """Unique values, round the partitions, at most `rate_hz` a second."""

    def __init__(self, name: str, bootstrap: str, topic: str, history: History, partitions: int, rate_hz: float = 500) -> None:
        super().__init__(name, bootstrap, topic, history)
        self.partitions = partitions
        self.pause_s = 1 / rate_hz
        self.number = 0

    def next_send(self) -> Send:
        """The next record's place in the history."""
        partition = self.number % self.partitions
        send = self.history.begin(self.name, partition, f"{self.name}-{self.number}")
        self.number += 1
        return send


class _Epochs(logging.Filter):
    """Keeps librdkafka's debug lines about giving up a producer epoch, and lets no line through."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the line if it is one of them."""
        line = record.getMessage()
        if any(word in line for word in ("ERRSEQ", "ERRPID", "UNKPID", "bump", "fatal error")):
            self._history.note(line)
        return False


class ConfluentWriter(Writer):
    """librdkafka. A fatal error of its idempotent state is answered as its manual says: with a new producer.

    The history notes why it takes new producer epochs: what was under way then it writes again.
    """

    def __init__(self, name: str, bootstrap: str, topic: str, history: History, partitions: int, rate_hz: float = 500) -> None:
        super().__init__(name, bootstrap, topic, history, partitions, rate_hz)
        self._epochs = logging.Logger(name, logging.DEBUG)
        self._epochs.addFilter(_Epochs(history))

    def work(self) -> None:
        """Write until stopped."""
        producer = self._producer()
        waiting = 0

        def delivered(send: Send, error: KafkaError | None, message: Any) -> None:
            nonlocal waiting
            waiting -= 1
            if error is None:
                self.history.settled(send, Outcome.OK, message.partition(), -1 if message.offset() is None else message.offset())
            else:
                self.history.settled(send, Outcome.FAIL if error.code() in CERTAIN_CODES else Outcome.INFO)

        process = self.name
        rebuilt = 0
        while not self._stopping.is_set():
            if waiting >= IN_FLIGHT_MAX:
                producer.poll(0.01)
                continue
            send = self.next_send()
            try:
                producer.produce(
                    self.topic, send.value.encode(), partition=send.partition, on_delivery=lambda e, m, send=send: delivered(send, e, m)
                )
                waiting += 1
            except KafkaException as error:
                if not error.args[0].fatal():
                    raise
                self.history.settled(send, Outcome.FAIL)
                with contextlib.suppress(KafkaException):
                    producer.purge()
                    producer.flush(5)
                rebuilt += 1
                self.name = f"{process}/{rebuilt}"
                producer, waiting = self._producer(), 0
            producer.poll(self.pause_s)
        assert producer.flush(FLUSH_S_MAX) == 0, f"{self.name}: not everything was settled"

    def _producer(self) -> Any:
        return confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": MESSAGE_TIMEOUT_MS,
                "batch.num.messages": 50, "reconnect.backoff.max.ms": 500, "socket.timeout.ms": 5000, "retry.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 5000, "debug": "eos", "logger": self._epochs,
            }
        )  # fmt: skip


class BundledWriter(Writer):
    """minikafka's own producer."""

    def work(self) -> None:
        """Write until stopped."""
        asyncio.run(self._write())

    async def _write(self) -> None:
        settings: dict[str, Any] = {"linger_ms": 2, "request_timeout_ms": 5000, "batch_size": 4096}
        settings["delivery_timeout_ms"] = MESSAGE_TIMEOUT_MS
        waiting = asyncio.Semaphore(IN_FLIGHT_MAX)
        async with Producer(self.bootstrap, **settings) as producer:
            while not self._stopping.is_set():
                await waiting.acquire()
                send = self.next_send()
                future = await producer.send(self.topic, send.value.encode(), partition=send.partition)
                future.add_done_callback(lambda done, send=send: (waiting.release(), self._settled(send, done)))  # type: ignore[misc]
                await asyncio.sleep(self.pause_s)
            await asyncio.wait_for(producer.flush(), FLUSH_S_MAX)

    def _settled(self, send: Send, done: asyncio.Future[RecordMetadata]) -> None:
        error = done.exception()
        if error is None:
            place = done.result()
            self.history.settled(send, Outcome.OK, place.partition, place.offset)
        else:
            certain = isinstance(error, DeliveryFailed) and error.code is ErrorCode.MESSAGE_TOO_LARGE
            self.history.settled(send, Outcome.FAIL if certain else Outcome.INFO)


class ConfluentReader(Client):
    """A member of a group, replaced every `life_s` seconds."""

    def __init__(self, name: str, bootstrap: str, topic: str, history: History, group: str, life_s: float = 30.0) -> None:
        super().__init__(name, bootstrap, topic, history)
        self.group = group
        self.life_s = life_s

    def work(self) -> None:
        """Read until stopped."""
        lives = 0
        while not self._stopping.is_set():
            lives += 1
            self._live(f"{self.name}.{lives}", time.monotonic() + self.life_s)

    def _live(self, process: str, until_s: float) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap, "group.id": self.group, "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000, "auto.commit.interval.ms": 500, "heartbeat.interval.ms": 500, "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 500, "socket.timeout.ms": 5000, "log_level": 0,
                "isolation.level": "read_uncommitted",
            }
        )  # fmt: skip
        assignment = 0

        def changed(*_: Any) -> None:
            nonlocal assignment
            assignment += 1

        consumer.subscribe([self.topic], on_assign=changed, on_revoke=changed, on_lost=changed)
        records: list[tuple[int, int, str]] = []
        while not self._stopping.is_set() and time.monotonic() < until_s:
            before = assignment
            message = consumer.poll(0 if records else 0.2)
            if records and (message is None or assignment != before or len(records) >= 500):
                self.history.polled(process, before, records)
                records = []
            if message is None:
                continue
            if message.error() is not None:
                assert not message.error().fatal(), message.error()
                continue
            records.append((message.partition(), message.offset(), message.value().decode()))
        if records:
            self.history.polled(process, assignment, records)
        consumer.close()


class BundledReader(Client):
    """A member of a group, of minikafka's own client."""

    def __init__(self, name: str, bootstrap: str, topic: str, history: History, group: str) -> None:
        super().__init__(name, bootstrap, topic, history)
        self.group = group

    def work(self) -> None:
        """Read until stopped."""
        asyncio.run(self._read())

    async def _read(self) -> None:
        lives = 0
        while not self._stopping.is_set():
            lives += 1
            try:
                await self._live(f"{self.name}.{lives}")
            except (ClientError, OSError, TimeoutError):
                # Like a program whose consumer gave up: start again from the committed offsets.
                await asyncio.sleep(0.2)

    async def _live(self, process: str) -> None:
        settings: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 500, "auto_commit_interval_ms": 500}
        settings |= {"group_id": self.group, "auto_offset_reset": "earliest", "fetch_wait_ms_max": 100}
        async with Consumer(self.bootstrap, **settings) as consumer:
            await consumer.subscribe([self.topic])
            while not self._stopping.is_set():
                before = consumer.generation
                records = await consumer.poll(200, 500)
                if records:
                    # Records of a poll during which the assignment changed may be of either side of the change.
                    same = before == consumer.generation
                    found = [(record.partition, record.offset, (record.value or b"").decode()) for record in records]
                    for part in [found] if same else [[record] for record in found]:
                        self.history.polled(process, before if same else -consumer.generation - 1, part)


def read_everything(
    bootstrap: str, topic: str, history: History, *, partitions: Iterable[int], timeout_s: float = 60.0, alive: Callable[[], str] = str
) -> None:
    """The final phase: a new reader reads all partitions from the beginning to the end offsets, at least to everything acknowledged."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "final", "enable.auto.commit": False, "log_level": 0})
    chosen = list(partitions)
    deadline = time.monotonic() + timeout_s
    try:
        ends = _end_offsets(consumer, topic, chosen, history, deadline)
        consumer.assign([TopicPartition(topic, index, 0) for index in chosen])
        reached = dict.fromkeys(chosen, 0)
        while any(reached[index] < ends[index] for index in chosen):
            left = {index: (reached[index], ends[index]) for index in chosen if reached[index] < ends[index]}
            assert time.monotonic() < deadline, f"not everything could be read within {timeout_s:g} s: {left}\n{alive()}"
            records: list[tuple[int, int, str]] = []
            for message in consumer.consume(2000, 0.2):
                if message.error() is None:
                    records.append((message.partition(), message.offset(), message.value().decode()))
                    reached[message.partition()] = message.offset() + 1
            if records:
                history.polled("final", 0, records)
    finally:
        consumer.close()


def _end_offsets(consumer: Any, topic: str, partitions: list[int], history: History, deadline: float) -> dict[int, int]:
    """The high watermarks, once they cover everything acknowledged."""
    acknowledged = history.ends
    while True:
        try:
            ends = {index: consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=5)[1] for index in partitions}
            if all(ends[index] > acknowledged.get(index, -1) for index in partitions):
                return ends
        except KafkaException:
            ends = {}
        assert time.monotonic() < deadline, f"the brokers' ends {ends} do not reach what was acknowledged, {acknowledged}"
