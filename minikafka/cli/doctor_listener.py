"""Finds out what listens at an address by speaking a little Kafka protocol, plain or over TLS, without logging in."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct

from minikafka.cli.doctor_findings import Heard
from minikafka.net.tasks import within

DIAL_TIMEOUT_S = 3.0
#: Bytes to read at once; an ApiVersions response takes a few hundred.
ANSWER_BYTES_MAX = 1 << 16
CLIENT_ID = b"minikafka-doctor"
API_VERSIONS, SASL_HANDSHAKE, PRODUCE = 18, 17, 0
ILLEGAL_SASL_STATE = 34
#: A TLS record of the type alert.
TLS_ALERT = b"\x15\x03"


async def listen_at(host: str, port: int) -> Heard:
    """Ask in plain text, then, without a sensible answer, over TLS, without verifying the certificate. Raises OSError, TimeoutError."""
    heard = await _asked(host, port, None)
    if heard.what in ("kafka", "http"):
        return heard
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        in_tls = await _asked(host, port, context)
    except (OSError, TimeoutError):
        return heard
    # A listener that completes the handshake and then stays silent requires a client certificate.
    return Heard("kafka", is_tls=True) if in_tls.what == "silent" else in_tls


async def _asked(host: str, port: int, context: ssl.SSLContext | None) -> Heard:
    opening = asyncio.open_connection(host, port, ssl=context, limit=ANSWER_BYTES_MAX)
    reader, writer = await within(DIAL_TIMEOUT_S, opening)
    is_tls = context is not None
    try:
        answer = await _answer(reader, writer, API_VERSIONS, b"")
        if answer is None:
            return Heard("silent", is_tls)
        if answer.startswith((b"HTTP/", b"<")):
            return Heard("http", is_tls)
        keys = _api_keys(answer)
        if keys is None:
            return Heard("other", is_tls)
        handshake = await _answer(reader, writer, SASL_HANDSHAKE, struct.pack(">h5s", 5, b"PLAIN"))
        return Heard("kafka", is_tls, PRODUCE not in keys, None if handshake is None else _mechanisms(handshake))
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError, ssl.SSLError):
            await within(DIAL_TIMEOUT_S, writer.wait_closed())


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, api_key: int, body: bytes) -> bytes | None:
    """The response to a request, without its size field, or whatever other bytes came; None if the connection ends or stays silent."""
    version = 1 if api_key == SASL_HANDSHAKE else 0
    request = struct.pack(">hhih", api_key, version, api_key, len(CLIENT_ID)) + CLIENT_ID + body
    try:
        writer.write(struct.pack(">i", len(request)) + request)
        head = await within(DIAL_TIMEOUT_S, reader.readexactly(4))
        size = int.from_bytes(head, "big")
        if not 4 <= size <= ANSWER_BYTES_MAX:
            with contextlib.suppress(TimeoutError):
                head += await within(0.2, reader.read(64))
            return head
        return await within(DIAL_TIMEOUT_S, reader.readexactly(size))
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return None


def _api_keys(answer: bytes) -> set[int] | None:
    """The API keys in an ApiVersionsResponse v0; None if the bytes are not one."""
    if len(answer) < 10 or int.from_bytes(answer[:4], "big") != API_VERSIONS:
        return None
    (count,) = struct.unpack_from(">i", answer, 6)
    if not 0 < count <= (len(answer) - 10) // 6:
        return None
    return {struct.unpack_from(">h", answer, 10 + 6 * index)[0] for index in range(count)}


def _mechanisms(answer: bytes) -> tuple[str, ...] | None:
    """The mechanisms in a SaslHandshakeResponse; None if the listener does not speak SASL."""
    (error,) = struct.unpack_from(">h", answer, 4) if len(answer) >= 10 else (ILLEGAL_SASL_STATE,)
    if error == ILLEGAL_SASL_STATE:
        return None
    (count,), position, found = struct.unpack_from(">i", answer, 6), 10, []
    for _ in range(count):
        if position + 2 > len(answer):
            break
        (length,) = struct.unpack_from(">h", answer, position)
        found.append(answer[position + 2 : position + 2 + length].decode("latin-1"))
        position += 2 + length
    return tuple(found)
