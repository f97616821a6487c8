"""Places the replicas of new partitions in stripes over racks and over the brokers of each rack (Kafka's StripedReplicaPlacer)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from minikafka.core.controller.config import RandomSource
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ApiError, ErrorCode


@dataclass(slots=True, frozen=True)
class UsableBroker:
    """A broker that may hold replicas. A fenced broker is never placed as a leader."""

    broker_id: int
    rack: str | None
    fenced: bool


class _Ring:
    """Brokers in a circle, walked again for each partition.

    The start moves by one per partition, and is counted separately for partitions that this rack leads. Otherwise two racks of two brokers
    that lead in turn would have the same leader each time.
    """

    __slots__ = ("_following", "_index", "_leading", "_partition", "_start", "brokers")

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self._partition = -1
        self._index = self._start = 0
        self._leading = self._following = 0

    def begin(self, random: RandomSource) -> None:
        """Start at a random broker."""
        self.brokers.sort()
        self._leading = self._following = random.randrange(len(self.brokers)) if self.brokers else 0

    def next(self, partition: int, leading: bool = False) -> int | None:
        """The next broker for this partition, or None if all have been used."""
        if self._partition != partition:
            self._partition = partition
            self._index = 0
            if leading:
                self._start, self._leading = self._leading, self._leading + 1
            else:
                self._start, self._following = self._following, self._following + 1
        if self._index >= len(self.brokers):
            return None
        broker = self.brokers[(self._index + self._start) % len(self.brokers)]
        self._index += 1
        return broker


class _Rack:
    """One rack: unfenced brokers first, then fenced ones."""

    __slots__ = ("fenced", "unfenced")

    def __init__(self) -> None:
        self.unfenced = _Ring()
        self.fenced = _Ring()

    def next(self, partition: int) -> int | None:
        broker = self.unfenced.next(partition)
        return self.fenced.next(partition) if broker is None else broker


class _Racks:
    def __init__(self, brokers: Iterable[UsableBroker], random: RandomSource) -> None:
        self._random = random
        racks: dict[str, _Rack] = {}
        self.total = self.unfenced = 0
        for broker in brokers:
            rack = racks.setdefault(broker.rack or "", _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).brokers.append(broker.broker_id)
            self.total += 1
            self.unfenced += not broker.fenced
        self._racks = [racks[name] for name in sorted(racks)]
        for rack in self._racks:
            rack.unfenced.begin(random)
            rack.fenced.begin(random)
        self._partition = 0
        self._offset = random.randrange(len(self._racks)) if self._racks else 0

    def place(self, count: int) -> list[int]:
        """Brokers of one partition: an unfenced one first, then as many racks as there are, round after round."""
        if self._partition and self._partition % self.unfenced == 0:
            self._shuffle()
        racks = self._racks
        self._partition += 1
        first = self._offset % len(racks)
        self._offset = (first + 1) % len(racks)
        chosen: list[int] = []
        for step in range(len(racks)):
            leader = racks[(first + step) % len(racks)].unfenced.next(self._partition, leading=True)
            if leader is not None:
                first = (first + step) % len(racks)
                chosen.append(leader)
                break
        position = first + 1
        while len(chosen) < count:
            broker = racks[position % len(racks)].next(self._partition)
            position += 1
            if broker is not None:
                chosen.append(broker)
        return chosen

    def _shuffle(self) -> None:
        """Choose another order once every broker has led in this one, so that the sets of followers vary."""
        self._random.shuffle(self._racks)
        for rack in self._racks:
            self._random.shuffle(rack.unfenced.brokers)
            self._random.shuffle(rack.fenced.brokers)


def place_replicas(brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, random: RandomSource) -> list[list[int]]:
    """As `placing_replicas`, at once."""
    return list(placing_replicas(brokers, partitions, replication_factor, random))


def placing_replicas(
    brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, random: RandomSource
) -> Iterator[list[int]]:
    """Replicas of `partitions` new partitions, the preferred leader first.

    No broker appears twice in a partition, replicas are spread over racks, and leaders evenly over unfenced brokers. Raises ApiError
    INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR with Kafka's messages.
    """
    if partitions <= 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, f"Invalid number of partitions {partitions}: the number of partitions must be positive."
        )
    if replication_factor <= 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Invalid replication factor {replication_factor}: the replication factor must be positive.",
        )
    racks = _Racks(brokers, random)
    if racks.unfenced == 0:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced or have all their log directories cordoned.")
    if replication_factor > racks.total:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only {racks.total} broker(s) "
            "are registered or some brokers have all their log directories cordoned.",
        )
    return (racks.place(replication_factor) for _ in range(partitions))
