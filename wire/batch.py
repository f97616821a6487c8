"""Record batches of magic 2: a lazy view, a builder, and the patches that a leader makes in place.

`baseOffset` and `partitionLeaderEpoch` stand before the checksummed part, so that a leader assigns offsets without touching the CRC
(org.apache.kafka.common.record.DefaultRecordBatch).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from minikafka.wire.compression import CompressionType, compress, decompress, is_larger_than
from minikafka.wire.crc import crc32c
from minikafka.wire.errors import CorruptRecord
from minikafka.wire.record import Record, decode_records, encode_record
from minikafka.wire.record_scan import scan_records

BASE_OFFSET = 0
BATCH_LENGTH = 8
PARTITION_LEADER_EPOCH = 12
MAGIC = 16
CRC = 17
ATTRIBUTES = 21
#: The low byte of the attributes, which has all that is in use.
ATTRIBUTES_LOW_BYTE = 22
LAST_OFFSET_DELTA = 23
BASE_TIMESTAMP = 27
MAX_TIMESTAMP = 35
PRODUCER_ID = 43
PRODUCER_EPOCH = 51
BASE_SEQUENCE = 53
RECORDS_COUNT = 57
OVERHEAD = 61
LOG_OVERHEAD = 12
MAGIC_V2 = 2

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
CREATE_TIME = 0
LOG_APPEND_TIME = 1
NO_TIMESTAMP = -1
SEQUENCE_MODULUS = 1 << 31
WRAP = 1 << 63
#: Default bound for the decompressed records of one batch; brokers use `decompressed_bytes_max`.
DECOMPRESSED_BYTES_MAX = 1 << 30
DECOMPRESSED_RATIO_MAX = 16
DECOMPRESSED_BYTES_MIN = 16 << 20

#: baseOffset, batchLength, partitionLeaderEpoch, magic, crc, attributes, lastOffsetDelta, baseTimestamp, maxTimestamp, producerId,
#: producerEpoch, baseSequence, recordsCount
HEADER = struct.Struct(">qiibIhiqqqhii")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_BEFORE_CRC = struct.Struct(">qiibI")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")

Buffer = bytes | bytearray | memoryview


class RecordBatch:
    """A batch at `position` of `view`; fields are read when asked for, records are decoded when iterated."""

    __slots__ = ("_view", "position")

    def __init__(self, view: Buffer, position: int = 0) -> None:
        """Raises CorruptRecord when there are fewer bytes than a header has."""
        if len(view) - position < OVERHEAD:
            raise CorruptRecord(f"a batch has at least {OVERHEAD} bytes, but only {len(view) - position} are left")
        self._view = view if isinstance(view, memoryview) else memoryview(view)
        self.position = position

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets {self.base_offset}-{self.last_offset}, epoch {self.partition_leader_epoch}, {self.size_in_bytes} bytes)"
        )

    def _int64(self, field: int) -> int:
        return int(_INT64.unpack_from(self._view, self.position + field)[0])

    def _int32(self, field: int) -> int:
        return int(_INT32.unpack_from(self._view, self.position + field)[0])

    def _int16(self, field: int) -> int:
        return int(_INT16.unpack_from(self._view, self.position + field)[0])

    @property
    def view(self) -> memoryview:
        """The bytes of the whole batch."""
        return self._view[self.position : self.position + self.size_in_bytes]

    @property
    def base_offset(self) -> int:
        """Offset of the first record, even if compaction has removed that record."""
        return self._int64(BASE_OFFSET)

    @property
    def batch_length(self) -> int:
        """Bytes after the length field."""
        return self._int32(BATCH_LENGTH)

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the whole batch, by its length field."""
        return self._int32(BATCH_LENGTH) + LOG_OVERHEAD

    @property
    def partition_leader_epoch(self) -> int:
        """Epoch of the leader that appended the batch; -1 from a client."""
        return self._int32(PARTITION_LEADER_EPOCH)

    @property
    def magic(self) -> int:
        """2 for every batch that Kafka 4 accepts."""
        return self._view[self.position + MAGIC]

    @property
    def crc(self) -> int:
        """The stored CRC-32C of everything from the attributes on."""
        return int(_UINT32.unpack_from(self._view, self.position + CRC)[0])

    @property
    def attributes(self) -> int:
        """Codec, timestamp type, transactional, control and delete-horizon bits."""
        return self._int16(ATTRIBUTES)

    @property
    def last_offset_delta(self) -> int:
        """Last offset minus base offset; kept by compaction."""
        return self._int32(LAST_OFFSET_DELTA)

    @property
    def last_offset(self) -> int:
        """Offset of the last record, even if compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the last record: the base offset of the next batch in an uncompacted log."""
        return self.last_offset + 1

    @property
    def base_timestamp(self) -> int:
        """The timestamp from which the records' deltas count; the delete horizon when that bit is set."""
        return self._int64(BASE_TIMESTAMP)

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of the records, in milliseconds since 1970."""
        return self._int64(MAX_TIMESTAMP)

    @property
    def producer_id(self) -> int:
        """Id of the idempotent producer; -1 without idempotence."""
        return self._int64(PRODUCER_ID)

    @property
    def producer_epoch(self) -> int:
        """Epoch of the idempotent producer; -1 without idempotence."""
        return self._int16(PRODUCER_EPOCH)

    @property
    def base_sequence(self) -> int:
        """Sequence number of the first record; -1 without idempotence."""
        return self._int32(BASE_SEQUENCE)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; wraps to 0 after 2^31 - 1."""
        base = self.base_sequence
        return base if base < 0 else (base + self.last_offset_delta) % SEQUENCE_MODULUS

    @property
    def records_count(self) -> int:
        """Number of records in the batch; 0 for one that compaction has emptied."""
        return self._int32(RECORDS_COUNT)

    @property
    def compression(self) -> CompressionType:
        """The codec. Raises CorruptRecord for one that does not exist."""
        codec = self.attributes & CODEC_MASK
        if codec > CompressionType.ZSTD:
            raise CorruptRecord(f"codec {codec} is unknown")
        return CompressionType(codec)

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME or LOG_APPEND_TIME."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def is_control(self) -> bool:
        """Whether the batch holds control records."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def has_producer(self) -> bool:
        """Whether an idempotent producer wrote the batch."""
        return self.producer_id >= 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones of the batch may be removed (KIP-534), or None."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    def crc_valid(self) -> bool:
        """Whether the stored checksum matches the bytes."""
        end = self.position + self.size_in_bytes
        return crc32c(self._view[self.position + ATTRIBUTES : end]) == self.crc

    def check(self) -> None:
        """Raises CorruptRecord for a length that does not fit, another magic than 2, or a wrong checksum."""
        size = self.size_in_bytes
        if size < OVERHEAD or self.position + size > len(self._view):
            raise CorruptRecord(f"a batch claims {size} bytes, but only {len(self._view) - self.position} are left")
        if self.magic != MAGIC_V2:
            raise CorruptRecord(f"a batch has magic {self.magic}, but only {MAGIC_V2} is supported")
        if not self.crc_valid():
            raise CorruptRecord(f"a batch at offset {self.base_offset} fails its checksum")

    def is_larger_than(self, size: int) -> bool:
        """Whether the decompressed records take more than `size` bytes. Decompresses no more than that."""
        codec = self.attributes & CODEC_MASK
        if not codec:
            return False
        end = self.position + LOG_OVERHEAD + self._int32(BATCH_LENGTH)
        return is_larger_than(codec, self._view[self.position + OVERHEAD : end], size)

    def records(self, size_max: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """Decode the records. Raises CorruptRecord; decompresses at most `size_max` bytes."""
        view, position = self._view, self.position
        (
            base_offset, length, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, count,
        ) = HEADER.unpack_from(view, position)  # fmt: skip
        end = position + LOG_OVERHEAD + length
        if end < position + OVERHEAD or end > len(view):
            raise CorruptRecord(f"a batch claims {length + LOG_OVERHEAD} bytes, but only {len(view) - position} are left")
        body: Buffer = view[position + OVERHEAD : end]
        if attributes & CODEC_MASK and count:
            body = decompress(self.compression, body, size_max)
        append_time = max_timestamp if attributes & TIMESTAMP_TYPE_BIT else None
        return decode_records(body, count, base_offset, base_timestamp, append_time)

    def find_record(self, timestamp: int, from_offset: int, size_max: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record from `from_offset` on with a timestamp >= `timestamp`. Decompresses no further than that
        record. Raises CorruptRecord, TooLarge beyond `size_max` bytes."""
        codec = self.compression
        base_offset, base_timestamp = self.base_offset, self.base_timestamp
        append_time = self.max_timestamp if self.attributes & TIMESTAMP_TYPE_BIT else None
        for outline in scan_records(codec, self.view[OVERHEAD:], self.records_count, size_max):
            # Timestamps wrap, as Java's 64-bit integers do.
            stamped = (base_timestamp + outline.timestamp_delta + WRAP) % (2 * WRAP) - WRAP if append_time is None else append_time
            if stamped >= timestamp and base_offset + outline.offset_delta >= from_offset:
                return base_offset + outline.offset_delta, stamped
        return None


def decompressed_bytes_max(message_bytes_max: int) -> int:
    """A broker's bound for the decompressed records of one batch, in a topic whose `max.message.bytes` is `message_bytes_max`."""
    return max(DECOMPRESSED_RATIO_MAX * message_bytes_max, DECOMPRESSED_BYTES_MIN)


def iterate_batches(view: Buffer, position: int = 0, end: int | None = None) -> Iterator[RecordBatch]:
    """The whole batches of `view[position:end]`; only their lengths are checked. An incomplete tail is left out.

    Raises CorruptRecord for a length that cannot be a batch's.
    """
    window = view if isinstance(view, memoryview) else memoryview(view)
    limit = len(window) if end is None else end
    while position + OVERHEAD <= limit:
        batch = RecordBatch(window, position)
        size = batch.size_in_bytes
        if size < OVERHEAD:
            raise CorruptRecord(f"a batch claims {size} bytes, the minimum is {OVERHEAD}")
        if position + size > limit:
            return
        yield batch
        position += size


def leading_attributes(records: Buffer) -> int:
    """The low byte of the first batch's attributes. 0 if it is cut short, or of a format before 2, which has other fields there."""
    if len(records) < OVERHEAD or records[MAGIC] != MAGIC_V2:
        return 0
    return int(records[ATTRIBUTES_LOW_BYTE])


def set_base_offset(buffer: bytearray | memoryview, position: int, offset: int) -> None:
    """Assign offsets to a batch; its checksum stays valid."""
    _INT64.pack_into(buffer, position, offset)


def set_partition_leader_epoch(buffer: bytearray | memoryview, position: int, epoch: int) -> None:
    """Stamp a batch with its leader's epoch; its checksum stays valid."""
    _INT32.pack_into(buffer, position + PARTITION_LEADER_EPOCH, epoch)


def set_max_timestamp(buffer: bytearray | memoryview, position: int, timestamp_type: int, max_timestamp: int) -> None:
    """Set timestamp type and maximum (LogAppendTime) and compute the checksum anew."""
    (attributes,) = _INT16.unpack_from(buffer, position + ATTRIBUTES)
    attributes = attributes | TIMESTAMP_TYPE_BIT if timestamp_type == LOG_APPEND_TIME else attributes & ~TIMESTAMP_TYPE_BIT
    _INT16.pack_into(buffer, position + ATTRIBUTES, attributes)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP, max_timestamp)
    refresh_crc(buffer, position)


def set_producer(buffer: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool) -> None:
    """Set the producer fields of the batch at the start of `buffer` and compute its checksum, even if it had none yet."""
    (attributes,) = _INT16.unpack_from(buffer, ATTRIBUTES)
    _INT16.pack_into(buffer, ATTRIBUTES, attributes | TRANSACTIONAL_BIT if is_transactional else attributes & ~TRANSACTIONAL_BIT)
    _PRODUCER.pack_into(buffer, PRODUCER_ID, producer_id, producer_epoch, base_sequence)
    refresh_crc(buffer)


def refresh_crc(buffer: bytearray | memoryview, position: int = 0) -> None:
    """Compute the checksum of the batch at `position` and store it."""
    (length,) = _INT32.unpack_from(buffer, position + BATCH_LENGTH)
    view = memoryview(buffer)[position + ATTRIBUTES : position + LOG_OVERHEAD + length]
    _UINT32.pack_into(buffer, position + CRC, crc32c(view))


def build_batch(
    records: Iterable[Record | tuple[object, ...]],
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
    compression: CompressionType = CompressionType.NONE,
    compression_level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """One batch of `records` (Record, or tuples of its fields). Their offsets only order them: deltas count from 0.

    Timestamps are milliseconds; the first record's is the base, the largest the maximum. Raises ValueError without records.
    """
    encoded: list[bytes] = []
    base_timestamp = max_timestamp = NO_TIMESTAMP
    for delta, record in enumerate(records):
        _, timestamp, key, value, headers = record if len(record) == 5 else (*record, ())
        if delta == 0:
            base_timestamp = max_timestamp = timestamp  # type: ignore[assignment]
        elif timestamp > max_timestamp:  # type: ignore[operator]
            max_timestamp = timestamp  # type: ignore[assignment]
        encoded.append(encode_record(delta, timestamp - base_timestamp, key, value, headers))  # type: ignore[operator,arg-type]
    if not encoded:
        raise ValueError("a batch needs at least one record")
    return assemble_batch(
        b"".join(encoded) if compression is CompressionType.NONE else compress(compression, b"".join(encoded), compression_level),
        count=len(encoded),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        attributes=int(compression)
        | (TIMESTAMP_TYPE_BIT if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def assemble_batch(
    body: bytes,
    *,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Put a header before encoded (and compressed) records."""
    checked = _AFTER_CRC.pack(attributes, count - 1, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count)
    crc = crc32c(body, crc32c(checked))
    batch = bytearray(_BEFORE_CRC.pack(base_offset, OVERHEAD - LOG_OVERHEAD + len(body), partition_leader_epoch, MAGIC_V2, crc))
    batch += checked
    batch += body
    return batch
