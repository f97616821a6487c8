"""The checks of a client's batch at the leader, and its conversion by the topic's configuration.

Sources: ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator. A batch's header, length and CRC are always
checked. Its records are examined only where that is cheap or the topic needs it: in batches of up to SMALL_BATCH_RECORDS records, in every
batch of a compacted topic (no null keys), and in compressed batches whose stream does not simply end where the batch ends.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from struct import Struct

from minikafka.storage.batch_scan import CRC_FROM
from minikafka.storage.config import LogConfig
from minikafka.wire.batch import (
    ATTRIBUTES_LOW_BYTE,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    LOG_OVERHEAD,
    MAGIC,
    OVERHEAD,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    RecordBatch,
    build_batch,
    decompressed_bytes_max,
)
from minikafka.wire.batch_header import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    COUNT,
    LENGTH,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    Header,
)
from minikafka.wire.compression import SNAPPY_RATIO_MAX, CompressionType, is_larger_than, is_whole_stream
from minikafka.wire.crc import crc32c
from minikafka.wire.errors import ApiError, CorruptRecord, ErrorCode, WireError
from minikafka.wire.record_scan import scan_records
from minikafka.wire.varint import encode_varint

SMALL_BATCH_RECORDS = 4
#: The most records of a refused batch that the response lists.
RECORD_ERRORS_MAX = 1000
#: Batches up to this size are examined on the event loop: the worst case takes some 10 ms.
LIGHT_BYTES_MAX = 64 * 1024
#: As LIGHT_BYTES_MAX, for a large batch: it may hold very many records.
LIGHT_STREAM_BYTES_MAX = 32 * 1024
#: Raw snappy, as librdkafka writes it, shows only when it is decompressed where it ends. Up to this size an append does that, which takes
#: less than a millisecond, for the worst input some 10; a look before the append, up to that size.
RAW_SNAPPY_BYTES_MAX, RAW_SNAPPY_LOOK_BYTES_MAX = 1 << 20, 1 << 18
#: Blocks that are stepped over to find where a stream ends, if that has been put off the event loop or a look has found fewer.
_BLOCKS_MAX = 4096
#: The smallest record: length, attributes, timestamp and offset deltas, lengths of key and value, number of headers.
RECORD_BYTES_MIN = 7
#: The largest compression ratio by codec: deflate makes 258 bytes of two bits, snappy 64 of three bytes, LZ4 255 of one byte, zstd 128 KiB
#: of a block of four bytes.
_RATIO_MAX = {1: 1032, 2: 22, 3: 255, 4: 1 << 15}
TIMESTAMP_MAX = (1 << 63) - 1
CODECS = {"uncompressed": 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

_LENGTH = Struct(">i")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_CRC = Struct(">I")
_DELETE_HORIZON_BIT = 0x40
_DEFINED_BITS = CODEC_MASK | TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | _DELETE_HORIZON_BIT
_LEGACY_OVERHEAD = 14
_UP_TO_MAGIC = MAGIC + 1
#: The most bytes before the value of a record that `is_simple_record` accepts: two lengths of three bytes, four fields of one, a key.
_SIMPLE_HEAD_BYTES = 3 + 4 + 63 + 3


def one_batch(records: memoryview) -> memoryview:
    """The single batch of a partition in a produce request, without the incomplete bytes that may follow. Raises ApiError
    (INVALID_RECORD, CORRUPT_MESSAGE) in the same cases as Kafka."""
    size = _whole_batch_size(records, 0)
    if size is None:
        raise ApiError(ErrorCode.INVALID_RECORD, "exactly one whole record batch is expected per partition")
    if records[MAGIC] != 2:
        raise ApiError(ErrorCode.INVALID_RECORD, f"record batches must have magic version 2, not {records[MAGIC]}")
    if size < OVERHEAD:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a record batch of {size} bytes is shorter than its header")
    if _whole_batch_size(records, size) is not None:
        raise ApiError(ErrorCode.INVALID_RECORD, "exactly one record batch is expected per partition")
    return records[:size]


def _whole_batch_size(records: memoryview, position: int) -> int | None:
    """Size of the batch at `position`, None if it is not whole (ByteBufferLogInputStream.nextBatch)."""
    remaining = len(records) - position
    if remaining < LOG_OVERHEAD:
        return None
    (length,) = _LENGTH.unpack_from(records, position + 8)
    if length < _LEGACY_OVERHEAD:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record size {length} is less than the minimum record overhead ({_LEGACY_OVERHEAD})",
        )
    if remaining < _UP_TO_MAGIC:
        return None
    magic = records[position + 16]
    if magic > 2:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {(magic ^ 0x80) - 0x80}")
    size = length + LOG_OVERHEAD
    return size if size <= remaining else None


def records_max(header: Header, decompressed_max: int) -> int:
    """The most records that a batch of this size and codec can hold."""
    size, codec = header[LENGTH] + LOG_OVERHEAD - OVERHEAD, header[ATTRIBUTES] & CODEC_MASK
    return (min(size * _RATIO_MAX.get(codec, 1), decompressed_max) if codec else size) // RECORD_BYTES_MIN


def check_client_header(header: Header, name: str, decompressed_max: int) -> None:
    """Raises ApiError(INVALID_RECORD) for a header that a client must not send. `decompressed_max` bounds the bytes of its decompressed
    records. Called only for batches that fail the log's quick check, which some valid batches do too."""
    base_offset, _, _, _, _, attributes, delta, _, _, producer_id, _, sequence, count = header
    if base_offset != 0:
        reason = f"The baseOffset of the record batch in the append to {name} should be 0, but it is {base_offset}"
    elif delta < 0:
        reason = f"Batch has an invalid offset range: [0, {delta}]"
    elif count <= 0:
        reason = f"Invalid reported count for record batch: {count}"
    elif count != delta + 1:
        reason = f"Inconsistent batch offset range [0, {delta}] and count of records {count}"
    elif attributes & CONTROL_BIT:
        reason = "Clients are not allowed to write control records"
    elif producer_id >= 0 and sequence < 0:
        reason = f"Invalid sequence number {sequence} in record batch with producerId {producer_id}"
    elif count > records_max(header, decompressed_max):
        # Each would take an offset. Kafka finds this by walking over the records.
        reason = f"Incorrect declared batch size, {count} records cannot be in {header[LENGTH] + LOG_OVERHEAD} bytes"
    else:
        return
    raise ApiError(ErrorCode.INVALID_RECORD, f"{reason} in topic partition {name}")


def check_codec(attributes: int) -> None:
    if attributes & CODEC_MASK > CompressionType.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {attributes & CODEC_MASK}"
        )


def check_timestamps(records: memoryview, header: Header, config: LogConfig, wall_ms: int) -> None:
    """Check the CreateTime bounds by the header's first and largest timestamp. Raises RefusedRecords(INVALID_TIMESTAMP)."""
    earliest = wall_ms - config.message_timestamp_before_max_ms
    latest = wall_ms + config.message_timestamp_after_max_ms
    if any(t != -1 and not earliest <= t <= latest for t in (header[BASE_TIMESTAMP], header[MAX_TIMESTAMP])):
        message = "One or more records have been rejected due to invalid timestamp"
        errors = _timestamp_errors(records, header, earliest, latest, config.max_message_bytes)
        raise RefusedRecords(ErrorCode.INVALID_TIMESTAMP, message, errors)


def _timestamp_errors(records: memoryview, header: Header, earliest: int, latest: int, message_bytes_max: int) -> list[tuple[int, str]]:
    """(index, reason) of the records out of range; none for a batch that would take long to examine."""
    codec, body = header[ATTRIBUTES] & CODEC_MASK, records[OVERHEAD:]
    if len(records) > LIGHT_BYTES_MAX or (codec and is_larger_than(codec, body, LIGHT_BYTES_MAX)):
        return []
    errors, base = [], header[BASE_TIMESTAMP]
    try:
        for index, outline in enumerate(scan_records(codec, body, header[COUNT], decompressed_bytes_max(message_bytes_max))):
            timestamp = base + outline.timestamp_delta
            if timestamp != -1 and not earliest <= timestamp <= latest:
                reason = (
                    f"Timestamp {timestamp} of message with offset {index} is out of range. "
                    f"The timestamp should be within [{earliest}, {latest}]"
                )
                errors.append((index, reason))
    except CorruptRecord:
        return []
    return errors


def check_records(records: memoryview, header: Header, *, need_key: bool, name: str, message_bytes_max: int) -> int:
    """Check the records; returns their largest timestamp. Raises ApiError(INVALID_RECORD), RefusedRecords for records without a key."""
    keyless: list[tuple[int, str]] = []
    codec, base_timestamp, largest = header[ATTRIBUTES] & CODEC_MASK, header[BASE_TIMESTAMP], -(1 << 63)
    try:
        outlines = scan_records(codec, records[OVERHEAD:], header[COUNT], decompressed_bytes_max(message_bytes_max))
        for index, outline in enumerate(outlines):
            timestamp = base_timestamp + outline.timestamp_delta
            if not -TIMESTAMP_MAX <= timestamp <= TIMESTAMP_MAX:
                raise CorruptRecord("A record's timestamp takes more than 64 bits")
            largest = max(largest, timestamp)
            if need_key and outline.key_size < 0:
                keyless.append((index, f"Compacted topic cannot accept message without key in topic partition {name}."))
    except CorruptRecord as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{error} in topic partition {name}") from error
    if keyless:
        shown = ", ".join(f"RecordError(batchIndex={index}, message='{reason}')" for index, reason in keyless[:3])
        message = (
            f"One or more records have been rejected due to {len(keyless)} record errors in total, and only showing the first three "
            f"errors at most: [{shown}]"
        )
        raise RefusedRecords(ErrorCode.INVALID_RECORD, message, keyless)
    return largest


class RefusedRecords(ApiError):
    """The batch is refused because of single records (KIP-467, LogValidator.processRecordErrors). `record_errors`: (index in the batch,
    reason), at most RECORD_ERRORS_MAX of them."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors[:RECORD_ERRORS_MAX]


class HeavyBatch(ApiError):
    """The batch takes long to check: run `Log.prepare` on another thread first. Nothing has been done."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, "the batch must be prepared first")


class Fitting(IntEnum):
    """Where a batch is checked and converted: by the append itself; elsewhere if that takes long (HeavyBatch); or already done, by
    `Log.prepare`."""

    HERE = 0
    ELSEWHERE = 1
    DONE = 2


def is_heavy(records: memoryview, header: Header, config: LogConfig) -> bool:
    """Whether `fit_to_topic` would take long for this batch, so that it belongs on another thread."""
    attributes, count = header[ATTRIBUTES], header[COUNT]
    codec, body = attributes & CODEC_MASK, records[OVERHEAD:]
    recompresses = config.compression_type != "producer" and CODECS[config.compression_type] != codec
    light_max = LIGHT_BYTES_MAX
    if not (recompresses or config.is_compacted or 0 < count <= SMALL_BATCH_RECORDS):
        if ends_with_its_stream(body, codec, count, RAW_SNAPPY_LOOK_BYTES_MAX):
            return False
        light_max = LIGHT_STREAM_BYTES_MAX
    if len(records) > light_max:
        return not is_simple_record(records, len(records)) or config.is_compacted or recompresses
    return bool(codec) and is_larger_than(codec, body, light_max)


def ends_with_its_stream(
    body: memoryview, codec: int, count: int, size_max: int = RAW_SNAPPY_BYTES_MAX, blocks_max: int | None = None
) -> bool:  # fmt: skip
    """Whether the records' compressed stream is whole and ends where the batch ends, so far as `is_whole_stream` can tell; True without
    compression. `size_max` bounds the bytes that raw snappy is decompressed to; what is larger is not told. Takes a few microseconds."""
    return not codec or is_whole_stream(codec, body, count * RECORD_BYTES_MIN, size_max, blocks_max)


def is_simple_record(records: memoryview, size: int) -> bool:
    """Whether an uncompressed batch of `size` bytes holds exactly one record of the usual form (deltas 0, with or without a key, a value,
    no headers) and nothing else. A quick check: if it gives False, use check_records."""
    if records[ATTRIBUTES_LOW_BYTE] & CODEC_MASK or records[size - 1]:
        return False
    expected = _keyless_head(size)
    if records[OVERHEAD : OVERHEAD + len(expected)] == expected:
        return True
    # Bytes are read faster from a copy than through the view.
    head = bytes(records[OVERHEAD : OVERHEAD + _SIMPLE_HEAD_BYTES])
    try:
        position, byte = 1, head[0]
        length = byte >> 1
        if byte >= 0x80:
            byte = head[1]
            length = length & 0x3F | (byte & 0x7F) << 6
            position = 2
            if byte >= 0x80:
                byte = head[2]
                length |= (byte & 0x7F) << 13
                position = 3
        if byte >= 0x80 or OVERHEAD + position + length != size or head[0] & 1 or head[position + 1] or head[position + 2]:
            return False
        byte = head[position + 3]
        position += 4
        if byte >= 0x80:
            return False
        if not byte & 1:
            position += byte >> 1
        byte = head[position]
        value = byte >> 1
        position += 1
        if byte & 1:
            return byte == 1 and OVERHEAD + position == size - 1
        if byte >= 0x80:
            byte = head[position]
            value = value & 0x3F | (byte & 0x7F) << 6
            position += 1
            if byte >= 0x80:
                byte = head[position]
                value |= (byte & 0x7F) << 13
                position += 1
        return byte < 0x80 and OVERHEAD + position + value == size - 1
    except IndexError:
        return False


@lru_cache(maxsize=1024)
def _keyless_head(size: int) -> bytes:
    """The bytes before the value of the one record of a batch of `size` bytes, if it has a value and no key. For a batch that is too small,
    bytes that no record begins with."""
    # Length, attributes and deltas, no key, length of the value; after the value, no headers.
    for length_bytes in (1, 2, 3):
        length = size - OVERHEAD - length_bytes
        head = encode_varint(length)
        for value_bytes in (1, 2, 3):
            value = encode_varint(length - 5 - value_bytes)
            if length >= 5 + value_bytes and (len(head), len(value)) == (length_bytes, value_bytes):
                return head + b"\0\0\0\1" + value
    return b"\xff" * 16


def set_timestamps(records: memoryview, attributes: int, max_timestamp: int) -> None:
    """Write the attributes and the largest timestamp, and compute the CRC again (DefaultRecordBatch.setMaxTimestamp)."""
    _ATTRIBUTES.pack_into(records, 21, attributes & _DEFINED_BITS)
    _MAX_TIMESTAMP.pack_into(records, 35, max_timestamp)
    _CRC.pack_into(records, 17, crc32c(records[CRC_FROM:]))


def recompress(records: memoryview, header: Header, config: LogConfig) -> memoryview:
    """The same records as a new batch with the topic's codec. Raises ApiError(INVALID_RECORD)."""
    codec = CODECS[config.compression_type]
    levels = {1: config.compression_gzip_level, 3: config.compression_lz4_level, 4: config.compression_zstd_level}
    attributes = header[ATTRIBUTES]
    try:
        decoded = list(RecordBatch(records).records(decompressed_bytes_max(config.max_message_bytes)))
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"cannot read the records: {error}") from error
    if len(decoded) != header[COUNT]:
        raise ApiError(ErrorCode.INVALID_RECORD, "Incorrect declared batch size")
    if any(not -TIMESTAMP_MAX <= record.timestamp <= TIMESTAMP_MAX for record in decoded):
        raise ApiError(ErrorCode.INVALID_RECORD, "a record's timestamp takes more than 64 bits")
    return memoryview(
        build_batch(
            decoded,
            compression=CompressionType(codec),
            compression_level=levels.get(codec),
            producer_id=header[PRODUCER_ID],
            producer_epoch=header[PRODUCER_EPOCH],
            base_sequence=header[BASE_SEQUENCE],
            is_transactional=bool(attributes & TRANSACTIONAL_BIT),
        )
    )


def fit_to_topic(records: memoryview, header: Header, config: LogConfig, wall_ms: int, name: str) -> memoryview:
    """All checks and conversions beyond the fast path: the topic's codec, timestamp type and bounds, keys in a compacted topic, records of
    small batches. Returns the batch to append: `records` itself, patched, unless it was recompressed."""
    attributes = header[ATTRIBUTES]
    check_codec(attributes)
    if not config.is_log_append_time:
        check_timestamps(records, header, config, wall_ms)
    largest, body = header[MAX_TIMESTAMP], records[OVERHEAD:]
    if (
        config.is_compacted
        or header[COUNT] <= SMALL_BATCH_RECORDS
        or not ends_with_its_stream(body, attributes & CODEC_MASK, header[COUNT], SNAPPY_RATIO_MAX * len(body), _BLOCKS_MAX)
    ):
        real = check_records(
            records, header, need_key=config.is_compacted, name=name, message_bytes_max=config.max_message_bytes
        )
        if not attributes & TIMESTAMP_TYPE_BIT:
            largest = real
    if config.compression_type != "producer" and CODECS[config.compression_type] != attributes & CODEC_MASK:
        records = recompress(records, header, config)
        if len(records) > config.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"Message batch size is {len(records)} bytes in append to partition {name} which exceeds the maximum "
                f"configured size of {config.max_message_bytes}.",
            )
        header = HEADER.unpack_from(records)
        attributes, largest = header[ATTRIBUTES], header[MAX_TIMESTAMP]
    if config.is_log_append_time:
        set_timestamps(records, attributes | TIMESTAMP_TYPE_BIT, wall_ms)
    elif attributes & TIMESTAMP_TYPE_BIT or largest != header[MAX_TIMESTAMP]:
        set_timestamps(records, attributes & ~TIMESTAMP_TYPE_BIT, largest)
    return records
