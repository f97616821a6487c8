"""The set of voters and its history in the log (KIP-853)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from operator import itemgetter

from minikafka.core.raft.types import ZERO_ID, Endpoint, ReplicaKey
from minikafka.late_dataclass import dataclass

#: The offset of voters that are not in the log but in the configuration or the bootstrap snapshot.
BOOTSTRAP_OFFSET = -1
_offset_of = itemgetter(0)


@dataclass(frozen=True, slots=True)
class Voter:
    """One voter, its endpoints, and the kraft.version levels that it supports."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    version_min: int = 0
    version_max: int = 1


class VoterSet:
    """Immutable. A voter without a directory id (static quorum) is recognised by its node id alone."""

    __slots__ = ("_voters", "node_ids")

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters = {voter.key.node_id: voter for voter in sorted(voters, key=lambda voter: voter.key.node_id)}
        self.node_ids: tuple[int, ...] = tuple(self._voters)

    def __len__(self) -> int:
        return len(self._voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"VoterSet({list(self._voters.values())})"

    def voters(self) -> tuple[Voter, ...]:
        """All, by node id."""
        return tuple(self._voters.values())

    def get(self, node_id: int) -> Voter | None:
        return self._voters.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether the replica is one of the voters. A replica with a wiped disk has another directory id and is not."""
        voter = self._voters.get(key.node_id)
        return voter is not None and voter.key.directory_id in (ZERO_ID, key.directory_id)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self._voters) == 1 and self.is_voter(key)

    @property
    def majority(self) -> int:
        """How many voters are a majority."""
        return len(self._voters) // 2 + 1

    def endpoint(self, node_id: int) -> Endpoint | None:
        """Where the voter listens: its first endpoint."""
        voter = self._voters.get(node_id)
        return voter.endpoints[0] if voter is not None and voter.endpoints else None

    def with_voter(self, voter: Voter) -> VoterSet:
        """This set with `voter` added or its entry replaced."""
        return VoterSet({**self._voters, voter.key.node_id: voter}.values())

    def without(self, node_id: int) -> VoterSet:
        return VoterSet(voter for voter in self._voters.values() if voter.key.node_id != node_id)


class VoterHistory:
    """Voter sets and kraft versions by the offset of their control record.

    The newest is in force as soon as it is in the log, committed or not; truncation brings back the one before.
    """

    __slots__ = ("_sets", "_versions")

    def __init__(self, voters: VoterSet, kraft_version: int) -> None:
        self._sets: list[tuple[int, VoterSet]] = [(BOOTSTRAP_OFFSET, voters)]
        self._versions: list[tuple[int, int]] = [(BOOTSTRAP_OFFSET, kraft_version)]

    @property
    def latest(self) -> VoterSet:
        return self._sets[-1][1]

    @property
    def latest_offset(self) -> int:
        """Offset of the record with the latest set, BOOTSTRAP_OFFSET if it is not in the log."""
        return self._sets[-1][0]

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1]

    def was_voter(self, key: ReplicaKey) -> bool:
        """Whether the replica is in any set of this history."""
        return any(voters.is_voter(key) for _, voters in self._sets)

    def at(self, end_offset: int) -> tuple[VoterSet, int]:
        """(voters, kraft version) in force before `end_offset`."""
        sets = self._sets[max(bisect_left(self._sets, end_offset, key=_offset_of) - 1, 0)][1]
        return sets, self._versions[max(bisect_left(self._versions, end_offset, key=_offset_of) - 1, 0)][1]

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        insort(self._sets, (offset, voters), key=_offset_of)

    def add_version(self, offset: int, version: int) -> None:
        insort(self._versions, (offset, version), key=_offset_of)

    def truncate_to(self, end_offset: int) -> None:
        """Forget sets and versions at or after `end_offset`."""
        self._sets = [entry for entry in self._sets if entry[0] < end_offset] or self._sets[:1]
        self._versions = [entry for entry in self._versions if entry[0] < end_offset] or self._versions[:1]

    def install(self, end_offset: int, voters: VoterSet | None, kraft_version: int) -> None:
        """A snapshot replaced the log before `end_offset`. `voters` is None if it has no voter set (static quorum)."""
        self._sets = [(end_offset - 1, voters if voters is not None else self._sets[0][1])]
        self._versions = [(end_offset - 1, kraft_version)]

    def forget_before(self, start_offset: int) -> None:
        """Drop entries that a newer one at or before `start_offset` replaced."""
        for entries in (self._sets, self._versions):
            while len(entries) > 1 and entries[1][0] < start_offset:
                del entries[0]
