"""DeleteRecords up to the log end, then a crash that loses what had not been synced: the log start of the checkpoint lies beyond the end of
what is left (KAFKA-10101). Apache Kafka 4.3.0 and we do the same: nothing is left of the log, and it goes on at its log start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from helpers import apache_kafka
from helpers.batches import T0

from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.recovery import load_log
from minikafka.storage.segment import segment_path

pytestmark = [pytest.mark.java, pytest.mark.timeout(200)]
RECORDS, LEFT = 20, 7


def produce(bootstrap: str, count: int) -> list[int]:
    """Each record in a batch of its own; their offsets."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    offsets: list[int] = []
    for _ in range(count):
        producer.produce("t", b"v", partition=0, on_delivery=lambda error, message: offsets.append(message.offset()))
        producer.flush(30)
    return offsets


def bounds(bootstrap: str) -> tuple[int, int]:
    """Log start and high watermark."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    try:
        found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=30)
        return found
    finally:
        consumer.close()


def cut_after(path: Path, batches: int) -> None:
    """Keep the first batches of a segment."""
    data, position = path.read_bytes(), 0
    for _ in range(batches):
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    assert position < len(data)
    path.write_bytes(data[:position])


def test_the_log_goes_on_at_its_start(tmp_path: Path) -> None:
    if reason := apache_kafka.missing():
        pytest.skip(reason)
    kafka = apache_kafka.KafkaBroker(tmp_path / "kafka")
    kafka.format()
    with kafka.running():
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        assert produce(kafka.bootstrap, RECORDS) == list(range(RECORDS))
        for future in admin.delete_records([TopicPartition("t", 0, RECORDS)]).values():
            assert future.result(30).low_watermark == RECORDS
    assert f"t 0 {RECORDS}\n" in (kafka.data / "log-start-offset-checkpoint").read_text()

    # What a power cut leaves of a broker that has not synced its log since it began.
    (kafka.data / ".kafka_cleanshutdown").unlink()
    (kafka.data / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    cut_after(Path(segment_path(str(kafka.data / "t-0"), 0, ".log")), LEFT)
    shutil.copytree(kafka.data / "t-0", tmp_path / "ours" / "t-0")

    with kafka.running():
        assert bounds(kafka.bootstrap) == (RECORDS, RECORDS)
        assert produce(kafka.bootstrap, 2) == [RECORDS, RECORDS + 1]

    log = load_log(
        OsFileSystem(), str(tmp_path / "ours" / "t-0"), "t", 0, LogConfig(), wall_ms=T0, is_clean=False, recovery_point=0,
        log_start_offset=RECORDS, high_watermark=RECORDS,
    )  # fmt: skip
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (RECORDS, RECORDS, RECORDS)
    assert (log.segments.bases, log.size) == ([RECORDS], 0)
    log.close()
