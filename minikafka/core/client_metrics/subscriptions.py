"""Subscriptions to clients' metrics: their configuration, and the clients that they match.

Rules: ClientMetricsConfigs and ClientMetricsManager of Apache Kafka. Patterns are RE2's (Kafka's are Java's), and limited in size, because
the controller compiles them in its event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minikafka.core.java_hash import by_place, string_hash
from minikafka.core.pattern import InvalidPattern, Pattern
from minikafka.late_dataclass import dataclass
from minikafka.wire.crc import crc32c
from minikafka.wire.errors import ApiError, ErrorCode

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
#: Every property with its default, in Kafka's order.
DEFAULTS = {INTERVAL_MS: "300000", MATCH: "", METRICS: ""}
INTERVAL_MS_DEFAULT = 300_000
INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000
ALL_METRICS = "*"

#: Attributes by which a subscription can match clients.
CLIENT_INSTANCE_ID, CLIENT_ID = "client_instance_id", "client_id"
CLIENT_SOFTWARE_NAME, CLIENT_SOFTWARE_VERSION = "client_software_name", "client_software_version"
CLIENT_SOURCE_ADDRESS, CLIENT_SOURCE_PORT = "client_source_address", "client_source_port"
ATTRIBUTES = frozenset(
    {CLIENT_INSTANCE_ID, CLIENT_ID, CLIENT_SOFTWARE_NAME, CLIENT_SOFTWARE_VERSION, CLIENT_SOURCE_ADDRESS, CLIENT_SOURCE_PORT}
)

# Kafka has none of these limits. Every new client is compared with all subscriptions in one turn of the event loop.
SUBSCRIPTIONS_MAX = 100
#: Most metric names in all subscriptions together.
METRICS_MAX = 1000
METRIC_CHARACTERS_MAX = 256
MATCH_CHARACTERS_MAX = 1000
PATTERN_CHARACTERS_MAX = 256
PATTERN_BYTES_MAX = 1 << 16
#: No pattern matches a longer attribute of a client.
ATTRIBUTE_CHARACTERS_MAX = 256

Values = Mapping[str, str]


@dataclass(slots=True, frozen=True)
class Subscription:
    """`metrics`: prefixes of metric names, with their Java hashes. `match`: attribute -> pattern; empty to match every client."""

    name: str
    metrics: Mapping[str, int]
    interval_ms: int
    match: Mapping[str, Pattern]

    @classmethod
    def of(cls, name: str, values: Values) -> Subscription:
        """The subscription with this configuration. Raises ApiError with Kafka's messages."""
        for key in values:
            if key not in DEFAULTS:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
        metrics = dict.fromkeys(_items(METRICS, values))
        if any(len(metric) > METRIC_CHARACTERS_MAX for metric in metrics):
            raise ApiError(ErrorCode.INVALID_CONFIG, f"The name of a metric can have no more than {METRIC_CHARACTERS_MAX} characters.")
        interval_ms = _interval_ms(values.get(INTERVAL_MS))
        match = _patterns(_items(MATCH, values), values.get(MATCH, ""))
        return cls(name, {metric: string_hash(metric) for metric in metrics}, interval_ms, match)

    def matches(self, attributes: Mapping[str, str | None]) -> bool:
        """Whether the subscription matches a client. An attribute that the client lacks matches nothing."""
        for name, pattern in self.match.items():
            value = attributes.get(name)
            if value is None or len(value) > ATTRIBUTE_CHARACTERS_MAX or not pattern.matches(value):
                return False
        return True


@dataclass(slots=True, frozen=True)
class RequestedMetrics:
    """The metrics that a client should push, as prefixes of their names, and how often."""

    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int


class Subscriptions:
    """All subscriptions. `version` grows with every change; then clients are matched again."""

    def __init__(self) -> None:
        self._by_name: dict[str, Subscription] = {}
        self._metrics = 0
        self.version = 0

    @property
    def names(self) -> list[str]:
        """Names of all active subscriptions."""
        return list(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def put(self, name: str, values: Values) -> None:
        """Set a subscription's configuration; an empty one removes it. Raises ApiError for an invalid one, which is then not active."""
        old = self._by_name.pop(name, None)
        if old is not None:
            self._metrics -= len(old.metrics)
            self.version += 1
        if not values:
            return
        new = Subscription.of(name, values)
        check_room(len(self._by_name) + 1, self._metrics + len(new.metrics))
        self._by_name[name] = new
        self._metrics += len(new.metrics)
        self.version += 1

    def requested_metrics(self, instance_id: bytes, attributes: Mapping[str, str | None]) -> RequestedMetrics:
        """The union of all subscriptions that match the client. The subscription id is computed as in Kafka, so that a client can switch
        between brokers of both kinds."""
        names: dict[str, int] = {}
        interval_ms = INTERVAL_MS_DEFAULT
        for subscription in self._by_name.values():
            if subscription.matches(attributes):
                names.update(subscription.metrics)
                interval_ms = min(interval_ms, subscription.interval_ms)
        metrics = (ALL_METRICS,) if ALL_METRICS in names else tuple(by_place((number, name) for name, number in sorted(names.items())))
        checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
        return RequestedMetrics(metrics, interval_ms, _signed(checksum ^ _uuid_hash(instance_id)))


def check_subscription(name: str, values: Values, others: Iterable[Values]) -> None:
    """Check that a subscription may have this configuration in addition to these others. Raises ApiError."""
    subscription = Subscription.of(name, values)
    count, metrics = 1, len(subscription.metrics)
    for other in others:
        count += 1
        metrics += other.get(METRICS, "").count(",") + 1
    check_room(count, metrics)


def check_room(subscriptions: int, metrics: int) -> None:
    """Raises ApiError if there are too many subscriptions or metrics."""
    if subscriptions > SUBSCRIPTIONS_MAX:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"There can be no more than {SUBSCRIPTIONS_MAX} subscriptions to clients' metrics.")
    if metrics > METRICS_MAX:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"All subscriptions together can name no more than {METRICS_MAX} metrics.")


def _items(key: str, values: Values) -> list[str]:
    text = values.get(key, "").strip()
    items = [item.strip() for item in text.split(",")] if text else []
    if not all(items):
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Configuration '{key}' values must not be empty.")
    return items


def _interval_ms(text: str | None) -> int:
    if text is None:
        return INTERVAL_MS_DEFAULT
    try:
        interval_ms = int(text.strip())
        if "_" in text or not -(1 << 31) <= interval_ms < 1 << 31:
            raise ValueError(text)
    except ValueError:
        message = f"Invalid value {text} for configuration {INTERVAL_MS}: Not a number of type INT"
        raise ApiError(ErrorCode.INVALID_CONFIG, message) from None
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        message = f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between 100 and 3600000 (1 hour)"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    return interval_ms


def _patterns(items: list[str], text: str) -> dict[str, Pattern]:
    if len(text) > MATCH_CHARACTERS_MAX:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Client matching patterns can have no more than {MATCH_CHARACTERS_MAX} characters.")
    return dict(_pattern(item) for item in items)


def _pattern(item: str) -> tuple[str, Pattern]:
    parts = item.split("=")
    while parts and not parts[-1]:
        parts.pop()
    illegal = ApiError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {item}")
    if len(parts) != 2 or parts[0].strip() not in ATTRIBUTES:
        raise illegal
    text = parts[1].strip()
    # Unicode classes take RE2 a hundred times as long to compile as other patterns of that length.
    if len(text) > PATTERN_CHARACTERS_MAX or "\\p" in text.lower():
        raise illegal
    try:
        return parts[0].strip(), Pattern(text, PATTERN_BYTES_MAX)
    except InvalidPattern:
        raise illegal from None


def _uuid_hash(value: bytes) -> int:
    """Java's hash of a UUID."""
    both = int.from_bytes(value[:8], "big") ^ int.from_bytes(value[8:], "big")
    return (both >> 32 ^ both) & 0xFFFFFFFF


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
