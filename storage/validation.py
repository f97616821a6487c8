"""What a leader accepts from a client (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords,
LogValidator), and the changes that a topic's configuration asks of a batch.

A batch's header, length and CRC are always checked. Its records are looked at only where that is cheap or the topic
needs it: batches of up to SMALL_BATCH_RECORDS records, and every batch of a compacted topic (no null keys).
"""

from __future__ import annotations

from struct import Struct

from storage.batch_scan import CODEC_MASK, CONTROL_BIT, CRC_FROM, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, Header
from storage.config import LogConfig
from wire.batch import HEADER, LOG_OVERHEAD, OVERHEAD, RecordBatch, build_batch
from wire.compression import CompressionType, decompress
from wire.crc import crc32c
from wire.errors import ApiError, ErrorCode, WireError

SMALL_BATCH_RECORDS = 4
DECOMPRESSED_MAX = 64 * 1024 * 1024
CODECS = {"uncompressed": 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

_LENGTH = Struct(">i")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_CRC = Struct(">I")
_DELETE_HORIZON_BIT = 0x40
_KNOWN_BITS = CODEC_MASK | TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | _DELETE_HORIZON_BIT
_LEGACY_OVERHEAD = 14
_UP_TO_MAGIC = 17


def one_batch(records: memoryview) -> memoryview:
    """The single batch of a produce request's partition, without the incomplete bytes that may follow. Raises
    ApiError (INVALID_RECORD, CORRUPT_MESSAGE) in the cases in which Kafka does."""
    size = _whole_batch_size(records, 0)
    if size is None:
        raise ApiError(ErrorCode.INVALID_RECORD, "exactly one whole record batch is expected per partition")
    if records[16] != 2:
        raise ApiError(ErrorCode.INVALID_RECORD, f"record batches must have magic version 2, not {records[16]}")
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
    length: int = _LENGTH.unpack_from(records, position + 8)[0]
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


def check_client_header(header: Header, name: str) -> None:
    """Raises ApiError(INVALID_RECORD) for a header that a client must not send. Called only when the fast test of the
    log fails, so it must find the reason."""
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
    else:
        return
    raise ApiError(ErrorCode.INVALID_RECORD, f"{reason} in topic partition {name}")


def check_codec(attributes: int) -> None:
    if attributes & CODEC_MASK > CompressionType.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {attributes & CODEC_MASK}"
        )


def check_timestamps(header: Header, config: LogConfig, wall_ms: int) -> None:
    """CreateTime bounds, by the header's first and largest timestamp. Raises ApiError(INVALID_TIMESTAMP)."""
    earliest = wall_ms - config.message_timestamp_before_max_ms
    latest = wall_ms + config.message_timestamp_after_max_ms
    base, largest = header[7], header[8]
    for timestamp in (base, largest):
        if timestamp != -1 and not earliest <= timestamp <= latest:
            raise ApiError(
                ErrorCode.INVALID_TIMESTAMP,
                f"Timestamp {timestamp} of message is out of range. The timestamp should be within "
                f"[{earliest}, {latest}]",
            )


def check_records(records: memoryview, header: Header, *, need_key: bool, name: str) -> int:
    """Walk over the records; returns their largest timestamp. Raises ApiError(INVALID_RECORD)."""
    attributes, base_timestamp, count = header[5], header[7], header[12]
    payload: memoryview | bytes = records[OVERHEAD:]
    if attributes & CODEC_MASK:
        try:
            payload = decompress(CompressionType(attributes & CODEC_MASK), payload, DECOMPRESSED_MAX)
        except WireError as error:
            raise ApiError(ErrorCode.INVALID_RECORD, f"cannot decompress the records of {name}: {error}") from error
    try:
        return _walk_records(payload, count, base_timestamp, need_key)
    except IndexError:
        reason = "Incorrect declared batch size, premature EOF reached"
    except ValueError as error:
        reason = str(error)
    raise ApiError(ErrorCode.INVALID_RECORD, f"{reason} in topic partition {name}")


def is_simple_record(records: memoryview, size: int) -> bool:
    """Whether an uncompressed batch of `size` bytes holds exactly one record in the usual shape - deltas 0, a key or none,
    a value, no headers - and nothing else. False says nothing: look again with check_records."""
    if records[22] & CODEC_MASK or records[size - 1]:
        return False
    try:
        position, byte = OVERHEAD + 1, records[OVERHEAD]
        length = byte >> 1
        if byte >= 0x80:
            byte = records[position]
            length = length & 0x3F | (byte & 0x7F) << 6
            position += 1
            if byte >= 0x80:
                byte = records[position]
                length |= (byte & 0x7F) << 13
                position += 1
        if byte >= 0x80 or position + length != size or records[OVERHEAD] & 1:
            return False
        if records[position + 1] or records[position + 2]:
            return False
        byte = records[position + 3]
        position += 4
        if byte >= 0x80:
            return False
        if not byte & 1:
            position += byte >> 1
        byte = records[position]
        value = byte >> 1
        position += 1
        if byte & 1:
            return byte == 1 and position == size - 1
        if byte >= 0x80:
            byte = records[position]
            value = value & 0x3F | (byte & 0x7F) << 6
            position += 1
            if byte >= 0x80:
                byte = records[position]
                value |= (byte & 0x7F) << 13
                position += 1
        return byte < 0x80 and position + value == size - 1
    except IndexError:
        return False


def _walk_records(payload: memoryview | bytes, count: int, base_timestamp: int, need_key: bool) -> int:
    position, size, largest = 0, len(payload), -(1 << 63)
    if count > size // 7 + 1:
        raise ValueError("Incorrect declared batch size, premature EOF reached")
    for _ in range(count):
        length, position = _varint(payload, position)
        end = position + length
        if length < 0 or end > size:
            raise ValueError(
                f"Invalid record size: expected {length} bytes in record payload, but instead the buffer has only "
                f"{size - position} remaining bytes."
            )
        delta, position = _varint(payload, position + 1, 70)
        largest = max(largest, base_timestamp + delta)
        _, position = _varint(payload, position)
        key_size, position = _varint(payload, position)
        if key_size < 0 and need_key:
            raise ValueError("Compacted topic cannot accept message without key")
        value_size, position = _varint(payload, position + max(key_size, 0))
        headers, position = _varint(payload, position + max(value_size, 0))
        if headers < 0:
            raise ValueError(f"Found invalid number of record headers {headers}")
        if headers > end - position:
            raise ValueError(
                f"Found invalid number of record headers. {headers} is larger than the remaining size of the buffer"
            )
        for _ in range(headers):
            header_size, position = _varint(payload, position)
            if header_size < 0:
                raise ValueError(f"Invalid negative header key size {header_size}")
            value_size, position = _varint(payload, position + header_size)
            position += max(value_size, 0)
            if position > end:
                break
        if position != end:
            raise ValueError(
                f"Invalid record size: expected to read {length} bytes in record payload, but instead read "
                f"{position - end + length}"
            )
    if position != size:
        raise ValueError("Incorrect declared batch size, records still remaining in file")
    return largest


def _varint(data: memoryview | bytes, position: int, bits_max: int = 35) -> tuple[int, int]:
    """(zigzag value, position behind it). Raises IndexError at the end of the data, ValueError if too long."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift >= bits_max:
            raise ValueError("Varint is too long")


def set_timestamps(records: memoryview, attributes: int, max_timestamp: int) -> None:
    """Write attributes and the largest timestamp and compute the CRC again (DefaultRecordBatch.setMaxTimestamp)."""
    _ATTRIBUTES.pack_into(records, 21, attributes & _KNOWN_BITS)
    _MAX_TIMESTAMP.pack_into(records, 35, max_timestamp)
    _CRC.pack_into(records, 17, crc32c(records[CRC_FROM:]))


def recompress(records: memoryview, header: Header, config: LogConfig) -> memoryview:
    """The same records as a new batch with the topic's codec. Raises ApiError(INVALID_RECORD)."""
    codec = CODECS[config.compression_type]
    levels = {1: config.compression_gzip_level, 3: config.compression_lz4_level, 4: config.compression_zstd_level}
    attributes = header[5]
    try:
        decoded = list(RecordBatch(records).records())
    except WireError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"cannot read the records: {error}") from error
    if len(decoded) != header[12]:
        raise ApiError(ErrorCode.INVALID_RECORD, "Incorrect declared batch size")
    return memoryview(
        build_batch(
            decoded,
            compression=CompressionType(codec),
            compression_level=levels.get(codec),
            producer_id=header[9],
            producer_epoch=header[10],
            base_sequence=header[11],
            is_transactional=bool(attributes & TRANSACTIONAL_BIT),
        )
    )


def fit_to_topic(records: memoryview, header: Header, config: LogConfig, wall_ms: int, name: str) -> memoryview:
    """Everything beyond the fast path: codec of the topic, timestamp type and bounds, keys of a compacted topic,
    records of small batches. Returns the batch to append (`records` itself, patched, unless it was rebuilt)."""
    attributes = header[5]
    check_codec(attributes)
    if not config.is_log_append_time:
        check_timestamps(header, config, wall_ms)
    largest = header[8]
    if config.is_compacted or header[12] <= SMALL_BATCH_RECORDS:
        real = check_records(records, header, need_key=config.is_compacted, name=name)
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
        attributes, largest = header[5], header[8]
    if config.is_log_append_time:
        set_timestamps(records, attributes | TIMESTAMP_TYPE_BIT, wall_ms)
    elif attributes & TIMESTAMP_TYPE_BIT or largest != header[8]:
        set_timestamps(records, attributes & ~TIMESTAMP_TYPE_BIT, largest)
    return records
