"""Client quotas (KIP-13, KIP-55, KIP-124, KIP-219, KIP-599, KIP-612): which quota applies to a client, and how long it must pause.

Rules: ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager and ConnectionQuotas of Apache Kafka 4.3. Times are
integer ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from minikafka.core.metadata.image import QuotaEntity
from minikafka.wire.errors import ApiError, ErrorCode

PRODUCE, FETCH, REQUEST, MUTATION = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
KEYS = (PRODUCE, FETCH, REQUEST, MUTATION)
CONNECTION = "connection_creation_rate"
USER, CLIENT_ID, IP = "user", "client-id", "ip"
#: A meter that has not been used for this long is dropped, like Kafka's sensors.
IDLE_MS = 3_600_000
#: Most meters of clients, and of addresses; beyond this the oldest is dropped.
METERS_MAX = 10_000
#: Client ids that are equal in this many first characters share a quota.
CLIENT_ID_MAX = 256
#: The longest pause, because a response has room for no longer one.
PAUSE_MS_MAX = (1 << 31) - 1
#: (user, client id) among which a quota is shared; "" where it does not matter.
Share = tuple[str, str]


def _rounded(pause_ms: float) -> int:
    """A pause in whole ms. The quotient may be infinite: a limit may be as small as a positive number can be."""
    return round(pause_ms) if pause_ms < PAUSE_MS_MAX else PAUSE_MS_MAX


class WindowedRate:
    """Amount per second over the last samples. Until there are `count` samples, the time counts as if all but one had passed."""

    __slots__ = ("_count", "_samples", "_window_ms")

    def __init__(self, count: int, window_ms: int) -> None:
        """`count` samples of `window_ms` each."""
        self._count = count
        self._window_ms = window_ms
        #: [begin, last event, sum]
        self._samples: deque[list[float]] = deque()

    def add(self, amount: float, now_ms: int) -> None:
        """Count an amount, negative to take one back."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            samples.append([now_ms, now_ms, amount])
        else:
            newest = samples[-1]
            newest[1] = now_ms
            newest[2] += amount

    def per_second(self, now_ms: int) -> float:
        """The rate now."""
        elapsed_ms = self.elapsed_ms(now_ms)
        return sum(sample[2] for sample in self._samples) * 1000 / elapsed_ms

    def elapsed_ms(self, now_ms: int) -> float:
        """The length of time that the rate covers."""
        samples, window_ms = self._samples, self._window_ms
        while samples and now_ms - samples[0][1] >= self._count * window_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0][0] if samples else 0
        missing = self._count - 1 - elapsed_ms // window_ms
        return max(elapsed_ms + missing * window_ms if missing > 0 else elapsed_ms, 1)

    def pause_ms(self, limit: float, now_ms: int) -> int:
        """0 while the rate is within `limit` per second, otherwise how long to wait without adding until it is."""
        elapsed_ms = self.elapsed_ms(now_ms)
        rate = self.per_second(now_ms)
        return 0 if rate <= limit else _rounded((rate - limit) / limit * elapsed_ms)


class TokenBucket:
    """A bucket that refills at `limit` tokens per second, up to `burst_s` seconds' worth. Taking tokens may lead into debt (KIP-599)."""

    __slots__ = ("_at_ms", "_burst_s", "_tokens")

    def __init__(self, burst_s: float) -> None:
        self._burst_s = burst_s
        self._tokens: float | None = None
        self._at_ms = 0

    def left(self, limit: float, now_ms: int) -> float:
        """Tokens, negative in debt."""
        most = limit * self._burst_s
        if self._tokens is None:
            self._tokens = most
        else:
            self._tokens = min(self._tokens + limit * max(now_ms - self._at_ms, 0) / 1000, most)
        self._at_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Take tokens, even if that leads into debt."""
        self._tokens = self.left(limit, now_ms) - count

    def pause_ms(self, limit: float, now_ms: int) -> int:
        """How long until the debt is paid."""
        left = self.left(limit, now_ms)
        return 0 if left >= 0 else _rounded(-left / limit * 1000)


class Meter:
    """One quota, as all clients that share it have used it."""

    __slots__ = ("_pause_max_ms", "_span_ms", "_window_bytes_s", "bucket", "key", "limit", "pauses", "rate", "share", "used_ms")

    def __init__(self, key: str, share: Share, count: int, window_ms: int) -> None:
        self.key = key
        self.share = share
        self.limit = 0.0
        self.rate = WindowedRate(count, window_ms)
        self.bucket = TokenBucket(count * window_ms / 1000) if key == MUTATION else None
        #: (when, ms) of each pause, for the average.
        self.pauses: deque[tuple[int, int]] = deque(maxlen=256)
        self.used_ms = 0
        self._span_ms = count * window_ms
        self._window_bytes_s = max(count - 1, 1) * window_ms / 1000
        # For request time, a pause is at most one window (ClientRequestQuotaManager.throttleTime).
        self._pause_max_ms = window_ms if key == REQUEST else PAUSE_MS_MAX

    @property
    def window_bytes(self) -> int:
        """The quota's bytes of a whole window: the largest answer to a fetch."""
        return int(min(self.limit * self._window_bytes_s, (1 << 31) - 1))

    def charge(self, amount: float, now_ms: int) -> int:
        """Count an amount. Returns how long the client must pause, in ms."""
        self.used_ms = now_ms
        self.rate.add(amount, now_ms)
        if self.bucket is not None:
            self.bucket.take(amount, self.limit, now_ms)
        return self.pause_ms(now_ms)

    def take_back(self, amount: float, now_ms: int) -> None:
        """Take back an amount that was counted but not used."""
        self.rate.add(-amount, now_ms)

    def pause_ms(self, now_ms: int) -> int:
        """How long clients of this quota must pause now."""
        if self.bucket is not None:
            return self.bucket.pause_ms(self.limit, now_ms)
        return min(self.rate.pause_ms(self.limit, now_ms), self._pause_max_ms)

    def note_throttle(self, pause_ms: int, now_ms: int) -> None:
        """Record that a client must pause."""
        self.pauses.append((now_ms, pause_ms))

    def pause_average_ms(self, now_ms: int) -> float:
        """The average pause within the windows; 0 if there was none."""
        found = [pause_ms for at_ms, pause_ms in self.pauses if now_ms - at_ms < self._span_ms]
        return sum(found) / len(found) if found else 0.0


class Limits:
    """The meters of one client, each None if the client has no such quota."""

    __slots__ = ("fetch", "mutation", "produce", "request")

    def __init__(self, produce: Meter | None, fetch: Meter | None, request: Meter | None, mutation: Meter | None) -> None:
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.mutation = mutation


class MutationBudget:
    """How many partitions one request may still create and delete (KIP-599)."""

    __slots__ = ("_is_strict", "_meter", "_now_ms", "pause_ms")

    def __init__(self, meter: Meter, now_ms: int, *, is_strict: bool) -> None:
        """`is_strict`: the version of the API has THROTTLING_QUOTA_EXCEEDED. Requests of other versions are not limited; their clients
        pause afterwards."""
        self._meter = meter
        self._now_ms = now_ms
        self._is_strict = is_strict
        self.pause_ms = 0

    def spend(self, partitions: int) -> None:
        """Count changes. Raises ApiError THROTTLING_QUOTA_EXCEEDED in debt. The change that leads into debt is still carried out."""
        if self._is_strict:
            self.pause_ms = max(self.pause_ms, self._meter.pause_ms(self._now_ms))
            if self.pause_ms:
                raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            self._meter.charge(partitions, self._now_ms)
        else:
            self.pause_ms = max(self.pause_ms, self._meter.charge(partitions, self._now_ms))

    def reported_pause_ms(self) -> int:
        """`pause_ms`, which is reported to the client."""
        self._meter.note_throttle(self.pause_ms, self._now_ms)
        return self.pause_ms


class ClientQuotas:
    """The quotas of a cluster, and their use on this broker.

    Invariant: a meter belongs to a key and a share, and keeps what was used when its limit changes. A new limit applies from the next call
    of `of`.
    """

    def __init__(self, count: int, window_ms: int, mutation_count: int, mutation_window_ms: int) -> None:
        """quota.window.num, quota.window.size.seconds, and the same of controller.quota."""
        self._windows = {key: (count, window_ms) for key in KEYS}
        self._windows[MUTATION] = (mutation_count, mutation_window_ms)
        #: key -> (user, client id) -> limit; a part is a name, "" for the default, None where it does not matter.
        self._limits: dict[str, dict[tuple[str | None, str | None], float]] = {key: {} for key in KEYS}
        self._meters: dict[tuple[str, Share], Meter] = {}
        self._connection_limits: dict[str | None, float] = {}
        self._connections: dict[str, tuple[WindowedRate, int]] = {}
        self._swept_ms = 0

    @property
    def is_active(self) -> bool:
        """Whether any client has a quota."""
        return any(self._limits.values())

    @property
    def limits_connections(self) -> bool:
        """Whether any address has a connection quota."""
        return bool(self._connection_limits)

    def meters(self) -> Iterator[Meter]:
        """The meters that have been used."""
        return iter(self._meters.values())

    def configure(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Set the quotas from the metadata."""
        limits: dict[str, dict[tuple[str | None, str | None], float]] = {key: {} for key in KEYS}
        addresses: dict[str | None, float] = {}
        for entity, values in quotas.items():
            parts = {kind: name or "" for kind, name in entity}
            for key, value in values.items():
                if key == CONNECTION and IP in parts:
                    addresses[parts[IP] or None] = value
                elif key in limits and IP not in parts:
                    limits[key][(parts.get(USER), parts.get(CLIENT_ID))] = value
        self._limits, self._connection_limits = limits, addresses
        for meter_key in [meter_key for meter_key in self._meters if not limits[meter_key[0]]]:
            del self._meters[meter_key]

    def of(self, user: str, client_id: str, now_ms: int) -> Limits | None:
        """The meters that apply to a client; None if it has no quota."""
        meters = [self._meter(key, user, client_id, now_ms) for key in KEYS]
        return None if not any(meters) else Limits(*meters)

    def _meter(self, key: str, user: str, client_id: str, now_ms: int) -> Meter | None:
        found = self._find(key, user, client_id)
        if found is None:
            return None
        limit, share = found
        meter = self._meters.get((key, share))
        if meter is None:
            if len(self._meters) >= METERS_MAX:
                # Drop the oldest meter. If its client is still active, it gets a new one.
                del self._meters[next(iter(self._meters))]
            meter = self._meters[key, share] = Meter(key, share, *self._windows[key])
            meter.used_ms = now_ms
        meter.limit = limit
        return meter

    def _find(self, key: str, user: str, client_id: str) -> tuple[float, Share] | None:
        """The limit with the highest precedence, and the clients that share it (KIP-55). The user takes precedence over the client id, and
        a name over the default."""
        limits = self._limits[key]
        for parts in (
            (user, client_id), (user, ""), (user, None), ("", client_id), ("", ""), ("", None), (None, client_id), (None, ""),
        ):  # fmt: skip
            limit = limits.get(parts)
            if limit is not None:
                return limit, ("" if parts[0] is None else user, "" if parts[1] is None else client_id[:CLIENT_ID_MAX])
        return None

    def sweep(self, now_ms: int) -> bool:
        """Drop meters that have not been used for IDLE_MS. Returns whether any was dropped."""
        if now_ms - self._swept_ms < IDLE_MS:
            return False
        self._swept_ms = now_ms
        idle = [key for key, meter in self._meters.items() if now_ms - meter.used_ms >= IDLE_MS]
        for key in idle:
            del self._meters[key]
        for address in [address for address, (_, used_ms) in self._connections.items() if now_ms - used_ms >= IDLE_MS]:
            del self._connections[address]
        return bool(idle)

    def connection_pause_ms(self, address: str, now_ms: int) -> int:
        """0 if a new connection is within the connection_creation_rate of its address. Otherwise how long to hold the connection before
        closing it; it then does not count."""
        limits = self._connection_limits
        limit = limits.get(address, limits.get(None))
        if limit is None:
            return 0
        rate, _ = self._connections.get(address) or (WindowedRate(*self._windows[PRODUCE]), 0)
        if address not in self._connections and len(self._connections) >= METERS_MAX:
            del self._connections[next(iter(self._connections))]
        self._connections[address] = (rate, now_ms)
        rate.add(1, now_ms)
        pause_ms = rate.pause_ms(limit, now_ms)
        if pause_ms:
            rate.add(-1, now_ms)
        count, window_ms = self._windows[PRODUCE]
        return min(pause_ms, count * window_ms)
