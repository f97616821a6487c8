"""confluent-kafka as a load for `hot_path.py`: produces or reads for some seconds and prints the number of records."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import confluent_kafka

QUEUED_MAX = 50_000


def produce(job: dict[str, Any]) -> int:
    """As many records as are acknowledged."""
    settings = {"bootstrap.servers": job["address"], "queue.buffering.max.messages": 4 * QUEUED_MAX, **job["settings"]}
    producer = confluent_kafka.Producer(settings)
    value, topic, count = b"x" * job["size"], job["topic"], 0
    end = time.monotonic() + job["seconds"]
    while count < job["records"] if job["records"] else time.monotonic() < end:
        for _ in range(min(500, job["records"] - count) if job["records"] else 500):
            producer.produce(topic, value, partition=0)
            count += 1
        producer.poll(0)
        while len(producer) > QUEUED_MAX:
            producer.poll(0.01)
    if producer.flush(30):
        raise RuntimeError("records were not acknowledged")
    return count


def consume(job: dict[str, Any]) -> int:
    """Reads from the beginning, and again."""
    settings = {"bootstrap.servers": job["address"], "group.id": "unused", "enable.auto.commit": False, **job["settings"]}
    consumer = confluent_kafka.Consumer(settings)
    topic, count, end = job["topic"], 0, time.monotonic() + job["seconds"]
    _, stored = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=10)
    if stored < 2_000_000:
        fill = {**job, "seconds": 60.0, "records": 2_000_000 - stored, "settings": {"acks": 1, "linger.ms": 5}}
        produce(fill)
        end = time.monotonic() + job["seconds"]
    position = 0
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    while count < job["records"] if job["records"] else time.monotonic() < end:
        found = consumer.consume(5000, 1.0)
        count += len(found)
        position += len(found)
        if position >= 1_999_000:
            position = 0
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    consumer.close()
    return count


if __name__ == "__main__":
    _job = json.loads(sys.argv[1])
    print(produce(_job) if _job["kind"] == "produce" else consume(_job))
