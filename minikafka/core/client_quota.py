"""Client quotas (KIP-13, KIP-55, KIP-124, KIP-219, KIP-599, KIP-612): which one a client falls under, and for how long it must pause.

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
#: A meter that nobody has used for so long is forgotten, as Kafka's sensors are.
IDLE_MS = 3_600_000
#: Clients, and addresses, that have used something; beyond so many the oldest is forgotten.
METERS_MAX = 10_000
#: Clients whose ids begin with so many equal characters share a quota.
CLIENT_ID_MAX = 256
#: (user, client id) among which a quota is shared; "" where it does not matter.
Share = tuple[str, str]


class WindowedRate:
    """Amount a second over the last samples. Until all of them are there the rate counts as if it had gone on for all but one."""

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
        """The time that the rate is of."""
        samples, window_ms = self._samples, self._window_ms
        while samples and now_ms - samples[0][1] >= self._count * window_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0][0] if samples else 0
        missing = self._count - 1 - elapsed_ms // window_ms
        return max(elapsed_ms + missing * window_ms if missing > 0 else elapsed_ms, 1)

    def pause_ms(self, limit: float, now_ms: int) -> int:
        """0 while the rate is within `limit` a second, else how long nothing may be added for it to be again."""
        elapsed_ms = self.elapsed_ms(now_ms)
        rate = self.per_second(now_ms)
        return 0 if rate <= limit else round((rate - limit) / limit * elapsed_ms)


class TokenBucket:
    """Tokens that come back at `limit` a second, at most `burst_s` seconds' worth; what is taken may lead into debt (KIP-599)."""

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
        """Take tokens, there or not."""
        self._tokens = self.left(limit, now_ms) - count

    def pause_ms(self, limit: float, now_ms: int) -> int:
        """How long until the debt is paid."""
        left = self.left(limit, now_ms)
        return 0 if left >= 0 else round(-left / limit * 1000)


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
        # Request time is not paid back in full: a pause is at most a window (ClientRequestQuotaManager.throttleTime).
        self._pause_max_ms = window_ms if key == REQUEST else (1 << 31) - 1

    @property
    def window_bytes(self) -> int:
        """More than this would take more than the window to pay for: no answer to a fetch is larger."""
        return int(min(self.limit * self._window_bytes_s, (1 << 31) - 1))

    def charge(self, amount: float, now_ms: int) -> int:
        """Count an amount; for how long the client must pause."""
        self.used_ms = now_ms
        self.rate.add(amount, now_ms)
        if self.bucket is not None:
            self.bucket.take(amount, self.limit, now_ms)
        return self.pause_ms(now_ms)

    def take_back(self, amount: float, now_ms: int) -> None:
        """What was counted is not spent after all."""
        self.rate.add(-amount, now_ms)

    def pause_ms(self, now_ms: int) -> int:
        """For how long clients of this quota must pause now."""
        if self.bucket is not None:
            return self.bucket.pause_ms(self.limit, now_ms)
        return min(self.rate.pause_ms(self.limit, now_ms), self._pause_max_ms)

    def note_throttle(self, pause_ms: int, now_ms: int) -> None:
        """A client must pause."""
        self.pauses.append((now_ms, pause_ms))

    def pause_average_ms(self, now_ms: int) -> float:
        """The average pause within the windows; 0 if there was none."""
        found = [pause_ms for at_ms, pause_ms in self.pauses if now_ms - at_ms < self._span_ms]
        return sum(found) / len(found) if found else 0.0


class Limits:
    """The meters of one client; None where it has no quota."""

    __slots__ = ("fetch", "mutation", "produce", "request")

    def __init__(self, produce: Meter | None, fetch: Meter | None, request: Meter | None, mutation: Meter | None) -> None:
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.mutation = mutation


class MutationBudget:
    """What one request may still change: partitions created and deleted (KIP-599)."""

    __slots__ = ("_is_strict", "_meter", "_now_ms", "pause_ms")

    def __init__(self, meter: Meter, now_ms: int, *, is_strict: bool) -> None:
        """Strict: versions of an API that know THROTTLING_QUOTA_EXCEEDED. Others do what they want, and pause afterwards."""
        self._meter = meter
        self._now_ms = now_ms
        self._is_strict = is_strict
        self.pause_ms = 0

    def spend(self, partitions: int) -> None:
        """Count changes. Raises ApiError THROTTLING_QUOTA_EXCEEDED in debt; the first that leads into it is still carried out."""
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
    """The quotas of a cluster and who has used how much of them here.

    Invariant: a meter belongs to a key and a share; a changed limit does not forget what was spent. It holds from the next time that `of`
    is asked.
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
        """Whether any address has one."""
        return bool(self._connection_limits)

    def meters(self) -> Iterator[Meter]:
        """Those that have been used."""
        return iter(self._meters.values())

    def configure(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Take over the quotas of the metadata."""
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
        """What holds for a client; None when nothing does."""
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
                # The one made first: a client that is still there gets a new one.
                del self._meters[next(iter(self._meters))]
            meter = self._meters[key, share] = Meter(key, share, *self._windows[key])
            meter.used_ms = now_ms
        meter.limit = limit
        return meter

    def _find(self, key: str, user: str, client_id: str) -> tuple[float, Share] | None:
        """The quota that wins, and among whom it is shared (KIP-55). The user counts more than the client id, a name more than the
        default."""
        limits = self._limits[key]
        for parts in (
            (user, client_id), (user, ""), (user, None), ("", client_id), ("", ""), ("", None), (None, client_id), (None, ""),
        ):  # fmt: skip
            limit = limits.get(parts)
            if limit is not None:
                return limit, ("" if parts[0] is None else user, "" if parts[1] is None else client_id[:CLIENT_ID_MAX])
        return None

    def sweep(self, now_ms: int) -> bool:
        """Forget what nobody has used for an hour; whether anything was forgotten."""
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
        """0 for a new connection from an address that is within its connection_creation_rate; else how long it is held before it is closed,
        and it does not count."""
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
