"""Who has been heard of, and when: broker sessions (Kafka's BrokerHeartbeatManager). Not in the log; a new controller starts afresh."""

from __future__ import annotations

from collections.abc import Iterator

from minikafka.core.timers import TimerQueue

#: A controller that looks at its deadlines this much too late was itself stopped; brokers get the lost time back (KAFKA-15019).
STALL_MS = 500


class _Session:
    __slots__ = ("controlled_shutdown_offset", "deadline_ms", "disconnected", "epoch", "metadata_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.deadline_ms = 0
        self.metadata_offset = -1
        self.controlled_shutdown_offset: int | None = None
        self.disconnected = False


class BrokerSessions:
    """Sessions of registered brokers by id and broker epoch; all times are milliseconds of the caller's clock."""

    __slots__ = ("_sessions", "_timeout_ms", "_timers")

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._sessions: dict[int, _Session] = {}
        self._timers: TimerQueue[int] = TimerQueue()

    def touch(self, broker_id: int, epoch: int, now_ms: int, metadata_offset: int | None = None) -> None:
        """A sign of life of this incarnation: the session runs from now. Other incarnations' sessions are forgotten."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = _Session(epoch)
        session.disconnected = False
        if metadata_offset is not None:
            session.metadata_offset = metadata_offset
        self._schedule(broker_id, session, now_ms + self._timeout_ms)

    def _schedule(self, broker_id: int, session: _Session, deadline_ms: int) -> None:
        session.deadline_ms = deadline_ms
        self._timers.schedule(broker_id, deadline_ms)

    def disconnected(self, broker_id: int, epoch: int) -> None:
        """The connection that carried this incarnation's heartbeats closed. It counts until the next sign of life."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.disconnected = True

    def is_disconnected(self, broker_id: int) -> bool:
        """Whether the connection of the present session is known to be closed."""
        session = self._sessions.get(broker_id)
        return session is not None and session.disconnected

    def is_valid(self, broker_id: int, epoch: int) -> bool:
        """Whether this incarnation's session has not ended."""
        session = self._sessions.get(broker_id)
        return session is not None and session.epoch == epoch

    def remove(self, broker_id: int) -> None:
        """End the session."""
        self._sessions.pop(broker_id, None)
        self._timers.cancel(broker_id)

    def start_controlled_shutdown(self, broker_id: int, offset: int) -> None:
        """Remember the end offset that other brokers must have seen before this one may go."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.controlled_shutdown_offset = offset

    def controlled_shutdown_offset(self, broker_id: int) -> int | None:
        """See `start_controlled_shutdown`."""
        session = self._sessions.get(broker_id)
        return None if session is None else session.controlled_shutdown_offset

    def metadata_offset(self, broker_id: int) -> int:
        """The last metadata offset that the broker reported; -1 when it has reported none."""
        session = self._sessions.get(broker_id)
        return -1 if session is None else session.metadata_offset

    def next_deadline(self) -> int | None:
        """When the next session may end."""
        return self._timers.next_deadline()

    def expired(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """End the sessions that are due; yields (broker id, epoch).

        When the earliest deadline is long past, this process has slept and may have unread heartbeats: everybody
        gets that time back once.
        """
        due = self._timers.next_deadline()
        if due is not None and now_ms - due > STALL_MS:
            late = now_ms - due
            for broker_id, session in self._sessions.items():
                self._schedule(broker_id, session, session.deadline_ms + late + STALL_MS)
            return
        for broker_id in self._timers.expired(now_ms):
            ended = self._sessions.pop(broker_id, None)
            if ended is not None:
                yield broker_id, ended.epoch
