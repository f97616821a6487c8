"""Request and response headers with their quirks (KIP-482, KIP-511).

A flexible request has header v2, whose client id keeps its two-byte length. ApiVersions answers with response header v0 in every
version, so that a client can read the answer before it knows the broker's versions.
"""

from __future__ import annotations

import struct

from minikafka.wire.api_table import FLEXIBLE_FROM
from minikafka.wire.errors import WireError
from minikafka.wire.types import TAGGED_FIELDS_MAX
from minikafka.wire.varint import read_unsigned_varint

API_VERSIONS_KEY = 18
CONTROLLED_SHUTDOWN_KEY = 7
HEADER_BYTES_MIN = 8
_PREFIX = struct.Struct(">hhi")
_LENGTH = struct.Struct(">h")
_CORRELATION = struct.Struct(">i")


class RequestHeader:
    """The header of a request; `client_id` is None when the client sent null."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __repr__(self) -> str:
        key, version = self.api_key, self.api_version
        return f"RequestHeader({key}, v{version}, correlation_id={self.correlation_id}, client_id={self.client_id!r})"


def request_header_version(api_key: int, api_version: int) -> int:
    """0 for ControlledShutdown v0, 1 for inflexible versions, 2 for flexible ones."""
    flexible = FLEXIBLE_FROM.get(api_key)
    if flexible is not None and api_version >= flexible:
        return 2
    return 0 if api_key == CONTROLLED_SHUTDOWN_KEY and api_version == 0 else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """1 (with tagged fields) for flexible versions, else 0; always 0 for ApiVersions."""
    flexible = FLEXIBLE_FROM.get(api_key)
    return 1 if flexible is not None and api_version >= flexible and api_key != API_VERSIONS_KEY else 0


def decode_request_header(view: memoryview | bytes, position: int = 0) -> tuple[RequestHeader, int]:
    """The header at `position` and the position of the body. Raises WireError when the header is cut short."""
    try:
        api_key, api_version, correlation_id = _PREFIX.unpack_from(view, position)
        position += 8
        (length,) = _LENGTH.unpack_from(view, position)
        position += 2
        client_id = None
        if length >= 0:
            end = position + length
            if end > len(view):
                raise WireError(f"the client id is {length} bytes long, but only {len(view) - position} are left")
            client_id = str(view[position:end], "utf-8", "replace")
            position = end
        flexible = FLEXIBLE_FROM.get(api_key)
        if flexible is not None and api_version >= flexible:
            if view[position] == 0:
                position += 1
            else:
                position = skip_tagged_fields(view, position)
    except (struct.error, IndexError) as error:
        raise WireError("the request header is truncated") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def skip_tagged_fields(view: memoryview | bytes, position: int) -> int:
    """The position after a section of tagged fields. Raises WireError or IndexError."""
    count, position = read_unsigned_varint(view, position)
    if count > TAGGED_FIELDS_MAX or count * 2 > len(view) - position:
        raise WireError(f"{count} tagged fields are more than {TAGGED_FIELDS_MAX}, or do not fit into {len(view) - position} bytes")
    for _ in range(count):
        _, position = read_unsigned_varint(view, position)
        size, position = read_unsigned_varint(view, position)
        position += size
        if position > len(view):
            raise WireError("a tagged field is longer than the frame")
    return position


def end_of_flexible_header(view: memoryview | bytes, position: int) -> int:
    """The position of a request's body; `position` is the one after the client id. Raises WireError."""
    if position < len(view) and view[position] == 0:
        return position + 1
    try:
        return skip_tagged_fields(view, position)
    except IndexError:
        raise WireError("the request header is truncated") from None


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header's bytes."""
    head = _PREFIX.pack(api_key, api_version, correlation_id)
    version = request_header_version(api_key, api_version)
    if version == 0:
        return head
    name = None if client_id is None else client_id.encode()
    text = b"\xff\xff" if name is None else _LENGTH.pack(len(name)) + name
    return head + text + (b"\0" if version == 2 else b"")


def decode_response_header(view: memoryview | bytes, api_key: int, api_version: int, position: int = 0) -> tuple[int, int]:
    """The correlation id and the position of the body. Raises WireError when the header is cut short."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(view, position)
        position += 4
        if response_header_version(api_key, api_version):
            position = position + 1 if view[position] == 0 else skip_tagged_fields(view, position)
    except (struct.error, IndexError) as error:
        raise WireError("the response header is truncated") from error
    return correlation_id, position


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """The header's bytes."""
    head = _CORRELATION.pack(correlation_id)
    return head + b"\0" if response_header_version(api_key, api_version) else head
