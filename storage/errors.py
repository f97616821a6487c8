"""Failures that storage reports: the disk says no, or what it holds is not what was written."""

from __future__ import annotations

from minikafka.wire.errors import ApiError, ErrorCode


class StorageError(Exception):
    """The disk failed: the log directory of `path` must go offline and nothing is retried (a second fsync after a
    failed one may lie). Answered as KAFKA_STORAGE_ERROR."""

    def __init__(self, message: str, *, path: str = "", cause: BaseException | None = None) -> None:
        super().__init__(message if cause is None else f"{message}: {cause}")
        self.path = path
        self.cause = cause


class ResourceShortage(StorageError):
    """Nothing was done for want of descriptors or memory. The disk is well, nothing is offline, and the same call may succeed later."""


class LogClosed(StorageError):
    """The log was closed, moved or deleted: whoever still holds it must not use it."""


class DirectoryLocked(StorageError):
    """Another process (ours or Apache Kafka) holds `.lock` of the log directory."""


class NotFormatted(StorageError):
    """The log directory has no `meta.properties`, or one of another cluster or node."""


class CorruptFile(Exception):
    """A checkpoint, index or snapshot that is not valid. Never leaves storage: the file is rebuilt from the log."""


class UnexpectedAppendOffset(ApiError):
    """A fetched batch does not continue the log (Kafka's UnexpectedAppendOffsetException)."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.first_offset = first_offset
        self.last_offset = last_offset
