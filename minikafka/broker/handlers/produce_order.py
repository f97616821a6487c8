"""What was sent behind a refused batch is refused as well: see `minikafka.core.partition.refusals`."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from minikafka.core.partition.refusals import FOR_NOW, Refusals
from storage.producer_state import add_to_sequence
from wire.errors import ApiError, ErrorCode
from wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from minikafka.broker.hosts.partition import Partition

#: Producer id, producer epoch and first sequence stand here in a batch of format 2.
_AT = 43
_PRODUCER = struct.Struct(">qhi")
_HEADER_BYTES = 61

_Topic = ProduceRequest.TopicProduceData
_Data = ProduceRequest.PartitionProduceData


def note_refused(refusals: Refusals, topic: _Topic, data: _Data, code: ErrorCode, now_ms: int) -> None:
    """Remember that the records were refused, if that may pass."""
    if code in FOR_NOW:
        found = _producer(data)
        if found is not None:
            producer_id, epoch, sequence = found
            refusals.note((topic.name or topic.topic_id, data.index, producer_id), epoch, sequence, code, now_ms)


def check_order(refusals: Refusals, topic: _Topic, data: _Data, partition: Partition, now_ms: int) -> None:
    """Whether the records may be tried. Raises ApiError with what the batch before them was refused with."""
    refusals.sweep(now_ms)
    found = _producer(data)
    if found is None:
        return
    producer_id, epoch, sequence = found
    known = partition.log.producer_state.entries.get(producer_id)
    expected = add_to_sequence(known.last_sequence, 1) if known is not None and known.epoch == epoch and known.batches else None
    code = refusals.code_for((topic.name or topic.topic_id, data.index, producer_id), epoch, sequence, expected, now_ms)
    if code is not None:
        raise ApiError(code)


def _producer(data: _Data) -> tuple[int, int, int] | None:
    records = data.records
    if records is None or len(records) < _HEADER_BYTES:
        return None
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _AT)
    return None if producer_id < 0 else (producer_id, epoch, sequence)
