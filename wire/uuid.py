"""Uuids are 16 raw bytes; as text they are 22 characters of URL-safe base64 without padding (org.apache.kafka.common.Uuid)."""

from __future__ import annotations

import base64
import binascii

ZERO_UUID = bytes(16)
#: The topic id of `__cluster_metadata`.
METADATA_TOPIC_ID = bytes(15) + b"\x01"


def uuid_to_text(value: bytes) -> str:
    """The 22 characters that Kafka prints."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes; raises ValueError with the text when it is not a uuid."""
    try:
        value = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a base64 uuid of 22 characters") from error
    if len(value) != 16:
        raise ValueError(f"{text!r} has {len(value)} bytes; a uuid has 16")
    return value


def is_zero(value: bytes) -> bool:
    """Whether the uuid means "none"."""
    return value == ZERO_UUID
