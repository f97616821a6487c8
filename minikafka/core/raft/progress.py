"""How far a leader's replicas are: the high watermark, and whether a majority still follows."""

from __future__ import annotations

from typing import Any

from minikafka.core.raft.messages import AddVoterRequest, FetchRequest, RemoveVoterRequest, UpdateVoterRequest
from minikafka.core.raft.types import ReplicaKey
from minikafka.core.raft.voters import VoterSet
from minikafka.late_dataclass import dataclass


@dataclass(slots=True)
class ReplicaProgress:
    """Times come from the monotonic clock; -1 means never. `end_offset` is the offset of the replica's last fetch: if the replica is a
    voter, everything before it is on its disk."""

    key: ReplicaKey
    end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_at_last_fetch: int = -1


@dataclass(slots=True)
class Contact:
    """When the leader last heard another voter, and when that voter last surely followed it (-1: not known).

    A single request may have been sent long ago. Once the voter sends another, it must have received the answer to the one before: so it
    surely followed when that earlier request arrived."""

    heard_ms: int
    followed_ms: int = -1


@dataclass(slots=True)
class Parked:
    """A fetch that waits for records or a higher high watermark."""

    token: Any
    request: FetchRequest
    deadline_ms: int


class Progress:
    """Voters and observers that have fetched in this epoch, and the parked fetches."""

    __slots__ = ("_contacts", "_fetched", "parked", "replicas")

    def __init__(self) -> None:
        self._contacts: dict[int, Contact] = {}
        self.replicas: dict[ReplicaKey, ReplicaProgress] = {}
        self.parked: list[Parked] = []
        self._fetched: list[int] = []

    def fetched(self, key: ReplicaKey, offset: int, leader_end: int, now_ms: int) -> None:
        """A valid fetch at `offset` arrived."""
        replica = self.replicas.get(key)
        if replica is None:
            replica = self.replicas[key] = ReplicaProgress(key)
        if offset >= leader_end:
            replica.last_caught_up_ms = now_ms
        elif 0 < replica.leader_end_at_last_fetch <= offset:
            replica.last_caught_up_ms = max(replica.last_caught_up_ms, replica.last_fetch_ms)
        replica.leader_end_at_last_fetch = leader_end
        replica.last_fetch_ms = now_ms
        replica.end_offset = offset

    def replica(self, key: ReplicaKey) -> ReplicaProgress | None:
        return self.replicas.get(key)

    def of_voter(self, voters: VoterSet, node_id: int) -> ReplicaProgress | None:
        """Progress of the voter with that node id; a static quorum does not have its directory id."""
        found = None
        for key, replica in self.replicas.items():
            if key.node_id == node_id and voters.is_voter(key) and (found is None or replica.last_fetch_ms > found.last_fetch_ms):
                found = replica
        return found

    def high_watermark(self, voters: VoterSet, local: ReplicaKey, flushed_offset: int) -> int:
        """The offset that a majority of voters has on disk; -1 if it is not known."""
        offsets = []
        for node_id in voters.node_ids:
            if node_id == local.node_id and voters.is_voter(local):
                offsets.append(flushed_offset)
            else:
                replica = self.of_voter(voters, node_id)
                offsets.append(-1 if replica is None else replica.end_offset)
        offsets.sort(reverse=True)
        return offsets[voters.majority - 1] if offsets else -1

    def note_quorum(self, voters: VoterSet, local: ReplicaKey, node_id: int) -> bool:
        """A voter fetched. Returns True once enough voters have fetched since the last True (check-quorum, KAFKA-15489)."""
        if node_id not in self._fetched:
            self._fetched.append(node_id)
        needed = voters.majority - (1 if voters.is_voter(local) else 0)
        if len(self._fetched) >= needed:
            self._fetched.clear()
            return True
        return False

    def note_contact(self, node_id: int, now_ms: int) -> None:
        """A voter that follows this leader has sent a request."""
        before = self._contacts.get(node_id)
        self._contacts[node_id] = Contact(now_ms, -1 if before is None else before.heard_ms)

    def forget_contact(self, node_id: int) -> None:
        """The connection of a voter has ended, so it may no longer follow."""
        self._contacts.pop(node_id, None)

    def followed_ms(self, voters: VoterSet, local: ReplicaKey, now_ms: int) -> int:
        """The last time at which a majority of the voters surely followed; -1 if there was none."""
        moments = []
        for node_id in voters.node_ids:
            contact = self._contacts.get(node_id)
            is_local = node_id == local.node_id and voters.is_voter(local)
            moments.append(now_ms if is_local else -1 if contact is None else contact.followed_ms)
        moments.sort(reverse=True)
        return moments[voters.majority - 1] if moments else now_ms

    def drop_observers(self, voters: VoterSet, before_ms: int) -> None:
        """Forget observers that have not fetched since `before_ms`."""
        for key in [key for key, replica in self.replicas.items() if replica.last_fetch_ms < before_ms and not voters.is_voter(key)]:
            del self.replicas[key]

    def limit_observers(self, voters: VoterSet, most: int) -> None:
        """Forget the observers that have not fetched for the longest time while there are more than `most` replicas."""
        while len(self.replicas) > most:
            observers = [(replica.last_fetch_ms, key) for key, replica in self.replicas.items() if not voters.is_voter(key)]
            if not observers:
                return
            del self.replicas[min(observers, key=lambda observer: observer[0])[1]]

    def observers(self, voters: VoterSet, local: ReplicaKey) -> list[ReplicaProgress]:
        return [replica for key, replica in self.replicas.items() if not voters.is_voter(key) and key != local]


@dataclass(slots=True)
class PendingChange:
    """The one change of the voter set in progress. `offset` is that of its record, -1 while the added voter still catches up. `versions`
    are the lowest and highest kraft.version that the added voter supports, None until it has reported them."""

    token: Any
    request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest
    deadline_ms: int
    offset: int = -1
    is_answered: bool = False
    versions: tuple[int, int] | None = None
