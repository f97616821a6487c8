"""Control records of the metadata log and of its snapshots, by the rules by which a node loads them: it ends where one of them is broken
(RecordsIterator.decodeControlRecord, VoterSet, KRaftVersion)."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_fields import Fields, UnknownRecordError
from minikafka.spark.metadata_partitions import MIGRATING, is_reserved

LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = 2, 3, 4, 5, 6
#: The newest level, and the newest version of the record.
NEWEST_KRAFT_VERSION, NEWEST_LEADER_CHANGE = 1, 1
Voters = dict[str, str]


def kind_of(key: bytes) -> int:
    """The type in the key of a control record: a version and the type."""
    return int.from_bytes(key[2:4], "big") if len(key) >= 4 else -1


def check_control(key: bytes, value: bytes) -> None:
    """Read a control record of the metadata log. Raises FormatError."""
    kind = kind_of(key)
    if kind == LEADER_CHANGE:
        _leader_change(value)
    elif kind == KRAFT_VERSION:
        _kraft_version(value)
    elif kind == KRAFT_VOTERS:
        voters_in(value)
    else:
        text = f"a control record of type {kind}, which has no place in the metadata log"
        raise UnknownRecordError(text) if kind > KRAFT_VOTERS else FormatError(text)


class Controls:
    """The control records of a log, one after the other."""

    def __init__(self) -> None:
        self._led: int | None = None
        self._level = 0
        self._voters: Voters = {}

    def check(self, key: bytes, value: bytes, epoch: int) -> None:
        """Read the next one, of a batch of this epoch. An epoch has one leader, which writes that down once. `kraft.version` never falls
        (KRaftVersion.isAtLeast), and one change of the voters adds or removes one (VoterSet.hasOverlappingMajority). Raises FormatError."""
        check_control(key, value)
        kind = kind_of(key)
        if kind == LEADER_CHANGE:
            if epoch == self._led:
                raise FormatError(f"a second record says who leads epoch {epoch}")
            self._led = epoch
        elif kind == KRAFT_VERSION:
            level = int.from_bytes(value[2:4], "big")
            if level < self._level:
                raise FormatError(f"kraft.version falls from {self._level} to {level}")
            self._level = level
        elif kind == KRAFT_VOTERS:
            before, self._voters = self._voters, voters_in(value)
            apart = (self._voters.items() - before.items(), before.items() - self._voters.items())
            if before and max(map(len, apart)) > 1:
                raise FormatError(f"the voters change from {' '.join(sorted(before))} to {' '.join(sorted(self._voters))} at once")


def check_snapshot_controls(kinds: Iterable[int]) -> None:
    """Check the types of a snapshot's control records; -1 stands for records of the cluster. Raises FormatError if it is not whole."""
    found = list(kinds)
    if not found or found[0] != SNAPSHOT_HEADER or found[-1] != SNAPSHOT_FOOTER:
        raise FormatError("it has no snapshot header or footer, so it is incomplete")
    if odd := [kind for kind in found[1:-1] if kind not in {-1, KRAFT_VERSION, KRAFT_VOTERS}]:
        raise FormatError(f"it has a control record of type {odd[0]} in its midst")


def voters_in(value: bytes) -> Voters:
    """VotersRecord: {voter: its directory}. Raises FormatError."""
    fields = Fields(value)
    _check_version(fields.integer(2), 0, "voters")
    found: Voters = {}
    for _ in range(fields.count()):
        node = str(fields.integer(4))
        if node in found:
            raise FormatError(f"voter {node} stands twice among the voters")
        found[node] = fields.uuid()
        for _ in range(fields.count()):
            fields.string(), fields.string(), fields.integer(2), fields.tagged()
        levels = fields.integer(2), fields.integer(2)
        fields.tagged(), fields.tagged()
        if found[node] != MIGRATING and is_reserved(found[node]):
            raise FormatError(f"voter {node} has the directory {found[node]}, whose id is reserved")
        if int(node) < 0 or not 0 <= levels[0] <= levels[1]:  # SupportedVersionRange
            raise FormatError(f"voter {node} supports the levels {levels[0]} to {levels[1]} of kraft.version")
    fields.tagged()
    if not found:
        raise FormatError("the set of voters is empty")
    return found


def _leader_change(value: bytes) -> None:
    """LeaderChangeMessage: of version 1 voters have directories."""
    fields = Fields(value)
    version = _check_version(fields.integer(2), NEWEST_LEADER_CHANGE, "a change of leader")
    leader = fields.integer(4)
    lists: list[list[int]] = []
    for _ in ("voters", "those that voted"):
        lists.append([])
        for _ in range(fields.count()):
            lists[-1].append(fields.integer(4))
            fields.raw(16 if version else 0), fields.tagged()
    fields.tagged()
    voters, voted = map(set, lists)
    is_twice = len(voters) < len(lists[0]) or len(voted) < len(lists[1])
    is_elected = not voters or (leader in voted and voted <= voters and 2 * len(voted) > len(voters))
    if leader < 0 or is_twice or not is_elected or (voted and not voters):
        raise FormatError(f"node {leader} leads, elected by {sorted(lists[1])} of the voters {sorted(lists[0])}")


def _kraft_version(value: bytes) -> None:
    fields = Fields(value)
    _check_version(fields.integer(2), 0, "kraft.version")
    level = fields.integer(2)
    fields.tagged()
    if level < 0:
        raise FormatError(f"kraft.version is {level}")
    if level > NEWEST_KRAFT_VERSION:
        raise UnknownRecordError(f"kraft.version is {level}, which is unknown")


def _check_version(version: int, most: int, what: str) -> int:
    if not 0 <= version <= most:
        text = f"a record of {what} has the unknown version {version}"
        raise UnknownRecordError(text) if version > most else FormatError(text)
    return version
