"""Transactions with real clients: librdkafka's (before version 2) and, where Java is, Apache Kafka's own (version 2).

The longer ones: pytest -m long tests/system/test_transactions.py
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import ProducerFenced
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from helpers import apache_kafka

from minikafka.cli.transactions import transactions
from minikafka.testing import EmbeddedCluster
from minikafka.testing.wait import LoadAdjustedDeadline

needs_java = pytest.mark.skipif(apache_kafka.missing() is not None, reason=str(apache_kafka.missing()))
WAIT_S = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(
        brokers=3, config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    ) as started:
        yield started


def producer(cluster: EmbeddedCluster, transactional_id: str, **more: object) -> Producer:
    """Initialized."""
    made = Producer({**cluster.client_config("confluent"), "transactional.id": transactional_id, "linger.ms": 0, **more})
    made.init_transactions(WAIT_S)
    return made


def read(cluster: EmbeddedCluster, topic: str, partitions: int, isolation: str = "read_committed") -> list[str]:
    """Every value up to the end, as a consumer of this isolation sees it; sorted."""
    consumer = Consumer(
        {
            **cluster.client_config("confluent"), "group.id": "reads", "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "isolation.level": isolation, "enable.partition.eof": True,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[str] = []
    ended: set[int] = set()
    deadline = LoadAdjustedDeadline(WAIT_S)
    while len(ended) < partitions:
        assert not deadline.is_over, f"only {values} came"
        message = consumer.poll(0.1)
        if message is not None and message.error():
            ended.add(message.partition())
        elif message is not None:
            values.append(message.value().decode())
    consumer.close()
    return sorted(values)


def test_committed_is_seen_and_aborted_is_not(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("both", partitions=3)
    writer = producer(cluster, "both")
    for number in range(3):
        writer.begin_transaction()
        for partition in range(3):
            writer.produce("both", f"{number}-{partition}", partition=partition)
        if number % 2:
            writer.flush(WAIT_S)
            writer.abort_transaction(WAIT_S)
        else:
            writer.commit_transaction(WAIT_S)
    writer.begin_transaction()
    writer.produce("both", "open", partition=0)
    writer.flush(WAIT_S)
    assert read(cluster, "both", 3) == [f"{number}-{partition}" for number in (0, 2) for partition in range(3)]
    everything = [f"{number}-{partition}" for number in range(3) for partition in range(3)]
    assert read(cluster, "both", 3, "read_uncommitted") == sorted([*everything, "open"])
    writer.commit_transaction(WAIT_S)
    assert "open" in read(cluster, "both", 3)
    cluster.audit()


def test_consume_transform_produce(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("in", partitions=1)
    cluster.create_topic("out", partitions=1)
    plain = Producer(cluster.client_config("confluent"))
    for number in range(10):
        plain.produce("in", str(number))
    plain.flush(WAIT_S)
    settings = {
        **cluster.client_config("confluent"), "group.id": "transforms", "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }  # fmt: skip
    consumer = Consumer(settings)
    consumer.subscribe(["in"])
    writer = producer(cluster, "transforms")
    for number in range(10):
        message = None
        while message is None:
            message = consumer.poll(1)
        assert message.value() == str(number).encode()
        writer.begin_transaction()
        writer.produce("out", message.value())
        position = [TopicPartition("in", 0, message.offset() + 1)]
        writer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), WAIT_S)
        if number < 7:
            writer.commit_transaction(WAIT_S)
        else:
            writer.flush(WAIT_S)
            writer.abort_transaction(WAIT_S)
    assert consumer.committed([TopicPartition("in", 0)], WAIT_S)[0].offset == 7, "the aborted offsets do not count"
    consumer.close()
    assert read(cluster, "out", 1) == [str(number) for number in range(7)]


def test_the_second_producer_of_an_id_fences_the_first(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("fence", partitions=1)
    first = producer(cluster, "fence")
    first.begin_transaction()
    first.produce("fence", "of the first")
    first.flush(WAIT_S)
    second = producer(cluster, "fence")
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(WAIT_S)
    assert raised.value.args[0].name() == "_FENCED"
    second.begin_transaction()
    second.produce("fence", "of the second")
    second.commit_transaction(WAIT_S)
    assert read(cluster, "fence", 1) == ["of the second"]


def test_a_transaction_abandoned_by_its_producer_is_aborted_and_readers_go_on(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("forgotten", partitions=1)
    forgetful = producer(cluster, "forgotten", **{"transaction.timeout.ms": 1000})
    forgetful.begin_transaction()
    forgetful.produce("forgotten", "lost")
    forgetful.flush(WAIT_S)
    plain = Producer(cluster.client_config("confluent"))
    plain.produce("forgotten", "kept")
    plain.flush(WAIT_S)
    consumer = Consumer(
        {**cluster.client_config("confluent"), "group.id": "waits", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition("forgotten", 0, 0)])
    message = consumer.poll(WAIT_S)
    assert message is not None and message.value() == b"kept"
    consumer.close()
    with pytest.raises(KafkaException):
        forgetful.commit_transaction(WAIT_S)


@pytest.mark.long
async def test_aiokafka(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("aio", partitions=1)
    servers = cluster.bootstrap_servers
    first = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="aio")
    await first.start()
    for number in range(4):
        await first.begin_transaction()
        await first.send_and_wait("aio", str(number).encode())
        if number % 2:
            await first.abort_transaction()
        else:
            await first.send_offsets_to_transaction({AioPartition("aio", 0): number}, "aio-group")
            await first.commit_transaction()
    reader = AIOKafkaConsumer(
        "aio", bootstrap_servers=servers, group_id="aio-group", isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await reader.start()
    assert await reader.committed(AioPartition("aio", 0)) == 2
    await reader.stop()
    second = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="aio")
    await second.start()
    await first.begin_transaction()
    with pytest.raises(ProducerFenced):
        await first.send_and_wait("aio", b"fenced")
    with contextlib.suppress(ProducerFenced):
        await first.stop()
    await second.stop()
    assert read(cluster, "aio", 1) == ["0", "2"]


def test_the_command_for_administrators(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("looked-at", partitions=1)
    writer = producer(cluster, "looked-at")
    writer.begin_transaction()
    writer.produce("looked-at", "lost")
    writer.flush(WAIT_S)

    def run(*arguments: str) -> list[list[str]]:
        done = CliRunner().invoke(transactions, ["--bootstrap-server", cluster.bootstrap_servers, *arguments])
        assert done.exit_code == 0, done.output
        return [line.split() for line in done.output.splitlines()]

    listed = {row[0]: row[3] for row in run("list")}
    assert listed["TransactionalId"] == "TransactionState" and listed["looked-at"] == "Ongoing"
    done = CliRunner().invoke(transactions, ["--bootstrap-server", cluster.bootstrap_servers, "list", "-o", "json"])
    states = {row["transactional_id"]: row["transaction_state"] for row in json.loads(done.output)}
    assert states["looked-at"] == "Ongoing"
    assert run("list", "--transactional-id-pattern", "looked.*")[1:] == [row for row in run("list") if row[0] == "looked-at"]
    described = dict(zip(*run("describe", "--transactional-id", "looked-at"), strict=True))
    assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", "looked-at-0")
    one = ("--topic", "looked-at", "--partition", "0")
    (found,) = run("describe-producers", *one)[1:]
    assert found[0] == described["ProducerId"] and found[-1] == "0"
    assert run("find-hanging", *one, "--max-transaction-timeout", "0")[1:] == [], "its coordinator knows it"
    run("abort", *one, "--start-offset", "0")
    assert run("describe-producers", *one)[1][-1] == "None"
    assert read(cluster, "looked-at", 1) == []


def ends(writer: Any, *, commits: bool) -> bool:
    """Try until the transaction has ended; whether it was committed."""
    while True:
        try:
            if not commits:
                writer.abort_transaction(WAIT_S)
                return False
            writer.commit_transaction(WAIT_S)
            return True
        except KafkaException as error:
            if error.args[0].retriable():
                continue
            if not error.args[0].txn_requires_abort():
                raise
            writer.abort_transaction(WAIT_S)
            return False


@pytest.mark.long
@pytest.mark.timeout(120)
def test_coordinators_and_leaders_die_while_transactions_go_on() -> None:
    """Each transaction writes its number into both partitions: whatever died when, readers see it in both or in none."""
    with EmbeddedCluster(brokers=3, topics={"pairs": 2}) as cluster:
        stop = threading.Event()
        reported: list[int] = []
        failure: list[BaseException] = []

        def write() -> None:
            try:
                writer = producer(cluster, "pairs")
                for number in itertools.takewhile(lambda _: not stop.is_set(), itertools.count(1)):
                    writer.begin_transaction()
                    for partition in range(2):
                        writer.produce("pairs", str(number), partition=partition)
                    if ends(writer, commits=number % 5 != 0):
                        reported.append(number)
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        for broker_id in (cluster.leader("pairs", 0), 1, 2, 3):
            before = len(reported)
            apache_kafka.wait_until(lambda before=before: failure or len(reported) > before + 5, WAIT_S, "transactions")
            cluster.broker(broker_id).kill()
            apache_kafka.wait_until(lambda before=before: failure or len(reported) > before + 10, WAIT_S, "transactions without a broker")
            cluster.broker(broker_id).start()
            cluster.wait_healthy()
        stop.set()
        thread.join(WAIT_S)
        assert not failure and not thread.is_alive()
        seen = read(cluster, "pairs", 2)
        numbers = {int(value) for value in seen}
        assert seen == sorted(str(number) for number in numbers for _ in range(2)), "torn or doubled"
        assert set(reported) <= numbers and not any(number % 5 == 0 for number in numbers)
        cluster.audit()


# -- Apache Kafka's own clients --------------------------------------------------------------------------------------


def java(main_class: str, *arguments: str) -> str:
    done = subprocess.run([*apache_kafka.java(), main_class, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
@needs_java
@pytest.mark.timeout(180)
def test_the_java_client_its_tools_and_the_bytes(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("java", partitions=2)
    servers = cluster.bootstrap_servers
    made = java(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "java", "--num-records", "5000", "--record-size", "100",
        "--throughput", "-1", "--bootstrap-server", servers, "--transactional-id", "java", "--transaction-duration-ms", "50",
    )  # fmt: skip
    assert "5000 records sent" in made
    assert len(read(cluster, "java", 2)) == 5000
    tool = ("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", servers)
    assert "CompleteCommit" in java(*tool, "describe", "--transactional-id", "java")
    for broker in cluster.brokers:
        directory = broker.log_dir
        for log in sorted(directory.glob("__transaction_state-*/*.log")):
            text = apache_kafka.dump_log([log], "--transaction-log-decoder", "--deep-iteration", "--verify-index-only")
            assert "isvalid: false" not in text
        for log in sorted(directory.glob("java-*/*.log")):
            text = apache_kafka.dump_log([log], "--deep-iteration", "--print-data-log")
            assert "endTxnMarker: COMMIT coordinatorEpoch: " in text and "isvalid: false" not in text
    cluster.audit()
