"""From a frame to its handler and back: header, version check, decoding, and responses in request order.

Handlers are plain functions `(context, request) -> response | None`. A returned response is sent at once; None means that the handler
calls `context.respond` later. `async def` handlers run as tasks and are for rare APIs. Rules: SocketServer.Processor, RequestContext and
KafkaApis.handleApiVersionsRequest of Apache Kafka; KIP-511 for ApiVersions.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import struct
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from minikafka.broker.front.disabled_apis import guarded_while_served
from minikafka.broker.front.error_responses import top_error_response
from minikafka.broker.front.fast_path import MakeFastPath, ServeFast
from minikafka.broker.front.identity import Identity, misled
from minikafka.broker.front.large_requests import (
    LONG_BYTES,
    LONG_BYTES_OF,
    PLAIN_FRAME_BYTES_MAX,
    PRODUCE_KEY,
    LargeRequests,
    elements_max,
)
from minikafka.broker.front.long_answers import LongAnswers
from minikafka.broker.front.offered_apis import Features, OfferedApis
from minikafka.broker.front.request_parts import CUTS
from minikafka.broker.measures.request_times import RequestTimes, Sample, TimedAnswers
from minikafka.broker.supervise import Ends, Supervisor
from minikafka.net.network import Clock, Connection
from minikafka.net.peer_lines import PeerLines
from minikafka.wire.errors import ApiError, ErrorCode, NotEncodable, WireError
from minikafka.wire.frame import encode_response
from minikafka.wire.header import end_of_flexible_header
from minikafka.wire.message import Request, Response
from minikafka.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from minikafka.wire.registry import api, apis
from minikafka.wire.types import EVERY_VERSION_MAX

logger = logging.getLogger("minikafka.net")

_PREFIX = struct.Struct(">hhih")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
API_VERSIONS_KEY = 18
FETCH_KEY = 1
#: Longer client ids are decoded each time.
CLIENT_ID_KEPT_MAX = 256
CLIENT_IDS_KEPT = 4096
SOFTWARE_MAX = 64
#: At most so many combinations of client software name and version are counted separately.
SOFTWARE_KEPT = 256
OTHER_SOFTWARE = "other"
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

Handler = Callable[["RequestContext", Any], Any]


class Gate(Protocol):
    """Applies client quotas to requests."""

    def limits(self, connection: Connection, frame: memoryview) -> object | None:
        """The limits of the client that sent a request; None if it has none."""

    def serve(self, dispatch: Any, connection: Connection, listener: str, frame: memoryview, sample: Sample | None) -> None:
        """Let `dispatch` (Dispatcher.dispatch) serve a request, and count it against the quotas."""


class RequestContext:
    """One request being served: its header, its origin, and how to answer it. `header` is the context itself."""

    __slots__ = (
        "_ticket", "api_key", "api_version", "client_id", "connection", "correlation_id", "entry", "listener", "principal", "received_ms",
        "sample",
    )  # fmt: skip

    #: The client's quotas, if it has any (`throttled.LimitedContext`).
    limits: Any = None

    def __init__(
        self, entry: Entry, connection: Connection, listener: str, version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.entry = entry
        self.connection = connection
        self.listener = listener
        self.api_key = entry.api_key
        self.api_version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.principal = connection.principal
        self.received_ms = 0
        #: Set if this request is one of those that are timed.
        self.sample: Sample | None = None
        self._ticket = connection.begin()

    #: Whether a broker forwarded the request for a client.
    is_forwarded = False

    @property
    def header(self) -> RequestContext:
        """api_key, api_version, correlation_id, client_id."""
        return self

    @property
    def client_host(self) -> str:
        """The address of the client."""
        return self.connection.peer_host

    def respond(self, response: Response) -> None:
        """Answer the request; a second answer is dropped. A response that cannot be encoded is a bug and closes the connection."""
        if self._ticket < 0:
            return
        if self.limits is not None:
            self.complete(response)
        if LongAnswers.is_long(response):
            self.entry.long_answers.start(self, response, partial(self._answer_at, self._ticket, response))
            self._ticket = -1
            return
        try:
            pieces = encode_response(response, self.api_version, self.correlation_id)
        except NotEncodable as error:
            self._ticket = -1
            name = f"the answer to {self.entry.name} v{self.api_version}"
            self.entry.supervisor.caught(name, error, Ends("connection", self.connection.close))
            return
        self.respond_encoded(response, pieces)

    def _answer_at(self, ticket: int, response: Response, pieces: list[Any]) -> None:
        self._ticket = ticket
        self.respond_encoded(response, pieces)

    @property
    def is_answered(self) -> bool:
        """Whether the request has been answered, or needs no answer any more."""
        return self._ticket < 0

    def complete(self, response: Response) -> None:
        """Fill in fields that are known only just before the response is encoded."""

    def respond_encoded(self, response: Response, pieces: list[Any]) -> None:
        """Answer with a completed response that is already encoded as `pieces`."""
        if self.entry.has_error_code and response.error_code:  # type: ignore[attr-defined]
            self.entry.count_error(response.error_code)  # type: ignore[attr-defined]
        ticket = self._ticket
        if ticket >= 0:
            self._ticket = -1
            self._finish(ticket, pieces)

    def respond_pieces(self, pieces: list[Any]) -> None:
        """Answer with a frame that is already encoded."""
        ticket = self._ticket
        if ticket >= 0:
            self._ticket = -1
            self._finish(ticket, pieces)

    def keep(self, size: int) -> None:
        """Count `size` bytes for the memory budget until the request is answered: that much is kept for it."""
        if self._ticket >= 0:
            self.connection.count_memory(self._ticket, size)

    def no_response(self) -> None:
        """The request gets no response (Produce with acks=0)."""
        ticket = self._ticket
        if ticket >= 0:
            self._ticket = -1
            self._finish(ticket, [])

    def _finish(self, ticket: int, pieces: list[Any]) -> None:
        if self.sample is None:
            self.connection.finish(ticket, pieces)
        else:
            self.sample.finish(self.connection, ticket, pieces)

    def close(self, reason: str = "") -> None:
        """Close the connection instead of answering."""
        self.connection.close(reason)


class Entry:
    """One served API."""

    __slots__ = (
        "_registered", "api_key", "counts", "decode", "decode_few", "decode_in_steps", "elements_max", "errors", "flexible_from",
        "handler", "has_error_code", "is_async", "long_answers", "long_bytes", "max_version", "min_version", "name", "response_class",
        "short_bytes", "supervisor",
    )  # fmt: skip

    def __init__(self, request: type[Request], handler: Handler, supervisor: Supervisor, long_answers: LongAnswers) -> None:
        api_spec = api(request.API_KEY)
        assert api_spec is not None
        self.api_key = api_spec.key
        self.name = api_spec.name
        self.min_version = api_spec.min_version
        self.max_version = api_spec.max_version
        self.flexible_from = EVERY_VERSION_MAX if api_spec.flexible_from is None else api_spec.flexible_from
        self.handler = self._registered = handler
        self.is_async = inspect.iscoroutinefunction(handler)
        self.supervisor = supervisor
        self.long_answers = long_answers
        self.decode = request.decode_from
        self.decode_few = request.decode_few
        self.decode_in_steps = request.decode_in_steps
        self.elements_max = elements_max(request)
        #: Frames with more bytes are served in steps.
        self.long_bytes = LONG_BYTES_OF.get(api_spec.key, LONG_BYTES)
        #: Bodies of up to so many bytes are decoded without a further look (`LargeRequests.short`).
        self.short_bytes = -1 if request in CUTS or api_spec.key == PRODUCE_KEY else min(self.long_bytes, PLAIN_FRAME_BYTES_MAX)
        self.response_class = api_spec.response
        self.has_error_code = any(field.name == "error_code" for field in api_spec.response.FIELDS)
        self.counts = [0] * (api_spec.max_version + 1)
        #: Error code -> number of responses with this error (for Produce and Fetch: partitions in responses).
        self.errors: dict[int, int] = {}

    @property
    def count(self) -> int:
        """Requests so far, over all versions."""
        return sum(self.counts)

    def intercept(self, around: Callable[[Handler], Handler] | None) -> None:
        """See `Dispatcher.intercept`."""
        self.handler = self._registered if around is None else around(self._registered)

    def answer_to(self, context: Any, request: Request) -> Any:
        """What the handler returns: a response, None if it answers later, or a coroutine of either."""
        try:
            return self._expected(self.handler(context, request)) if self.is_async else self.handler(context, request)
        except ApiError as error:
            return top_error_response(self.response_class, error)

    async def _expected(self, answer: Any) -> Any:
        try:
            return await answer
        except ApiError as error:
            return top_error_response(self.response_class, error)

    def count_error(self, code: int) -> None:
        """Count a response with an error."""
        self.errors[code] = self.errors.get(code, 0) + 1


MakeContext = Callable[[Entry, Connection, str, int, int, "str | None"], RequestContext]


class Dispatcher:
    """The handlers of one type of listener. All handlers are registered before the listener opens."""

    def __init__(
        self, listener_type: str, clock: Clock, supervisor: Supervisor, features: Features | None = None,
        now_s: Callable[[], float] | None = None, identity: Identity | None = None,
        guarded: Callable[[type[Request], Handler], Handler] = lambda _, handler: handler,
        guarded_fast_path: Callable[[type[Request], MakeFastPath], MakeFastPath] = lambda _, make: make,
    ) -> None:  # fmt: skip
        """`listener_type` is "broker" or "controller"; APIs of the other type are refused. `now_s` is a fine monotonic clock; without it
        no request is timed. `identity` is the cluster id and node id; a client that asks for another node gets an error. `guarded`,
        `guarded_fast_path`: see `register`."""
        self.listener_type = listener_type
        self._clock = clock
        self.supervisor = supervisor
        self._offered = OfferedApis(features, lambda: self.entries)
        self._identity = identity
        self._guarded = guarded
        self._guarded_fast_path = guarded_fast_path
        self._table: list[Entry | None] = [None] * (max(entry.key for entry in apis()) + 1)
        self._client_ids: dict[bytes, str] = {}
        self.lines = PeerLines(logger)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.large = LargeRequests(supervisor)
        self.times = None if now_s is None else RequestTimes(now_s)
        #: Connection -> (listener, name and version of the client's software), for clients that sent these in ApiVersions.
        self.software: dict[Connection, tuple[str, str, str]] = {}
        self.named_ms: dict[Connection, int] = {}
        #: The first two bytes of a request (its API key) -> a function that makes the fast path of a new connection.
        self.fast_paths: dict[bytes, MakeFastPath] = {}
        #: Whether `intercept` has wrapped the handlers.
        self.is_intercepted = False
        self._sessions: dict[Session, None] = {}
        self._gate: Gate | None = None
        self._connection_ends: list[Callable[[Connection], None]] = []
        self.register(ApiVersionsRequest, self._api_versions)

    def subscribe_connection_ends(self, callback: Callable[[Connection], None]) -> None:
        """Call back whenever a connection has ended."""
        self._connection_ends.append(callback)

    def tell_connection_end(self, connection: Connection) -> None:
        """Call the subscribers: a connection has ended."""
        for callback in self._connection_ends:
            callback(connection)

    def register(
        self,
        request: type[Request],
        handler: Handler,
        fast_path: MakeFastPath | None = None,
        is_served: Callable[[], bool] | None = None,
    ) -> Entry:
        """Serve an API, behind its guard, and return the entry that counts its requests. The API must belong to this type of listener.
        `fast_path` makes the fast path of a connection for the entry. While `is_served` says no, the handler refuses without the guard."""
        api_spec = api(request.API_KEY)
        if api_spec is None or self.listener_type not in api_spec.listeners:
            raise ValueError(f"{request.__name__} is not served on a {self.listener_type} listener")
        self._offered.changed()
        guarded = self._guarded(request, handler)
        if is_served is not None and guarded is not handler:
            guarded = guarded_while_served(is_served, guarded, handler)
        entry = self._table[request.API_KEY] = Entry(request, guarded, self.supervisor, self.large.answers)
        if fast_path is not None:
            self.fast_paths[request.API_KEY.to_bytes(2, "big")] = self._guarded_fast_path(request, partial(fast_path, entry))
        return entry

    def offer(self, api_keys: Iterable[int], is_offered: bool) -> None:
        """Name these APIs in ApiVersions from now on, or do not. Requests are served all the same: clients that are connected know them."""
        self._offered.offer(api_keys, is_offered)

    def entry(self, api_key: int) -> Entry | None:
        """The entry of a served API, by API key."""
        return self._table[api_key]

    @property
    def entries(self) -> list[Entry]:
        """The entries of all served APIs, sorted by API key."""
        return [entry for entry in self._table if entry is not None]

    def session(self, listener: str) -> Session:
        """The session that handles one new connection."""
        session = Session(self, listener, self._gate)
        self._sessions[session] = None
        return session

    def ended(self, session: Session) -> None:
        """A connection has ended: forget its session."""
        self._sessions.pop(session, None)

    def age_ms(self, connection: Connection) -> int:
        """How long ago a client connected that sent its software name and version."""
        return self._clock.now_ms() - self.named_ms[connection]

    def limit(self, gate: Gate | None) -> None:
        """From now on every request passes `gate` first; None removes the gate."""
        if gate is self._gate:
            return
        self._gate = gate
        for session in self._sessions:
            session.limit(gate)

    def intercept(self, around: Callable[[Handler], Handler] | None) -> None:
        """From now on `around(handler)` serves every request; it is asynchronous if the registered handler is. No request takes a fast
        path. None restores the registered handlers."""
        self.is_intercepted = around is not None
        for entry in self.entries:
            entry.intercept(around)
        for session in self._sessions:
            session.choose_paths()

    async def close(self) -> None:
        """Cancel handlers that are still running."""
        for task in list(self._tasks):
            task.cancel()

    # -- one request -----------------------------------------------------------------------------------------------

    def dispatch(
        self, connection: Connection, listener: str, frame: memoryview, sample: Sample | None = None, make: MakeContext = RequestContext
    ) -> None:
        """Decode a request and call its handler. Raises WireError if the connection must be closed."""
        try:
            api_key, version, correlation_id, length = _PREFIX.unpack_from(frame)
        except struct.error:
            raise WireError("the request header is truncated") from None
        entry = self._table[api_key] if 0 <= api_key < len(self._table) else None
        if entry is None:
            raise WireError(f"API key {api_key} (version {version}) is not served on this listener")
        position = 10
        client_id = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise WireError(f"the client id claims {length} bytes, but only {len(frame) - 10} are left")
            raw = bytes(frame[10:position])
            client_id = self._client_ids.get(raw)
            if client_id is None:
                client_id = self._keep_client_id(raw)
        unsupported = not entry.min_version <= version <= entry.max_version
        if unsupported and api_key != API_VERSIONS_KEY:
            raise WireError(f"{entry.name} version {version} is not supported (supported: {entry.min_version}-{entry.max_version})")
        context = make(entry, connection, listener, version, correlation_id, client_id)
        if unsupported:
            self._refuse_api_versions(context, entry)
            return
        if sample is not None:
            context.sample, sample.name = sample, entry.name
        if version >= entry.flexible_from:
            has_no_tags = position < len(frame) and not frame[position]
            position = position + 1 if has_no_tags else end_of_flexible_header(frame, position)
        if len(frame) - position <= entry.short_bytes:
            request = entry.decode(version, frame, position)[0]
        else:
            request = self.large.short(entry, version, frame, position)
        entry.counts[version] += 1
        if request is None:
            self._remember(self.large.serve(context, entry, frame, position))
            return
        if entry.is_async:
            self._run(context, entry, request)
            return
        try:
            response = entry.handler(context, request)
        except ApiError as error:
            response = top_error_response(entry.response_class, error)
        if response is not None:
            context.respond(response)

    def _remember(self, task: asyncio.Task[None]) -> None:
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _keep_client_id(self, raw: bytes) -> str:
        client_id = raw.decode("utf-8", "replace")
        if len(raw) <= CLIENT_ID_KEPT_MAX:
            if len(self._client_ids) >= CLIENT_IDS_KEPT:
                del self._client_ids[next(iter(self._client_ids))]
            self._client_ids[raw] = client_id
        return client_id

    def _run(self, context: RequestContext, entry: Entry, request: Request) -> None:
        name = f"{entry.name} v{context.api_version} from {context.connection}"
        self._remember(self.supervisor.start(self._answer(context, entry, request), name, ends=Ends("connection", context.close)))

    async def _answer(self, context: RequestContext, entry: Entry, request: Request) -> None:
        try:
            response = await entry.handler(context, request)
        except ApiError as error:
            response = top_error_response(entry.response_class, error)
        except asyncio.CancelledError:
            context.close("the broker is stopping")
            raise
        except Exception:
            entry.count_error(ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        if response is not None:
            context.respond(response)

    # -- ApiVersions -----------------------------------------------------------------------------------------------

    def _refuse_api_versions(self, context: RequestContext, entry: Entry) -> None:
        """Answer an unsupported version of ApiVersions in version 0 with the supported versions, and keep the connection (KIP-511)."""
        own = ApiVersionsResponse.ApiVersion(api_key=API_VERSIONS_KEY, min_version=entry.min_version, max_version=entry.max_version)
        context.api_version = 0
        context.respond(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own]))

    def _api_versions(self, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse | None:
        version = context.api_version
        if version >= 3 and not (
            _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if version >= 5 and (code := misled(request, self._identity)):
            return ApiVersionsResponse(error_code=code)
        if version >= 3:
            self._note_software(context, request.client_software_name, request.client_software_version)
            self.named_ms.setdefault(context.connection, self._clock.now_ms())
        body = self._offered.encode(version)
        if context.limits is not None:
            # A throttled response carries the time to pause, so it is not sent from the prepared bytes.
            return ApiVersionsResponse.decode(version, body)
        context.respond_pieces([_SIZE_AND_CORRELATION.pack(len(body) + 4, context.correlation_id) + body])
        return None

    def _note_software(self, context: RequestContext, name: str, version: str) -> None:
        """Record the client's software. Names beyond the limits of number and length are counted as one other software."""
        software = (context.listener, name, version)
        if len(name) > SOFTWARE_MAX or len(version) > SOFTWARE_MAX:
            software = (context.listener, OTHER_SOFTWARE, OTHER_SOFTWARE)
        elif context.connection not in self.software and len(self.software) >= SOFTWARE_KEPT:
            counted = set(self.software.values())
            if software not in counted and len(counted) >= SOFTWARE_KEPT:
                software = (context.listener, OTHER_SOFTWARE, OTHER_SOFTWARE)
        self.software[context.connection] = software


class Session:
    """Passes the frames of one connection to the dispatcher. An error ends this connection only."""

    __slots__ = (
        "_completes", "_dispatch", "_dispatcher", "_fast_paths", "_gate", "_has_ended", "_listener", "_own_fast_paths",
        "_plain_dispatch", "_plain_fast_paths", "_previous", "_timed_fast_paths",
    )  # fmt: skip

    def __init__(self, dispatcher: Dispatcher, listener: str, gate: Gate | None = None) -> None:
        self._dispatcher = dispatcher
        self._listener = listener
        self._has_ended = False
        fast_paths = {key: make(self._refer) for key, make in dispatcher.fast_paths.items()}
        self._own_fast_paths: dict[bytes, ServeFast] = {key: fast_path.serve for key, fast_path in fast_paths.items()}
        self._completes = [fast_path.complete for fast_path in fast_paths.values() if fast_path.puts_off]
        #: What served the previous request.
        self._previous: ServeFast | None = None
        if dispatcher.times is not None:
            dispatcher.times.connections += 1
        self.limit(gate)

    def limit(self, gate: Gate | None) -> None:
        """Pass each request through `gate`; None removes the gate."""
        self._gate = gate
        self.choose_paths()

    def choose_paths(self) -> None:
        """Choose how requests are served: by the fast path or not, timed or not, with quotas or not."""
        gate = self._gate
        fast_paths = {} if self._dispatcher.is_intercepted else self._own_fast_paths
        dispatch: Callable[..., None] = self._dispatcher.dispatch
        if gate is not None:
            fast_paths = {key: partial(self._unless_limited, serve) for key, serve in fast_paths.items()}
            dispatch = self._dispatch_limited
        self._plain_fast_paths, self._plain_dispatch = fast_paths, dispatch
        self._fast_paths, self._dispatch = fast_paths, dispatch
        if self._dispatcher.times is not None:
            self._timed_fast_paths: dict[bytes, ServeFast] = {key: partial(self._time, serve) for key, serve in fast_paths.items()}
            self._arm()

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Serve one request."""
        try:
            serve = self._fast_paths.get(bytes(frame[:2]))
            if serve is not self._previous:
                self._previous = serve
                self._complete()
            if serve is None or not serve(connection, frame):
                self._complete()
                self._dispatch(connection, self._listener, frame)
        except WireError as error:
            connection.close(str(error))
        except Exception as error:
            self._dispatcher.supervisor.caught(f"a request from {connection}", error, Ends("connection", connection.close))

    def _complete(self) -> None:
        """Complete what was put off before anything else is served."""
        for complete in self._completes:
            complete()

    def _refer(self, connection: Connection, frame: memoryview) -> None:
        """Serve a request that a fast path has put off and cannot complete."""
        self._plain_dispatch(connection, self._listener, frame)

    def _arm(self) -> None:
        """Time the next request. Untimed requests take the path they would take if timing did not exist."""
        if not self._has_ended:
            self._fast_paths, self._dispatch = self._timed_fast_paths, self._dispatch_timed

    def _time(self, serve: ServeFast | None, connection: Connection, frame: memoryview) -> bool:
        """Serve a request and time it, then serve requests untimed for a while."""
        dispatcher = self._dispatcher
        times = dispatcher.times
        assert times is not None
        self._fast_paths, self._dispatch = self._plain_fast_paths, self._plain_dispatch
        self._dispatcher.supervisor.call_later(times.interval_s, "timing of requests", self._arm)
        sample = Sample(times, connection)
        if serve is not None:
            sample.name = "FetchConsumer" if frame[1] == FETCH_KEY else "Produce"
        if serve is None or not serve(TimedAnswers(connection, sample), frame):
            self._plain_dispatch(connection, self._listener, frame, sample)
        sample.handled()
        return True

    def _dispatch_timed(self, connection: Connection, listener: str, frame: memoryview) -> None:
        self._time(None, connection, frame)

    def _unless_limited(self, serve: ServeFast, connection: Connection, frame: memoryview) -> bool:
        """Take the fast path only if the client has no quotas."""
        gate = self._gate
        return (gate is None or gate.limits(connection, frame) is None) and serve(connection, frame)

    def _dispatch_limited(self, connection: Connection, listener: str, frame: memoryview, sample: Sample | None = None) -> None:
        gate, dispatch = self._gate, self._dispatcher.dispatch
        if gate is None:
            dispatch(connection, listener, frame, sample)
        else:
            gate.serve(dispatch, connection, listener, frame, sample)

    def on_closed(self, connection: Connection, reason: str) -> None:
        """The connection has ended."""
        self._dispatcher.ended(self)
        self._dispatcher.software.pop(connection, None)
        self._dispatcher.named_ms.pop(connection, None)
        if self._dispatcher.times is not None:
            self._dispatcher.times.connections -= 1
        if reason and not reason.startswith(("closed", "[Errno", "the broker", "idle")):
            self._dispatcher.lines.warning("closed", connection.peer_host, "closed the connection from %s: %s", connection, reason)
        self._dispatcher.tell_connection_end(connection)
        # The fast paths and this session refer to each other: only a collection would free them, and none frees what one has frozen.
        self._has_ended, self._completes, self._previous = True, [], None
        self._own_fast_paths = self._plain_fast_paths = self._fast_paths = self._timed_fast_paths = {}
        self._dispatch = self._plain_dispatch = self._dispatcher.dispatch
