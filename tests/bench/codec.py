"""What a message costs to decode and to encode, in microseconds, beside `construct` interpreted and the independent codec kio.

    python tests/bench/codec.py

Best of several rounds, CPU time of this process.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any

from kio.schema.fetch.v12.request import FetchRequest as KioFetchRequest
from kio.schema.fetch.v12.response import FetchResponse as KioFetchResponse
from kio.schema.metadata.v9.response import MetadataResponse as KioMetadataResponse
from kio.schema.produce.v9.request import ProduceRequest as KioProduceRequest
from kio.serial import entity_reader, entity_writer

from minikafka.wire.grammar import grammar, to_container
from minikafka.wire.messages.fetch import FetchRequest, FetchResponse
from minikafka.wire.messages.metadata import MetadataResponse
from minikafka.wire.messages.produce import ProduceRequest

ROUNDS = 7


def best(work: Callable[[], Any], seconds: float = 0.08) -> float:
    """Microseconds a call."""
    count, elapsed = 1, 0.0
    while elapsed < seconds / 4:
        count *= 2
        started = time.process_time()
        for _ in range(count):
            work()
        elapsed = time.process_time() - started
    fastest = elapsed / count
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(count):
            work()
        fastest = min(fastest, (time.process_time() - started) / count)
    return fastest * 1e6


def fetch_request(partitions: int) -> FetchRequest:
    parts = [FetchRequest.FetchPartition(partition=n, fetch_offset=n * 1000, partition_max_bytes=1 << 20) for n in range(partitions)]
    return FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[FetchRequest.FetchTopic(topic="flights", partitions=parts)]
    )


def fetch_response(partitions: int) -> FetchResponse:
    parts = [FetchResponse.PartitionData(partition_index=n, high_watermark=n * 1000, records=b"") for n in range(partitions)]
    return FetchResponse(session_id=1, responses=[FetchResponse.FetchableTopicResponse(topic="flights", partitions=parts)])


def metadata_response(partitions: int) -> MetadataResponse:
    parts = [
        MetadataResponse.MetadataResponsePartition(
            partition_index=n, leader_id=1, leader_epoch=3, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        for n in range(partitions)
    ]
    brokers = [MetadataResponse.MetadataResponseBroker(node_id=n, host="127.0.0.1", port=9092 + n) for n in range(3)]
    return MetadataResponse(
        brokers=brokers, cluster_id="c", topics=[MetadataResponse.MetadataResponseTopic(name="flights", partitions=parts)]
    )


def produce_request(size_bytes: int) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=0, records=bytes(size_bytes))
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[ProduceRequest.TopicProduceData(name="flights", partition_data=[data])])


def main() -> None:
    cases: list[tuple[str, Any, int, Any]] = [
        ("Produce v9, 64 KiB", produce_request(64 << 10), 9, KioProduceRequest),
        ("FetchRequest v12, 1 partition", fetch_request(1), 12, KioFetchRequest),
        ("FetchRequest v12, 100 partitions", fetch_request(100), 12, KioFetchRequest),
        ("FetchResponse v12, 1 partition", fetch_response(1), 12, KioFetchResponse),
        ("FetchResponse v12, 100 partitions", fetch_response(100), 12, KioFetchResponse),
        ("MetadataResponse v9, 100 partitions", metadata_response(100), 9, KioMetadataResponse),
    ]
    print(f"{'':<38}{'decode':>9}{'kio':>9}{'construct':>11}{'encode':>10}{'kio':>9}{'construct':>11}   microseconds")
    for name, message, version, kio in cases:
        data = message.encode(version)
        view = memoryview(data)
        tree = grammar(type(message), version)
        read, write = entity_reader(kio), entity_writer(kio)
        instance, _ = read(data, 0)
        container = to_container(tree, message)

        def kio_write(write: Any = write, instance: Any = instance) -> None:
            write(io.BytesIO(), instance)

        columns = (
            best(lambda: type(message).decode(version, view)),  # noqa: B023 - called at once
            best(lambda: read(data, 0)),  # noqa: B023
            best(lambda: tree.parse(data)),  # noqa: B023
            best(lambda: message.encode_into(version, [])),  # noqa: B023
            best(kio_write),
            best(lambda: tree.build(container)),  # noqa: B023
        )
        print(f"{name:<38}{columns[0]:>9.2f}{columns[1]:>9.2f}{columns[2]:>11.1f}{columns[3]:>10.2f}{columns[4]:>9.2f}{columns[5]:>11.1f}")


if __name__ == "__main__":
    main()
