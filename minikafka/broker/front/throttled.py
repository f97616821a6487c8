"""Serves requests of clients with quotas: counts their use, reports the throttle time in the response, and stops reading from the client
for that long (KIP-219).

While no client has a quota, requests bypass this module (`Dispatcher.limit`). A client with a quota does not take the fast paths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minikafka.broker.front.dispatch import RequestContext

if TYPE_CHECKING:
    from minikafka.core.client_quota import ClientQuotas, Limits, Meter
    from minikafka.net.network import Clock, Connection

PRODUCE_KEY = 0
#: APIs between brokers, exempt whatever the client id (KafkaApis.sendResponseExemptThrottle).
EXEMPT_KEYS = frozenset({27})
SHARES_KEPT = 4096
#: The limits of clients with longer ids are looked up each time.
CLIENT_ID_KEPT_MAX = 256


class Gate:
    """Knows the limits of each client of one type of listener."""

    def __init__(self, quotas: ClientQuotas, clock: Clock, now_s: Callable[[], float]) -> None:
        """`now_s`: a fine monotonic clock that measures the time spent in handlers."""
        self._quotas = quotas
        self._cached: dict[tuple[str, bytes], Limits | None] = {}
        self.now_ms = clock.now_ms
        self.now_s = now_s

    def limits(self, connection: Connection, frame: memoryview) -> Limits | None:
        """The limits of the client that sent a request; None if it has none."""
        raw = bytes(frame[10 : 10 + max(int.from_bytes(frame[8:10], "big", signed=True), 0)])
        share = (connection.principal, raw)
        if share in self._cached:
            return self._cached[share]
        now_ms = self.now_ms()
        if self._quotas.sweep(now_ms) or len(self._cached) >= SHARES_KEPT:
            self._cached.clear()
        found = self._quotas.of(user_of(connection.principal), raw.decode("utf-8", "replace"), now_ms)
        if len(raw) <= CLIENT_ID_KEPT_MAX:
            self._cached[share] = found
        return found

    def serve(self, dispatch: Any, connection: Connection, listener: str, frame: memoryview, sample: Any) -> None:
        """See `dispatch.Gate`."""
        limits = self.limits(connection, frame)
        if limits is None:
            dispatch(connection, listener, frame, sample)
            return
        made: list[LimitedContext] = []

        def make(*arguments: Any) -> LimitedContext:
            made.append(LimitedContext(self, limits, len(frame), *arguments))
            return made[0]

        dispatch(connection, listener, frame, sample, make)
        for context in made:
            context.handled()

    def forget(self) -> None:
        """Forget the cached limits: the quotas have changed."""
        self._cached.clear()


class LimitedContext(RequestContext):
    """A request of a client with quotas."""

    __slots__ = ("_began_s", "_gate", "_is_charged", "_owed_ms", "_pause_ms", "_size", "_used_s", "limits")

    limits: Limits

    def __init__(self, gate: Gate, limits: Limits, size: int, *arguments: Any) -> None:
        """`size`: bytes of the request; `arguments`: those of RequestContext."""
        super().__init__(*arguments)
        self.limits = limits
        self._gate = gate
        self._size = size
        self._began_s = gate.now_s()
        self._used_s: float | None = None
        self._owed_ms = 0
        self._pause_ms = 0
        self._is_charged = self.api_key in EXEMPT_KEYS

    def handled(self) -> None:
        """The handler has returned; any time from now on is waiting and does not count."""
        self._used_s = self._gate.now_s() - self._began_s

    def exempt(self) -> None:
        """Do not count the request: it turned out to be a broker's."""
        self._is_charged = True

    def fetched(self, size: int) -> int:
        """Ask before answering a fetch with `size` bytes of records. Returns 0, or how many ms the client must pause first. Then the
        answer must be empty, and its bytes do not count.

        In Kafka a consumer waits for ever for a batch that is larger than its quota windows allow. Here such a batch is sent if nothing
        else was sent, and the client pauses after it.
        """
        now_ms = self._gate.now_ms()
        meter = self.limits.fetch
        is_first = meter is not None and meter.rate.per_second(now_ms) <= 0
        pause_ms = 0 if meter is None else meter.charge(size, now_ms)
        request_ms = self._charge_request(now_ms)
        longest_ms = max(pause_ms, request_ms)
        _tell(meter, pause_ms, self.limits.request, request_ms, now_ms)
        if is_first and request_ms == 0:
            self._owed_ms = pause_ms
            return 0
        if meter is not None and longest_ms > 0:
            meter.take_back(size, now_ms)
        return longest_ms

    def _charge_request(self, now_ms: int) -> int:
        self._is_charged = True
        meter = self.limits.request
        if meter is None:
            return 0
        used_s = self._gate.now_s() - self._began_s if self._used_s is None else self._used_s
        return meter.charge(100 * used_s, now_ms)

    def _charge(self, *, is_answered: bool) -> int:
        """Count a request once. Returns how long the client must pause, in ms."""
        if self._is_charged:
            return self._owed_ms
        now_ms = self._gate.now_ms()
        meter = self.limits.produce if self.api_key == PRODUCE_KEY else None
        pause_ms = 0 if meter is None else meter.charge(self._size, now_ms)
        # Kafka does not count the handler time of a Produce without a response.
        request_ms = self._charge_request(now_ms) if is_answered else 0
        self._is_charged = True
        _tell(meter, pause_ms, self.limits.request, request_ms, now_ms)
        return max(pause_ms, request_ms)

    def complete(self, response: Any) -> None:
        """Count the request and set the throttle time in the response."""
        pause_ms = self._charge(is_answered=True)
        if hasattr(response, "throttle_time_ms"):
            # The active controller or the fetch may have set a throttle time already.
            pause_ms = response.throttle_time_ms = max(pause_ms, response.throttle_time_ms)
        self._pause_ms = pause_ms

    def respond_encoded(self, response: Any, pieces: list[Any]) -> None:
        """Answer at once with the throttle time, and stop reading from the client for that long."""
        super().respond_encoded(response, pieces)
        self._mute(self._pause_ms)

    def respond_pieces(self, pieces: list[Any]) -> None:
        """Count the request. An encoded response cannot carry the throttle time, but the client is muted all the same."""
        pause_ms = self._charge(is_answered=True)
        super().respond_pieces(pieces)
        self._mute(pause_ms)

    def no_response(self) -> None:
        """Count a Produce without a response, too."""
        super().no_response()
        self._mute(self._charge(is_answered=False))

    def _mute(self, pause_ms: int) -> None:
        if pause_ms > 0:
            self.connection.mute(pause_ms)


def _tell(bytes_meter: Meter | None, bytes_ms: int, request_meter: Meter | None, request_ms: int, now_ms: int) -> None:
    """Record the longer of the two pauses (RequestHandlerHelper.throttle)."""
    if bytes_ms > request_ms and bytes_meter is not None:
        bytes_meter.note_throttle(bytes_ms, now_ms)
    elif request_ms > 0 and request_meter is not None:
        request_meter.note_throttle(request_ms, now_ms)


def user_of(principal: str) -> str:
    """ "User:alice" -> "alice"."""
    return principal.partition(":")[2]
