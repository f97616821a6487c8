"""Share sessions: the partitions that a member fetches, of which requests send only changes (KIP-932).

Rules: SharePartitionManager.newContext and ShareSessionCache of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import field

from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ApiError, ErrorCode

#: Session epochs of a request that begins a session, and of one that ends it.
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_EPOCH_MAX = 2_147_483_647
#: Most partitions of one session, because each of its fetches looks at all of them, and of all sessions, because a client can fill the
#: memory with few bytes per partition. Kafka has no such limits.
PARTITIONS_MAX = 5_000
PARTITIONS_OF_ALL_MAX = 500_000
#: Topic id and number.
Partition = tuple[bytes, int]
SessionKey = tuple[str, str]


@dataclass(slots=True)
class ShareSession:
    """`epoch`: of the next request. `partitions`: in the order in which they were added. `connection`: the session ends with it.

    `unverified`: partitions new to the session, of which the leader may hold a state that has been replaced since; and whether the
    share coordinator has been asked.
    """

    key: SessionKey
    connection: Hashable
    epoch: int = 1
    partitions: dict[Partition, None] = field(default_factory=dict)
    unverified: dict[Partition, bool] = field(default_factory=dict)

    @property
    def group_id(self) -> str:
        """The id of the member's group."""
        return self.key[0]

    @property
    def member_id(self) -> str:
        """The member's id."""
        return self.key[1]

    def advance(self) -> None:
        """A request with the current epoch arrived: go to the next epoch."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1


class ShareSessions:
    """Sessions by group and member: at most `sessions_max` (`group.share.max.share.sessions`), with `partitions_max` partitions each and
    `partitions_of_all_max` in total."""

    def __init__(
        self, sessions_max: int, partitions_max: int = PARTITIONS_MAX, partitions_of_all_max: int = PARTITIONS_OF_ALL_MAX
    ) -> None:
        self._max = sessions_max
        self._partitions_max = partitions_max
        self._partitions_of_all_max = partitions_of_all_max
        #: Number of partitions of all sessions.
        self.partition_count = 0
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[Hashable, dict[SessionKey, None]] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        requested: Iterable[Partition],
        forgotten: Iterable[Partition],
        connection: Hashable,
        *,
        has_acknowledgements: bool,
    ) -> ShareSession:
        """The session of a ShareFetch. Raises SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED,
        INVALID_REQUEST."""
        key = (group_id, member_id)
        if epoch == INITIAL_EPOCH:
            if has_acknowledgements:
                raise ApiError(ErrorCode.INVALID_REQUEST)
            self.remove(key)
            if len(self._sessions) >= self._max:
                raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            session = ShareSession(key, connection)
            self._put(session, dict.fromkeys(requested))
            self._sessions[key] = session
            self._by_connection.setdefault(connection, {})[key] = None
            self._counts[group_id] = self._counts.get(group_id, 0) + 1
            return session
        session = self._find(key)
        if epoch == FINAL_EPOCH:
            return session
        self._check(session, epoch)
        partitions = dict.fromkeys((*session.partitions, *requested))
        for partition in forgotten:
            partitions.pop(partition, None)
            session.unverified.pop(partition, None)
        self._put(session, partitions)
        session.advance()
        return session

    def _put(self, session: ShareSession, partitions: dict[Partition, None]) -> None:
        """Set the partitions of a session. Raises INVALID_REQUEST if the session has too many, SHARE_SESSION_LIMIT_REACHED if all sessions
        together have too many."""
        more = len(partitions) - len(session.partitions)
        if len(partitions) > self._partitions_max:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if more > 0 and self.partition_count + more > self._partitions_of_all_max:
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        before, session.partitions = session.partitions, partitions
        if partitions.keys() != before.keys():
            session.unverified.update((partition, False) for partition in partitions if partition not in before)
        self.partition_count += more

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session of a ShareAcknowledge. Raises SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH."""
        if epoch == INITIAL_EPOCH:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session = self._find((group_id, member_id))
        if epoch != FINAL_EPOCH:
            self._check(session, epoch)
            session.advance()
        return session

    def _find(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    @staticmethod
    def _check(session: ShareSession, epoch: int) -> None:
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)

    def is_current(self, session: ShareSession) -> bool:
        """Whether the session has not ended."""
        return self._sessions.get(session.key) is session

    def remove(self, key: SessionKey) -> ShareSession | None:
        """End a session and return it; None if there is none."""
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        self.partition_count -= len(session.partitions)
        keys = self._by_connection.get(session.connection, {})
        keys.pop(key, None)
        if not keys:
            self._by_connection.pop(session.connection, None)
        self._counts[key[0]] -= 1
        if not self._counts[key[0]]:
            del self._counts[key[0]]
        return session

    def connection_closed(self, connection: Hashable) -> list[ShareSession]:
        """End the sessions of a connection."""
        found = (self.remove(key) for key in list(self._by_connection.get(connection, ())))
        return [session for session in found if session is not None]

    def has(self, key: SessionKey) -> bool:
        """Whether a member has a session."""
        return key in self._sessions

    def is_used(self, group_id: str) -> bool:
        """Whether a group has a session."""
        return group_id in self._counts
