"""The rules by which a controller loads partitions and metadata transactions: it ends where one of them is broken (PartitionRegistration,
LeaderRecoveryState, OffsetControlManager)."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from minikafka.counted import counted
from minikafka.spark.logformat import FormatError

TRANSACTION_KINDS = BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION = 23, 24, 25
MIGRATING, UNASSIGNED, LOST = (f"AAAAAAAAAAAAAAAAAAAAA{last}" for last in "AQg")
#: What stands in place of a partition's directory that is unknown, not chosen yet, or offline (DirectoryId).
NO_DIRECTORY = frozenset({MIGRATING, UNASSIGNED, LOST})
RESERVED_DIRECTORIES = 100
_RECOVERED, _RECOVERING, _UNCHANGED = 0, 1, -1


def is_recovering(state: int, before: bool | None = None) -> bool:
    """Whether the leader was elected uncleanly and has not recovered. `before`: of a partition that is changed. Raises FormatError."""
    if state == _UNCHANGED and before is not None:
        return before
    if state not in {_RECOVERED, _RECOVERING}:
        raise FormatError(f"a partition's leader is in the unknown recovery state {state}")
    return state == _RECOVERING


def is_reserved(directory: str) -> bool:
    """Whether no log directory has this id (DirectoryId.reserved)."""
    return int.from_bytes(base64.urlsafe_b64decode(directory + "=="), "big") < RESERVED_DIRECTORIES


def places_of(replicas: tuple[str, ...], before: tuple[str, ...], places: tuple[str, ...], said: tuple[str, ...]) -> tuple[str, ...]:
    """The directories of a partition's replicas. `before`, `places`: the replicas and directories that it had. `said`: the directories in
    the record, if any. Raises FormatError."""
    if said:
        places = said
    elif places and replicas != before:
        held = dict(zip(before, places, strict=True))
        places = tuple(held.get(node, UNASSIGNED) for node in replicas)
    if wrong := [place for place in places if place not in NO_DIRECTORY and is_reserved(place)]:
        raise FormatError(f"a replica is in the directory {wrong[0]}, whose id is reserved")
    if places and len(places) != len(replicas):
        raise FormatError(f"a partition has {counted(len(replicas), 'replica')} in {counted(len(places), 'directory', 'directories')}")
    return places


class Claim(Protocol):
    """The part of a partition's claim that this module uses."""

    leader_epoch: int
    partition_epoch: int
    was_in_sync: frozenset[str]
    ever: frozenset[str]
    joined: frozenset[str]


def keep_past(claim: Claim, before: Claim | None) -> None:
    """A record of a partition that exists says its state anew, and what was before stays true. Raises FormatError if epochs fall, since
    no controller writes that."""
    if before is None:
        return
    epochs = [(one.leader_epoch, one.partition_epoch) for one in (before, claim)]
    if any(now < earlier for earlier, now in zip(*epochs, strict=True)):
        raise FormatError(f"the leader epoch and the partition epoch fall from {epochs[0]} to {epochs[1]}")
    claim.was_in_sync |= before.was_in_sync
    claim.joined |= before.joined
    claim.ever |= before.ever


@dataclass(slots=True)
class Transactions:
    """Holds the records of a metadata transaction back until it ends (KIP-868)."""

    _held: list[tuple[bytes, int, int]] | None = None

    def take(self, value: bytes, offset: int, timestamp_ms: int) -> Iterator[tuple[bytes, int, int]]:
        """The records to apply after this one was read. Raises FormatError."""
        kind = value[1] if len(value) > 1 else -1
        if kind in TRANSACTION_KINDS:
            yield value, offset, timestamp_ms
        if kind == BEGIN_TRANSACTION:
            if self._held is not None:
                raise FormatError(f"a metadata transaction begins at {offset} inside another one")
            self._held = []
        elif kind in {END_TRANSACTION, ABORT_TRANSACTION}:
            if self._held is None:
                raise FormatError(f"a metadata transaction ends at {offset}, and none has begun")
            held, self._held = self._held, None
            if kind == END_TRANSACTION:
                yield from held
        elif self._held is not None:
            self._held.append((value, offset, timestamp_ms))
        else:
            yield value, offset, timestamp_ms
