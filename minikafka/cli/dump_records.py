"""Keys and values of Kafka's internal records as JSON, in the form of Apache Kafka's generated JSON converters.

Fields are in declared order, under Kafka's names. A tagged field is left out if it has its default value. UUIDs are 22 characters,
bytes are base64.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from minikafka.wire.declaration import Field
from minikafka.wire.errors import WireError
from minikafka.wire.message import Message, Struct
from minikafka.wire.records.frame import (
    decode_group_key,
    decode_group_value,
    decode_metadata_record_versioned,
    decode_share_key,
    decode_share_value,
    decode_transaction_key,
    decode_transaction_value,
)
from minikafka.wire.types import Array, Fixed
from minikafka.wire.uuid import uuid_to_text

DECODERS = ("offsets", "transaction", "share", "metadata")
_COORDINATORS = {
    "offsets": (decode_group_key, decode_group_value),
    "transaction": (decode_transaction_key, decode_transaction_value),
    "share": (decode_share_key, decode_share_value),
}


def camel_case(name: str) -> str:
    head, *rest = name.rstrip("_").split("_")
    return head + "".join(part.capitalize() for part in rest)


def to_json(value: Struct, version: int) -> dict[str, Any]:
    """A declared message or struct of one version as JSON values."""
    result: dict[str, Any] = {}
    for declared in type(value).FIELDS:
        if version not in declared.versions:
            continue
        content = getattr(value, declared.name)
        default = declared.struct() if declared.struct is not None else declared.default_value()  # Kafka compares structs with an empty one
        if version in declared.tagged and content == default:
            continue
        result[camel_case(declared.name)] = _value(declared, content, version)
    return result


def _value(declared: Field, content: Any, version: int) -> Any:
    if isinstance(declared.type, Array):
        uuids = isinstance(declared.type.element, Fixed) and declared.type.element.name == "uuid"
        return None if content is None else [_plain(item, version, uuids) for item in content]
    return _plain(content, version, isinstance(declared.type, Fixed) and declared.type.name == "uuid")


def _plain(content: Any, version: int, is_uuid: bool) -> Any:
    if isinstance(content, Struct):
        return to_json(content, version)
    if isinstance(content, bytes | bytearray | memoryview):
        return uuid_to_text(bytes(content)) if is_uuid else base64.b64encode(bytes(content)).decode()
    return content


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def decode(decoder: str, key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Key and value as text. If they cannot be decoded, the value is a line that says why."""
    try:
        if decoder == "metadata":
            return None, None if value is None else _metadata(value)
        return _coordinator(decoder, key, value)
    except (WireError, ValueError, KeyError, IndexError) as error:
        return (None if key is None else text(key)), f"Could not decode: {error}"


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _metadata(value: bytes) -> str:
    record, version = decode_metadata_record_versioned(value)
    kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", record.NAME).upper()
    return compact({"type": kind, "version": version, "data": to_json(record, version)})


def _coordinator(decoder: str, key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    decode_key, decode_value = _COORDINATORS[decoder]
    if key is None:
        return None, "<DELETE>" if value is None else text(value)
    found = decode_key(key)
    kind = int.from_bytes(key[:2], "big", signed=True)
    if found is None:
        return compact({"type": str(kind), "data": "unknown"}), "<DELETE>" if value is None else compact({"data": "unknown"})
    shown = compact({"type": str(kind), "data": to_json(found, 0)})
    if value is None:
        return shown, "<DELETE>"
    version = int.from_bytes(value[:2], "big", signed=True)
    content = decode_value(found, value)
    data = to_json(content, version)
    if decoder == "offsets" and kind == 2 and content.protocol_type == "consumer":
        _show_consumer_protocol(data)
    return shown, compact({"version": str(version), "data": data})


def _show_consumer_protocol(group: dict[str, Any]) -> None:
    """Members of a consumer group carry ConsumerProtocol messages. Decode them in place, as Kafka's tool does."""
    from minikafka.wire.records.client_records import ConsumerProtocolAssignment, ConsumerProtocolSubscription

    for member in group["members"]:
        for name, kind in (("subscription", ConsumerProtocolSubscription), ("assignment", ConsumerProtocolAssignment)):
            data = base64.b64decode(member[name])
            if len(data) >= 2:
                version = min(int.from_bytes(data[:2], "big"), kind.MAX_VERSION)
                member[name] = to_json(kind.decode(version, data, 2), version)


def control_record(key: bytes | None, value: bytes | None) -> str:
    """The content of a control record as text (key: int16 version, int16 type)."""
    from minikafka.wire.records import client_records

    kind = int.from_bytes(key[2:4], "big") if key is not None and len(key) >= 4 else -1
    body = value or b""
    if kind in {0, 1}:
        return f"endTxnMarker: {'COMMIT' if kind else 'ABORT'} coordinatorEpoch: {int.from_bytes(body[2:6], 'big', signed=True)}"
    messages: dict[int, tuple[str, type[Message]]] = {
        2: ("LeaderChange:", client_records.LeaderChangeMessage),
        3: ("SnapshotHeader", client_records.SnapshotHeaderRecord),
        4: ("SnapshotFooter", client_records.SnapshotFooterRecord),
        5: ("KRaftVersion", client_records.KRaftVersionRecord),
        6: ("KRaftVoters", client_records.VotersRecord),
    }
    if kind not in messages:
        return f"controlType: UNKNOWN({kind})"
    label, message = messages[kind]
    version = min(int.from_bytes(body[:2], "big"), message.MAX_VERSION)
    try:
        return f"{label} {compact(to_json(message.decode(version, body), version))}"
    except WireError as error:
        return f"{label} could not be decoded: {error}"
