"""Encodes large answers in steps, one per turn of the event loop, whatever the request was."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.broker.front.request_parts import weight_of
from minikafka.broker.supervise import Ends
from minikafka.net.pieces import release
from minikafka.wire.frame import response_head
from minikafka.wire.lazy_list import unresolved_lists
from minikafka.wire.message import Piece, Response, join_pieces
from minikafka.wire.messages.fetch import FetchResponse
from minikafka.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from minikafka.broker.front.turns import Turns
    from minikafka.broker.supervise import Supervisor

#: Entries encoded in one turn, at a few microseconds each.
ENTRIES_AT_ONCE = 1024


class Context(Protocol):
    """The request to answer."""

    api_version: int
    correlation_id: int
    connection: Any

    def close(self, reason: str = "", /) -> None:
        """Close its connection."""


class LongAnswers:
    """Encodes the large answers of one type of listener."""

    def __init__(self, supervisor: Supervisor, turns: Turns) -> None:
        self._supervisor = supervisor
        self._turns = turns
        #: Answers encoded in steps so far.
        self.count = 0

    @staticmethod
    def is_long(response: Response) -> bool:
        """Whether to encode an answer in steps. Large Produce answers are combined from parts and already encoded in steps."""
        kind = type(response)
        if kind is ProduceResponse:
            return False
        if kind is FetchResponse:
            count = 0
            topics: Any = response.responses  # type: ignore[attr-defined]
            for topic in topics:
                count += 1 + len(topic.partitions)
                for partition in topic.partitions:
                    aborted = partition.aborted_transactions
                    if aborted:
                        count += len(aborted)
            return count > ENTRIES_AT_ONCE
        return weight_of(response, ENTRIES_AT_ONCE) > ENTRIES_AT_ONCE

    def start(self, context: Context, response: Response, done: Callable[[list[Piece]], None]) -> None:
        """Encode a completed answer, then call `done` with its frame. Until then the connection accepts no further request."""
        self.count += 1
        context.connection.hold()
        name = f"the answer {type(response).__name__} v{context.api_version} to {context.connection}"
        self._supervisor.start(self._encode(context, response, done), name, ends=Ends("connection", context.close))

    async def _encode(self, context: Context, response: Response, done: Callable[[list[Piece]], None]) -> None:
        try:
            done(await self.encoded(response, context.api_version, context.correlation_id))
        finally:
            context.connection.go_on()

    async def encoded(self, response: Response, version: int, correlation_id: int) -> list[Piece]:
        """The frame of an answer, encoded in steps. Raises NotEncodable."""
        pieces: list[Any] = []
        joined: list[Piece] = []
        try:
            # Many answers may begin together: their first steps have a turn each, too.
            await self._turns.next()
            for lazy in unresolved_lists(response):
                for _ in lazy.resolve():
                    await self._turns.next()
            for elements in response.encode_in_steps(version, pieces):
                if elements:
                    joined += join_pieces(pieces)
                    pieces.clear()
                    await self._turns.next()
        except BaseException:
            release([*joined, *pieces])
            raise
        joined += join_pieces(pieces)
        size = sum(len(piece) if isinstance(piece, bytes | bytearray | memoryview) else piece.size for piece in joined)
        first = joined[0]
        assert isinstance(first, bytes)
        joined[0] = response_head(response, version, correlation_id, size) + first
        return joined
