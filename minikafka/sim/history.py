"""Records what clients saw and looks for the anomalies of Jepsen's Kafka workload (jepsen.tests.kafka), for logs without transactions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minikafka.sim.parts import World


@dataclass(slots=True)
class Write:
    """One record that a producer sent; `client` is the name of its process.

    `offset` is set when the record is acknowledged; `error` when the client gave up and the outcome is unknown.
    """

    client: str
    partition: int
    value: bytes
    number: int
    invoked_s: float
    offset: int | None = None
    error: str = ""


@dataclass(slots=True)
class Commit:
    """An attempt to commit a group's offset. `number` and `settled` are event numbers; `settled` -1: not acknowledged. A commit that was
    refused does not count at all."""

    partition: int
    offset: int
    number: int
    settled: int = -1
    is_refused: bool = False


class GroupHistory:
    """What one group has read and committed. `stored`: its offsets at the end, asked for between the events `asked`."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        self.stored: dict[int, int | None] = {}
        self.asked: tuple[int, int] = (0, 0)
        self._commits: list[Commit] = []
        self._read: set[tuple[int, int]] = set()
        self._events = 0

    def read(self, partition: int, offset: int) -> None:
        """A member read a record."""
        self._read.add((partition, offset))

    def has_read(self, places: Iterable[tuple[int, int]]) -> bool:
        """Whether members have read all these records."""
        return all(place in self._read for place in places)

    def committing(self, partition: int, offset: int) -> Commit:
        """A member is about to commit."""
        self._events += 1
        commit = Commit(partition, offset, self._events)
        self._commits.append(commit)
        return commit

    def committed(self, commit: Commit) -> None:
        """The coordinator has acknowledged the commit."""
        self._events += 1
        commit.settled = self._events

    def refused(self, commit: Commit) -> None:
        """The coordinator has refused the commit."""
        commit.is_refused = True

    @property
    def clock(self) -> int:
        """Number of the last event of a commit."""
        return self._events

    def judge(self) -> None:
        """S22: the stored offset is the last one that was acknowledged, or one whose outcome is unknown."""
        for index, stored in self.stored.items():
            asked, answered = self.asked
            attempts = [one for one in self._commits if one.partition == index and one.number <= answered and not one.is_refused]
            settled = [commit for commit in attempts if 0 <= commit.settled <= asked]
            if not settled:
                continue
            self._world.invariants.checked["S22"] += 1
            last = max(settled, key=lambda commit: commit.number)
            allowed = {commit.offset for commit in attempts if commit.settled < 0 or commit.settled > last.number}
            if stored not in allowed:
                self._world.violate("S22", f"{self.name} committed {last.offset} of {index}, but {stored} is stored")


@dataclass(slots=True)
class History:
    """Writes, reads and commits. Offsets and values are compared as they arrive; the rest is judged at the end."""

    world: World
    writes: dict[bytes, Write] = field(default_factory=dict)
    seen: dict[tuple[int, int], tuple[bytes, int, str]] = field(default_factory=dict)
    final: dict[tuple[int, int], bytes] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    groups: dict[str, GroupHistory] = field(default_factory=dict)
    acknowledged: int = 0
    _acked_at: dict[tuple[int, int], Write] = field(default_factory=dict)
    _pending: dict[bytes, Write] = field(default_factory=dict)

    def invoked(self, client: str, partition: int, value: bytes) -> Write:
        """A producer is about to send."""
        write = Write(client, partition, value, len(self.writes), self.world.now)
        self.writes[value] = self._pending[value] = write
        return write

    def acked(self, write: Write, offset: int) -> None:
        """The cluster has acknowledged the record."""
        self._pending.pop(write.value, None)
        write.offset = offset
        self.acknowledged += 1
        self.world.invariants.acknowledged(write.partition, offset)
        before = self._acked_at.setdefault((write.partition, offset), write)
        if before is not write:
            self.world.violate("L8", f"offset {offset} of {write.partition} was acknowledged for {before.value!r} and {write.value!r}")
        earlier = self.seen.get((write.partition, offset))
        if earlier is not None and earlier[0] != write.value:
            text = f"was acknowledged at {write.partition}/{offset}, where {earlier[2]} read {earlier[0]!r}"
            self.world.violate("L8", f"{write.value!r} {text}")

    def failed(self, write: Write, error: str) -> None:
        """The client gave up; the record may be stored."""
        self._pending.pop(write.value, None)
        write.error = error

    def pending(self, clients: set[str]) -> bool:
        """Whether any of these client processes still waits for an acknowledgement."""
        return any(write.client in clients for write in self._pending.values())

    def read(self, client: str, partition: int, offset: int, value: bytes, epoch: int) -> None:
        """A client read a record. All reads at one offset must return the same value."""
        write = self.writes.get(value)
        if write is None or write.partition != partition:
            self.world.violate("L8", f"{client} read {value!r} at {partition}/{offset}, which no client wrote there")
            return
        checked = self.world.invariants.checked
        checked["S13"] += 1
        checked["L8"] += 1
        earlier = self.seen.setdefault((partition, offset), (value, epoch, client))
        if earlier[0] != value:
            self.world.violate("L8", f"inconsistent offset {partition}/{offset}: {earlier[2]} read {earlier[0]!r}, {client} {value!r}")

    def group(self, name: str) -> GroupHistory:
        """The history of a group."""
        return self.groups.setdefault(name, GroupHistory(self.world, name))

    def finally_read(self, partition: int, offset: int, value: bytes) -> None:
        """The last reader, after healing, read a record."""
        self.final[(partition, offset)] = value

    # -- the end ---------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Look for lost, duplicated, reordered and missing records, and check the group's offsets."""
        where: dict[bytes, list[tuple[int, int]]] = {}
        for key, value in self.final.items():
            where.setdefault(value, []).append(key)
        for value, places in where.items():
            if len(places) > 1:
                self.world.violate("L8", f"duplicate: {value!r} is at {places}")
        for index, end in self.ends.items():
            missing = [offset for offset in range(end) if (index, offset) not in self.final]
            if missing:
                self.world.violate("L8", f"partition {index} has no records at {missing[:5]}, although it ends at {end}")
        order: dict[tuple[str, int], tuple[int, Write]] = {}
        for write in self.writes.values():
            places = where.get(write.value, [])
            if write.offset is not None and places != [(write.partition, write.offset)]:
                self.world.violate("L8", f"lost: {write.value!r} was acknowledged at {write.partition}/{write.offset}, but is at {places}")
            # A record of unknown outcome may be stored, at any time, or not at all.
            if places and write.offset is not None:
                last = order.get((write.client, write.partition))
                if last is not None and last[0] >= places[0][1]:
                    self.world.violate("L8", f"out of order: {write.value!r} at {places[0]} after {last[1].value!r} at {last[0]}")
                order[(write.client, write.partition)] = (places[0][1], write)
        for group in self.groups.values():
            group.judge()
