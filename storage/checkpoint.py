"""Kafka's small text files: offset checkpoints, the epoch checkpoint, partition.metadata, meta.properties and the clean-shutdown file.

They are written to a temporary file, synced and renamed.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from collections.abc import Iterable, Mapping

from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import FileSystem, write_atomically

REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_VERSION = "0"
_NUMBER = re.compile(r"[+-]?[0-9]+")
#: More digits than any number has, and fewer than Python refuses to read.
_DIGITS_MAX = 40
INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1
_TORN_ID = re.compile(rb"[A-Za-z0-9_-]{1,21}")


def encode_checkpoint(lines: Iterable[str]) -> bytes:
    """The version, the count, then one line per entry (server-common CheckpointFile)."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in [_VERSION, str(len(entries)), *entries]).encode()


def decode_checkpoint(data: bytes, fields: int) -> list[list[str]]:
    """The entries, each split into `fields` words. Raises CorruptFile for another version, a wrong count or a malformed line."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptFile("not UTF-8") from error
    if not lines:
        # Kafka creates the file before it writes the first entries.
        return []
    if not data.endswith(b"\n"):
        # If the file was not synced, a power cut may leave "2 2" of "2 25", which would pass for a valid entry.
        raise CorruptFile("the last line is truncated")
    if lines[0].strip() != _VERSION:
        raise CorruptFile(f"version {lines[0].strip()[:20]!r} is not {_VERSION}")
    if len(lines) < 2:
        raise CorruptFile("the number of entries is missing")
    count = number_of(lines[1].strip(), INT32_MAX)
    entries = [line.split() for line in lines[2:] if line.strip()]
    if len(entries) != count:
        raise CorruptFile(f"{lines[1].strip()} entries announced, {len(entries)} found")
    for entry in entries:
        if len(entry) != fields:
            raise CorruptFile(f"malformed line {' '.join(entry)[:80]!r}")
    return entries


def number_of(text: str, most: int) -> int:
    """A number of at most `most` either way, as Kafka reads one of 32 or 64 bits. Raises CorruptFile."""
    if len(text) > _DIGITS_MAX or _NUMBER.fullmatch(text) is None or abs(int(text)) > most:
        raise CorruptFile(f"{text[:40]!r} is not a number up to {most}")
    return int(text)


def encode_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """The file's bytes: lines of `topic partition offset`."""
    return encode_checkpoint(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def read_offset_checkpoint(filesystem: FileSystem, path: str) -> dict[tuple[str, int], int]:
    """The offset of each (topic, partition); empty if the file is missing. Raises CorruptFile if it is not valid."""
    if not filesystem.exists(path):
        return {}
    offsets = {}
    for topic, partition, offset in decode_checkpoint(filesystem.read(path), 3):
        offsets[topic, number_of(partition, INT32_MAX)] = number_of(offset, INT64_MAX)
    return offsets


def uuid_text(uuid: bytes) -> str:
    """The uuid as 22 characters of base64url, as Kafka's Uuid.toString gives it."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a uuid. Raises CorruptFile if `text` is not one."""
    try:
        uuid = base64.urlsafe_b64decode(text.encode() + b"==")
    except (binascii.Error, ValueError) as error:
        raise CorruptFile(f"{text[:40]!r} is not an id") from error
    if len(uuid) != 16:
        raise CorruptFile(f"{text[:40]!r} is not an id of 16 bytes")
    return uuid


def write_partition_metadata(
    filesystem: FileSystem, path: str, topic_id: bytes, *, sync: bool = True, is_new: bool = False
) -> None:
    """Write partition.metadata (PartitionMetadataFile), without a newline at the end. `is_new`: its directory was created just now."""
    data = f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()
    write_atomically(filesystem, path, data, sync=sync, is_new=is_new)


def read_partition_metadata(filesystem: FileSystem, path: str) -> bytes | None:
    """The topic id; None if the file is missing. Raises CorruptFile if it is not valid."""
    if not filesystem.exists(path):
        return None
    fields: dict[str, str] = {}
    for line in filesystem.read(path).decode(errors="replace").splitlines():
        key, separator, value = line.partition(":")
        if not separator:
            raise CorruptFile(f"malformed line {line[:80]!r}")
        fields[key.strip()] = value.strip()
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise CorruptFile("version 0 and topic_id expected")
    return uuid_bytes(fields["topic_id"])


def is_torn_metadata(filesystem: FileSystem, path: str) -> bool:
    """Whether partition.metadata is only the beginning of a valid file, which a crash leaves if the file was never synced."""
    written = filesystem.read(path).rstrip(b"\0")
    head = b"version: 0\ntopic_id: "
    return head.startswith(written) or (written.startswith(head) and _TORN_ID.fullmatch(written, len(head)) is not None)


def write_properties(filesystem: FileSystem, path: str, properties: Mapping[str, str], wall_ms: int) -> None:
    """Write a java.util.Properties file: a comment, the date (UTC), then the entries in the given order."""
    date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(wall_ms // 1000))
    lines = ["#", f"#{date}", *(f"{_escape(key)}={_escape(value)}" for key, value in properties.items())]
    write_atomically(filesystem, path, "".join(line + "\n" for line in lines).encode())


def read_properties(filesystem: FileSystem, path: str) -> dict[str, str]:
    """Read the part of the format that Kafka writes: `key=value` or `key:value`, comments, backslash escapes."""
    properties: dict[str, str] = {}
    for line in filesystem.read(path).decode(errors="replace").splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        for position, character in enumerate(stripped):
            if character in "=:" and (position == 0 or stripped[position - 1] != "\\"):
                properties[_unescape(stripped[:position].strip())] = _unescape(stripped[position + 1 :].strip())
                break
    return properties


def _escape(text: str) -> str:
    return "".join("\\" + character if character in "=:#!\\ " else character for character in text)


def _unescape(text: str) -> str:
    result, escaped = [], False
    for character in text:
        if character == "\\" and not escaped:
            escaped = True
        else:
            result.append(character)
            escaped = False
    return "".join(result)


def write_clean_shutdown(filesystem: FileSystem, path: str, broker_epoch: int) -> None:
    """Write the clean-shutdown file (CleanShutdownFileHandler): JSON without a newline."""
    document = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_atomically(filesystem, path, document.encode())


def read_clean_shutdown(filesystem: FileSystem, path: str) -> int | None:
    """The broker epoch in the clean-shutdown file; -1 if the file is unreadable (as in Kafka still a clean shutdown), None if missing."""
    if not filesystem.exists(path):
        return None
    try:
        document = json.loads(filesystem.read(path))
        epoch = document["brokerEpoch"]
        return epoch if document["version"] == 0 and isinstance(epoch, int) and -1 <= epoch <= INT64_MAX else -1
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1
