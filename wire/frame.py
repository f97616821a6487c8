"""Whole frames: four bytes of size, a header, a message."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from minikafka.wire.header import encode_request_header, response_header_version
from minikafka.wire.message import Piece, Request, Response, join_pieces, received

_SIZE_AND_REQUEST = struct.Struct(">ihhi")
_CORRELATION_END = 8
_ONLY_BYTES = {bytes}
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_SIZE_CORRELATION_TAGS = struct.Struct(">iib")


@lru_cache(maxsize=1024)
def _after_correlation(api_key: int, version: int, client_id: str | None) -> bytes:
    """The part of a request header after the correlation id: the same in all requests of a client to one API version."""
    return encode_request_header(api_key, version, 0, client_id)[_CORRELATION_END:]


def encode_request(request: Request, version: int, correlation_id: int, client_id: str | None) -> list[Piece]:
    """The frame of a request; large records are separate pieces."""
    api_key = request.API_KEY
    pieces: list[Any] = [_after_correlation(api_key, version, client_id)]
    encoder = request._encoders.get(version)
    if encoder is None:
        request.encode_into(version, pieces)
    else:
        encoder(request, pieces)
    if set(map(type, pieces)) <= _ONLY_BYTES:
        body = b"".join(pieces)
        return [_SIZE_AND_REQUEST.pack(len(body) + _CORRELATION_END, api_key, version, correlation_id) + body]
    joined: list[Any] = join_pieces(pieces)
    size = sum(len(piece) if isinstance(piece, (bytes, bytearray, memoryview)) else piece.size for piece in joined)
    joined[0] = _SIZE_AND_REQUEST.pack(size + _CORRELATION_END, api_key, version, correlation_id) + joined[0]
    return joined


def response_bytes(response: Response, version: int, correlation_id: int) -> bytes:
    """The frame of a response without file regions."""
    return b"".join(received(piece) for piece in encode_response(response, version, correlation_id))


def encode_response(response: Response, version: int, correlation_id: int) -> list[Piece]:
    """The frame of a response; large records and file regions are separate pieces."""
    pieces: list[Any] = []
    encoder = response._encoders.get(version)
    if encoder is None:
        response.encode_into(version, pieces)
    else:
        encoder(response, pieces)
    flexible = response_header_version(response.API_KEY, version) == 1
    if not set(map(type, pieces)) <= _ONLY_BYTES:
        return _with_regions(pieces, _regions_of(pieces), correlation_id, flexible)
    body = b"".join(pieces)
    if flexible:
        return [_SIZE_CORRELATION_TAGS.pack(len(body) + 5, correlation_id, 0) + body]
    return [_SIZE_AND_CORRELATION.pack(len(body) + 4, correlation_id) + body]


def response_head(response: Response, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """The size and header that precede a response body of `body_bytes` bytes."""
    if response_header_version(response.API_KEY, version) == 1:
        return _SIZE_CORRELATION_TAGS.pack(body_bytes + 5, correlation_id, 0)
    return _SIZE_AND_CORRELATION.pack(body_bytes + 4, correlation_id)


def _regions_of(pieces: list[Any]) -> list[int]:
    """The indexes of large records and file regions."""
    kinds, regions = list(map(type, pieces)), []
    for kind in set(kinds) - _ONLY_BYTES:
        at = -1
        for _ in range(kinds.count(kind)):
            at = kinds.index(kind, at + 1)
            regions.append(at)
    return sorted(regions)


def _with_regions(pieces: list[Any], regions: list[int], correlation_id: int, flexible: bool) -> list[Piece]:
    """The frame with large records and file regions as separate pieces (`regions`: their indexes in `pieces`) and the rest joined."""
    size, out, start = 0, [], 0
    for at in regions:
        joined, piece = b"".join(pieces[start:at]), pieces[at]
        size += len(joined) + (len(piece) if isinstance(piece, (bytearray, memoryview)) else piece.size)
        out += [joined, piece]
        start = at + 1
    joined = b"".join(pieces[start:])
    size += len(joined)
    if joined:
        out.append(joined)
    if flexible:
        out[0] = _SIZE_CORRELATION_TAGS.pack(size + 5, correlation_id, 0) + out[0]
    else:
        out[0] = _SIZE_AND_CORRELATION.pack(size + 4, correlation_id) + out[0]
    return out
