"""A connection of a SASL listener: authentication first, then requests.

States and answers are those of Kafka's SaslServerAuthenticator: at most one ApiVersions, then SaslHandshake, then tokens in
SaslAuthenticate (bare tokens after a handshake of version 0). Anything else closes the connection. A refusal is sent after
connection.failed.authentication.delay.ms (KIP-306). A SaslHandshake on an authenticated connection starts a re-authentication (KIP-368). If
it is missing for connections.max.reauth.ms, or when the client's delegation token has expired, the next request closes the connection.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import TYPE_CHECKING, Any, Protocol, cast

from minikafka.broker.supervise import Ends
from minikafka.core.delegation_token import USER_TYPE, TokenPrincipal
from minikafka.security.mechanisms import SaslRefused, SaslServer
from minikafka.wire.errors import ErrorCode, WireError
from minikafka.wire.header import decode_request_header
from minikafka.wire.message import Request, Response
from minikafka.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from minikafka.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from minikafka.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from minikafka.wire.registry import api

if TYPE_CHECKING:
    from collections.abc import Callable

    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.security.node_security import ListenerSasl, ListenerSecurity
    from minikafka.net.network import Clock, Connection, ConnectionHandler, ConnectionLimits

logger = logging.getLogger("minikafka.security")

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
HANDSHAKE_KEY = SASL_HANDSHAKE.to_bytes(2, "big")
REAUTHENTICATION_INTERVAL_MS_MIN = 1_000
#: Kafka closes such a connection only after connections.max.idle.ms without any data.
AUTHENTICATION_TIMEOUT_MS = 30_000
_HANDSHAKE, _TOKENS, _DONE, _FAILED = range(4)


def secured_session(
    security: ListenerSecurity,
    dispatcher: Callable[[], Dispatcher],
    limits: ConnectionLimits,
    environment: Environment,
    connection: Connection,
) -> ConnectionHandler:
    """The handler of a new connection of a listener with TLS, SASL, or both. `limits` apply to authenticated clients."""
    if security.sasl is not None:
        authenticating = SaslSession(security.sasl, dispatcher(), security.name, limits, environment.clock, environment.loop)
        authenticating.begin(connection)
        return authenticating
    session = dispatcher().session(security.name)
    principal = security.certificate_principal(cast(Any, connection).peer_certificate())
    if principal is None:
        connection.close("")
        text = "closed the connection from %s: no rule of ssl.principal.mapping.rules applies to its certificate"
        dispatcher().lines.warning("certificate", connection.peer_host, text, connection)
    else:
        connection.principal = principal
    return session


class _Limited(Protocol):
    def set_limits(self, limits: ConnectionLimits) -> None: ...


class SaslSession:
    """The handler of one connection; see minikafka.net.network.ConnectionHandler."""

    def __init__(
        self,
        sasl: ListenerSasl,
        dispatcher: Dispatcher,
        listener: str,
        limits: ConnectionLimits,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`limits` apply when the connection is authenticated."""
        self._sasl = sasl
        self._dispatcher = dispatcher
        self._listener = listener
        self._limits = limits
        self._clock = clock
        self._loop = loop
        self._inner = dispatcher.session(listener)
        self._state = _HANDSHAKE
        self._has_sent_versions = False
        #: The exchange in progress; not None while the state is _TOKENS.
        self._server: SaslServer | None = None
        self._mechanism = ""
        #: Whether tokens come in SaslAuthenticate requests; False: bare tokens, after a handshake of version 0.
        self._with_headers = False
        #: User and mechanism of the first authentication, which later ones must repeat; None before it.
        self._authenticated_as: tuple[str, str] | None = None
        #: When the authentication expires, in ms; 0 = never.
        self._expires_ms = 0
        #: What set that time.
        self._limited_by = ""
        #: When the last re-authentication started, in ms.
        self._restarted_ms: int | None = None
        #: Set while an authentication is in progress.
        self._deadline: asyncio.TimerHandle | None = None

    def begin(self, connection: Connection) -> None:
        """Start the time limit of the authentication, AUTHENTICATION_TIMEOUT_MS."""
        self._deadline = self._dispatcher.supervisor.call_later(
            AUTHENTICATION_TIMEOUT_MS / 1000,
            "the deadline of an authentication",
            connection.close,
            f"authentication failed: it took more than {AUTHENTICATION_TIMEOUT_MS} ms",
            ends=Ends("connection", connection.close),
        )

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle a request or a bare token."""
        if self._state == _DONE:
            if frame[:2] == HANDSHAKE_KEY and self._may_restart():
                self._state = _HANDSHAKE
                self.begin(connection)
            elif self._expires_ms and self._clock.now_ms() > self._expires_ms:
                connection.close(f"its authentication has expired ({self._limited_by}), and it did not re-authenticate")
                return
            else:
                self._inner.on_frame(connection, frame)
                return
        try:
            self._authenticate(connection, frame)
        except WireError as error:
            connection.close(str(error))
        except Exception as error:
            self._dispatcher.supervisor.caught(f"the authentication of {connection}", error, Ends("connection", connection.close))

    def on_closed(self, connection: Connection, reason: str) -> None:
        """The connection has ended."""
        self._state = _FAILED
        self._end_deadline()
        self._inner.on_closed(connection, reason)

    def _may_restart(self) -> bool:
        """Whether a re-authentication may start: at most one per second. An earlier handshake is answered as an illegal one."""
        now_ms = self._clock.now_ms()
        if self._restarted_ms is not None and now_ms - self._restarted_ms < REAUTHENTICATION_INTERVAL_MS_MIN:
            return False
        self._restarted_ms = now_ms
        return True

    # -- authentication --------------------------------------------------------------------------------------------

    def _authenticate(self, connection: Connection, frame: memoryview) -> None:
        if self._state == _FAILED:
            return
        if self._state == _HANDSHAKE:
            self._shake_hands(connection, frame)
        elif not self._with_headers:
            self._bare_token(connection, bytes(frame))
        else:
            self._token(connection, frame)

    def _shake_hands(self, connection: Connection, frame: memoryview) -> None:
        key = int.from_bytes(frame[:2], "big")
        if key == API_VERSIONS and self._authenticated_as is None:
            if self._has_sent_versions:
                connection.close("a second ApiVersions request before the SASL handshake")
                return
            entry = cast(Any, api(API_VERSIONS))
            self._has_sent_versions = entry.min_version <= int.from_bytes(frame[2:4], "big", signed=True) <= entry.max_version
            self._dispatcher.dispatch(connection, self._listener, frame)
            return
        if key != SASL_HANDSHAKE:
            api_spec = api(key)
            what = f"a request of type {api_spec.name}" if api_spec is not None else "something other than a Kafka request"
            connection.close(f"authentication failed: {what} came during the SASL handshake (security.protocol of the client?)")
            return
        context, request = self._read(connection, frame, SaslHandshakeRequest)
        mechanism = request.mechanism
        if mechanism not in self._sasl.mechanisms:
            answer = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=self._sasl.mechanisms)
            self._fail(context, answer, f"SASL mechanism {mechanism!r} is not enabled (sasl.enabled.mechanisms)")
            return
        self._with_headers = context.api_version >= 1
        self._mechanism = mechanism
        self._server = self._sasl.server(mechanism)
        self._state = _TOKENS
        context.respond(SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=self._sasl.mechanisms))

    def _token(self, connection: Connection, frame: memoryview) -> None:
        key = int.from_bytes(frame[:2], "big")
        if key == SASL_HANDSHAKE:
            context, _ = self._read(connection, frame, SaslHandshakeRequest)
            self._fail(context, SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE), "a second SASL handshake")
            return
        if key == API_VERSIONS:
            context, _ = self._read(connection, frame, ApiVersionsRequest)
            answer = ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
            self._fail(context, answer, "a request of type ApiVersions came during SASL authentication")
            return
        if key != SASL_AUTHENTICATE:
            api_spec = api(key)
            what = f"a request of type {api_spec.name}" if api_spec is not None else "something other than a Kafka request"
            connection.close(f"authentication failed: {what} came during SASL authentication")
            return
        context, request = self._read(connection, frame, SaslAuthenticateRequest)
        try:
            token = self._evaluate(bytes(request.auth_bytes))
        except SaslRefused as error:
            what = "re-authentication" if self._authenticated_as is not None else "authentication"
            message = (
                error.client_message
                or f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self._mechanism}"
            )
            refused = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message)
            self._fail(context, refused, str(error))
            return
        is_complete = self._is_complete
        lifetime_ms = self._done(connection) if is_complete else 0
        context.respond(SaslAuthenticateResponse(auth_bytes=token, session_lifetime_ms=lifetime_ms))
        if is_complete:
            cast(_Limited, connection).set_limits(self._limits)

    def _bare_token(self, connection: Connection, token: bytes) -> None:
        ticket = connection.begin()
        try:
            answer = self._evaluate(token)
        except SaslRefused as error:
            self._state = _FAILED
            self._later(connection, connection.close, self._reason(str(error)))
            return
        is_complete = self._is_complete
        if is_complete:
            self._done(connection)
        connection.finish(ticket, [struct.pack(">i", len(answer)) + answer])
        if is_complete:
            cast(_Limited, connection).set_limits(self._limits)

    def _evaluate(self, token: bytes) -> bytes:
        server = cast(SaslServer, self._server)
        answer = server.evaluate(token)
        if server.complete and self._authenticated_as is not None:
            user, mechanism = self._authenticated_as
            if mechanism != self._mechanism:
                text = (
                    f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication of mechanism"
                    f" '{mechanism}'"
                )
                raise SaslRefused(text, text)
            if user != server.user:
                text = f"Cannot change principals during re-authentication from User:{user} to User:{server.user}"
                raise SaslRefused(text, text)
        return answer

    @property
    def _is_complete(self) -> bool:
        return cast(SaslServer, self._server).complete

    def _done(self, connection: Connection) -> int:
        """The client is authenticated. Returns the session's lifetime in ms, 0 = unlimited."""
        server, self._server = cast(SaslServer, self._server), None
        self._state = _DONE
        self._end_deadline()
        if self._authenticated_as is None:
            self._authenticated_as = (server.user, self._mechanism)
        name = f"{USER_TYPE}:{server.user}"
        connection.principal = name if server.expiry_ms is None else TokenPrincipal(name)
        lifetime_ms = self._sasl.session_lifetime_ms(self._mechanism)
        self._limited_by = "connections.max.reauth.ms"
        if server.expiry_ms is not None:
            left_ms = max(0, server.expiry_ms - self._clock.wall_ms())
            if not lifetime_ms or left_ms <= lifetime_ms:
                lifetime_ms, self._limited_by = left_ms, "its delegation token's time is over"
        is_limited = bool(lifetime_ms) or server.expiry_ms is not None
        # With a token that has expired already, the next request is too late.
        self._expires_ms = self._clock.now_ms() + (lifetime_ms or -1) if is_limited else 0
        return lifetime_ms

    # -- answers ---------------------------------------------------------------------------------------------------

    def _read(self, connection: Connection, frame: memoryview, kind: type[Request]) -> tuple[RequestContext, Any]:
        """Decode a SASL or ApiVersions request. Raises WireError."""
        from minikafka.broker.front.dispatch import RequestContext

        api_spec = cast(Any, api(kind.API_KEY))
        version = int.from_bytes(frame[2:4], "big", signed=True)
        if not api_spec.min_version <= version <= api_spec.max_version:
            raise WireError(
                f"{api_spec.name} version {version} is not supported (supported: {api_spec.min_version}-{api_spec.max_version})"
            )
        header, position = decode_request_header(frame)
        request = kind.decode(version, frame, position)
        entry = cast(Any, self._dispatcher.entry(kind.API_KEY))
        entry.counts[version] += 1
        return RequestContext(entry, connection, self._listener, version, header.correlation_id, header.client_id), request

    def _fail(self, context: RequestContext, answer: Response, reason: str) -> None:
        """Refuse after a delay, which slows down password guessing."""
        self._state = _FAILED
        connection = context.connection

        def refuse() -> None:
            if not connection.closed:
                context.respond(answer)
                self._loop.call_soon(connection.close, self._reason(reason))

        self._later(connection, refuse)

    def _later(self, connection: Connection, work: Callable[..., object], *arguments: Any) -> None:
        ends = Ends("connection", connection.close)
        delay_s = self._sasl.failed_delay_ms / 1000
        self._dispatcher.supervisor.call_later(delay_s, "the end of an authentication", work, *arguments, ends=ends)

    def _reason(self, reason: str) -> str:
        return f"authentication failed{f' ({self._mechanism})' if self._mechanism else ''}: {reason}"
