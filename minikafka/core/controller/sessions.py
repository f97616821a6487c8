"""Who has been heard of, and when: broker sessions (Kafka's BrokerHeartbeatManager). Not in the log; a new controller starts afresh."""

from __future__ import annotations

from collections.abc import Iterator

from minikafka.core.timers import TimerQueue

#: A controller that looks at its deadlines this much too late was itself stopped; brokers get the lost time back (KAFKA-15019).
STALL_MS = 500
#: So often for each session without a sign of life: where every look is late, brokers that died must be fenced all the same.
STALLS_GRANTED = 3
#: How long a broker has to come back on another connection when the one that carried its heartbeats has closed
#: (minikafka.heartbeat.reconnect.ms). A process that was killed closes its connections at once; one that lives connects again within
#: milliseconds.
DISCONNECT_GRACE_MS = 100
#: It has at least so many times what its connections take to be made: TLS and SASL on a busy machine.
CONNECTS_GRANTED = 4
#: How long the broker of the node that led the quorum before has to talk to the new controller: most often it has died.
SUCCESSION_GRACE_MS = 200
#: A deadline of those that is looked at this much too late proves nothing: the sign of life may lie unread.
GRACE_STALL_MS = 40
#: A broker that lost this many connections within the window gets twice the grace for each one more, up to a whole session.
LOSSES_TOLERATED = 3
LOSS_WINDOW_MS = 60_000


class _Session:
    __slots__ = ("controlled_shutdown_offset", "deadline_ms", "disconnected", "epoch", "grace_ms", "metadata_offset", "stalls", "whole_ms")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        #: Of a deadline that a hint has brought forward; None for that of a whole session.
        self.grace_ms: int | None = None
        self.deadline_ms = 0
        #: When it ends without any hint.
        self.whole_ms = 0
        #: How often it got time back since the last sign of life.
        self.stalls = 0
        self.metadata_offset = -1
        self.controlled_shutdown_offset: int | None = None
        self.disconnected = False


class BrokerSessions:
    """Sessions of registered brokers by id and broker epoch; all times are milliseconds of the caller's clock."""

    __slots__ = ("_losses", "_reconnect_ms", "_sessions", "_timeout_ms", "_timers")

    def __init__(self, timeout_ms: int, reconnect_ms: int = DISCONNECT_GRACE_MS) -> None:
        """`reconnect_ms` 0: no hint ends a session before its time."""
        self._timeout_ms = timeout_ms
        self._reconnect_ms = reconnect_ms
        self._sessions: dict[int, _Session] = {}
        #: broker id -> (epoch, when its connections were lost); kept beyond the session, so that a flapping network is noticed.
        self._losses: dict[int, tuple[int, list[int]]] = {}
        self._timers: TimerQueue[int] = TimerQueue()

    def touch(self, broker_id: int, epoch: int, now_ms: int, metadata_offset: int | None = None) -> None:
        """A sign of life of this incarnation: the session runs from now. Other incarnations' sessions are forgotten."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = _Session(epoch)
        session.disconnected = False
        session.grace_ms = None
        if metadata_offset is not None:
            session.metadata_offset = metadata_offset
        session.stalls = 0
        session.whole_ms = now_ms + self._timeout_ms
        self._schedule(broker_id, session, session.whole_ms)

    def _schedule(self, broker_id: int, session: _Session, deadline_ms: int) -> None:
        session.deadline_ms = deadline_ms
        self._timers.schedule(broker_id, deadline_ms)

    def disconnected(self, broker_id: int, epoch: int, now_ms: int, connect_ms: int | None = 0) -> None:
        """The connection that carried this incarnation's heartbeats closed: unless there is a sign of life soon, the session ends.

        `connect_ms` is how long this broker's connections take to be made; None for one that is not known to come back at once: Apache
        Kafka's connect again when their next heartbeat is due.
        """
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch or session.disconnected:
            return
        session.disconnected = True
        if self._reconnect_ms == 0 or connect_ms is None:
            return
        lost_epoch, losses = self._losses.get(broker_id, (epoch, []))
        losses = [lost for lost in losses if now_ms - lost < LOSS_WINDOW_MS] if lost_epoch == epoch else []
        losses.append(now_ms)
        self._losses[broker_id] = (epoch, losses)
        grace_ms = max(self._reconnect_ms, CONNECTS_GRANTED * connect_ms)
        self._shorten(broker_id, session, grace_ms << min(max(len(losses) - LOSSES_TOLERATED, 0), 16), now_ms)

    def suspect(self, broker_id: int, now_ms: int) -> None:
        """This broker is thought dead: it has a short time to say that it is not."""
        session = self._sessions.get(broker_id)
        if session is not None and self._reconnect_ms > 0:
            self._shorten(broker_id, session, max(SUCCESSION_GRACE_MS, 2 * self._reconnect_ms), now_ms)

    def _shorten(self, broker_id: int, session: _Session, grace_ms: int, now_ms: int) -> None:
        if now_ms + grace_ms < session.deadline_ms:
            session.grace_ms = grace_ms
            self._schedule(broker_id, session, now_ms + grace_ms)

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
        self._losses.pop(broker_id, None)
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

        When the earliest deadline is long past, this process has slept and may have unread heartbeats: everybody gets that time
        back, `STALLS_GRANTED` times at most. A deadline that a hint has brought forward and that is looked at a little too late is
        given once more, up to the end of the whole session.
        """
        due = self._timers.next_deadline()
        if due is not None and now_ms - due > STALL_MS:
            self._give_back(now_ms - due + STALL_MS)
        for broker_id in self._timers.expired(now_ms):
            ended = self._sessions.get(broker_id)
            if ended is None:
                continue
            if ended.grace_ms is not None and now_ms - ended.deadline_ms > GRACE_STALL_MS and now_ms < ended.whole_ms:
                self._schedule(broker_id, ended, min(now_ms + ended.grace_ms, ended.whole_ms))
                continue
            del self._sessions[broker_id]
            yield broker_id, ended.epoch

    def _give_back(self, lost_ms: int) -> None:
        for broker_id, session in self._sessions.items():
            if session.stalls < STALLS_GRANTED:
                session.stalls += 1
                session.whole_ms += lost_ms
                self._schedule(broker_id, session, session.deadline_ms + lost_ms)
