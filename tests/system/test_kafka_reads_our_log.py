"""Apache Kafka 4.3.0 reads what we wrote: DumpLogSegments verifies it, a real broker serves and continues it, and we
read what the broker made of it."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from helpers import apache_kafka
from helpers.batches import T0, batch, marker
from helpers.mixed_cluster import errors

from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log import Log
from minikafka.storage.log_dir import LogDirectory
from minikafka.storage.recovery import load_log

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

CONFIG = LogConfig(segment_bytes=40_000, index_interval_bytes=500)
TRANSACTIONAL = 0x10
PASSED = "passed sanity check."


def write_log(log: Log, *, epoch: int, batches: int = 400) -> list[tuple[int, bytes]]:
    """Batches of many sizes, idempotent producers, transactions; the committed records as (offset, value)."""
    generator = random.Random(11)
    committed: list[tuple[int, bytes]] = []
    sequences = {100: 0, 101: 0}
    for number in range(batches):
        values = [b"%d-" % number + b"x" * generator.randrange(200) for _ in range(generator.randrange(1, 5))]
        timestamp = T0 + number * 10 + generator.randrange(40)
        kind = number % 4
        producer = (-1, -1, -1) if kind == 0 else (99 + min(kind, 2), 0, sequences[99 + min(kind, 2)])
        attributes = TRANSACTIONAL if kind >= 2 else 0
        data = batch(*values, timestamp=timestamp, producer=producer, attributes=attributes)
        info = log.append_as_leader(memoryview(data), epoch, T0)
        if producer[0] >= 0:
            sequences[producer[0]] += len(values)
        aborted = number % 8 == 7
        if not (kind >= 2 and number // 8 * 8 + 7 < batches and number % 8 >= 4):
            committed += [(info.first_offset + i, value) for i, value in enumerate(values)]
        if kind == 3:
            end = marker(101, 0, abort=aborted, timestamp=timestamp)
            log.append_as_leader(memoryview(end), epoch, T0, origin="coordinator")
    log.update_high_watermark(log.log_end_offset)
    return committed


def test_dump_log_segments_finds_nothing_wrong(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    log = load_log(OsFileSystem(), str(directory), "t", 0, CONFIG, wall_ms=T0)
    log.assign_epoch_start(3, 0)
    write_log(log, epoch=3)
    assert len(log.segments) > 2
    log.close()
    indexes = sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")])
    checked = apache_kafka.dump_log(indexes, "--index-sanity-check")
    assert checked.count(PASSED) == len(indexes), checked
    verified = apache_kafka.dump_log(indexes, "--verify-index-only")
    assert not re.search(r"[Mm]ismatch|[Ee]xception|Found timestamp|Indexed offset", verified), verified
    files = sorted(path for path in directory.iterdir() if path.suffix in (".log", ".txnindex", ".snapshot"))
    shown = apache_kafka.dump_log(files, "--deep-iteration")
    assert not re.search(r"isvalid: false|[Ee]xception|not valid|invalid bytes", shown), shown[-3000:]
    bases = [int(found) for found in re.findall(r"^baseOffset: (\d+)", shown, re.MULTILINE)]
    assert bases and bases == sorted(bases)
    assert "producerId: 101" in shown and "endTxnMarker: ABORT" in shown


def topic_records(bootstrap: str, topic: str, isolation: str) -> list[tuple[int, bytes]]:
    """All records of partition 0, from the start to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "isolation.level": isolation,
            "enable.partition.eof": False,
            "check.crcs": True,
        }
    )
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=20)
    consumer.assign([partition])
    found: list[tuple[int, bytes]] = []

    def is_done() -> bool:
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            found.append((message.offset(), message.value()))
        return consumer.position([partition])[0].offset >= end

    apache_kafka.wait_until(is_done, 60, "consuming")
    consumer.close()
    return found


def test_a_real_broker_serves_and_continues_our_log(tmp_path: Path) -> None:
    kafka = apache_kafka.KafkaBroker(tmp_path)
    kafka.format()
    with kafka.running():
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1, config={"index.interval.bytes": "500"})])["t"].result(30)

    directory = LogDirectory(OsFileSystem(), str(kafka.data))
    directory.open()
    assert directory.is_clean
    directory.load(lambda *_: CONFIG, T0)
    log = directory.logs["t", 0]
    assert log.log_end_offset == 0
    epoch = max(log.latest_epoch, 0)
    log.assign_epoch_start(epoch, 0)
    committed = write_log(log, epoch=epoch)
    end, segments = log.log_end_offset, len(log.segments)
    assert segments > 2
    directory.close(broker_epoch=directory.previous_broker_epoch)

    with kafka.running():
        assert topic_records(kafka.bootstrap, "t", "read_committed") == committed
        everything = topic_records(kafka.bootstrap, "t", "read_uncommitted")
        assert len(everything) > len(committed)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
        for number in range(100):
            producer.produce("t", b"from kafka %d" % number)
        assert producer.flush(30) == 0
    assert not errors(kafka.output())

    again = LogDirectory(OsFileSystem(), str(kafka.data))
    again.open()
    assert again.is_clean
    again.load(lambda *_: CONFIG, T0)
    log = again.logs["t", 0]
    assert log.log_end_offset == end + 100
    assert len(log.segments) >= segments
    offset = end
    while offset < log.log_end_offset:
        data = log.read(offset, 1, end_offset=log.log_end_offset).slice.read()
        assert int.from_bytes(data[:8], "big") == offset
        offset += int.from_bytes(data[23:27], "big") + 1
    again.close()
