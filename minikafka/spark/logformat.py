"""Apache Kafka's log files, read from their bytes: an own reader that shares no code with the broker.

Everything here is a function of bytes. Layouts are those of DefaultRecordBatch, OffsetIndex, TimeIndex, AbortedTxn,
ProducerStateManager and CheckpointFile in Apache Kafka. All integers on disk are big-endian.
"""

from __future__ import annotations

import errno
import os
import re
import struct
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from crc32c import crc32c

from minikafka.counted import counted

LOG_OVERHEAD = 12
BATCH_OVERHEAD = 61
BATCH_LENGTH_MIN = BATCH_OVERHEAD - LOG_OVERHEAD
OLD_MESSAGE_BYTES_MIN = LOG_OVERHEAD + 14
CRC_START = 21
MAGIC = 2

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

HEADER = np.dtype({
    "names": ["base_offset", "length", "epoch", "magic", "crc", "attributes", "last_delta", "base_timestamp", "max_timestamp",
              "producer_id", "producer_epoch", "base_sequence", "count"],
    "formats": [">i8", ">i4", ">i4", "i1", ">u4", ">i2", ">i4", ">i8", ">i8", ">i8", ">i2", ">i4", ">i4"],
    "offsets": [0, 8, 12, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57],
    "itemsize": BATCH_OVERHEAD,
})  # fmt: skip
OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
TXN_ENTRY = np.dtype(
    [("version", ">i2"), ("producer_id", ">i8"), ("first_offset", ">i8"), ("last_offset", ">i8"), ("stable_offset", ">i8")]
)
SNAPSHOT_ENTRY = np.dtype([
    ("producer_id", ">i8"), ("producer_epoch", ">i2"), ("last_sequence", ">i4"), ("last_offset", ">i8"), ("offset_delta", ">i4"),
    ("timestamp", ">i8"), ("coordinator_epoch", ">i4"), ("first_offset", ">i8"),
])  # fmt: skip
SNAPSHOT_HEADER = struct.Struct(">hIi")

_LENGTH = struct.Struct(">i")
_LINE_END, _SPACES, _JAVA_SPACES = re.compile(r"\r\n|\n|\r"), re.compile(r"[ \t\x0b\f]+"), " \t\x0b\f"
_PROPERTY_SPACES, _ESCAPED = " \t\f", {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PROPERTY = re.compile(r"((?:[^=: \t\f\\]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_SEGMENT_NAME = re.compile(r"^([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)\Z")
_PARTITION_NAME = re.compile(r"^(.+)-(\+?\d+)\Z")
_FUTURE_DIRECTORY = re.compile(r"^(.+)-(\+?\d+)\.[0-9a-f]{32}-future$")
_KAFKAS_DIRECTORY = re.compile(r"^(.+)-(\+?\d+)(?:\.[^\s.]+-(?:delete|future|stray))?\Z")
_SPECIAL_DIRECTORY = re.compile(r"^.+\.[0-9a-f]{32}-(delete|future|stray)$|^.+-(delete|future|stray)$")


class FormatError(ValueError):
    """A file that does not follow its format; the text says what is wrong."""


@dataclass(slots=True)
class Batches:
    """A run of batches that lie behind each other in a segment, as columns.

    position: int64 file positions; size: int64 bytes; crc: uint32 computed from the bytes; header: the stored fields (HEADER).
    `window` are the bytes they were read from and `window_start` its file position.
    """

    position: np.ndarray[Any, Any]
    size: np.ndarray[Any, Any]
    crc: np.ndarray[Any, Any]
    header: np.ndarray[Any, Any]
    window: memoryview
    window_start: int

    def __len__(self) -> int:
        return len(self.position)

    @property
    def base_offset(self) -> np.ndarray[Any, Any]:
        return self.header["base_offset"].astype(np.int64)

    @property
    def last_offset(self) -> np.ndarray[Any, Any]:
        last: np.ndarray[Any, Any] = self.base_offset + self.header["last_delta"].astype(np.int64)
        return last

    def body(self, index: int) -> memoryview:
        """The bytes behind the header of batch `index` (records, compressed as they are)."""
        start = int(self.position[index]) - self.window_start
        return self.window[start + BATCH_OVERHEAD : start + int(self.size[index])]

    def whole(self, index: int) -> memoryview:
        start = int(self.position[index]) - self.window_start
        return self.window[start : start + int(self.size[index])]


def walk(window: memoryview, window_start: int = 0) -> tuple[Batches, int, str]:
    """All whole batches from the start of `window`.

    Returns (batches, bytes consumed, why it stopped): "end" - the window is used up; "more" - the next batch is longer than
    what is left, or its header is cut; "length" - the next batch claims a length below a header's.
    """
    size = len(window)
    unpack = _LENGTH.unpack_from
    positions, crcs = array("q"), array("Q")
    position = 0
    why = "end"
    while position < size:
        if size - position < BATCH_OVERHEAD:
            why = "more"
            if size - position >= LOG_OVERHEAD and unpack(window, position + 8)[0] < BATCH_LENGTH_MIN:
                why = "length"
            break
        length = unpack(window, position + 8)[0]
        end = position + LOG_OVERHEAD + length
        if length < BATCH_LENGTH_MIN:
            why = "length"
            break
        if end > size:
            why = "more"
            break
        positions.append(position)
        crcs.append(crc32c(window[position + CRC_START : end]))
        position = end
    relative = np.frombuffer(positions, dtype=np.int64) if positions else np.empty(0, np.int64)
    crc = np.frombuffer(crcs, dtype=np.uint64).astype(np.uint32) if crcs else np.empty(0, np.uint32)
    return (
        Batches(relative + window_start, _sizes(relative, position), crc, headers_at(window, relative), window, window_start),
        position,
        why,
    )


def _sizes(relative: np.ndarray[Any, Any], end: int) -> np.ndarray[Any, Any]:
    return np.diff(relative, append=np.int64(end)) if len(relative) else np.empty(0, np.int64)


def older_format(data: bytes | memoryview) -> int | None:
    """The version of the message of format v0 or v1 with which the data begin; None if it is none, or its checksum is wrong
    (LegacyRecord)."""
    end = LOG_OVERHEAD + int.from_bytes(data[8:LOG_OVERHEAD], "big", signed=True)
    if not OLD_MESSAGE_BYTES_MIN <= end <= len(data) or data[16] not in {0, 1}:
        return None
    return data[16] if zlib.crc32(data[16:end]) == int.from_bytes(data[12:16], "big") else None


def headers_at(window: memoryview, positions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The batch headers at `positions` (relative to the window), copied. Every position must have 61 bytes behind it."""
    if len(positions) == 0:
        return np.empty(0, HEADER)
    sliding = np.ndarray(shape=(len(window) - BATCH_OVERHEAD + 1,), dtype=HEADER, buffer=window, strides=(1,))
    found: np.ndarray[Any, Any] = sliding[positions]
    return found


class SegmentReader:
    """Reads a segment in windows with pread, never by mmap: a broker may cut the file under us, which would kill the process."""

    def __init__(self, descriptor: int, size: int, position: int = 0, window_bytes: int = 4 << 20) -> None:
        self.descriptor, self.size, self.position = descriptor, size, position
        self.window_bytes = window_bytes
        self.stopped = ""  # why reading ended before `size`: "", "length", "more" (cut batch) or "shrunk" (file cut meanwhile)

    def __iter__(self) -> Iterator[Batches]:
        import os

        buffer = bytearray(min(self.window_bytes, max(self.size - self.position, 1)))
        while self.position < self.size:
            length = min(len(buffer), self.size - self.position)
            window = memoryview(buffer)[:length]
            got = os.preadv(self.descriptor, [window], self.position)
            window = window[:got]
            batches, used, why = walk(window, self.position)
            at_end = self.position + got >= self.size
            if len(batches):
                yield batches
                self.position += used
            if why == "length":
                self.stopped = why
                return
            if got < length and used == 0:
                self.stopped = "shrunk"
                return
            if why == "more" and used == 0:
                needed = self._needed(window)
                if at_end or needed > self.size - self.position:
                    self.stopped = why
                    return
                buffer = bytearray(max(needed, self.window_bytes))

    def _needed(self, window: memoryview) -> int:
        """Bytes of the next batch, by its length field; the rest of the file when even that is cut."""
        if len(window) < LOG_OVERHEAD:
            return self.size - self.position
        return LOG_OVERHEAD + int(_LENGTH.unpack_from(window, 8)[0])


# ---- small files ------------------------------------------------------------------------------------------------------------


def read_index(file: BinaryIO, entry_bytes: int, bytes_max: int) -> bytes:
    """An index file, at most `bytes_max`, without the hole at the end of one that is preallocated: each active segment has 20 MiB of them.
    What is not a whole number of entries is read whole, to be refused."""
    size = os.fstat(file.fileno()).st_size
    end = 0
    try:
        while end < size:
            end = os.lseek(file.fileno(), os.lseek(file.fileno(), end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:  # no more data is as good as the end; a file system that knows no holes has one piece
            end = size
    end = size if size % entry_bytes else -(-end // entry_bytes) * entry_bytes
    file.seek(0)
    return file.read(min(end, bytes_max))


def parse_offset_index(data: bytes) -> np.ndarray[Any, Any]:
    """Entries (relative offset, position); the zeros of a preallocated file are left out. Raises FormatError on a cut entry."""
    return _entries(data, OFFSET_ENTRY, "position")


def parse_time_index(data: bytes) -> np.ndarray[Any, Any]:
    return _entries(data, TIME_ENTRY, "timestamp")


def parse_txn_index(data: bytes) -> np.ndarray[Any, Any]:
    if len(data) % TXN_ENTRY.itemsize:
        raise FormatError(f"{len(data)} bytes is not a multiple of {TXN_ENTRY.itemsize}")
    return np.frombuffer(data, TXN_ENTRY)


def _entries(data: bytes, dtype: np.dtype[Any], key: str) -> np.ndarray[Any, Any]:
    if len(data) % dtype.itemsize:
        raise FormatError(f"{len(data)} bytes is not a multiple of {dtype.itemsize}")
    entries = np.frombuffer(data, dtype)
    used = np.flatnonzero((entries[key] != 0) | (entries["offset"] != 0))
    return entries[: int(used[-1]) + 1] if len(used) else entries[:0]


def parse_snapshot(data: bytes) -> np.ndarray[Any, Any]:
    """Producer states of a `.snapshot` file. Raises FormatError for version, CRC and size."""
    if len(data) < SNAPSHOT_HEADER.size:
        raise FormatError(f"{len(data)} bytes is shorter than a header of {SNAPSHOT_HEADER.size}")
    version, stored, count = SNAPSHOT_HEADER.unpack_from(data)
    if version not in {1, 2}:
        raise FormatError(f"unknown version {version}")
    computed = crc32c(memoryview(data)[6:])
    if computed != stored:
        raise FormatError(f"its CRC says {stored:#010x}, its bytes {computed:#010x}")
    if len(data) != SNAPSHOT_HEADER.size + count * SNAPSHOT_ENTRY.itemsize:
        raise FormatError(f"{len(data)} bytes are too few or too many for {counted(count, 'producer')}")
    entries = np.frombuffer(data, SNAPSHOT_ENTRY, count, SNAPSHOT_HEADER.size)
    if len(np.unique(entries["producer_id"])) < count:
        raise FormatError("a producer stands there twice")
    return entries


def parse_checkpoint(data: bytes, fields: int) -> list[tuple[str, ...]]:
    """Lines of a text checkpoint of version 0 with `fields` columns, the last two of which are a 32-bit and a 64-bit number; the announced
    count must be there. No more is tolerated than a broker does (CheckpointFile.read): it takes the log directory offline. Raises
    FormatError."""
    try:
        lines = _LINE_END.split(data.decode())
    except UnicodeDecodeError as error:
        raise FormatError("not UTF-8 text") from error
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return []
    if lines[0] != "0":
        raise FormatError(f"version {lines[0]!r}, expected 0")
    if len(lines) < 2 or not re.fullmatch(r"[0-9]{1,9}", lines[1]):
        raise FormatError("the count of entries is missing")
    entries = [tuple(_SPACES.split(line.rstrip(_JAVA_SPACES))) for line in lines[2:]]
    if len(entries) != int(lines[1]):
        raise FormatError(f"the count says {int(lines[1])} entries, but there are {len(entries)}")
    for entry in entries:
        if len(entry) != fields or not (_is_integer(entry[-2], 31) and _is_integer(entry[-1], 63)):
            raise FormatError(f"bad line {' '.join(entry)!r}")
    return entries


def _is_integer(text: str, bits: int) -> bool:
    return re.fullmatch(r"[-+]?[0-9]{1,19}", text) is not None and -(1 << bits) <= int(text) < 1 << bits


def parse_offset_checkpoint(data: bytes) -> dict[tuple[str, int], int]:
    """`topic partition offset` lines."""
    return {(topic, int(partition)): int(offset) for topic, partition, offset in parse_checkpoint(data, 3)}


def parse_epoch_checkpoint(data: bytes) -> list[tuple[int, int]]:
    """`epoch start_offset` lines in file order. A broker does not load a log with a negative one (LeaderEpochFileCache.assign). Raises
    FormatError."""
    entries = [(int(epoch), int(offset)) for epoch, offset in parse_checkpoint(data, 2)]
    if negative := [entry for entry in entries if min(entry) < 0]:
        raise FormatError(f"the leader epoch {negative[0][0]} begins at {negative[0][1]}")
    return entries


def parse_partition_metadata(data: bytes) -> str:
    """The topic id as written (22 characters base64url), by the first two lines (PartitionMetadataFile.read). Raises FormatError."""
    parts = [re.split(r":\s+", line) for line in data.decode("utf-8", "replace").splitlines()[:2]]
    if (
        len(parts) < 2
        or any(len(part) != 2 for part in parts)
        or parts[0][1] != "0"
        or not re.fullmatch(r"[\w-]{22}", parts[1][1], re.ASCII)
    ):
        raise FormatError("not `version: 0` and a topic_id of 22 characters")
    if not parts[1][1].strip("A"):
        raise FormatError("the topic id is zero")
    return parts[1][1]


def is_torn_partition_metadata(data: bytes) -> bool:
    """Whether it is only the beginning of a valid file, perhaps with zeros in the place of the rest."""
    written = data.rstrip(b"\0")
    head = b"version: 0\ntopic_id: "
    return head.startswith(written) or re.fullmatch(re.escape(head) + rb"[\w-]{1,21}", written) is not None


def parse_properties(data: bytes) -> dict[str, str]:
    """Java's properties format (java.util.Properties.load): of two lines with one key the later counts, and spaces behind a value are part
    of it."""
    found = {}
    joined = ""
    for line in [*_LINE_END.split(data.decode("latin-1")), ""]:
        line = line.lstrip(_PROPERTY_SPACES)
        if not joined and line[:1] in {"", "#", "!"}:
            continue
        joined += line
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]  # it goes on in the next line
            continue
        if (pair := _PROPERTY.match(joined)) is not None:
            found[_unescaped(pair[1])] = _unescaped(pair[2])
        joined = ""
    return found


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)) if escape[1] else _ESCAPED.get(escape[2], escape[2]), text)


def parse_segment_name(name: str) -> tuple[int, str] | None:
    """(base offset, extension) of a live segment file; None for everything else (`.deleted`, `.swap`, foreign files)."""
    found = _SEGMENT_NAME.match(name)
    return (int(found[1]), found[2]) if found else None


def parse_future_name(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a copy that is to take a partition's place (KIP-113)."""
    return _partition_in(_FUTURE_DIRECTORY.match(name))


def is_kafkas_directory(name: str) -> bool:
    """Whether Apache Kafka starts with a directory of this name in a log directory (UnifiedLog.parseTopicPartitionName): a partition's, one
    that awaits deletion, is moving or stray, or the cache of tiered storage."""
    return _partition_in(_KAFKAS_DIRECTORY.match(name)) is not None or name == "remote-log-index-cache"


def parse_partition_name(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a partition directory; None when it is not one, or one awaiting deletion, moving or stray."""
    return None if _SPECIAL_DIRECTORY.match(name) else _partition_in(_PARTITION_NAME.match(name))


def _partition_in(found: re.Match[str] | None) -> tuple[str, int] | None:
    """The number is what Apache Kafka reads (Integer.parseInt): digits of any script, but none that takes two chars, and within an int."""
    if found is None or max(found[2]) > "\uffff" or int(found[2]) >= 1 << 31:
        return None
    return found[1], int(found[2])
