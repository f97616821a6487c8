"""The sink's transactions: rows of a micro-batch's task once, whatever became of earlier attempts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

pa = pytest.importorskip("pyarrow")

from helpers import apache_kafka  # noqa: E402

from minikafka.spark import sink_transaction  # noqa: E402
from minikafka.spark.load import LoadOptions, prepare_topic  # noqa: E402
from minikafka.spark.produce_client import LoadProducer, ProduceFailed  # noqa: E402
from minikafka.spark.sink import write_batches  # noqa: E402
from minikafka.spark.sink_transaction import SinkTransaction  # noqa: E402
from minikafka.spark.tables import TableError  # noqa: E402
from minikafka.testing import EmbeddedCluster  # noqa: E402

pytestmark = pytest.mark.timeout(60)


TOPICS = ("again", "died", "zombie", "broken", "headers", "full")


class Kafka:
    """A broker of Apache Kafka, as far as these tests ask."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap_servers = bootstrap

    def client_config(self, **settings: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap_servers, **settings}


@pytest.fixture(scope="module", params=["minikafka", pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.interop])])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster | Kafka]:
    if request.param == "minikafka":
        with EmbeddedCluster(1, topics={name: {"partitions": 3} for name in TOPICS}) as made:
            yield made
        return
    settings = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    broker = apache_kafka.KafkaBroker(tmp_path_factory.mktemp("kafka"), settings)
    broker.format()
    with broker.running():
        for topic in TOPICS:
            prepare_topic(LoadOptions(broker.bootstrap, topic, partitions=3, replication_factor=1))
        yield Kafka(broker.bootstrap)


def rows(*names: str) -> Iterator[object]:
    yield pa.RecordBatch.from_pydict({"key": pa.array(names), "value": pa.array(names)})


def attempt(cluster: EmbeddedCluster, topic: str, epoch: int) -> SinkTransaction:
    return SinkTransaction(cluster.bootstrap_servers, topic, f"q-{topic}-0", epoch)


def write(cluster: EmbeddedCluster, topic: str, epoch: int, *names: str) -> bool:
    """As the sink's writer does; False when the micro-batch had been committed."""
    transaction = attempt(cluster, topic, epoch)
    if not transaction.begin():
        transaction.close()
        return False
    assert write_batches(rows(*names), cluster.bootstrap_servers, topic, transaction=transaction) == len(names)
    return True


def committed(cluster: EmbeddedCluster, topic: str) -> list[str]:
    settings = {"group.id": "g", "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(cluster.client_config(**settings))
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(3)])
    found, ends = [], 0
    while ends < 3:
        message = consumer.poll(10)
        assert message is not None, found
        if message.error():
            ends += 1
        else:
            found.append(message.value().decode())
    consumer.close()
    return sorted(found)


def test_a_micro_batch_that_runs_again_is_written_once(cluster: EmbeddedCluster) -> None:
    assert write(cluster, "again", 0, "a", "b", "c")
    assert not write(cluster, "again", 0, "a", "b", "c")
    assert write(cluster, "again", 1, "d") and not write(cluster, "again", 1, "d")
    assert write(cluster, "again", 2) and not write(cluster, "again", 2), "a task without rows is remembered, too"
    assert committed(cluster, "again") == ["a", "b", "c", "d"]


def sent(cluster: EmbeddedCluster, topic: str, *names: str) -> SinkTransaction:
    """A transaction with acknowledged rows that is not committed."""
    transaction = attempt(cluster, topic, 0)
    assert transaction.begin()
    held = transaction.commit
    transaction.commit = transaction.close = lambda: None  # type: ignore[method-assign]
    write_batches(rows(*names), cluster.bootstrap_servers, topic, transaction=transaction)
    transaction.commit = held  # type: ignore[method-assign]
    return transaction


def test_records_of_a_dead_attempt_are_not_read(cluster: EmbeddedCluster) -> None:
    sent(cluster, "died", "a", "b", "c")
    assert write(cluster, "died", 0, "a", "b", "c")
    assert committed(cluster, "died") == ["a", "b", "c"]


def test_an_attempt_that_was_thought_dead_is_fenced(cluster: EmbeddedCluster) -> None:
    zombie = sent(cluster, "zombie", "a")
    assert write(cluster, "zombie", 0, "a")
    with pytest.raises(ProduceFailed, match=r"FENCED|INVALID_PRODUCER_EPOCH"):
        zombie.commit()
    late = LoadProducer(cluster.bootstrap_servers, "zombie", transaction=zombie)
    assert late.partition_count() == 3 and committed(cluster, "zombie") == ["a"]


def test_a_task_that_fails_takes_its_rows_back(cluster: EmbeddedCluster) -> None:
    def breaks() -> Iterator[object]:
        yield from rows("a", "b")
        yield pa.RecordBatch.from_pydict({"key": pa.array(["x"])})

    transaction = attempt(cluster, "broken", 0)
    assert transaction.begin()
    with pytest.raises(TableError, match="needs a column value"):
        write_batches(breaks(), cluster.bootstrap_servers, "broken", transaction=transaction)
    assert committed(cluster, "broken") == []
    assert write(cluster, "broken", 0, "a", "b") and committed(cluster, "broken") == ["a", "b"]


def test_a_task_of_more_than_may_wait_for_its_acknowledgement(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_transaction, "QUEUE_BYTES_MAX", 1)
    assert write(cluster, "full", 0, *"abcdef") and committed(cluster, "full") == [*"abcdef"]


def test_headers_are_written_wherever_there_is_a_column_of_them(cluster: EmbeddedCluster) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "h", "value": b"x"}, {"key": "none", "value": None}], None], kind)
    table = pa.RecordBatch.from_pydict({"value": pa.array(["with", "without"]), "headers": headers})
    assert write_batches(iter([table]), cluster.bootstrap_servers, "headers") == 2
    consumer = confluent_kafka.Consumer(cluster.client_config(**{"group.id": "h", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["headers"])
    found = {message.value(): message.headers() for message in consumer.consume(2, 30)}
    consumer.close()
    assert found == {b"with": [("h", b"x"), ("none", None)], b"without": None}
    wrong = pa.RecordBatch.from_pydict({"value": pa.array(["v"]), "headers": pa.array(["h=x"])})
    with pytest.raises(TableError, match="the column headers must be an array of structs"):
        write_batches(iter([wrong]), cluster.bootstrap_servers, "headers")
