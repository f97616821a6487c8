"""A broker under load that lacks descriptors, memory or processor time for a while: writes go on or are refused, nothing that was
acknowledged is lost, and all is well when the shortage ends. (A full disk: test_full_disk.py; a slow one:
test_slow_disk.py, and with a failing one tests/broker/test_disk_failure.py; a tenth of a core: test_cpu_quota.py.)"""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import confluent_kafka
import psutil
import pytest

from minikafka.testing import EmbeddedBroker, EmbeddedCluster

TOPIC = "t"
VALUE_BYTES = 20_000
#: Errors with which a broker may refuse a write, and those of a client that was not answered.
REFUSALS = {
    confluent_kafka.KafkaError._MSG_TIMED_OUT, confluent_kafka.KafkaError.REQUEST_TIMED_OUT, confluent_kafka.KafkaError._TRANSPORT,
    confluent_kafka.KafkaError._TIMED_OUT, confluent_kafka.KafkaError.KAFKA_STORAGE_ERROR, confluent_kafka.KafkaError.NETWORK_EXCEPTION,
    confluent_kafka.KafkaError.NOT_ENOUGH_REPLICAS, confluent_kafka.KafkaError._TIMED_OUT_QUEUE,
}  # fmt: skip


class Load:
    """Writes numbers all the while, in a thread."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._producer = confluent_kafka.Producer(
            cluster.client_config(acks="all", **{"delivery.timeout.ms": 20_000, "linger.ms": 5, "reconnect.backoff.max.ms": 500})
        )
        self.acknowledged: set[int] = set()
        self.errors: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.005):
            self._producer.produce(TOPIC, b"%d" % number + bytes(VALUE_BYTES), on_delivery=self._delivered(number))
            self._producer.poll(0)
            number += 1
        self._producer.flush(60)

    def _delivered(self, number: int) -> Callable[[confluent_kafka.KafkaError | None, object], None]:
        def delivered(error: confluent_kafka.KafkaError | None, _: object) -> None:
            if error is None:
                self.acknowledged.add(number)
            else:
                self.errors.add(error.code())

        return delivered

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, topics={TOPIC: 4}, mode="process", directory=tmp_path / "data") as running:
        yield running


def process_of(broker: EmbeddedBroker) -> psutil.Process:
    """The broker's process: who listens on its port."""
    pid = next(c.pid for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.laddr.port == broker.port)
    assert pid is not None
    return psutil.Process(pid)


@contextmanager
def limited(process: psutil.Process, kind: int, soft: int) -> Iterator[None]:
    """A limit of the process."""
    before = resource.prlimit(process.pid, kind)
    resource.prlimit(process.pid, kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, kind, before)


@contextmanager
def few_descriptors(cluster: EmbeddedCluster) -> Iterator[None]:
    """Three are left, and two hundred clients want to connect."""
    process = process_of(cluster.brokers[0])
    highest = max(int(path.name) for path in Path(f"/proc/{process.pid}/fd").iterdir())
    with limited(process, resource.RLIMIT_NOFILE, highest + 4), ExitStack() as stack:
        for _ in range(200):
            peer = stack.enter_context(socket.socket())
            peer.setblocking(False)
            peer.connect_ex(("127.0.0.1", cluster.brokers[0].port))
        cluster.wait_until(lambda: process.num_fds() >= highest + 1, "descriptors to run out")
        yield


@contextmanager
def little_memory(cluster: EmbeddedCluster) -> Iterator[None]:
    """32 MiB more than it has now, and requests that want more than that at once, so that small pieces of memory are there all the time."""
    process = process_of(cluster.brokers[0])
    with limited(process, resource.RLIMIT_AS, process.memory_info().vms + (32 << 20)):
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", cluster.brokers[0].port), 20) as peer, suppress(ConnectionError):
                # A Produce that claims 50 MB, of which a part comes.
                peer.sendall((50_000_000).to_bytes(4) + bytes.fromhex("0000 0009 00000001 0001 78 00") + bytes(30_000_000))
        cluster.wait_until(lambda: "there is no memory for its request" in cluster.logs(), "a request without memory")
        yield


@contextmanager
def bursts_of_nothing(cluster: EmbeddedCluster) -> Iterator[None]:
    """It stands still for half of the time, and once for as long as a client waits at most for an answer."""
    broker = cluster.brokers[0]
    for stopped_s in [0.2] * 8 + [3.0]:
        broker.pause()
        threading.Event().wait(stopped_s)
        broker.resume()
        threading.Event().wait(0.2)
    yield


def numbers_in(cluster: EmbeddedCluster, count: int) -> list[int]:
    """The numbers that are in the topic, until all of `count` partitions are read."""
    consumer = confluent_kafka.Consumer(cluster.client_config(**{"group.id": "judge", "enable.partition.eof": True}))
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, index, 0) for index in range(count)])
    found: list[int] = []
    left = count
    while left:
        message = consumer.poll(60)
        assert message is not None
        error = message.error()
        if error is None:
            found.append(int(message.value().rstrip(b"\0")))
        else:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            left -= 1
    consumer.close()
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("shortage", [few_descriptors, little_memory, bursts_of_nothing])
def test_a_shortage_costs_nothing_that_was_acknowledged(cluster: EmbeddedCluster, shortage: Callable[..., object]) -> None:
    broker = cluster.brokers[0]
    before = process_of(broker)
    load = Load(cluster)
    try:
        cluster.wait_until(lambda: len(load.acknowledged) > 50, "the first acknowledgements")
        with shortage(cluster):  # type: ignore[attr-defined]
            seen = len(load.acknowledged) + len(load.errors)
            cluster.wait_until(lambda: len(load.acknowledged) + len(load.errors) > seen, "writes that go on or are refused", 60)
        seen = len(load.acknowledged)
        cluster.wait_until(lambda: len(load.acknowledged) > seen + 50, "writes after the shortage", 60)
    finally:
        load.stop()
    assert process_of(broker) == before and load.errors <= REFUSALS
    assert load.acknowledged <= set(numbers_in(cluster, 4))
    found = cluster.metrics(broker.node_id)
    assert not sum(value for name, value in found.items() if name.startswith("minikafka_unexpected_exceptions_total")), cluster.logs()
    cluster.audit()
