"""A client whose requests do not wait for answers."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from helpers.live_node import broker_port

from minikafka.broker.node import Node
from minikafka.wire.frame import encode_request
from minikafka.wire.header import decode_response_header
from minikafka.wire.registry import api


class PipelinedClient:
    """One connection that may send many requests before it reads an answer."""

    def __init__(self, node: Node) -> None:
        self._port = broker_port(node)

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def send(self, request: Any, version: int) -> None:
        self._writer.write(b"".join(bytes(piece) for piece in encode_request(request, version, 1, "c")))

    async def receive(self, kind: Any, version: int) -> Any:
        """The next answer, a response of this class."""
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = await self._reader.readexactly(size)
        _, position = decode_response_header(frame, api_key(kind), version)
        return kind.decode(version, frame, position)


def api_key(kind: Any) -> int:
    return next(key for key in range(100) if (entry := api(key)) is not None and entry.response is kind)
