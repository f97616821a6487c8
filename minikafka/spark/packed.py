"""Reads compressed tables (gzip, bz2, zstd, a zip archive of one file) as streams, never unpacking to disk or beyond a limit."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from minikafka.counted import counted

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

COMPRESSIONS = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd", ".zip": "zip"}
#: Default limit for unpacking: ordinary text rarely shrinks to a hundredth, a decompression bomb to a thousandth or less.
RATIO_MAX, UNPACKED_BYTES_ALLOWED = 250, 256 << 20
WINDOW_BYTES = 8 << 20
LINE_BYTES_MAX = 64 << 20
ENCRYPTED = 1


class PackedError(Exception):
    """The file does not match its name, or unpacks to too much; the text says what and where."""


def compression_of(path: str) -> str:
    """The compression, by the file's name: gzip, bz2, zstd, zip, or "" for none."""
    return COMPRESSIONS.get(os.path.splitext(path)[1].lower(), "")


def name_inside(path: str) -> str:
    """The name of the table inside: flights.csv for flights.csv.gz, the member's name for a zip archive. Raises PackedError."""
    kind = compression_of(path)
    if kind != "zip":
        return os.path.splitext(path)[0] if kind else path
    try:
        with zipfile.ZipFile(path) as archive:
            return _only_member(path, archive).filename
    except (zipfile.BadZipFile, OSError) as error:
        raise PackedError(f"{path}: no zip archive: {error}") from error


def unpacked(path: str, bytes_max: int = 0) -> io.BufferedReader:
    """A stream of the unpacked bytes. `bytes_max` 0: 250 times the file's size, at least 256 MiB. Reading raises PackedError."""
    allowed = bytes_max or max(RATIO_MAX * os.path.getsize(path), UNPACKED_BYTES_ALLOWED)
    return io.BufferedReader(_Bounded(path, _opened(path), allowed), buffer_size=1 << 20)


def windows_of_lines(stream: BinaryIO, path: str) -> Iterator[bytes]:
    """The stream in pieces of about 8 MiB that end at line ends. Raises PackedError."""
    rest = b""
    while data := stream.read(WINDOW_BYTES):
        end = data.rfind(b"\n") + 1
        if end:
            yield rest + data[:end]
            rest = data[end:]
        else:
            rest += data
        if len(rest) > LINE_BYTES_MAX:
            raise PackedError(f"{path}: a line is longer than {LINE_BYTES_MAX >> 20} MiB")
    if rest:
        yield rest


def _opened(path: str) -> BinaryIO:
    kind = compression_of(path)
    if kind == "zip":
        return _member(path)
    # Unlike zstandard's reader, it raises an error if the file ends in the middle of a frame.
    return pa.CompressedInputStream(pa.OSFile(path), kind)  # type: ignore[no-any-return]


def _member(path: str) -> BinaryIO:
    try:
        archive = zipfile.ZipFile(path)
        member = _only_member(path, archive)
        return archive.open(member)  # type: ignore[return-value]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise PackedError(f"{path}: cannot be unpacked: {error}") from error


def _only_member(path: str, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """The archive's only member, ignoring the extra files that macOS adds. Raises PackedError."""
    files = [info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith("__MACOSX/")]
    if len(files) != 1:
        names = ", ".join(info.filename for info in files[:5]) + (", ..." if len(files) > 5 else "")
        raise PackedError(
            f"{path}: the archive must contain exactly one table but contains {counted(len(files), 'file')} ({names}): "
            "unpack it and load the files"
        )
    if files[0].flag_bits & ENCRYPTED:
        raise PackedError(f"{path}: the archive is encrypted; unpack it first")
    return files[0]


class _Bounded(io.RawIOBase):
    """A decompressor's stream that stops at a number of bytes."""

    def __init__(self, path: str, source: BinaryIO, allowed: int) -> None:
        self._path, self._source, self._allowed = path, source, allowed
        self._done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        try:
            data = self._source.read(len(view))
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
            raise PackedError(f"{self._path}: cannot be unpacked: {error}") from error
        self._done += len(data)
        if self._done > self._allowed:
            raise PackedError(
                f"{self._path}: unpacks to more than {self._allowed:,} bytes, which is unusual for a table of its size; "
                "to allow it, raise --unpacked-bytes-max"
            )
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._source.close()
        super().close()
