"""Following one leader: which partitions to fetch, from where and when, and what the answers mean. Deterministic; sees no records.

The host sends what `next_fetch` returns, reports the result, and carries out the steps. Rules: AbstractFetcherThread and
ReplicaFetcherThread of Apache Kafka; KIP-227 (fetch sessions), KIP-595, KIP-73 (throttles).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from minikafka.core.replication_quota import ReplicationQuota
from minikafka.wire.errors import ErrorCode

#: Topic id and partition.
Key = tuple[bytes, int]
#: Where a partition is fetched from: (log end offset, leader epoch, epoch of the last record or -1, log start offset).
Position = tuple[int, int, int, int]

#: The fetch offset of a log that has to be compared with the leader's first.
NOWHERE = -1
BACKOFF_MS_MIN = 10
#: How long a leader without a session may hold a fetch while a partition that the fetch leaves out is about to join.
JOIN_WAIT_MS_MAX = 20
IN_FLIGHT_MAX = 2
#: Partitions that join the leader's session with one fetch: finding, naming and encoding 9,000 took a turn of 26 ms.
JOINING_MAX = 500
#: How often all partitions of a session are looked at, for changes that no answer of the leader brought: retention moves a log's start.
LOOK_MS = 1_000
SESSION_EPOCH_MAX = 0x7FFFFFFF
#: Errors that go away once leader and follower have the same metadata.
EXPECTED_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


class FollowedOffsets(Protocol):
    """Where a log begins and ends: the first offset that clients can read, and the offset of the next record."""

    log_start_offset: int
    log_end_offset: int
    #: The first and the end of the offsets among which it lost records before others; None if it did not.
    lost: tuple[int, int] | None


class FollowedLog(Protocol):
    """The part of a log that a follower reads."""

    @property
    def watermarks(self) -> FollowedOffsets:
        """Its offsets."""

    @property
    def latest_epoch(self) -> int:
        """The epoch of its last record; -1 without records."""


class FollowedReplica(Protocol):
    """The current state of a replica, as far as a follower reads it."""

    topic: str
    topic_id: bytes
    index: int
    leader_epoch: int

    @property
    def log(self) -> FollowedLog:
        """The replica's log. It can be replaced by another one."""

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition now."""

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync replicas."""


class Phase(Enum):
    """What the follower does for a partition."""

    FETCHING = "fetching"
    #: Its log and the leader's have no offset in common, and the leader is asked for its first and last offset. Or the log was truncated,
    #: and the truncation is being synced.
    LOCATING = "locating"
    #: Its log has failed.
    STOPPED = "stopped"


class Step(Enum):
    """What the host has to do after an answer about a partition."""

    #: Append the records and adopt the leader's offsets; then call `appended` or `refused`.
    APPEND = "append"
    #: Truncate the log as `truncation_for` says.
    TRUNCATE = "truncate"
    #: Find where the leader's log begins and ends; then call `located`.
    LOCATE = "locate"
    #: Nothing: the partition is fetched again after its back-off.
    WAIT = "wait"


class FollowedPartition:
    """A partition that this broker follows in one leader epoch.

    Invariants: `position` is the partition's position in the leader's fetch session, None when the partition is not in the session. Only a
    partition that is FETCHING and neither in back-off nor throttled is in the session. Answers to fetches before number `joined_in` belong
    to an earlier membership of the session.
    """

    __slots__ = ("backoff_ms", "joined_in", "leader_epoch", "leader_high_watermark", "phase", "position", "replica", "resume_ms")

    def __init__(self, replica: FollowedReplica) -> None:
        self.replica = replica
        self.leader_epoch = replica.leader_epoch
        self.phase = Phase.FETCHING
        self.position: Position | None = None
        self.joined_in = 0
        self.backoff_ms = 0
        #: The end of its back-off.
        self.resume_ms = 0
        self.leader_high_watermark = 0


class FetchPlan(NamedTuple):
    """One fetch: the changes for the leader's session. `wait_ms_max`: how long the leader may hold it until there is data; None = as long
    as it is configured."""

    connection: int
    number: int
    session_id: int
    session_epoch: int
    positions: list[tuple[Key, Position]]
    forgotten: list[Key]
    wait_ms_max: int | None


class Follower:
    """All partitions that are fetched from one leader over one connection.

    Invariants: at most `IN_FLIGHT_MAX` fetches are in flight; the second only adds partitions to the leader's session, or lets it forget
    some, while the first is parked there. A partition's next fetch offset is the end of its log. An answer from an earlier connection,
    session membership or leader epoch changes nothing. `_outside` has exactly the partitions without a position.
    """

    def __init__(self, broker_id: int, quota: ReplicationQuota, backoff_ms_max: int) -> None:
        """`quota`: of throttled replicas on this broker. Replicas in sync are never throttled."""
        self._broker_id = broker_id
        self._quota = quota
        self._backoff_ms_max = backoff_ms_max
        self.partitions: dict[Key, FollowedPartition] = {}
        #: Partitions that are not in the leader's session, and those about which it has said something: with very many others, a fetch
        #: need not look at all.
        self._outside: dict[Key, None] = {}
        self._told: dict[Key, None] = {}
        self._looked_ms = 0
        #: When `next_fetch` may return a fetch only because time has passed; None = never.
        self.wake_ms: int | None = None
        #: Number of fetches sent, over all connections.
        self.fetches = 0
        self._connection = 0
        self._in_flight = 0
        self._session_id = 0
        self._session_epoch = 0
        #: Whether the leader has answered a fetch of this connection. If so, it has made a session or will not make one.
        self._is_answered = False
        #: Partitions in the leader's session, and partitions to remove from it.
        self._in_session: set[Key] = set()
        self._forgotten: list[Key] = []
        #: Partitions of the leader's session about which an answer was ignored. The leader would not repeat a high watermark that it has
        #: sent, so it must forget them before they join again.
        self._ignored: dict[Key, None] = {}

    # -- partitions ------------------------------------------------------------------------------------------------

    def add(self, replica: FollowedReplica) -> None:
        """Fetch a partition in its current leader epoch, from the end of its log."""
        key = replica.topic_id, replica.index
        self.partitions[key] = FollowedPartition(replica)
        self._outside[key] = None

    def remove(self, key: Key) -> None:
        """Leave a partition out of the next fetch. Answers that are still in flight for it are ignored."""
        self._outside.pop(key, None)
        if self.partitions.pop(key, None) is not None and key in self._in_session:
            self._forgotten.append(key)

    def next_backoff_ms(self, backoff_ms: int) -> int:
        """The back-off that follows one of `backoff_ms`."""
        return min(max(backoff_ms * 2, BACKOFF_MS_MIN), self._backoff_ms_max)

    # -- connection ------------------------------------------------------------------------------------------------

    def disconnected(self) -> None:
        """The connection or its session has ended: the next fetch begins a new session and names all partitions."""
        self._connection += 1
        self._session_id = self._session_epoch = 0
        self._is_answered = False
        self._in_flight = 0
        self._leave_session()

    def _leave_session(self) -> None:
        """The leader remembers no partitions."""
        self._forgotten.clear()
        self._in_session.clear()
        self._ignored.clear()
        self._outside = dict.fromkeys(self.partitions)
        for followed in self.partitions.values():
            followed.position = None

    def leader_changed(self) -> None:
        """The leader has registered anew: back-offs from its earlier incarnation end."""
        for followed in self.partitions.values():
            followed.resume_ms = 0

    # -- fetches ---------------------------------------------------------------------------------------------------

    def next_fetch(self, now_ms: int) -> FetchPlan | None:
        """The fetch to send now; None when there is nothing to fetch, or enough fetches are in flight."""
        has_session = self._session_id != 0
        if self._in_flight and not (has_session and self._in_flight < IN_FLIGHT_MAX and (self._ignored or self._has_joining(now_ms))):
            if self.wake_ms is not None and self.wake_ms <= now_ms:
                self.wake_ms = None  # only the next answer can change this
            return None
        positions = self._changed_positions(now_ms)
        forgotten = self._take_forgotten() if has_session and self._forgotten else []
        if not positions and not forgotten and not (has_session and self._in_session):
            return None
        if has_session:
            self._session_epoch = self._session_epoch + 1 if self._session_epoch < SESSION_EPOCH_MAX else 1
        self._in_flight += 1
        self.fetches += 1
        # Others that could not join yet follow at once.
        wait_ms_max = 0 if self.wake_ms is not None and self.wake_ms <= now_ms else self._wait_ms_max()
        return FetchPlan(self._connection, self.fetches, self._session_id, self._session_epoch, positions, forgotten, wait_ms_max)

    def _wait_ms_max(self) -> int | None:
        """Partitions can join while a fetch is parked only if there is a session. So the fetch that asks for a session must not be parked,
        and without sessions a fetch must not be parked for long while a partition is about to join."""
        if not self._is_answered:
            return 0
        is_joined_late = self._session_id == 0 and any(followed.phase is Phase.LOCATING for followed in self.partitions.values())
        return JOIN_WAIT_MS_MAX if is_joined_late else None

    def _has_joining(self, now_ms: int) -> bool:
        return any(
            followed.phase is Phase.FETCHING and followed.resume_ms <= now_ms and not self._throttled_ms(followed, now_ms)
            for followed in map(self.partitions.__getitem__, self._outside)
        )

    def _looked_at(self, now_ms: int) -> list[Key]:
        """The partitions whose positions the leader's session may not have."""
        told, self._told = self._told, {}
        if self._session_id and not self._quota.is_active and now_ms - self._looked_ms < LOOK_MS:
            return [*self._outside, *(key for key in {**told, **self._ignored} if key not in self._outside)]
        self._looked_ms = now_ms
        return list(self.partitions)

    def _changed_positions(self, now_ms: int) -> list[tuple[Key, Position]]:
        """Positions that the leader's session does not have yet; of very many partitions that join, some. Sets `wake_ms`."""
        changed: list[tuple[Key, Position]] = []
        # A leader that keeps no session knows only what each fetch names.
        joining = len(self.partitions) if self._is_answered and not self._session_id else JOINING_MAX
        wake_ms: int | None = None
        is_throttling, ignored = self._quota.is_active, self._ignored
        for key in self._looked_at(now_ms):
            followed = self.partitions.get(key)
            if followed is None or followed.phase is not Phase.FETCHING:
                continue
            resume_ms = followed.resume_ms
            if resume_ms <= now_ms and is_throttling and (throttled_ms := self._throttled_ms(followed, now_ms)):
                # Leave the leader's session, or the leader would send data nevertheless. The rate may change before the time is up.
                self._leave(key, followed)
                resume_ms = now_ms + throttled_ms
            if resume_ms > now_ms:
                wake_ms = resume_ms if wake_ms is None else min(wake_ms, resume_ms)
                continue
            if key in ignored:
                self._leave(key, followed)
                continue
            if followed.position is None and not joining:
                wake_ms = now_ms
                continue
            log = followed.replica.log
            offsets = log.watermarks
            # No leader has NOWHERE: the host is told to locate, and compares where the logs begin before anybody counts on this one.
            end = offsets.log_end_offset if offsets.lost is None else NOWHERE
            position = (end, followed.leader_epoch, log.latest_epoch, offsets.log_start_offset)
            if followed.position == position:
                continue
            if followed.position is None:
                joining -= 1
                followed.joined_in = self.fetches + 1
                self._outside.pop(key, None)
            followed.position = position
            self._in_session.add(key)
            changed.append((key, position))
        self.wake_ms = wake_ms
        return changed

    def _throttled_ms(self, followed: FollowedPartition, now_ms: int) -> int:
        """How long a throttled replica that is not in sync has to wait (follower.replication.throttled.*); 0 = not at all."""
        quota, replica = self._quota, followed.replica
        if not quota.is_active or self._broker_id in replica.isr or not quota.applies_to(replica.topic, replica.index):
            return 0
        return quota.wait_ms(now_ms)

    def _take_forgotten(self) -> list[Key]:
        forgotten = []
        for key in self._forgotten:
            followed = self.partitions.get(key)
            if key in self._in_session and (followed is None or followed.position is None):
                self._in_session.discard(key)
                self._ignored.pop(key, None)
                forgotten.append(key)
        self._forgotten.clear()
        return forgotten

    # -- answers ---------------------------------------------------------------------------------------------------

    def is_current(self, plan: FetchPlan) -> bool:
        """Whether a fetch belongs to the current connection."""
        return plan.connection == self._connection

    def answered(self, plan: FetchPlan, code: ErrorCode, session_id: int) -> bool:
        """The leader has answered a fetch of this connection. Returns False if it refuses the session, which then ends: pause before the
        next fetch. Otherwise handle the answer's partitions and call `finished`."""
        if code is not ErrorCode.NONE:
            self.disconnected()
            return False
        self._in_flight -= 1
        if self._session_id == 0:
            self._session_id, self._session_epoch = session_id, 0
        elif session_id == 0 and not self._in_flight:  # it ended with its last partition
            self._session_id = self._session_epoch = 0
        self._is_answered = self._session_id != 0 or plan.session_id == 0
        return True

    def finished(self) -> None:
        """All partitions of an answer have been handled."""
        if self._session_id == 0:  # the leader keeps no session for us: the next fetch names everything again
            self._leave_session()

    def followed(self, plan: FetchPlan, key: Key) -> FollowedPartition | None:
        """The partition that an answer is about; None, and the answer is ignored, if it belongs to an earlier state of it."""
        followed = self.partitions.get(key)
        if followed is not None and followed.position is not None and followed.joined_in <= plan.number:
            replica = followed.replica
            if not replica.is_leader and replica.leader_epoch == followed.leader_epoch:
                self._told[key] = None
                return followed
        if key in self._in_session:
            self._ignored[key] = None
        return None

    def step(self, followed: FollowedPartition, code: ErrorCode, now_ms: int, *, is_diverging: bool) -> Step:
        """What the host has to do after an answer about a partition."""
        if code is ErrorCode.NONE:
            return Step.TRUNCATE if is_diverging else Step.APPEND
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._pause(followed, Phase.LOCATING)
            return Step.LOCATE
        # FENCED_LEADER_EPOCH lasts until new metadata arrive.
        self._back_off(followed, now_ms, self._backoff_ms_max if code is ErrorCode.FENCED_LEADER_EPOCH else None)
        return Step.WAIT

    def appended(self, followed: FollowedPartition) -> None:
        """The records are in the log."""
        followed.backoff_ms = 0

    def refused(self, followed: FollowedPartition, now_ms: int) -> None:
        """The log refused the leader's records: fetch again later."""
        self._back_off(followed, now_ms)

    def failed(self, followed: FollowedPartition) -> None:
        """The log has failed."""
        self._pause(followed, Phase.STOPPED)

    def syncing(self, followed: FollowedPartition) -> None:
        """The log was truncated, and the truncation is being synced: `located` follows."""
        self._pause(followed, Phase.LOCATING)

    def located(self, followed: FollowedPartition, now_ms: int, *, is_found: bool) -> None:
        """The log now matches the leader's (`is_found`), or the leader could not be asked."""
        followed.phase = Phase.FETCHING
        self._stay_out((followed.replica.topic_id, followed.replica.index), followed)
        if not is_found:
            self._back_off(followed, now_ms)

    def _back_off(self, followed: FollowedPartition, now_ms: int, backoff_ms: int | None = None) -> None:
        followed.backoff_ms = self.next_backoff_ms(followed.backoff_ms) if backoff_ms is None else backoff_ms
        resume_ms = followed.resume_ms = now_ms + followed.backoff_ms
        self.wake_ms = resume_ms if self.wake_ms is None else min(self.wake_ms, resume_ms)
        self._pause(followed, Phase.FETCHING)

    def _pause(self, followed: FollowedPartition, phase: Phase) -> None:
        followed.phase = phase
        self._leave((followed.replica.topic_id, followed.replica.index), followed)

    def _leave(self, key: Key, followed: FollowedPartition) -> None:
        """A waiting partition leaves the leader's session. Otherwise the session would answer for it at once, again and again, with the
        condition that made it wait, and each answer would restart the wait (AbstractFetcherThread, too, leaves delayed partitions out)."""
        self._stay_out(key, followed)
        if key in self._in_session:
            self._forgotten.append(key)

    def _stay_out(self, key: Key, followed: FollowedPartition) -> None:
        followed.position = None
        if self.partitions.get(key) is followed:
            self._outside[key] = None
