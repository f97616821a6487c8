"""The framing of declared records in the key and value of a log record.

Metadata records: unsigned varints frame version (1), record type, record version, then the message
(org.apache.kafka.server.common.serialization.AbstractApiMessageSerde).
Coordinator records: the key is int16 record type then the message, the value int16 version then the message (CoordinatorRecordSerde).
"""

from __future__ import annotations

import struct
from functools import cache
from types import ModuleType
from typing import Any

from minikafka.wire.errors import WireError
from minikafka.wire.message import Record
from minikafka.wire.varint import append_unsigned_varint, read_unsigned_varint

FRAME_VERSION = 1
_INT16 = struct.Struct(">h")


def _classes(module: ModuleType, suffix: str) -> dict[int, type[Record]]:
    found = [
        value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Record) and value is not Record and name.endswith(suffix)
    ]
    return {cls.RECORD_TYPE: cls for cls in found}


@cache
def metadata_record_classes() -> dict[int, type[Record]]:
    """The classes of metadata records by record type."""
    from minikafka.wire.records import metadata_records

    return _classes(metadata_records, "Record")


def encode_metadata_record(record: Record, version: int | None = None) -> bytes:
    """The value of a metadata record; `version` defaults to the newest. Raises NotEncodable."""
    if version is None:
        version = record.MAX_VERSION
    head = bytearray()
    append_unsigned_varint(head, FRAME_VERSION)
    append_unsigned_varint(head, record.RECORD_TYPE)
    append_unsigned_varint(head, version)
    return bytes(head) + record.encode(version)


def metadata_record_type(data: bytes | memoryview) -> int:
    """The type of the record in a value, without decoding it. Raises WireError."""
    try:
        _, position = read_unsigned_varint(data, 0)
        return read_unsigned_varint(data, position)[0]
    except IndexError as error:
        raise WireError("a metadata record is truncated") from error


def decode_metadata_record(data: bytes | memoryview) -> Record:
    """The record in a value. Raises WireError for an unknown frame, type or version, and for a cut message."""
    return decode_metadata_record_versioned(data)[0]


def decode_metadata_record_versioned(data: bytes | memoryview) -> tuple[Record, int]:
    """The record in a value and the version that it was written in. Raises WireError."""
    try:
        frame_version, position = read_unsigned_varint(data, 0)
        if frame_version != FRAME_VERSION:
            raise WireError(f"unknown metadata frame version {frame_version}")
        record_type, position = read_unsigned_varint(data, position)
        version, position = read_unsigned_varint(data, position)
    except IndexError as error:
        raise WireError("a metadata record is truncated") from error
    cls = metadata_record_classes().get(record_type)
    if cls is None:
        raise WireError(f"unknown metadata record type {record_type}")
    return cls.decode(version, data, position), version


def encode_coordinator_key(key: Record) -> bytes:
    """The bytes of a key: record type and message."""
    return _INT16.pack(key.RECORD_TYPE) + key.encode(0)


def encode_coordinator_value(value: Record, version: int) -> bytes:
    """The bytes of a value: version and message."""
    return _INT16.pack(version) + value.encode(version)


@cache
def _coordinator_classes(kind: str) -> tuple[dict[int, type[Record]], dict[int, type[Record]]]:
    from minikafka.wire.records import group_records, share_records, transaction_records

    module = {"group": group_records, "transaction": transaction_records, "share": share_records}[kind]
    keys, values = _classes(module, "Key"), _classes(module, "Value")
    if kind == "group":
        # Type 0 is the first version of the offset commit key; it has the same fields as type 1.
        keys[0], values[0] = keys[1], values[1]
    return keys, values


def _decode_key(kind: str, data: bytes) -> Any | None:
    if len(data) < 2:
        raise WireError("a coordinator key is truncated")
    cls = _coordinator_classes(kind)[0].get(_INT16.unpack_from(data)[0])
    return None if cls is None else cls.decode(0, data, 2)


def _decode_value(kind: str, key: Record, data: bytes) -> Any:
    if len(data) < 2:
        raise WireError("a coordinator value is truncated")
    cls = _coordinator_classes(kind)[1][key.RECORD_TYPE]
    return cls.decode(_INT16.unpack_from(data)[0], data, 2)


def decode_group_key(data: bytes) -> Any | None:
    """The key of a `__consumer_offsets` record, or None for an unknown type. Raises WireError."""
    return _decode_key("group", data)


def decode_group_value(key: Record, data: bytes) -> Any:
    """The value of a record with this group key. Raises WireError."""
    return _decode_value("group", key, data)


def decode_transaction_key(data: bytes) -> Any | None:
    """The key of a `__transaction_state` record, or None for an unknown type. Raises WireError."""
    return _decode_key("transaction", data)


def decode_transaction_value(key: Record, data: bytes) -> Any:
    """The value of a record with this transaction key. Raises WireError."""
    return _decode_value("transaction", key, data)


def decode_share_key(data: bytes) -> Any | None:
    """The key of a `__share_group_state` record, or None for an unknown type. Raises WireError."""
    return _decode_key("share", data)


def decode_share_value(key: Record, data: bytes) -> Any:
    """The value of a record with this share key. Raises WireError."""
    return _decode_value("share", key, data)
