"""Summary files: the results of a scan, in frames with checksums.

The first line names the format. A frame is: size of its key, size of its content, CRC-32C over both (uint32 each), the key ("kind name"),
the content (zlib). The last frame, of kind `end`, holds the number of frames before it; a file without it is truncated.
"""

from __future__ import annotations

import os
import struct
import zlib
from types import TracebackType
from typing import Any, BinaryIO

from crc32c import crc32c

from minikafka.spark import summary_codec
from minikafka.spark.summary_codec import CodecError

MAGIC = b"minikafka audit summary 1\n"
_FRAME = struct.Struct(">III")
KEY_BYTES_MAX, CONTENT_BYTES_MAX = 1 << 16, 1 << 30


class SummaryError(Exception):
    """A summary file cannot be used; the text names it and says what to do."""


def frame_of(kind: str, name: str, content: bytes) -> bytes:
    """A frame."""
    key = f"{kind} {name}".encode(errors="surrogateescape")  # the name may be a path
    return _FRAME.pack(len(key), len(content), crc32c(content, crc32c(key))) + key + content


def read_frame(file: BinaryIO) -> tuple[str, str, bytes] | None:
    """(kind, name, content) of the frame at the file's position; None if the file ends before the frame does. Raises ValueError for a
    damaged frame."""
    head = file.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    key_bytes, content_bytes, crc = _FRAME.unpack(head)
    if key_bytes > KEY_BYTES_MAX or content_bytes > CONTENT_BYTES_MAX:
        raise ValueError("a frame that is too long")
    key, content = file.read(key_bytes), file.read(content_bytes)
    if len(key) < key_bytes or len(content) < content_bytes:
        return None
    if crc32c(content, crc32c(key)) != crc:
        raise ValueError("a frame whose checksum is wrong")
    kind, _, name = key.decode(errors="surrogateescape").partition(" ")
    return kind, name, content


class SummaryWriter:
    """Writes a summary file under a temporary name, and renames it once it is complete."""

    def __init__(self, path: str) -> None:
        self.path, self._part = path, f"{path}.part"
        self._frames = 0
        self._file: BinaryIO = open(self._part, "wb")  # noqa: SIM115 - closed by __exit__
        self._file.write(MAGIC)

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self.add("end", "", self._frames)
                self._file.flush()
                os.fsync(self._file.fileno())
        finally:
            self._file.close()
            if kind is None:
                os.replace(self._part, self.path)
            else:
                os.unlink(self._part)

    def add(self, kind: str, name: str, value: Any, prefix: str = "") -> None:
        """Add a frame; `prefix` is removed from its paths. Raises SummaryError for a frame that is too large for readers."""
        plain = summary_codec.dumps(value, prefix)
        if len(plain) > CONTENT_BYTES_MAX:
            text = f"the summary of {kind} {name} takes {len(plain)} bytes, more than {CONTENT_BYTES_MAX}"
            raise SummaryError(f"{text}: audit fewer partitions at once (--topic), or audit where the log directories are")
        self._file.write(frame_of(kind, name, zlib.compress(plain, 1)))
        self._frames += 1


class SummaryReader:
    """A summary file whose frames are looked up by kind and name. Opening it verifies every checksum. Raises SummaryError, OSError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.prefix = ""
        self._places: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self._file = open(path, "rb")  # noqa: SIM115 - as long as the reader lives
        try:
            self._index()
            self.header: dict[str, Any] = self.one("header")
        except BaseException:
            self._file.close()
            raise
        if self.header.get("shape") != summary_codec.FORMAT_DIGEST:
            self._file.close()
            made = self.header.get("version", "?")
            raise SummaryError(f"{path} was made by another version of minikafka ({made}): scan again with this one")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _index(self) -> None:
        if self._file.read(len(MAGIC)) != MAGIC:
            raise SummaryError(f"{self.path} is not a summary that `minikafka audit --scan` of this version wrote")
        frames = 0
        while True:
            start = self._file.tell()
            try:
                frame = read_frame(self._file)
            except ValueError as error:
                raise SummaryError(f"{self.path} is damaged at byte {start}: copy it again") from error
            if frame is None:
                raise SummaryError(f"{self.path} is truncated at byte {start}: its scan did not finish, or it was only partly copied")
            kind, name, content = frame
            if kind == "end":
                self._ends(content, frames)
                return
            frames += 1
            self._places.setdefault((kind, name), []).append((self._file.tell() - len(content), len(content)))

    def _ends(self, content: bytes, frames: int) -> None:
        if self._content(content) != frames or self._file.read(1):
            raise SummaryError(f"{self.path} is damaged: it does not end where its last frame says it does; copy it again")

    def names(self, kind: str) -> list[str]:
        """The names of all frames of a kind."""
        return [name for found, name in self._places if found == kind]

    def all(self, kind: str, name: str = "") -> list[Any]:
        """The contents of all frames with this kind and name."""
        found = []
        for position, size in self._places.get((kind, name), ()):
            self._file.seek(position)
            found.append(self._content(self._file.read(size)))
        return found

    def one(self, kind: str, name: str = "") -> Any:
        """The content of the only frame with this kind and name. Raises SummaryError if there is not exactly one."""
        found = self.all(kind, name)
        if len(found) != 1:
            raise SummaryError(f"{self.path} has {len(found)} frames {kind} {name}: scan again")
        return found[0]

    def _content(self, data: bytes) -> Any:
        inflate = zlib.decompressobj()
        try:
            plain = inflate.decompress(data, CONTENT_BYTES_MAX)
            if inflate.unconsumed_tail:
                raise SummaryError(f"{self.path} is damaged: a frame holds more than {CONTENT_BYTES_MAX} bytes")
            return summary_codec.loads(plain, self.prefix)
        except (zlib.error, CodecError) as error:
            raise SummaryError(f"{self.path} cannot be understood: {error}") from error
