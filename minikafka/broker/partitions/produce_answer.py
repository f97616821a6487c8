"""What the ordinary and the fast path of Produce share: error answers, and how one hands a request to the other."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from minikafka.net.stand_in import StandIn
from minikafka.storage.validation import RefusedRecords
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.message import received
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from minikafka.broker.partitions.partition import Partition
    from minikafka.core.partition.leader import PartitionLeader
    from minikafka.net.network import Connection
    from minikafka.storage.types import AppendInfo

ACKS_ALL = -1
TOPIC_ID_VERSION_MIN = 13

PartitionAnswer = ProduceResponse.PartitionProduceResponse


def fail(answer: PartitionAnswer, code: ErrorCode, message: str | None = None) -> None:
    """Turn an answer into one with an error and without an offset."""
    answer.error_code = code
    answer.error_message = message
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1


def refuse(answer: PartitionAnswer, error: ApiError) -> None:
    """Like `fail`, with the error's message and, if single records are the reason, their errors (KIP-467)."""
    fail(answer, error.code, error.message if error.message != error.code.text else None)
    if isinstance(error, RefusedRecords):
        kind = ProduceResponse.BatchIndexAndErrorMessage
        answer.record_errors = [kind(batch_index=index, batch_index_error_message=reason) for index, reason in error.record_errors]


def records_bytes(request: ProduceRequest) -> int:
    """The bytes of all records of a request."""
    return sum(len(received(data.records or b"")) for topic in request.topic_data for data in topic.partition_data)


class Appended:
    """Records that are in the log of a partition. `leader` is the leadership that appended them, None if it ended at once."""

    __slots__ = ("info", "leader", "partition")

    def __init__(self, partition: Partition, leader: PartitionLeader | None, info: AppendInfo) -> None:
        self.partition = partition
        self.leader = leader
        self.info = info

    @property
    def is_replicated(self) -> bool:
        """Whether every in-sync replica has them."""
        return self.leader is not None and self.leader.high_watermark > self.info.last_offset

    def count(self, size: int) -> None:
        """Count them among the partition's traffic. `size`: in bytes."""
        self.partition.produced(1, size, self.info.last_offset - self.info.first_offset + 1)


class ReservedPlace(StandIn):
    """Stands for a connection towards the dispatcher, and gives a request the place among the responses that was reserved for it."""

    __slots__ = ("_ticket", "appended")

    def __init__(self, connection: Connection, ticket: int, appended: Mapping[tuple[Hashable, int], Appended] | None = None) -> None:
        """`appended`: (name or id of the topic, index) -> what the fast path has appended of the request."""
        super().__init__(connection)
        self._ticket = ticket
        self.appended = appended or {}

    def begin(self) -> int:
        """The reserved place."""
        return self._ticket


def appended_before(connection: object) -> Mapping[tuple[Hashable, int], Appended]:
    """What has been appended of the request that comes on `connection`."""
    return connection.appended if isinstance(connection, ReservedPlace) else {}
