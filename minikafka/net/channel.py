"""The client side of a connection: it pipelines requests and matches them to their responses by correlation id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from minikafka.addresses import host_port
from minikafka.net import tasks
from minikafka.net.network import Connection, Network
from minikafka.net.tasks import within
from minikafka.wire.errors import ErrorCode, WireError
from minikafka.wire.frame import encode_request
from minikafka.wire.header import decode_response_header
from minikafka.wire.message import Piece, Request, Response
from minikafka.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from minikafka.wire.registry import api

if TYPE_CHECKING:
    from minikafka.net.tls_settings import ClientTls

CLIENT_SOFTWARE_NAME = "minikafka"
CLIENT_SOFTWARE_VERSION = "0.1.0"
CONNECT_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 30_000
API_VERSIONS_FALLBACK = 0


#: SaslHandshake and SaslAuthenticate.
AUTHENTICATION_KEYS = frozenset({17, 36})
#: Share of a session's lifetime after which the channel authenticates again.
RENEWAL_SHARE = 0.85


class ChannelSecurity(Protocol):
    """How a channel is secured (minikafka/security/client.py)."""

    @property
    def tls(self) -> ClientTls | None:
        """TLS settings; None = no TLS."""

    async def authenticate(self, channel: Channel, timeout_ms: int) -> int:
        """Authenticate. Returns the session's lifetime in milliseconds, 0 = unlimited. Raises AuthenticationFailed."""


class ConnectionLost(ConnectionError):
    """The connection ended before the response arrived. The request may or may not have been carried out."""


class UnreadableResponse(ConnectionLost):
    """The response cannot be decoded; the connection has ended. The request may or may not have been carried out."""


class RequestTimeout(TimeoutError):
    """No response arrived in time; the connection has ended. The request may or may not have been carried out."""


class UnsupportedVersion(Exception):
    """The peer supports no version of the API that this side supports."""


OnResponse = Callable[[Response | None, Exception | None], None]


class _Waiting:
    """A request that was sent and not yet answered. `safe`: copy the response, so that it outlives the callback."""

    __slots__ = ("api_key", "deadline_s", "on_response", "response_class", "safe", "version")

    def __init__(
        self, api_key: int, version: int, response_class: type[Response], on_response: OnResponse, deadline_s: float, safe: bool
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.response_class = response_class
        self.on_response = on_response
        self.deadline_s = deadline_s
        self.safe = safe


class Channel:
    """One connection to one broker.

    Invariants: every request's callback is called exactly once, with its response, or with ConnectionLost or RequestTimeout. A request that
    is not answered in time ends the connection (Kafka's NetworkClient): the path to the peer may be silently dead, and a new connection may
    take another. A callback that raises ends this connection, but the other callbacks are still called.
    """

    def __init__(self, client_id: str, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None] | None = None) -> None:
        """Use `Channel.open`."""
        self._client_id = client_id
        self._loop = loop
        #: None until `open` has connected.
        self._connection: Connection | None = None
        self._correlation_id = 0
        #: By correlation id.
        self._waiting: dict[int, _Waiting] = {}
        #: The timer of the next deadline, and its time: uvloop returns a handle without `when` for a timer that is due at once.
        self._timer: asyncio.Handle | None = None
        self._timer_s = 0.0
        #: API key -> (lowest, highest) version of the peer.
        self._versions: dict[int, tuple[int, int]] = {}
        #: (API key, `version_max`) -> the version to use: a cache of `version_for`.
        self._chosen: dict[tuple[int, int | None], int] = {}
        self.host = ""
        self.port = 0
        self.closed = False
        #: When the peer last answered, by the loop's clock.
        self.heard_s = 0.0
        self._renewal: asyncio.TimerHandle | None = None
        #: Requests that wait while this channel authenticates again; None = it is not doing that.
        self._held: list[list[Piece]] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._on_end = on_end

    def __repr__(self) -> str:
        return f"Channel({host_port(self.host, self.port)})"

    @classmethod
    async def open(
        cls,
        network: Network,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_ms: int = CONNECT_TIMEOUT_MS,
        negotiate: bool = True,
        security: ChannelSecurity | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> Channel:
        """Connect, ask which versions the peer supports, and authenticate. `security` None = plain text; `on_end` is called once, when the
        channel has ended.

        Raises OSError (including ConnectionError and AuthenticationFailed) or TimeoutError."""
        channel = cls(client_id, asyncio.get_running_loop(), on_end)
        channel.host, channel.port = host, port
        connecting = network.connect(host, port, channel) if security is None else network.connect(host, port, channel, security.tls)
        try:
            channel._connection = await within(timeout_ms / 1000, connecting)
            if negotiate:
                await channel._negotiate(timeout_ms)
            if security is not None:
                await channel._authenticate(security, timeout_ms)
        except TimeoutError as error:
            channel.close()
            raise RequestTimeout(f"{host_port(host, port)} did not answer within {timeout_ms} ms") from error
        except UnsupportedVersion as error:
            channel.close()
            raise ConnectionLost(f"{host_port(host, port)} is not compatible: {error}") from error
        except BaseException:
            channel.close()
            raise
        return channel

    async def _negotiate(self, timeout_ms: int) -> None:
        request = ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION)
        newest = cast(Any, api(ApiVersionsRequest.API_KEY)).max_version
        response = cast(ApiVersionsResponse, await self.request(request, newest, timeout_ms))
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = cast(ApiVersionsResponse, await self.request(ApiVersionsRequest(), API_VERSIONS_FALLBACK, timeout_ms))
        if response.error_code:
            raise ConnectionLost(f"{host_port(self.host, self.port)} refused ApiVersions: {ErrorCode(response.error_code).name}")
        self._versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
        self._chosen.clear()

    @property
    def carried(self) -> tuple[int, int]:
        """(bytes received, bytes sent)."""
        return getattr(self._connection, "received_bytes", 0), getattr(self._connection, "sent_bytes", 0)

    # -- authentication --------------------------------------------------------------------------------------------

    async def _authenticate(self, security: ChannelSecurity, timeout_ms: int) -> None:
        lifetime_ms = await security.authenticate(self, timeout_ms)
        if lifetime_ms > 0 and not self.closed:
            self._renewal = self._loop.call_later(lifetime_ms * RENEWAL_SHARE / 1000, self._renew, security)

    def _renew(self, security: ChannelSecurity) -> None:
        """Authenticate again before the session expires (KIP-368). Other requests wait, because the peer would refuse them now."""
        if not self.closed:
            self._held = []
            self._renewing = tasks.start(self._loop, self._renewed(security), f"authenticating {self} again", self._failed)

    def _failed(self, error: BaseException) -> None:
        """End this connection after an unexpected error, and report the error to the loop's exception handler."""
        self._loop.call_exception_handler({"message": f"{self} failed unexpectedly", "exception": error, "protocol": self})
        self.close(f"unexpected error: {error}")

    async def _renewed(self, security: ChannelSecurity) -> None:
        try:
            await self._authenticate(security, REQUEST_TIMEOUT_MS)
        except (OSError, TimeoutError, WireError, UnsupportedVersion) as error:
            self.close(f"it could not authenticate again: {error}")
            return
        held, self._held = self._held or [], None
        if self._connection is not None:
            for pieces in held:
                self._connection.send(pieces)

    # -- requests --------------------------------------------------------------------------------------------------

    def supports(self, api_key: int) -> bool:
        """Whether the peer serves the API, in any version."""
        return api_key in self._versions

    def version_for(self, request: type[Request] | Request, version_max: int | None = None) -> int:
        """The newest version that both sides support, at most `version_max`. Raises UnsupportedVersion."""
        chosen = self._chosen.get((request.API_KEY, version_max))
        if chosen is not None:
            return chosen
        api_spec = api(request.API_KEY)
        assert api_spec is not None
        theirs = self._versions.get(request.API_KEY)
        if theirs is None:
            raise UnsupportedVersion(f"{host_port(self.host, self.port)} does not serve {api_spec.name}")
        highest = min(api_spec.max_version, theirs[1], api_spec.max_version if version_max is None else version_max)
        if highest < max(api_spec.min_version, theirs[0]):
            ours, where = f"v{api_spec.min_version}-{api_spec.max_version}", host_port(self.host, self.port)
            raise UnsupportedVersion(f"{where} supports {api_spec.name} v{theirs[0]}-{theirs[1]}, this side {ours}")
        self._chosen[request.API_KEY, version_max] = highest
        return highest

    def send(
        self,
        request: Request,
        version: int | None,
        on_response: OnResponse,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        *,
        safe: bool = False,
    ) -> None:
        """Send without waiting. Records in the response are views that are valid until the callback returns, unless `safe`.

        Raises ConnectionLost if the channel is closed, UnsupportedVersion, NotEncodable.
        """
        connection = self._connection
        if self.closed or connection is None:
            raise ConnectionLost(f"the connection to {host_port(self.host, self.port)} is closed")
        if version is None:
            version = self.version_for(request)
        correlation_id = self._correlation_id
        pieces = encode_request(request, version, correlation_id, self._client_id)
        self._correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        response_class = cast(Any, api(request.API_KEY)).response
        deadline = self._loop.time() + timeout_ms / 1000
        self._waiting[correlation_id] = _Waiting(request.API_KEY, version, response_class, on_response, deadline, safe)
        if self._timer is None or self._timer_s > deadline:
            self._set_timer(deadline)
        if self._held is not None and request.API_KEY not in AUTHENTICATION_KEYS:
            self._held.append(pieces)
        else:
            connection.send(pieces)

    def keep_frame(self) -> None:
        """Within `on_response`: leave views of the response valid after the callback."""
        if self._connection is not None:
            self._connection.keep_frame()

    def send_unanswered(self, request: Request, version: int | None) -> None:
        """Send a request that has no response (Produce with acks=0)."""
        if self.closed or self._connection is None:
            raise ConnectionLost(f"the connection to {host_port(self.host, self.port)} is closed")
        if version is None:
            version = self.version_for(request)
        pieces = encode_request(request, version, self._correlation_id, self._client_id)
        if self._held is not None:
            self._held.append(pieces)
        else:
            self._connection.send(pieces)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF

    async def request(self, request: Request, version: int | None = None, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Response:
        """Send a request and wait for its response. Raises ConnectionLost, RequestTimeout, UnsupportedVersion, NotEncodable."""
        future: asyncio.Future[Response] = self._loop.create_future()

        def answered(response: Response | None, error: Exception | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(cast(Response, response))

        self.send(request, version, answered, timeout_ms, safe=True)
        return await future

    # -- the connection's side -------------------------------------------------------------------------------------

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Decode a response and call its request's callback."""
        self.heard_s = self._loop.time()
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            return  # its request has timed out
        try:
            data = memoryview(bytes(frame)) if waiting.safe else frame
            _, position = decode_response_header(data, waiting.api_key, waiting.version, 0)
            version = waiting.version
            if waiting.api_key == ApiVersionsRequest.API_KEY and _error_code(data, position) == ErrorCode.UNSUPPORTED_VERSION:
                version = 0
            response = waiting.response_class.decode(version, data, position)
        except WireError as error:
            reason = f"{host_port(self.host, self.port)} sent a response that cannot be read: {error}"
            self._call_back(waiting, None, UnreadableResponse(reason))
            self.close(reason)
            return
        self._call_back(waiting, response, None)

    def _call_back(self, waiting: _Waiting, response: Response | None, error: Exception | None) -> None:
        try:
            waiting.on_response(response, error)
        except Exception as problem:
            self._failed(problem)

    def on_closed(self, connection: Connection, reason: str) -> None:
        """The connection has ended: fail every waiting request."""
        self._end(reason)

    def close(self, reason: str = "closed") -> None:
        """End the connection; waiting requests fail with ConnectionLost."""
        if self._connection is not None and not self._connection.closed:
            self._connection.close(reason)
        self._end(reason)

    def _end(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._renewal is not None:
            self._renewal.cancel()
        waiting, self._waiting = self._waiting, {}
        for entry in waiting.values():
            self._call_back(entry, None, ConnectionLost(f"the connection to {host_port(self.host, self.port)} ended: {reason}"))
        if self._on_end is not None:
            self._on_end()

    # -- deadlines -------------------------------------------------------------------------------------------------

    def _set_timer(self, deadline_s: float) -> None:
        """Set the timer that checks deadlines to `deadline_s`."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_s = self._loop.call_at(deadline_s, self._expire), deadline_s

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        due = [key for key, entry in self._waiting.items() if entry.deadline_s <= now]
        if due:
            self._time_out([self._waiting.pop(key) for key in due])
        elif self._waiting:
            self._set_timer(min(entry.deadline_s for entry in self._waiting.values()))

    def _time_out(self, late: list[_Waiting]) -> None:
        """Time out these requests. The connection ends before the callbacks run, so that a retry uses another one."""
        names = [cast(Any, api(entry.api_key)).name for entry in late]
        self.close(f"{host_port(self.host, self.port)} did not answer {names[0]} in time")
        for entry, name in zip(late, names, strict=True):
            self._call_back(entry, None, RequestTimeout(f"{host_port(self.host, self.port)} did not answer {name} in time"))


def _error_code(frame: memoryview, position: int) -> int:
    return int.from_bytes(frame[position : position + 2], "big", signed=True)
