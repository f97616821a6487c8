"""Records what clients saw and looks for the anomalies of Jepsen's Kafka workload (jepsen.tests.kafka), for logs without transactions."""

from __future__ import annotations

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
    """An attempt to commit a group's offset. `number` and `settled` are event numbers; `settled` -1: not acknowledged."""

    partition: int
    offset: int
    number: int
    settled: int = -1


@dataclass(slots=True)
class History:
    """Writes, reads and commits. Offsets and values are compared as they arrive; the rest is judged at the end."""

    world: World
    writes: dict[bytes, Write] = field(default_factory=dict)
    seen: dict[tuple[int, int], tuple[bytes, int, str]] = field(default_factory=dict)
    final: dict[tuple[int, int], bytes] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    group_offsets: dict[int, int | None] = field(default_factory=dict)
    group_asked: tuple[int, int] = (0, 0)
    acknowledged: int = 0
    _acked_at: dict[tuple[int, int], Write] = field(default_factory=dict)
    _pending: dict[bytes, Write] = field(default_factory=dict)
    _members: set[tuple[int, int]] = field(default_factory=set)
    _events: int = 0

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
            self.world.violate("L8", f"{client} read {value!r} at {partition}/{offset}, which nobody wrote there")
            return
        earlier = self.seen.setdefault((partition, offset), (value, epoch, client))
        if earlier[0] != value:
            self.world.violate("L8", f"inconsistent offset {partition}/{offset}: {earlier[2]} read {earlier[0]!r}, {client} {value!r}")

    def member_read(self, partition: int, offset: int) -> None:
        """A member of the group read a record."""
        self._members.add((partition, offset))

    def finally_read(self, partition: int, offset: int, value: bytes) -> None:
        """The last reader, after healing, read a record."""
        self.final[(partition, offset)] = value

    def members_have_read_all(self) -> bool:
        """Whether the group has seen every record."""
        return all(key in self._members for key in self.final)

    def committing(self, partition: int, offset: int) -> Commit:
        """A member is about to commit."""
        self._events += 1
        commit = Commit(partition, offset, self._events)
        self.commits.append(commit)
        return commit

    def committed(self, commit: Commit) -> None:
        """The coordinator has acknowledged the commit."""
        self._events += 1
        commit.settled = self._events

    @property
    def clock(self) -> int:
        """Number of the last event of a commit."""
        return self._events

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
                self.world.violate("L8", f"partition {index} has no records at {missing[:5]}, though it ends at {end}")
        order: dict[tuple[str, int], tuple[int, Write]] = {}
        for write in self.writes.values():
            places = where.get(write.value, [])
            if write.offset is not None and places != [(write.partition, write.offset)]:
                self.world.violate("L8", f"lost: {write.value!r} was acknowledged at {write.partition}/{write.offset} and is at {places}")
            # A record of unknown outcome may be stored, at any time, or not at all.
            if places and write.offset is not None:
                last = order.get((write.client, write.partition))
                if last is not None and last[0] >= places[0][1]:
                    self.world.violate("L8", f"out of order: {write.value!r} at {places[0]} after {last[1].value!r} at {last[0]}")
                order[(write.client, write.partition)] = (places[0][1], write)
        self._judge_commits()

    def _judge_commits(self) -> None:
        for index, stored in self.group_offsets.items():
            asked, answered = self.group_asked
            attempts = [commit for commit in self.commits if commit.partition == index and commit.number <= answered]
            settled = [commit for commit in attempts if 0 <= commit.settled <= asked]
            if not settled:
                continue
            last = max(settled, key=lambda commit: commit.number)
            allowed = {commit.offset for commit in attempts if commit.settled < 0 or commit.settled > last.number}
            if stored not in allowed:
                self.world.violate("S22", f"the group committed {last.offset} of {index}, and {stored} is stored")
