"""Whole frames: four bytes of size, a header, a message."""

from __future__ import annotations

import struct
from typing import Any

from wire.header import encode_request_header, response_header_version
from wire.message import Piece, Request, Response, join_pieces

_SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_SIZE_CORRELATION_TAGS = struct.Struct(">iib")


def _size(pieces: list[Any]) -> int:
    return sum(len(p) if isinstance(p, (bytes, bytearray, memoryview)) else p.size for p in pieces)


def encode_request(request: Request, version: int, correlation_id: int, client_id: str | None) -> list[Piece]:
    """The frame of a request; large records are pieces of their own."""
    pieces: list[Any] = [b"", encode_request_header(request.API_KEY, version, correlation_id, client_id)]
    request.encode_into(version, pieces)
    pieces[0] = _SIZE.pack(_size(pieces))
    return join_pieces(pieces)


def encode_response(response: Response, version: int, correlation_id: int) -> list[Piece]:
    """The frame of a response; large records and file regions are pieces of their own."""
    pieces: list[Any] = []
    encoder = response._encoders.get(version)
    if encoder is None:
        response.encode_into(version, pieces)
    else:
        encoder(response, pieces)
    flexible = response_header_version(response.API_KEY, version) == 1
    try:
        body = b"".join(pieces)
    except TypeError:  # it holds regions of files
        return _with_regions(pieces, correlation_id, flexible)
    if flexible:
        return [_SIZE_CORRELATION_TAGS.pack(len(body) + 5, correlation_id, 0) + body]
    return [_SIZE_AND_CORRELATION.pack(len(body) + 4, correlation_id) + body]


def _with_regions(pieces: list[Any], correlation_id: int, flexible: bool) -> list[Piece]:
    size, out, run = 0, [], []
    for piece in pieces:
        if type(piece) is bytes:
            run.append(piece)
            continue
        joined = b"".join(run)
        run = []
        size += len(joined) + (len(piece) if isinstance(piece, (bytearray, memoryview)) else piece.size)
        out += [joined, piece]
    joined = b"".join(run)
    size += len(joined)
    if joined:
        out.append(joined)
    if flexible:
        out[0] = _SIZE_CORRELATION_TAGS.pack(size + 5, correlation_id, 0) + out[0]
    else:
        out[0] = _SIZE_AND_CORRELATION.pack(size + 4, correlation_id) + out[0]
    return out
