"""Serves large requests in steps, so that they do not block the event loop.

A long frame is copied, and its connection accepts no further request until this one is done. The frame is decoded in steps and split into
requests of some hundred entries (`request_parts`). Each part is served in its own turn of the loop, and the answer is encoded in steps. A
request that cannot be split may have WHOLE_ENTRIES_MAX entries. A short frame takes the same way if it asks for more than one part.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.broker.front.client_turns import WholeRequest
from minikafka.broker.front.error_responses import failure_response
from minikafka.broker.front.long_answers import LongAnswers
from minikafka.broker.front.request_parts import (
    CUTS,
    PART_ENTRIES,
    WHOLE_ENTRIES_MAX,
    Answers,
    Cut,
    all_parts,
    cuts_of,
    entries_of,
    first_topics,
    is_much,
    parts,
    weight_of,
)
from minikafka.broker.front.turns import Turns
from minikafka.broker.supervise import Ends
from minikafka.wire.errors import ApiError, ErrorCode, WireError
from minikafka.wire.message import Request, emptied
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse

if TYPE_CHECKING:
    from minikafka.broker.supervise import Supervisor

PRODUCE_KEY, FETCH_KEY, ENVELOPE_KEY = 0, 1, 58
#: Fetch, ShareFetch and ShareAcknowledge.
FETCHING_KEYS = frozenset({FETCH_KEY, 78, 79})
#: Larger frames count as long. The size says little for Produce (records), envelopes (one string of bytes) and Fetch (many
#: partitions); for Produce the entries are counted instead.
LONG_BYTES = 8 * 1024
LONG_BYTES_OF = {PRODUCE_KEY: 1 << 31, ENVELOPE_KEY: 1 << 31, FETCH_KEY: 64 * 1024}
#: The largest frame without records. Kafka has one bound for all frames (socket.request.max.bytes). But these frames are decoded into
#: objects, copied, and in groups kept; nothing that can be stored this way is as long.
PLAIN_FRAME_BYTES_MAX = 16 << 20
WITH_RECORDS = frozenset({PRODUCE_KEY, ENVELOPE_KEY})
#: Elements of a request that can be split: a bound on their memory.
ELEMENTS_MAX = 100_000
#: Partitions of a fetch, which is served whole, and acknowledgements. A member of a share group may hold thousands of records of each
#: partition and acknowledge each in a batch of its own.
FETCH_ENTRIES_MAX = 20_000
#: What a decoded element takes in memory, roughly.
ELEMENT_BYTES = 256
#: Long requests are decoded concurrently up to this many bytes of frames, but at least one at a time.
BYTES_AT_ONCE = 4 << 20
TOO_MANY = "Unable to perform excessively large batch operation."
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."


class Entry(Protocol):
    """A served API (`dispatch.Entry`)."""

    name: str
    api_key: int
    elements_max: int
    long_bytes: int

    def decode(self, version: int, buffer: memoryview | bytes, position: int, /) -> tuple[Any, int]:
        """See `Message.decode_from`."""

    def decode_few(self, version: int, buffer: memoryview | bytes, position: int, elements_max: int, /) -> Any:
        """See `Message.decode_few`."""

    def answer_to(self, context: Any, request: Any) -> Any:
        """What the handler returns: a response, None if it answers later, or a coroutine of either."""

    def decode_in_steps(
        self, version: int, buffer: memoryview, position: int, made: list[list[Any]], /
    ) -> Generator[int, None, Any]:
        """See `Message.decode_in_steps`."""

    def count_error(self, code: int) -> None:
        """Count a response with an error."""


def elements_max(request: type[Request]) -> int:
    """The largest number of elements in a request of this type."""
    if request in CUTS:
        return ELEMENTS_MAX
    return FETCH_ENTRIES_MAX if request.API_KEY in FETCHING_KEYS else WHOLE_ENTRIES_MAX


class LargeRequests:
    """The long requests of one type of listener."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.turns = Turns(supervisor)
        self.answers = LongAnswers(supervisor, self.turns)
        self._bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        #: Requests served in steps so far.
        self.served = 0

    def short(self, entry: Entry, version: int, frame: memoryview | bytes, position: int) -> Any:
        """The decoded request; None if it must be served in steps because it is long or asks for much. Raises WireError."""
        size = len(frame) - position
        if size > PLAIN_FRAME_BYTES_MAX and entry.api_key not in WITH_RECORDS:
            raise WireError(f"{entry.name} of {size} bytes is longer than {PLAIN_FRAME_BYTES_MAX}")
        if size > entry.long_bytes:
            return None
        if size <= LONG_BYTES or entry.api_key != PRODUCE_KEY:
            request = entry.decode(version, frame, position)[0]
        else:
            request = entry.decode_few(version, frame, position, PART_ENTRIES)
        return None if request is None or is_much(request) else request

    def serve(self, context: Any, entry: Entry, frame: memoryview | bytes, position: int) -> asyncio.Task[None]:
        """Serve a request whose body begins at `position` in the frame."""
        self.served += 1
        # The log writes offsets into the records in place, so Produce needs a mutable copy.
        own: bytes | bytearray = bytearray(frame) if entry.api_key == PRODUCE_KEY else bytes(frame)
        if entry.api_key == PRODUCE_KEY:
            context.keep(len(own))
        context.connection.hold()
        name = f"{entry.name} v{context.api_version} from {context.connection}"
        return self._supervisor.start(self._serve(context, entry, own, position), name, ends=Ends("connection", context.close))

    async def _serve(self, context: Any, entry: Entry, frame: bytes | bytearray, position: int) -> None:
        made: list[list[Any]] = []
        try:
            try:
                await self._answer(context, entry, frame, position, made)
            except WireError as error:
                context.close(str(error))
            await self._dismantle(emptied(made))
        except asyncio.CancelledError:
            context.close("the broker is stopping")
            raise
        except Exception:
            entry.count_error(ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        finally:
            context.connection.go_on()

    async def _answer(self, context: Any, entry: Entry, frame: bytes | bytearray, position: int, made: list[list[Any]]) -> None:
        """`made` gets the request's lists."""
        room = _Room(self, len(frame))
        await room.enter()
        try:
            request = await self._decoded(context, entry, frame, position, made)
            cuts = cuts_of(request)
            if cuts:
                response = await self._in_parts(context, entry, request, cuts, room)
            else:
                if entry.elements_max == ELEMENTS_MAX and weight_of(request, WHOLE_ENTRIES_MAX) > WHOLE_ENTRIES_MAX:
                    raise WireError(f"{entry.name} has more than {WHOLE_ENTRIES_MAX} elements that cannot be divided")
                following = first_topics(request) if isinstance(request, DescribeTopicPartitionsRequest) else None
                asked = Part(context)
                await self.turns.next()
                answered = entry.answer_to(asked, request)
        finally:
            room.leave()
        if not cuts:
            # A request that waits for others, such as JoinGroup, does not block the decoding of other long requests.
            response = await asked.response_of(answered)
            if following is not None and response is not None and response.next_cursor is None:
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=following, partition_index=0)
        if response is not None:
            context.complete(response)
            context.respond_encoded(response, await self.answers.encoded(response, context.api_version, context.correlation_id))
            if cuts:
                await self._dismantle(parts(response, cuts[0].answers, is_answer=True))
        elif not context.is_answered:
            context.no_response()

    # -- in steps --------------------------------------------------------------------------------------------------

    async def _decoded(self, context: Any, entry: Entry, frame: bytes | bytearray, position: int, made: list[list[Any]]) -> Any:
        steps, elements = entry.decode_in_steps(context.api_version, memoryview(frame), position, made), 0
        while True:
            await self.turns.next()
            try:
                elements = next(steps)
            except StopIteration as over:
                context.keep(len(frame) + ELEMENT_BYTES * elements)
                return over.value
            if elements > entry.elements_max:
                raise WireError(f"{entry.name} has more than {entry.elements_max} elements")

    async def _in_parts(self, context: Any, entry: Entry, request: Any, cuts: list[Cut], room: _Room) -> Any:
        """The combined answer; None if there is none. All parts together respect the request's timeout."""
        now_s = asyncio.get_running_loop().time
        timeout_ms, began_s = getattr(request, "timeout_ms", 0), now_s()
        whole = WholeRequest()
        answers, begun = Answers(cuts[0].answers, cuts[0].beside), deque[tuple[Part, Any]]()
        is_refused = cuts[0].entries_max is not None and entries_of(request, cuts) > cuts[0].entries_max
        work = all_parts(request, cuts, are_named=not is_refused)
        for part in work:
            await self.turns.next()
            if part is None:
                continue
            if timeout_ms > 0:
                part.timeout_ms = max(1, timeout_ms - int(1000 * (now_s() - began_s)))
            asked = Part(context, whole)
            if is_refused:
                text = TOO_MANY_PARTITIONS if isinstance(request, CreateTopicsRequest | CreatePartitionsRequest) else TOO_MANY
                answer = failure_response(part, context.api_version, ApiError(ErrorCode.POLICY_VIOLATION, text))
            else:
                answer = entry.answer_to(asked, part)
            begun.append((asked, answer))
            if not (cuts[0].is_begun_at_once or await self._settled(begun, answers, room)) or asked.is_last or context.connection.closed:
                break
        if not context.connection.closed:
            await self._settled(begun, answers, room)
        await self._dismantle(work)
        return answers.merged

    async def _settled(self, begun: deque[tuple[Part, Any]], answers: Answers, room: _Room) -> bool:
        """Wait for the answers to `begun` parts in order. Returns whether to serve more parts. A waiting part gives up its room."""
        while begun:
            asked, answered = begun.popleft()
            if asked.waits(answered):
                room.leave()
            answer = await asked.response_of(answered)
            await room.enter()
            await self.turns.next()
            if asked.is_last:
                answers.merged = None
                begun.clear()
            elif answer is not None and not answers.add(answer):
                return False
            if asked.is_last:
                return False
        return True

    async def _dismantle(self, work: Iterator[Any]) -> None:
        """Free the rest in steps, because freeing many objects takes time, too."""
        for _ in work:
            await self.turns.next()

    # -- limit on concurrent requests ------------------------------------------------------------------------------

    async def admitted(self, size: int) -> None:
        """Wait until the frame fits into the limit."""
        if self._waiting or (self._bytes and self._bytes + size > BYTES_AT_ONCE):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((waiter, size))
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self.left(size)
                raise
        else:
            self._bytes += size

    def left(self, size: int) -> None:
        """A frame no longer needs its room."""
        self._bytes -= size
        while self._waiting:
            waiter, wanted = self._waiting[0]
            if not waiter.done():
                if self._bytes and self._bytes + wanted > BYTES_AT_ONCE:
                    return
                self._bytes += wanted
                waiter.set_result(None)
            self._waiting.popleft()


class _Room:
    """One frame's share of the limit on concurrently decoded bytes."""

    __slots__ = ("_is_in", "_large", "_size")

    def __init__(self, large: LargeRequests, size: int) -> None:
        self._large = large
        self._size = size
        self._is_in = False

    async def enter(self) -> None:
        """Wait for room; returns at once if the frame holds it already."""
        if not self._is_in:
            await self._large.admitted(self._size)
            self._is_in = True

    def leave(self) -> None:
        """Release the room."""
        if self._is_in:
            self._is_in = False
            self._large.left(self._size)


class Part:
    """The context of one part of a request. Wraps the request's own context; its answer becomes one part of the whole answer."""

    __slots__ = ("_context", "_future", "is_last", "whole")

    def __init__(self, context: Any, whole: WholeRequest | None = None) -> None:
        self.whole = whole
        self._context = context
        self._future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        #: Whether this part ends the whole request.
        self.is_last = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    @property
    def header(self) -> Part:
        """api_key, api_version, correlation_id, client_id."""
        return self

    def respond(self, response: Any) -> None:
        """Answer this part."""
        if not self._future.done():
            self._future.set_result(response)

    def respond_pieces(self, pieces: list[Any]) -> None:
        """Answer the whole request with a frame that is already encoded."""
        self._context.respond_pieces(pieces)
        self.is_last = True
        self.respond(None)

    def no_response(self) -> None:
        """This part has no answer."""
        self.respond(None)

    def not_controller(self) -> None:
        """Stop serving the request: it came in an envelope, and the sender must ask another controller."""
        self._context.not_controller()
        self.is_last = True
        self.respond(None)

    def close(self, reason: str = "") -> None:
        """Close the connection instead of answering."""
        self._context.close(reason)
        self.is_last = True
        self.respond(None)

    def waits(self, answered: Any) -> bool:
        """Whether the handler answers later."""
        return asyncio.iscoroutine(answered) or (answered is None and not self._future.done())

    async def response_of(self, answered: Any) -> Any:
        """The response that the handler returned, or that follows."""
        if asyncio.iscoroutine(answered):
            answered = await answered
        if answered is not None:
            return answered
        return await self._future
