"""Batches of metadata records on their way into the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from minikafka.broker.quorum.snapshots import framed
from minikafka.wire.batch import OVERHEAD, assemble_batch
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.record import encode_record

BATCH_BYTES_MAX = 8 << 20
#: Records of a batch that need not be atomic.
RECORDS_MAX = 10_000


class MetadataBatch:
    """Metadata records, each encoded when it is added: those of ten thousand partitions take longer than a turn of the event loop may, so
    the controller adds them in steps."""

    __slots__ = ("_encoded", "size", "values")

    def __init__(self) -> None:
        #: The records as they are framed.
        self.values: list[bytes] = []
        self._encoded: list[bytes] = []
        #: Bytes of the batch.
        self.size = OVERHEAD

    def __len__(self) -> int:
        return len(self.values)

    def add(self, value: bytes) -> None:
        """Add a framed record."""
        encoded = encode_record(len(self.values), 0, None, value, ())
        self.values.append(value)
        self._encoded.append(encoded)
        self.size += len(encoded)

    def assembled(self, wall_ms: int) -> bytearray:
        """The batch, with a header that the log completes. Raises ApiError if it is too large."""
        if self.size > BATCH_BYTES_MAX:
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, "the metadata records do not fit into one batch")
        body, count = b"".join(self._encoded), len(self._encoded)
        return assemble_batch(body, count=count, base_timestamp=wall_ms, max_timestamp=wall_ms, attributes=0)


def batch_of(records: Iterable[Any]) -> MetadataBatch:
    """One batch of messages of wire.records.metadata_records, or framed bytes."""
    batch = MetadataBatch()
    for record in records:
        batch.add(framed(record))
    return batch


def batches_of(records: Sequence[Any] | MetadataBatch, atomic: bool) -> list[MetadataBatch]:
    """As `batch_of`, or several if they need not be `atomic`."""
    if isinstance(records, MetadataBatch):
        return [records]
    if atomic:
        return [batch_of(records)]
    return [batch_of(records[start : start + RECORDS_MAX]) for start in range(0, len(records), RECORDS_MAX)]
