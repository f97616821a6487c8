"""Refuses batches that were sent after a refused batch of the same producer: see `minikafka.core.partition.refusals`."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from minikafka.core.partition.refusals import RETRIABLE, Refusals, is_behind
from minikafka.storage.producer_state import add_to_sequence
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.message import received
from minikafka.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from minikafka.broker.partitions.partition import Partition

#: Position of producer id, producer epoch and first sequence in a batch of format 2.
_AT = 43
_PRODUCER = struct.Struct(">qhi")
_HEADER_BYTES = 61

_Topic = ProduceRequest.TopicProduceData
_Data = ProduceRequest.PartitionProduceData


def note_refused(refusals: Refusals, topic: _Topic, data: _Data, code: ErrorCode, now_ms: int) -> None:
    """Remember a refused batch, if the error is retriable."""
    if code in RETRIABLE:
        found = _producer(data)
        if found is not None:
            producer_id, epoch, sequence = found
            refusals.note((topic.name or topic.topic_id, data.index, producer_id), epoch, sequence, code, now_ms)


def check_order(refusals: Refusals, topic: _Topic, data: _Data, partition: Partition, now_ms: int) -> None:
    """Check that no earlier batch of the producer was refused. Raises ApiError with the error of that batch."""
    refusals.sweep(now_ms)
    found = _producer(data)
    if found is None:
        return
    producer_id, epoch, sequence = found
    entry = partition.log.producer_state.entries.get(producer_id)
    expected = add_to_sequence(entry.last_sequence, 1) if entry is not None and entry.epoch == epoch and entry.batches else None
    code = refusals.code_for((topic.name or topic.topic_id, data.index, producer_id), epoch, sequence, expected, now_ms)
    if code is not None:
        raise ApiError(code)


def is_behind_lost(refusals: Refusals, topic: _Topic, data: _Data, now_ms: int) -> bool:
    """Whether the records follow lost ones of the same producer (Partition.note_lost), so that the next leader must not get them first."""
    found = _producer(data) if refusals else None
    if found is None:
        return False
    producer_id, epoch, sequence = found
    return refusals.is_behind_lost((topic.name or topic.topic_id, data.index, producer_id), epoch, sequence, now_ms)


def gap_at_new_leader(refusals: Refusals, topic: _Topic, data: _Data, partition: Partition, now_ms: int) -> ApiError | None:
    """The error for an out-of-sequence batch when the missing batches may still be with the former leader. It is given once per producer
    and leader epoch, and as long as refusals are remembered. None if the producer must get the sequence error itself."""
    found, leader = _producer(data), partition.leader
    if found is None or leader is None:
        return None
    producer_id, epoch, sequence = found
    entry = partition.log.producer_state.entries.get(producer_id)
    if entry is None or not entry.batches or entry.last_offset >= leader.epoch_start_offset:
        return None
    expected = add_to_sequence(entry.last_sequence, 1) if entry.epoch == epoch else 0
    if not is_behind(sequence, expected) or producer_id in leader.gaps_refused:
        return None
    leader.gaps_refused.add(producer_id)
    code = ErrorCode.NOT_ENOUGH_REPLICAS
    refusals.note((topic.name or topic.topic_id, data.index, producer_id), epoch, expected, code, now_ms)
    return ApiError(code, f"Sequence {expected} of producer {producer_id} was not seen by this new leader: send again from there")


def _producer(data: _Data) -> tuple[int, int, int] | None:
    if data.records is None:
        return None
    records = received(data.records)
    if len(records) < _HEADER_BYTES:
        return None
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _AT)
    return None if producer_id < 0 else (producer_id, epoch, sequence)
