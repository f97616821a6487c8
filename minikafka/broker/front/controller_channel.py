"""The broker's connection to the active controller: finds it, keeps one channel to it, and retries what may be retried."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.net.channel import Channel, ChannelSecurity, ConnectionLost, RequestTimeout
from minikafka.net.tasks import outcome_of, within
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from minikafka.broker.environment import Environment

log = logging.getLogger("minikafka.controller")

RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MS_MAX = 500
REQUEST_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 2_000


#: The largest factor by which the request timeout grows after connections that timed out.
TIMEOUT_GROWTH_MAX = 16


class LeaderSource(Protocol):
    """Knows the leader of the metadata quorum (RaftHost)."""

    def leader_endpoint(self) -> tuple[str, int] | None:
        """The leader's host and port; None while no leader is known."""

    def subscribe(self, listener: ControllerChannel, /) -> None:
        """Call the listener's `on_leader_change` when the leader changes."""

    def subscribe_doubt(self, callback: Callable[[bool], None], /) -> None:
        """Call back with True when this node is the leader but may have been replaced, and with False when that doubt is gone."""


class ControllerChannel:
    """Sends requests to whichever controller is active.

    `request` waits for a leader of the metadata quorum, connects, and tries again after a lost connection or a
    NOT_CONTROLLER answer until its timeout. The caller gets an answer of the active controller, or TimeoutError. A retry
    may repeat a request that was carried out but whose answer was lost, so requests must be idempotent or fenced by
    an epoch (AlterPartition and BrokerRegistration are). With `resends_max`, a request that was lost with its connection is sent again
    at most that many times; then it fails with ConnectionError. A request that crashes controllers must not reach each of them in turn.
    A NOT_CONTROLLER answer means that nothing was done, so it does not count.

    The controller answers the requests of a connection in order. Requests that may have to wait there (those of clients) and requests that
    must not (heartbeats) therefore use separate channels, as in Kafka. Each caller chooses how long to wait. A connection
    that leaves a request unanswered for `request_timeout_ms` is considered dead and replaced. The new connection gets twice
    the time, up to TIMEOUT_GROWTH_MAX times as much: on an overloaded machine every answer may be late, and more connections
    make it later still.
    """

    def __init__(
        self,
        raft: LeaderSource,
        environment: Environment,
        client_id: str,
        security: ChannelSecurity | None = None,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        self._raft = raft
        self._environment = environment
        self._client_id = client_id
        self._security = security
        self._request_timeout_ms = self._limit_ms = request_timeout_ms
        self._channel: Channel | None = None
        self._endpoint: tuple[str, int] | None = None
        self._connecting: asyncio.Task[Channel | OSError | TimeoutError] | None = None
        self._waiters: dict[asyncio.Future[None], None] = {}
        #: Elections seen so far. A new leader may not be active yet when it is first asked, but soon will be.
        self._elections = 0
        self._closed = False
        self._last_logged = ""
        self._on_change: list[Callable[[], None]] = []
        self._on_loss: list[Callable[[], None]] = []
        raft.subscribe(self)
        raft.subscribe_doubt(self._doubt_changed)

    async def request(
        self,
        request: Any,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        *,
        version: int | None = None,
        resends_max: int | None = None,
        again: Callable[[int], Any] | None = None,
    ) -> Any:
        """The response of the active controller. `again(n)` returns the request to send when it has already been sent n times, perhaps
        without effect. Raises TimeoutError, ConnectionError, UnsupportedVersion."""
        clock = self._environment.clock
        deadline_ms = clock.now_ms() + timeout_ms
        backoff_ms, elections, tries = RETRY_BACKOFF_MS, self._elections, 0
        while not self._closed:
            left_ms = deadline_ms - clock.now_ms()
            if left_ms <= 0:
                raise RequestTimeout(f"no active controller answered {type(request).__name__} within {timeout_ms} ms")
            try:
                channel = await self._open(left_ms)
            except (OSError, TimeoutError) as error:
                self._say(f"cannot reach the active controller: {error}")
                channel = None
            if channel is not None:
                if tries and again is not None:
                    request = again(tries)
                tries += 1
                try:
                    response = await self._try(channel, request, version, max(1, deadline_ms - clock.now_ms()))
                except (ConnectionLost, RequestTimeout):
                    if resends_max is not None:
                        resends_max -= 1
                        if resends_max < 0:
                            raise
                else:
                    if not _is_refused(response):
                        self._last_logged = ""
                        return response
                    self._drop(channel)
            if elections != self._elections:
                backoff_ms, elections = RETRY_BACKOFF_MS, self._elections
            await self._pause(min(backoff_ms, max(1, deadline_ms - clock.now_ms())))
            backoff_ms = min(2 * backoff_ms, RETRY_BACKOFF_MS_MAX)
        raise ConnectionLost("the node is stopping")

    async def _try(self, channel: Channel, request: Any, version: int | None, left_ms: int) -> Any:
        """Like `_ask`, but records response times and the end of the connection."""
        sent_ms = self._environment.clock.now_ms()
        try:
            response = await self._ask(channel, request, version, left_ms)
        except (ConnectionLost, RequestTimeout) as error:
            self._say(f"the connection to the active controller ended: {error}")
            if isinstance(error, RequestTimeout):
                self._limit_ms = min(2 * self._limit_ms, TIMEOUT_GROWTH_MAX * self._request_timeout_ms)
            self._drop(channel)
            raise
        took_ms = self._environment.clock.now_ms() - sent_ms
        self._limit_ms = max(self._request_timeout_ms, min(self._limit_ms, 4 * took_ms))
        return response

    async def _ask(self, channel: Channel, request: Any, version: int | None, left_ms: int) -> Any:
        """Raises ConnectionLost or RequestTimeout when the connection has ended, TimeoutError when only the caller's time is up."""
        asked = channel.request(request, version, self._limit_ms)
        if left_ms >= self._limit_ms:
            return await asked
        try:
            return await within(left_ms / 1000, asked)
        except RequestTimeout:
            raise
        except TimeoutError:
            raise TimeoutError(f"the active controller did not answer {type(request).__name__} within {left_ms} ms") from None

    def subscribe_disturbances(self, on_change: Callable[[], None], on_loss: Callable[[], None]) -> None:
        """Register two callbacks. `on_change`: another controller is active. `on_loss`: the connection has ended, or the active controller
        runs in this process and may have been replaced, so the broker's session must be renewed at once."""
        self._on_change.append(on_change)
        self._on_loss.append(on_loss)

    async def close(self) -> None:
        """Close the connection. Waiting requests fail with ConnectionError."""
        self._closed = True
        self._wake()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._channel is not None:
            self._channel.close("the node is stopping")

    # -- raft listener ---------------------------------------------------------------------------------------------

    def on_leader_change(self, leader_id: int | None, epoch: int, is_self: bool) -> None:
        """The leader changed. Waiting requests are retried at once."""
        endpoint = self._raft.leader_endpoint()
        if endpoint is not None and endpoint != self._endpoint and self._channel is not None:
            channel, self._channel = self._channel, None
            channel.close("another controller is active")
        self._elections += 1
        self._wake()
        for callback in self._on_change:
            callback()

    def on_part(self, records: list[tuple[int, Any]]) -> None:
        """Unused: the channel does not depend on records."""

    def on_commit(self, base_offset: int, epoch: int, records: list[tuple[int, Any]]) -> None:
        """Unused: the channel does not depend on records."""

    def on_snapshot(self, snapshot_id: Any, records: Iterable[Any]) -> None:
        """Unused: the channel does not depend on records."""

    def on_high_watermark(self, offset: int) -> None:
        """Unused: the channel does not depend on records."""

    # -- connecting ------------------------------------------------------------------------------------------------

    async def _open(self, timeout_ms: int) -> Channel | None:
        """The open channel, or None when no leader is known. Raises OSError or TimeoutError."""
        if self._channel is not None and not self._channel.closed:
            return self._channel
        endpoint = self._raft.leader_endpoint()
        if endpoint is None:
            return None
        if self._connecting is None or self._connecting.done():
            self._endpoint = endpoint
            opening = self._connect(endpoint, min(timeout_ms, CONNECT_TIMEOUT_MS))
            self._connecting = self._environment.supervisor.start(opening, "connecting to the active controller")
        channel = await outcome_of(self._connecting)
        if channel is None:
            raise ConnectionLost("the node is stopping")
        if isinstance(channel, Exception):
            raise channel
        if self._closed:
            channel.close("the node is stopping")
            return None
        if self._channel is not channel:
            if self._raft.leader_endpoint() != self._endpoint:
                channel.close("another controller is active")
                return None
            self._channel = channel
        return channel

    async def _connect(self, endpoint: tuple[str, int], timeout_ms: int) -> Channel | OSError | TimeoutError:
        """The new channel, or the error that prevented it."""
        host, port = endpoint
        try:
            return await Channel.open(
                self._environment.network,
                host,
                port,
                client_id=self._client_id,
                timeout_ms=timeout_ms,
                security=self._security,
                on_end=self._ended,
            )
        except (OSError, TimeoutError) as error:
            return error

    def _ended(self) -> None:
        if not self._closed:
            for callback in self._on_loss:
                callback()

    def _doubt_changed(self, is_in_doubt: bool) -> None:
        if is_in_doubt:
            self._ended()

    def _drop(self, channel: Channel) -> None:
        if self._channel is channel:
            self._channel = None
        channel.close("not the active controller")

    async def _pause(self, backoff_ms: int) -> None:
        """Wait for a new leader, at most for the back-off. Does not wait once the channel is closed."""
        if self._closed:
            return
        waiter = self._environment.loop.create_future()
        self._waiters[waiter] = None
        alarm = self._environment.loop.call_later(backoff_ms / 1000, _release, waiter)
        try:
            await waiter
        finally:
            alarm.cancel()
            del self._waiters[waiter]

    def _wake(self) -> None:
        for waiter in self._waiters:
            _release(waiter)

    def _say(self, text: str) -> None:
        """Log a problem once, however often it repeats."""
        if text != self._last_logged:
            self._last_logged = text
            log.info("%s", text)


def _is_refused(response: Any) -> bool:
    """Whether the node that answered is not the active controller. As in Apache Kafka's NodeToControllerRequestThread, an error anywhere
    says so: CreateTopics has one for each topic."""
    code = getattr(response, "error_code", None)
    codes = [topic.error_code for topic in getattr(response, "topics", ())] if code is None else [code]
    return ErrorCode.NOT_CONTROLLER in codes


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
