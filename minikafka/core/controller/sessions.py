"""Broker sessions: the last heartbeat of each broker (Kafka's BrokerHeartbeatManager). Not in the log; a new controller starts afresh."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from minikafka.core.timers import TimerQueue

#: A controller that checks its deadlines this much too late was itself stalled. It extends sessions by the lost time (KAFKA-15019).
STALL_MS = 500
#: At most this many extensions of a session without a heartbeat: even if every check is late, dead brokers must be fenced.
STALLS_GRANTED = 3
#: How long a broker has to reconnect after the connection that carried its heartbeats has closed (minikafka.heartbeat.reconnect.ms). A
#: killed process closes its connections at once; a live one reconnects within milliseconds.
DISCONNECT_GRACE_MS = 100
#: The broker has at least this many times as long as its connections take to establish (TLS and SASL on a busy machine).
CONNECTS_GRANTED = 4
#: How long the broker on the previous quorum leader's node has to contact the new controller. Most often that node has died.
SUCCESSION_GRACE_MS = 200
#: If such a shortened deadline is checked this much too late, it proves nothing: an unread heartbeat may be waiting.
GRACE_STALL_MS = 40
#: A broker that lost more connections than this within the window gets twice the grace for each further one, up to a full session.
LOSSES_TOLERATED = 3
LOSS_WINDOW_MS = 60_000


class _Session:
    __slots__ = ("controlled_shutdown_offset", "deadline_ms", "disconnected", "epoch", "grace_ms", "metadata_offset", "stalls", "whole_ms")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        #: The grace of a shortened deadline; None for the deadline of a full session.
        self.grace_ms: int | None = None
        self.deadline_ms = 0
        #: When the full session ends.
        self.whole_ms = 0
        #: Number of extensions since the last heartbeat.
        self.stalls = 0
        self.metadata_offset = -1
        self.controlled_shutdown_offset: int | None = None
        self.disconnected = False


class BrokerSessions:
    """Sessions of registered brokers by id and broker epoch; all times are milliseconds of the caller's clock."""

    __slots__ = ("_losses", "_reconnect_ms", "_sessions", "_timeout_ms", "_timers")

    def __init__(self, timeout_ms: int, reconnect_ms: int = DISCONNECT_GRACE_MS) -> None:
        """`reconnect_ms` 0: sessions are never shortened."""
        self._timeout_ms = timeout_ms
        self._reconnect_ms = reconnect_ms
        self._sessions: dict[int, _Session] = {}
        #: broker id -> (epoch, when its connections were lost). Kept beyond the session to detect a flapping network.
        self._losses: dict[int, tuple[int, list[int]]] = {}
        self._timers: TimerQueue[int] = TimerQueue()

    def touch(self, broker_id: int, epoch: int, now_ms: int, metadata_offset: int | None = None) -> None:
        """A heartbeat of this incarnation: a full session starts now. Sessions of other incarnations are dropped."""
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

    def heard(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """A heartbeat of this incarnation has arrived: a full session starts now if it has one (Kafka: trackBrokerHeartbeat)."""
        if self.is_valid(broker_id, epoch):
            self.touch(broker_id, epoch, now_ms)

    def _schedule(self, broker_id: int, session: _Session, deadline_ms: int) -> None:
        session.deadline_ms = deadline_ms
        self._timers.schedule(broker_id, deadline_ms)

    def disconnected(self, broker_id: int, epoch: int, now_ms: int, connect_ms: int | None = 0) -> None:
        """The connection that carried this incarnation's heartbeats closed. Without a heartbeat soon, the session ends.

        `connect_ms`: how long this broker's connections take to establish. None for a broker that has not shown that it reconnects at once:
        Apache Kafka's brokers reconnect when their next heartbeat is due.
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
        """The broker is probably dead: its session ends soon unless it sends a heartbeat."""
        session = self._sessions.get(broker_id)
        if session is not None and self._reconnect_ms > 0:
            self._shorten(broker_id, session, max(SUCCESSION_GRACE_MS, 2 * self._reconnect_ms), now_ms)

    def _shorten(self, broker_id: int, session: _Session, grace_ms: int, now_ms: int) -> None:
        if now_ms + grace_ms < session.deadline_ms:
            session.grace_ms = grace_ms
            self._schedule(broker_id, session, now_ms + grace_ms)

    def is_disconnected(self, broker_id: int) -> bool:
        """Whether the connection of the current session has closed."""
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
        """Remember the metadata offset that other brokers must have reached before this one may shut down."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.controlled_shutdown_offset = offset

    def controlled_shutdown_offset(self, broker_id: int) -> int | None:
        """See `start_controlled_shutdown`."""
        session = self._sessions.get(broker_id)
        return None if session is None else session.controlled_shutdown_offset

    def metadata_offset(self, broker_id: int) -> int:
        """The last metadata offset that the broker reported; -1 if it has reported none."""
        session = self._sessions.get(broker_id)
        return -1 if session is None else session.metadata_offset

    def next_deadline(self) -> int | None:
        """When the next session may end."""
        return self._timers.next_deadline()

    def expired(self, now_ms: int, is_last: Callable[[int], bool]) -> Iterator[tuple[int, int]]:
        """End the sessions that are due; yields (broker id, epoch). `is_last`: whether no other broker is in service.

        If the earliest deadline is long past, this process was stalled and may have unread heartbeats: all sessions are extended by the
        lost time, at most `STALLS_GRANTED` times. A shortened deadline is granted again, up to the end of the full session, if it is
        checked a little too late, and while the broker is the last one: nobody could replace it, and clients would be told of no broker.
        """
        due = self._timers.next_deadline()
        if due is not None and now_ms - due > STALL_MS:
            self._give_back(now_ms - due + STALL_MS)
        for broker_id in self._timers.expired(now_ms):
            ended = self._sessions.get(broker_id)
            if ended is None:
                continue
            grace_ms = ended.grace_ms if now_ms < ended.whole_ms else None
            if grace_ms is not None and (now_ms - ended.deadline_ms > GRACE_STALL_MS or is_last(broker_id)):
                self._schedule(broker_id, ended, min(now_ms + grace_ms, ended.whole_ms))
                continue
            del self._sessions[broker_id]
            yield broker_id, ended.epoch

    def _give_back(self, lost_ms: int) -> None:
        for broker_id, session in self._sessions.items():
            if session.stalls < STALLS_GRANTED:
                session.stalls += 1
                session.whole_ms += lost_ms
                self._schedule(broker_id, session, session.deadline_ms + lost_ms)
