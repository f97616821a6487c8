"""What the data source reads, without Spark: transactions and points in time, from log directories of Apache Kafka and from brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402

from minikafka.spark import source_ranges  # noqa: E402
from minikafka.spark.source_listing import available  # noqa: E402
from minikafka.spark.source_options import OptionError, SourceOptions  # noqa: E402
from minikafka.spark.source_reading import read_range  # noqa: E402
from minikafka.testing.cluster import ProcessCluster  # noqa: E402

SCHEMA = pa.schema([("value", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
COMMITTED = {"kafka.isolation.level": "read_committed"}
T0 = 1_700_000_000_000


def read(**options: str) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of a batch query."""
    parsed = SourceOptions.parse(options)
    found = available(parsed)
    begin, end = source_ranges.starting(parsed, found, "earliest"), source_ranges.ending(parsed, found)
    rows = []
    for wanted in source_ranges.ranges(parsed, found, begin, end):
        for batch in read_range(wanted, "records", SCHEMA):
            rows += [(row["partition"], row["offset"], row["value"]) for row in batch.to_pylist()]
    return sorted(rows)


def offsets(**options: str) -> list[int]:
    return [offset for _, offset, _ in read(**options)]


@pytest.mark.parametrize("level", ["committed", "uncommitted"])
def test_transactions_of_a_real_kafka_are_read_as_its_consumers_did(
    stopped_broker: Callable[[str], str], golden: Path, level: str
) -> None:  # fmt: skip
    lines = (golden / "single-stopped" / f"txn.read_{level}.txt").read_text().splitlines()
    expected = [(0, int(line.split()[0]), line.split(None, 3)[3].encode()) for line in lines]
    found = read(logDirs=stopped_broker("single-stopped"), subscribe="txn", **{"kafka.isolation.level": f"read_{level}"})
    assert found == expected


def test_an_open_transaction_ends_what_is_committed(stopped_broker: Callable[[str], str]) -> None:
    directory = stopped_broker("single-killed")
    parsed = SourceOptions.parse({"logDirs": directory, "subscribe": "txn", **COMMITTED})
    assert available(parsed).bounds == {("txn", 0): (0, 14)}, "the open transaction begins at 14"
    assert offsets(logDirs=directory, subscribe="txn", **COMMITTED) == [0, 1, 2, 3, 5, 6, 10]
    for snapshot in Path(directory, "txn-0").glob("*.snapshot"):
        snapshot.write_bytes(b"damaged")
    assert offsets(logDirs=directory, subscribe="txn", **COMMITTED) == [0, 1, 2, 3, 5, 6, 10], "the batches alone say the same"
    assert offsets(logDirs=directory, subscribe="txn", startingOffsets='{"txn": {"0": 4}}', **COMMITTED) == [5, 6, 10]


def test_batches_of_aborted_transactions_and_markers_are_left_out(stopped_broker: Callable[[str], str]) -> None:
    schema = pa.schema([("baseOffset", pa.int64()), ("isControl", pa.bool_())])
    for options, expected in (({}, list(range(18))), (COMMITTED, [0, 1, 3, 5, 6, 10, 15])):
        parsed = SourceOptions.parse({"logDirs": stopped_broker("single-stopped"), "subscribe": "txn", "mode": "batches", **options})
        found = available(parsed)
        work = source_ranges.ranges(parsed, found, source_ranges.starting(parsed, found, "earliest"), source_ranges.ending(parsed, found))
        rows = [row for one in work for batch in read_range(one, "batches", schema) for row in batch.to_pylist()]
        shown = [row["baseOffset"] for row in rows]
        assert shown == [offset for offset in expected if offset != 2], "1 and 2 are one batch"
        assert any(row["isControl"] for row in rows) == (not options)


def test_a_damaged_transaction_index_is_reported(stopped_broker: Callable[[str], str]) -> None:
    directory = stopped_broker("single-stopped")
    index = next(Path(directory, "txn-0").glob("*.txnindex"))
    index.write_bytes(index.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{index.name}: .* not a multiple"):
        read(logDirs=directory, subscribe="txn", **COMMITTED)


def test_points_in_time_in_log_directories(stopped_broker: Callable[[str], str]) -> None:
    directory = {"logDirs": stopped_broker("single-stopped"), "subscribe": "plain"}
    every = offsets(**directory)
    assert every[0] == 101, "records below the log start are gone"
    parsed = SourceOptions.parse(directory)
    schema = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
    found = available(parsed)
    times = {}
    for one in source_ranges.ranges(parsed, found, {("plain", 0): 101}, source_ranges.ending(parsed, found)):
        for batch in read_range(one, "records", schema):
            milliseconds = (value // 1000 for value in batch["timestamp"].cast(pa.int64()).to_pylist())
            times |= dict(zip(batch["offset"].to_pylist(), milliseconds, strict=True))
    for wanted in sorted({0, *times.values(), *(time + 1 for time in times.values())})[::15]:
        first = next((offset for offset in sorted(times) if times[offset] >= wanted), None)
        said = {**directory, "startingTimestamp": str(wanted), "startingOffsetsByTimestampStrategy": "latest"}
        assert offsets(**said) == ([offset for offset in every if offset >= first] if first is not None else [])
        ending = {**directory, "endingOffsetsByTimestamp": json.dumps({"plain": {"0": wanted}})}
        assert offsets(**ending) == [offset for offset in every if first is None or offset < first]
    assert offsets(logDirs=directory["logDirs"], subscribe="logappend", startingTimestamp="1") == offsets(
        logDirs=directory["logDirs"], subscribe="logappend"
    )


@pytest.mark.parametrize(("options", "text"), [
    ({"startingTimestamp": "soon"}, "an option cannot be read"),
    ({"startingOffsetsByTimestamp": '{"plain": 5}'}, "an option cannot be read"),
    ({"startingOffsetsByTimestamp": '{"other": {"0": 5}}'}, "the timestamps do not include plain-0"),
    ({"startingOffsetsByTimestamp": '{"plain": {"0": 5}}', "startingOffsetsByTimestampStrategy": "x"}, "expected error or latest"),
    ({"startingTimestamp": "4000000000000"}, "no record with a timestamp of 4000000000000 or later"),
    ({"kafka.isolation.level": "x"}, "expected read_uncommitted or read_committed"),
])  # fmt: skip
def test_wrong_times_are_named(stopped_broker: Callable[[str], str], options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        read(logDirs=stopped_broker("single-stopped"), subscribe="plain", **options)


def as_a_consumer(bootstrap: str, isolation: str) -> list[tuple[int, int, bytes]]:
    """What librdkafka reads from both partitions until it is at their ends."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": isolation, "enable.partition.eof": True})
    consumer.assign([TopicPartition("t", number, 0) for number in range(2)])
    rows, open_partitions = [], {0, 1}
    while open_partitions:
        message: Any = consumer.poll(10)
        assert message is not None
        if message.error():
            open_partitions.discard(message.partition())
        else:
            rows.append((message.partition(), message.offset(), message.value()))
    consumer.close()
    return sorted(rows)


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(20)


def times_as_a_consumer(bootstrap: str) -> None:
    """Every partition begins and ends where librdkafka's offsets_for_times says."""
    brokers = {"kafka.bootstrap.servers": bootstrap, "subscribe": "t"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    everything = read(**brokers)
    for time in (T0, T0 + 11, T0 + 40, T0 + 75):
        begin = {one.partition: one.offset for one in consumer.offsets_for_times([TopicPartition("t", n, time) for n in range(2)], 10)}
        expected = [row for row in everything if row[1] >= begin[row[0]]]
        assert expected and read(**brokers, startingTimestamp=str(time)) == expected
        each = json.dumps({"t": {"0": time, "1": time}})
        assert read(**brokers, endingOffsetsByTimestamp=each) == [row for row in everything if row[1] < begin[row[0]]]
    consumer.close()


@pytest.mark.timeout(60)
def test_points_in_time_from_a_broker_of_ours() -> None:
    with ProcessCluster(1, properties={"min.insync.replicas": "1", "default.replication.factor": "1"}) as cluster:
        create(cluster.bootstrap)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
        for number in range(80):
            producer.produce("t", b"%d" % number, partition=number % 2, timestamp=T0 + number)
        producer.flush(20)
        times_as_a_consumer(cluster.bootstrap)
        brokers = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t"}
        assert len(read(**brokers, **COMMITTED)) == 80
        with pytest.raises(OptionError, match="t-0 has no record"):
            read(**brokers, startingTimestamp=str(T0 + 80))
        assert read(**brokers, startingTimestamp=str(T0 + 80), startingOffsetsByTimestampStrategy="latest") == []


def transactions(bootstrap: str) -> Producer:
    """Eight transactions of two producers, turn by turn, three of them aborted; a third producer's is left open and returned."""
    create(bootstrap)
    producers = [Producer({"bootstrap.servers": bootstrap, "transactional.id": f"x{n}", "linger.ms": 0}) for n in range(3)]
    for producer in producers:
        producer.init_transactions(30)
    number = 0
    for turn in range(8):
        producer = producers[turn % 2]
        producer.begin_transaction()
        for _ in range(10):
            producer.produce("t", b"%d" % number, partition=number % 2, timestamp=T0 + number)
            number += 1
        producer.flush(20)
        if turn in {1, 2, 5}:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    producers[2].begin_transaction()
    producers[2].produce("t", b"open", partition=0, timestamp=T0 + number)
    producers[2].flush(20)
    return producers[2]


@pytest.mark.java
@pytest.mark.interop
@pytest.mark.timeout(200)
def test_transactions_and_times_of_a_running_apache_kafka(tmp_path: Path, session: Any) -> None:
    from helpers.apache_kafka import KafkaBroker

    broker = KafkaBroker(tmp_path / "kafka", {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
                                              "transaction.state.log.num.partitions": "1"})  # fmt: skip
    broker.format()
    expected = {}
    with broker.running():
        left_open = transactions(broker.bootstrap)
        brokers = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t"}
        for isolation in ("read_committed", "read_uncommitted"):
            level = {"kafka.isolation.level": isolation}
            expected[isolation] = as_a_consumer(broker.bootstrap, isolation)
            assert len(expected[isolation]) == (50 if isolation == "read_committed" else 81)
            assert read(**brokers, **level) == read(**brokers, minPartitions="7", **level) == expected[isolation]
            inside = [row for row in expected[isolation] if row[1] >= 13]
            assert read(**brokers, startingOffsets='{"t": {"0": 13, "1": 13}}', **level) == inside
        times_as_a_consumer(broker.bootstrap)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        begin = {one.partition: one.offset for one in consumer.offsets_for_times([TopicPartition("t", n, T0 + 31) for n in range(2)], 10)}
        consumer.close()  # a marker has a time too, that of its writing: so in one of the partitions it is what matches
        streamed = sorted(value for number, offset, value in expected["read_committed"] if offset >= begin[number])
        found = as_a_stream(session, {**brokers, **COMMITTED, "startingTimestamp": str(T0 + 31), "maxOffsetsPerTrigger": "20"}, tmp_path)
        assert found == streamed and 20 < len(found) < 50
        del left_open
    for isolation, rows in expected.items():
        assert read(logDirs=str(broker.data), subscribe="t", **{"kafka.isolation.level": isolation}) == rows
    from_files = {"logDirs": str(broker.data), "subscribe": "t", **COMMITTED}
    table = session.read.format("minikafka").options(**from_files).load()
    assert sorted((row.partition, row.offset, bytes(row.value)) for row in table.collect()) == expected["read_committed"]
    each = json.dumps({"t": {"0": T0 + 31, "1": T0 + 31}})
    assert as_a_stream(session, {**from_files, "startingOffsetsByTimestamp": each}, tmp_path / "files") == streamed


def as_a_stream(session: Any, options: dict[str, str], directory: Path) -> list[bytes]:
    """The values that a stream reads until it is at the end of what there is."""
    stream = session.readStream.format("minikafka").options(**options).load()
    query = (
        stream.select("value").writeStream.format("parquet").option("path", str(directory / "rows"))
        .option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(90) and query.exception() is None
    return sorted(bytes(row.value) for row in session.read.parquet(str(directory / "rows")).collect())
