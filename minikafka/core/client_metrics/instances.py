"""Clients that push metrics: which metrics each should push, how often it may push, and how long it is remembered.

Rules: ClientMetricsManager and ClientMetricsInstance of Apache Kafka 4.4. The tests contain Kafka's answers to the same requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from minikafka.core.client_metrics.subscriptions import ATTRIBUTE_CHARACTERS_MAX, CLIENT_INSTANCE_ID, RequestedMetrics, Subscriptions
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.push_telemetry import PushTelemetryRequest
from minikafka.wire.uuid import uuid_to_text

#: Most clients that are remembered; beyond this the one that has been silent longest is dropped.
INSTANCES_MAX = 16_384
#: Clients that are processed in one step.
STEP_INSTANCES = 512
#: A client is dropped after this long without a request, or after three of its intervals if that is longer.
EXPIRY_MS_MIN = 60_000
EXPIRY_INTERVALS = 3
#: Kafka's numbers of zstd, lz4, gzip and snappy, in the order of preference.
COMPRESSION_TYPES = (4, 3, 1, 2)
COMPRESSION_TYPE_MAX = 4
ZERO_ID = bytes(16)
#: Ids that no client may have: zero, and the metadata topic's.
RESERVED_IDS = frozenset({ZERO_ID, bytes(15) + b"\x01"})
_NEVER = -(1 << 62)
_FREE_TO_ASK_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


@dataclass(slots=True)
class Instance:
    """A client. `attributes`: for matching subscriptions. `version`: of the subscriptions from which `requested` was computed."""

    instance_id: bytes
    attributes: Mapping[str, str | None]
    requested: RequestedMetrics
    version: int
    asked_ms: int = _NEVER
    pushed_ms: int = _NEVER
    heard_ms: int = 0
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    def may_ask(self, now_ms: int) -> bool:
        """Whether the client may ask for its subscriptions now. Records the time if so."""
        if now_ms - max(self.asked_ms, self.pushed_ms) < self.requested.interval_ms:
            return False
        self.asked_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Whether the client may push now. Records the time if so. The first push after a request for subscriptions may come at any time,
        because clients wait for a random part of the interval."""
        if self.asked_ms <= self.pushed_ms and now_ms - self.pushed_ms < self.requested.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True

    @property
    def has_pushed(self) -> bool:
        """Whether the client has pushed since its subscriptions last changed."""
        return self.pushed_ms != _NEVER

    @property
    def expires_ms(self) -> int:
        """When the client is dropped unless it sends a request before."""
        return self.heard_ms + max(EXPIRY_MS_MIN, EXPIRY_INTERVALS * self.requested.interval_ms)


class Instances:
    """The clients of one broker. A `connection` is any hashable object that identifies a connection."""

    def __init__(self, subscriptions: Subscriptions, telemetry_max_bytes: int, random_bytes: Callable[[int], bytes]) -> None:
        """`telemetry_max_bytes`: the largest push."""
        self._subscriptions = subscriptions
        self.telemetry_max_bytes = telemetry_max_bytes
        self._random_bytes = random_bytes
        #: Ordered by the last request, the oldest first.
        self.by_id: dict[bytes, Instance] = {}
        self._of_connection: dict[object, bytes] = {}
        #: Number of requests that came too early, and of pushes for another subscription id than the client's.
        self.throttled = 0
        self.unknown_subscriptions = 0

    def ask(self, client_instance_id: bytes, attributes: Mapping[str, str | None], connection: object, now_ms: int) -> Instance:
        """GetTelemetrySubscriptions: the client with its requested metrics. The zero id creates a new client. Raises ApiError."""
        instance = self._instance(self._new_id() if client_instance_id == ZERO_ID else client_instance_id, attributes, connection, now_ms)
        if not instance.may_ask(now_ms) and instance.last_error not in _FREE_TO_ASK_AGAIN:
            self.throttled += 1
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance

    def push(self, request: PushTelemetryRequest, attributes: Mapping[str, str | None], connection: object, now_ms: int) -> Instance:
        """PushTelemetry: the client, if its metrics may be read. Raises ApiError."""
        if request.client_instance_id in RESERVED_IDS:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        instance = self._instance(request.client_instance_id, attributes, connection, now_ms)
        instance.last_error = self._fault(request, instance, now_ms)
        instance.is_terminating = request.terminating
        if instance.last_error:
            raise ApiError(instance.last_error)
        return instance

    def _fault(self, request: PushTelemetryRequest, instance: Instance, now_ms: int) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not instance.may_push(now_ms) and not request.terminating:
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != instance.requested.subscription_id:
            self.unknown_subscriptions += 1
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if not 0 <= request.compression_type <= COMPRESSION_TYPE_MAX:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.TELEMETRY_TOO_LARGE if len(request.metrics) > self.telemetry_max_bytes else ErrorCode.NONE

    def connection_ended(self, connection: object) -> bytes | None:
        """Drop the client of a closed connection and return its id; None if there is none."""
        found = self._of_connection.pop(connection, None)
        return None if found is None or self.by_id.pop(found, None) is None else found

    def expire(self, now_ms: int) -> Iterator[list[bytes]]:
        """Drop clients that have been silent for too long. Yields their ids, one list per step."""
        ids = list(self.by_id)
        for start in range(0, len(ids), STEP_INSTANCES):
            held = [self.by_id[instance_id] for instance_id in ids[start : start + STEP_INSTANCES] if instance_id in self.by_id]
            expired = [instance.instance_id for instance in held if instance.expires_ms <= now_ms]
            for instance_id in expired:
                del self.by_id[instance_id]
            yield expired
        connections = list(self._of_connection)
        for start in range(0, len(connections), STEP_INSTANCES):
            for connection in connections[start : start + STEP_INSTANCES]:
                if self._of_connection.get(connection) not in self.by_id:
                    self._of_connection.pop(connection, None)
            yield []

    def _instance(self, instance_id: bytes, attributes: Mapping[str, str | None], connection: object, now_ms: int) -> Instance:
        """The client, with the time of this request. It is created if it does not exist or its subscriptions have changed; it may then ask
        and push at once."""
        cached = self.by_id.pop(instance_id, None)
        version = self._subscriptions.version
        if cached is None or cached.version < version:
            own = cached.attributes if cached is not None else _kept(attributes, instance_id)
            cached = Instance(instance_id, own, self._subscriptions.requested_metrics(instance_id, own), version)
            self._of_connection[connection] = instance_id
            while len(self.by_id) >= INSTANCES_MAX:
                del self.by_id[next(iter(self.by_id))]
        cached.heard_ms = now_ms
        self.by_id[instance_id] = cached
        return cached

    def _new_id(self) -> bytes:
        """A random UUID (version 4) that is not in use, and whose text does not begin with a dash, which would look like an option."""
        while True:
            drawn = bytearray(self._random_bytes(16))
            drawn[6] = drawn[6] & 0x0F | 0x40
            drawn[8] = drawn[8] & 0x3F | 0x80
            found = bytes(drawn)
            if found not in self.by_id and not uuid_to_text(found).startswith("-"):
                return found


def _kept(attributes: Mapping[str, str | None], instance_id: bytes) -> dict[str, str | None]:
    """The attributes to keep of a client. A text that is too long for any pattern is cut, but stays too long."""
    kept = {name: None if value is None else value[: ATTRIBUTE_CHARACTERS_MAX + 1] for name, value in attributes.items()}
    return {**kept, CLIENT_INSTANCE_ID: uuid_to_text(instance_id)}
