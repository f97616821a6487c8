"""Requests with much in them, served in steps: no turn of the loop is longer because one of them is long.

A long frame is copied, and its connection takes no more requests until this one is through. It is decoded in steps, cut into requests of
some hundred entries (`request_parts`), of which each is served in a turn of its own, and the answer is encoded in steps. What cannot be cut
may have WHOLE_ENTRIES_MAX entries.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.broker.front.error_responses import failure_response
from minikafka.broker.front.request_parts import CUTS, WHOLE_ENTRIES_MAX, Answers, Cut, all_parts, cuts_of, entries_of, first_topics, parts
from minikafka.broker.front.turns import Turns
from minikafka.broker.supervise import Ends
from minikafka.wire.errors import ApiError, ErrorCode, WireError
from minikafka.wire.frame import response_head
from minikafka.wire.message import Request, Response
from minikafka.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse

if TYPE_CHECKING:
    from minikafka.broker.supervise import Supervisor

PRODUCE_KEY, FETCH_KEY, ENVELOPE_KEY = 0, 1, 58
#: A frame of more bytes is a long one. Produce holds records, an envelope one string of bytes, and a fetch speaks of many partitions.
LONG_BYTES = 8 * 1024
LONG_BYTES_OF = {PRODUCE_KEY: 1 << 31, ENVELOPE_KEY: 1 << 31, FETCH_KEY: 64 * 1024}
#: Elements of a request that can be cut: a bound on the memory that they take.
ELEMENTS_MAX = 100_000
#: Of a fetch, which is served whole: its partitions.
FETCH_ENTRIES_MAX = 20_000
#: Long requests are decoded at the same time up to so many bytes of frames, and one at least.
BYTES_AT_ONCE = 4 << 20
TOO_MANY = "Unable to perform excessively large batch operation."


class Entry(Protocol):
    """A served API (`dispatch.Entry`)."""

    name: str
    api_key: int
    elements_max: int

    def answer_to(self, context: Any, request: Any) -> Any:
        """What the handler gives: a response, None if one follows, or a coroutine of either."""

    def decode_in_steps(self, version: int, buffer: memoryview, position: int, /) -> Generator[int, None, Any]:
        """See `Message.decode_in_steps`."""

    def count_error(self, code: int) -> None:
        """An answer carries an error."""


def elements_max(request: type[Request]) -> int:
    """How many elements a request of a class may have."""
    if request in CUTS:
        return ELEMENTS_MAX
    return FETCH_ENTRIES_MAX if request.API_KEY == FETCH_KEY else WHOLE_ENTRIES_MAX


class LargeRequests:
    """The long requests of one kind of listener."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.turns = Turns(supervisor)
        self._bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        #: Requests served so.
        self.served = 0

    def serve(self, context: Any, entry: Entry, frame: bytes, position: int) -> asyncio.Task[None]:
        """Serve a request whose body begins at `position` of its frame."""
        self.served += 1
        context.connection.hold()
        name = f"{entry.name} v{context.api_version} from {context.connection}"
        return self._supervisor.start(self._serve(context, entry, frame, position), name, ends=Ends("connection", context.close))

    async def _serve(self, context: Any, entry: Entry, frame: bytes, position: int) -> None:
        try:
            await self._answer(context, entry, frame, position)
        except WireError as error:
            context.close(str(error))
        except asyncio.CancelledError:
            context.close("the broker is stopping")
            raise
        except Exception:
            entry.count_error(ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        finally:
            context.connection.go_on()

    async def _answer(self, context: Any, entry: Entry, frame: bytes, position: int) -> None:
        size = len(frame)
        await self._admitted(size)
        try:
            request = await self._decoded(entry, context.api_version, frame, position)
            cuts = cuts_of(request)
            if cuts:
                response = await self._in_parts(context, entry, request, cuts)
            else:
                following = first_topics(request) if isinstance(request, DescribeTopicPartitionsRequest) else None
                asked = Part(context)
                answered = entry.answer_to(asked, request)
        finally:
            self._left(size)
        if not cuts:
            # Whoever waits for others, as a member of a group does, keeps no long request from being read meanwhile.
            response = await asked.response_of(answered)
            if following is not None and response is not None and response.next_cursor is None:
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=following, partition_index=0)
        if response is not None and entry.api_key == FETCH_KEY:
            # It holds regions of files, and was served whole.
            context.respond(response)
        elif response is not None:
            context.complete(response)
            context.respond_encoded(response, await self._encoded(response, context))
            if cuts:
                await self._dismantle(parts(response, cuts[0].answers))
        elif not context.is_answered:
            context.no_response()

    # -- in steps --------------------------------------------------------------------------------------------------

    async def _decoded(self, entry: Entry, version: int, frame: bytes, position: int) -> Any:
        steps = entry.decode_in_steps(version, memoryview(frame), position)
        while True:
            try:
                elements = next(steps)
            except StopIteration as over:
                return over.value
            if elements > entry.elements_max:
                raise WireError(f"{entry.name} has more than {entry.elements_max} elements")
            await self.turns.next()

    async def _in_parts(self, context: Any, entry: Entry, request: Any, cuts: list[Cut]) -> Any:
        answers = Answers(cuts[0].answers)
        most = cuts[0].entries_max
        is_refused = most is not None and entries_of(request, cuts) > most
        work = all_parts(request, cuts)
        for part in work:
            if is_refused:
                answer = failure_response(part, context.api_version, ApiError(ErrorCode.POLICY_VIOLATION, TOO_MANY))
            else:
                asked = Part(context)
                answer = await asked.response_of(entry.answer_to(asked, part))
            if answer is None:
                return None
            if context.connection.closed or not answers.add(answer):
                break
            await self.turns.next()
        await self._dismantle(work)
        return answers.merged

    async def _dismantle(self, work: Iterator[Any]) -> None:
        """Give what is left to memory in steps: that takes time, too."""
        for _ in work:
            await self.turns.next()

    async def _encoded(self, response: Response, context: Any) -> list[Any]:
        pieces: list[Any] = []
        joined: list[bytes] = []
        steps: Generator[int, None, None] = response.encode_in_steps(context.api_version, pieces)
        for elements in steps:
            if elements:
                joined.append(b"".join(pieces))
                pieces.clear()
                await self.turns.next()
        joined.append(b"".join(pieces))
        head = response_head(response, context.api_version, context.correlation_id, sum(map(len, joined)))
        joined[0] = head + joined[0]
        return joined

    # -- how many at once ------------------------------------------------------------------------------------------

    async def _admitted(self, size: int) -> None:
        if self._waiting or (self._bytes and self._bytes + size > BYTES_AT_ONCE):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((waiter, size))
            await waiter
        else:
            self._bytes += size

    def _left(self, size: int) -> None:
        self._bytes -= size
        while self._waiting:
            waiter, wanted = self._waiting[0]
            if not waiter.done():
                if self._bytes and self._bytes + wanted > BYTES_AT_ONCE:
                    return
                self._bytes += wanted
                waiter.set_result(None)
            self._waiting.popleft()


class Part:
    """The context of a part of a request (a RequestContext, or one of an envelope): its answer is one part of the answer."""

    __slots__ = ("_context", "_future")

    def __init__(self, context: Any) -> None:
        self._context = context
        self._future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    @property
    def header(self) -> Part:
        """api_key, api_version, correlation_id, client_id."""
        return self

    def respond(self, response: Any) -> None:
        """The answer to this part."""
        if not self._future.done():
            self._future.set_result(response)

    def respond_pieces(self, pieces: list[Any]) -> None:
        """The whole request is answered by a frame that is encoded already."""
        self._context.respond_pieces(pieces)
        self.respond(None)

    def no_response(self) -> None:
        """This part has no answer."""
        self.respond(None)

    def not_controller(self) -> None:
        """Nothing more of the request is to be answered here: it came in an envelope, and another controller must be asked."""
        self._context.not_controller()
        self.respond(None)

    def close(self, reason: str = "") -> None:
        """Close the connection instead of answering."""
        self._context.close(reason)
        self.respond(None)

    async def response_of(self, answered: Any) -> Any:
        """What the handler has returned, or what follows."""
        if asyncio.iscoroutine(answered):
            answered = await answered
        if answered is not None:
            return answered
        return await self._future
