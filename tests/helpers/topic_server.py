"""A broker in a thread with one topic and the load's ledger topic: everything that a load needs, with faults.

It checks what a leader checks of an idempotent producer (CRC, sequences) and keeps the batches that it took.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

from minikafka.wire.batch import RecordBatch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.frame import encode_response
from minikafka.wire.header import decode_request_header
from minikafka.wire.messages.api_versions import ApiVersionsResponse
from minikafka.wire.messages.create_topics import CreateTopicsResponse
from minikafka.wire.messages.describe_producers import DescribeProducersResponse
from minikafka.wire.messages.fetch import FetchResponse
from minikafka.wire.messages.init_producer_id import InitProducerIdResponse
from minikafka.wire.messages.list_offsets import ListOffsetsResponse
from minikafka.wire.messages.metadata import MetadataResponse
from minikafka.wire.messages.produce import ProduceResponse
from minikafka.wire.registry import api

SERVED = {0: (3, 13), 1: (4, 12), 2: (1, 7), 3: (0, 12), 18: (0, 4), 19: (2, 7), 22: (0, 5), 61: (0, 0)}
LEDGER = "minikafka-load-ledger"


class TopicServer:
    """`fault(partition, produce_number)` returns an ErrorCode to answer, "drop" to take the batch and close unanswered, or None."""

    def __init__(self, topic: str, partitions: int, fault: Callable[[int, int], Any] | None = None) -> None:
        self.topic, self.partitions, self.fault = topic, partitions, fault
        self.logs: dict[int, list[bytes]] = {}
        self.next_offset: dict[int, int] = {}
        self.sequences: dict[tuple[int, int], int] = {}
        self.requests = self.next_producer = 0
        self.ledger: list[bytearray] | None = None
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> TopicServer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def records(self, partition: int) -> list[Any]:
        return [record for batch in self.logs.get(partition, []) for record in RecordBatch(memoryview(batch)).records()]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as reader:
            while len(size := reader.read(4)) == 4:
                frame = memoryview(reader.read(int.from_bytes(size, "big")))
                header, position = decode_request_header(frame, 0)
                entry = api(header.api_key)
                assert entry is not None
                request = entry.request.decode(header.api_version, frame, position)
                with self.lock:
                    response = getattr(self, "_" + entry.request.NAME)(request)
                if response is None:
                    return
                for piece in encode_response(response, header.api_version, header.correlation_id):
                    connection.sendall(piece)  # type: ignore[arg-type]

    def _ApiVersionsRequest(self, request: Any) -> Any:
        keys = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in SERVED.items()]
        return ApiVersionsResponse(api_keys=keys)

    def _MetadataRequest(self, request: Any) -> Any:
        broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
        counts = {self.topic: self.partitions, LEDGER: 0 if self.ledger is None else 1}
        topics = []
        for name in [topic.name for topic in request.topics or []]:
            parts = [
                MetadataResponse.MetadataResponsePartition(partition_index=n, leader_id=1, replica_nodes=[1], isr_nodes=[1])
                for n in range(counts.get(name, 0))
            ]
            code = ErrorCode.NONE if parts else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(MetadataResponse.MetadataResponseTopic(error_code=code, name=name, partitions=parts))
        return MetadataResponse(brokers=[broker], controller_id=1, topics=topics)

    def _CreateTopicsRequest(self, request: Any) -> Any:
        name = request.topics[0].name
        if name == LEDGER:
            self.ledger = []
        else:
            self.partitions = request.topics[0].num_partitions
        return CreateTopicsResponse(topics=[CreateTopicsResponse.CreatableTopicResult(name=name)])

    def _DescribeProducersRequest(self, request: Any) -> Any:
        kind = DescribeProducersResponse
        partitions = []
        for number in request.topics[0].partition_indexes:
            states = [
                kind.ProducerState(producer_id=producer, producer_epoch=0, last_sequence=following - 1, coordinator_epoch=-1)
                for (partition, producer), following in self.sequences.items()
                if partition == number
            ]
            partitions.append(kind.PartitionResponse(partition_index=number, active_producers=states))
        return kind(topics=[kind.TopicResponse(name=request.topics[0].name, partitions=partitions)])

    def _ListOffsetsRequest(self, request: Any) -> Any:
        kind = ListOffsetsResponse
        part = kind.ListOffsetsPartitionResponse(partition_index=0, timestamp=-1, offset=0)
        return kind(topics=[kind.ListOffsetsTopicResponse(name=LEDGER, partitions=[part])])

    def _FetchRequest(self, request: Any) -> Any:
        kind = FetchResponse
        offset = request.topics[0].partitions[0].fetch_offset
        records = b"".join((self.ledger or [])[offset:])
        part = kind.PartitionData(partition_index=0, high_watermark=len(self.ledger or []), log_start_offset=0, records=records)
        return kind(responses=[kind.FetchableTopicResponse(topic=LEDGER, partitions=[part])])

    def _InitProducerIdRequest(self, request: Any) -> Any:
        self.next_producer += 1
        return InitProducerIdResponse(producer_id=self.next_producer, producer_epoch=0)

    def _ProduceRequest(self, request: Any) -> Any:
        if request.topic_data[0].name == LEDGER:
            batch = bytearray(request.topic_data[0].partition_data[0].records)
            assert self.ledger is not None
            batch[:8] = len(self.ledger).to_bytes(8, "big")
            self.ledger.append(batch)
            part = ProduceResponse.PartitionProduceResponse(index=0, base_offset=len(self.ledger) - 1)
            return ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(name=LEDGER, partition_responses=[part])])
        self.requests += 1
        rows, dropped = [], False
        for data in request.topic_data[0].partition_data:
            fault = self.fault(data.index, self.requests) if self.fault else None
            if isinstance(fault, ErrorCode):
                rows.append((data.index, fault, -1))
                continue
            rows.append((data.index, *self._append(data.index, bytes(data.records))))
            dropped |= fault == "drop"
        if dropped:
            return None
        parts = [ProduceResponse.PartitionProduceResponse(index=index, error_code=code, base_offset=base) for index, code, base in rows]
        return ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(name=self.topic, partition_responses=parts)])

    def _append(self, partition: int, data: bytes) -> tuple[ErrorCode, int]:
        batch = RecordBatch(memoryview(data))
        batch.check()
        key = partition, batch.producer_id
        # A leader that does not know a producer takes whatever sequence it begins with.
        expected = self.sequences.get(key, batch.base_sequence)
        if batch.base_sequence < expected:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1
        if batch.base_sequence > expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        assert batch.size_in_bytes == len(data) and batch.base_offset == 0
        self.sequences[key] = batch.last_sequence + 1
        base = self.next_offset.get(partition, 0)
        self.next_offset[partition] = base + batch.records_count
        self.logs.setdefault(partition, []).append(data)
        return ErrorCode.NONE, base
