"""A connection to a broker whose requests are sent and whose answers are read one by one."""

from __future__ import annotations

import asyncio
from typing import Any

from minikafka.wire.frame import encode_request
from minikafka.wire.header import decode_response_header
from minikafka.wire.message import Request
from minikafka.wire.registry import api


class Peer:
    """One connection; the test decides what is sent and when."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Peer:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 26)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def send(self, request: Request, version: int, correlation_id: int = 1) -> None:
        self._writer.write(b"".join(bytes(piece) for piece in encode_request(request, version, correlation_id, "c")))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def frame(self) -> bytes:
        return await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4), "big"))

    async def answer(self, request: type[Request], version: int) -> Any:
        entry, frame = api(request.API_KEY), await self.frame()
        assert entry is not None
        return entry.response.decode(version, frame, decode_response_header(frame, entry.key, version)[1])

    async def ask(self, request: Request, version: int) -> Any:
        self.send(request, version)
        return await self.answer(type(request), version)

    async def is_closed(self) -> bool:
        return await self._reader.read(1) == b""
