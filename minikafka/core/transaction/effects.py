"""Effects that a transaction shard asks its host to carry out, and its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace

from minikafka.core.coordinator.shard import Append
from minikafka.core.transaction.records import by_topic
from minikafka.core.transaction.state import PartitionKey
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ErrorCode

#: Partitions whose markers are sent, and answered, together.
MARKERS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Times in milliseconds: transaction.max.timeout.ms and transactional.id.expiration.ms."""

    timeout_ms_max: int = 900_000
    expiration_ms: int = 604_800_000
    #: Most transactional ids of one shard. In Kafka only their expiration limits them.
    ids_max: int = 50_000


@dataclass(frozen=True, slots=True)
class Markers:
    """Write a marker to each partition, then call `TransactionShard.markers_answered`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: frozenset[PartitionKey]

    def parts(self) -> Iterator[Markers]:
        """The same for MARKERS_AT_ONCE partitions at a time: each part is one piece of work."""
        if len(self.partitions) <= MARKERS_AT_ONCE:
            yield self
            return
        keys = [(topic, index) for topic, indexes in by_topic(self.partitions) for index in indexes]
        for start in range(0, len(keys), MARKERS_AT_ONCE):
            yield replace(self, partitions=frozenset(keys[start : start + MARKERS_AT_ONCE]))


@dataclass(slots=True)
class TransactionEffects:
    """`ids`: callbacks that need a fresh producer id each, called as `callback(error, producer_id, wall_ms)`. `later`: callbacks to call
    with the time after a pause."""

    appends: list[Append] = field(default_factory=list)
    ids: list[Callable[[ErrorCode, int, int], None]] = field(default_factory=list)
    markers: list[Markers] = field(default_factory=list)
    later: list[Callable[[int], None]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.appends or self.ids or self.markers or self.later)
