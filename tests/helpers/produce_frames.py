"""Produce requests as frames, the topics they go to, and what became of them."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterable
from typing import Any

from helpers.live_node import broker_port

from minikafka.broker.node import Node
from minikafka.client.admin import Admin
from minikafka.wire.batch import build_batch
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse

TOPICS = ("fastpath", "ordinary")


async def led(node: Node, topics: Iterable[str], partitions: int) -> None:
    """Wait until the broker leads every partition: it takes its roles some at a time."""
    assert node.broker is not None
    replicas = node.broker.replicas.partitions
    keys = [(topic, index) for topic in topics for index in range(partitions)]
    while not all(key in replicas and replicas[key].is_leader for key in keys):
        await asyncio.sleep(0)


async def prepare(node: Node, **configs: str) -> dict[str, bytes]:
    async with Admin(f"127.0.0.1:{broker_port(node)}") as admin:
        for topic in TOPICS:
            await admin.create_topic(topic, partitions=2, replication_factor=1, configs=configs)
    await led(node, TOPICS, 2)
    assert node.broker is not None
    return {topic: node.broker.replicas._metadata.image.topics_by_name[topic].topic_id for topic in TOPICS}


def produce(
    topic: str,
    topic_id: bytes,
    version: int,
    records: bytes,
    *,
    correlation_id: int = 1,
    partition: int = 0,
    acks: int = 1,
    timeout_ms: int = 1000,
) -> bytes:
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    topics = [ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])]
    if version < 13:
        topics[0].topic_id = bytes(16)
    else:
        topics[0].name = ""
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)
    return b"".join(bytes(piece) for piece in encode_request(request, version, correlation_id, "fast-path"))[4:]


def batch(*values: bytes, **options: Any) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return bytes(build_batch([(n, now_ms, None, value, ()) for n, value in enumerate(values)], **options))


def damaged(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


def log_bytes(node: Node, topic: str, partition: int = 0) -> bytes:
    assert node.broker is not None
    log = node.broker.replicas.partitions[(topic, partition)].log
    return log.read(log.log_start_offset, 1 << 20, end_offset=log.log_end_offset).slice.read()


def decoded(frame: bytes, version: int) -> Any:
    size, correlation_id, tags = struct.unpack_from(">iib", frame)
    assert (size, tags) == (len(frame) - 4, 0)
    response, end = ProduceResponse.decode_from(version, memoryview(frame), 9)
    assert end == len(frame)
    return correlation_id, response
