"""Reads the fields of Kafka's flexible records, of `__cluster_metadata` and of the coordinators' topics."""

from __future__ import annotations

import base64

from minikafka.spark.logformat import FormatError


class UnknownRecordError(FormatError):
    """A record of a version of a later release: it may be sound."""


class Fields:
    """Reads the fields of one record in order. Raises FormatError if the record is too short."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data, self.position = data, position

    def raw(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise FormatError("a metadata record ends too early")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def following(self) -> bytes:
        """All remaining bytes, which stay to be read."""
        return self.data[self.position :]

    def integer(self, size: int) -> int:
        return int.from_bytes(self.raw(size), "big", signed=True)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 35:
                raise FormatError("a metadata record contains a varint that is too long")

    def uuid(self) -> str:
        return base64.urlsafe_b64encode(self.raw(16)).decode().rstrip("=")

    def string(self) -> str:
        return self.raw(self.varint() - 1).decode("utf-8", "replace")

    def nullable_string(self) -> str | None:
        length = self.varint()
        return None if length == 0 else self.raw(length - 1).decode("utf-8", "replace")

    def nodes(self) -> tuple[str, ...]:
        return tuple(str(self.integer(4)) for _ in range(self.count(4)))

    def uuids(self) -> tuple[str, ...]:
        return tuple(self.uuid() for _ in range(self.count(16)))

    def nodes_or(self, before: tuple[str, ...]) -> tuple[str, ...]:
        """A list of nodes; null says what was `before`."""
        return before if self._is_null() else self.nodes()

    def uuids_or(self, before: tuple[str, ...]) -> tuple[str, ...]:
        """A list of UUIDs; null says what was `before`."""
        return before if self._is_null() else self.uuids()

    def _is_null(self) -> bool:
        return self.data[self.position : self.position + 1] == b"\0"

    def count(self, size: int = 1) -> int:
        """The number of elements, of at least `size` bytes each, of a list that must not be null."""
        count = self.varint() - 1
        if count < 0:
            raise FormatError("a metadata record has null in place of a list")
        if count * size > len(self.data) - self.position:
            raise FormatError("a metadata record claims more elements than it has bytes")
        return count

    def finish(self) -> None:
        """Raises FormatError for bytes behind the last field."""
        if self.position < len(self.data):
            raise FormatError(f"a metadata record has {len(self.data) - self.position} bytes behind its last field")

    def tagged(self, since: dict[int, int] | None = None, version: int = 0) -> dict[int, Fields]:
        """The tagged fields, which follow the others: {tag: its fields}. `since`: the first version that has a tag. Apache Kafka reads no
        record of an earlier version with that tag, and passes over tags that it does not know."""
        found = {self.varint(): Fields(self.raw(self.varint())) for _ in range(self.varint())}
        for tag in found.keys() & (since or {}).keys():
            if since is not None and version < since[tag]:
                raise FormatError(f"a metadata record of version {version} has the tag {tag}, which is of version {since[tag]}")
        return found
