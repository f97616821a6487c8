"""Throttled replication (KIP-73): which replicas are throttled, and whether the quota has room left. Times are in ms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def throttled_partitions(entries: Iterable[str], broker_id: int) -> frozenset[int] | None:
    """The partitions that a topic's `*.replication.throttled.replicas` lists for a broker; None for all of them ("*")."""
    found: set[int] = set()
    for entry in entries:
        if entry == "*":
            return None
        partition, _, broker = entry.partition(":")
        if partition.isdecimal() and broker == str(broker_id):
            found.add(int(partition))
    return frozenset(found)


class ReplicationQuota:
    """A rate in bytes per second, and the replicas that share it. One second's worth may be sent at once; beyond that senders wait."""

    __slots__ = ("_at_ms", "_left", "_rate", "_topics", "is_active")

    def __init__(self) -> None:
        self._rate: int | None = None
        self._topics: Mapping[str, frozenset[int] | None] = {}
        self._left = 0.0
        self._at_ms = 0
        #: Whether anything is throttled at all.
        self.is_active = False

    def configure(self, rate: int | None, topics: Mapping[str, frozenset[int] | None]) -> None:
        """`rate` None: no limit; `topics`: the throttled partitions by topic, None for all of a topic."""
        if rate != self._rate:
            self._left = float(rate or 0)
        self._rate, self._topics = rate, topics
        self.is_active = rate is not None and bool(topics)

    def applies_to(self, topic: str, partition: int) -> bool:
        """Whether a replica of this partition is throttled here."""
        if self._rate is None or topic not in self._topics:
            return False
        partitions = self._topics[topic]
        return partitions is None or partition in partitions

    def wait_ms(self, now_ms: int) -> int:
        """0 if there is room now, otherwise how long until there is."""
        rate = self._rate
        if rate is None:
            return 0
        self._refill(rate, now_ms)
        return 0 if self._left > 0 else int(-self._left * 1000 / max(rate, 1)) + 1

    def record(self, size: int, now_ms: int) -> None:
        """Count `size` bytes of throttled replicas."""
        if self._rate is not None:
            self._refill(self._rate, now_ms)
            self._left -= size

    def _refill(self, rate: int, now_ms: int) -> None:
        self._left = min(self._left + rate * max(now_ms - self._at_ms, 0) / 1000, float(rate))
        self._at_ms = now_ms
