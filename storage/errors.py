"""The errors of storage: the disk fails, or a file is not what was written."""

from __future__ import annotations

from minikafka.wire.errors import ApiError, ErrorCode


class StorageError(Exception):
    """The disk failed. The log directory of `path` must go offline, and nothing is retried: a second fsync after a failed one may report
    success wrongly. Clients get KAFKA_STORAGE_ERROR."""

    def __init__(self, message: str, *, path: str = "", cause: BaseException | None = None) -> None:
        super().__init__(message if cause is None else f"{message}: {cause}")
        self.path = path
        self.cause = cause


class ResourceShortage(StorageError):
    """Descriptors or memory were lacking, and nothing was done. The disk is fine, nothing goes offline, and a later call may succeed."""


class LogClosed(StorageError):
    """The log was closed, moved or deleted, and can no longer be used."""


class DirectoryLocked(StorageError):
    """Another process (minikafka or Apache Kafka) holds the `.lock` file of the log directory."""


class NotFormatted(StorageError):
    """The log directory has no `meta.properties`, or one of another cluster or node."""


class CorruptFile(Exception):
    """A checkpoint, index or snapshot is not valid. Storage handles this itself: it rebuilds the file from the log."""


class UnexpectedAppendOffset(ApiError):
    """A fetched batch does not continue the log (Kafka's UnexpectedAppendOffsetException)."""

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.first_offset = first_offset
        self.last_offset = last_offset
