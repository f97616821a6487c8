"""A broker's life cycle at the controller: registered, fenced, unfenced, shutting down (KIP-631, KIP-841).

Rules: kafka.server.BrokerLifecycleManager of Apache Kafka 4.3. The host (minikafka/broker/quorum/broker_lifecycle.py) sends the requests
and reports their answers; at most one request is in flight at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from minikafka.core.metadata.versions import CORDONS
from minikafka.counted import counted
from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ErrorCode

REGISTRATION_BACKOFF_MS = 50
REGISTRATION_BACKOFF_MS_MAX = 500
#: Interval of heartbeats while the controller moves leaderships away.
SHUTDOWN_HEARTBEAT_MS = 50
#: If all nodes stop together, the controller may stop first: a broker does not wait for a controller that has been silent this long.
CONTROLLER_SILENCE_MS_MAX = 1000
#: For how long a broker that stops waits at most, however many leaderships still move (Apache Kafka: controlledShutdownFuture, 5 minutes).
SHUTDOWN_MS_MAX = 300_000
#: An answer is late if it takes longer than its timeout divided by this.
LATE_PART = 4
#: How often the timeout of a heartbeat may be doubled at most.
LATE_ANSWERS_MAX = 4
#: Errors of a registration that a retry cannot change.
_FATAL = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION, ErrorCode.UNSUPPORTED_VERSION})


@dataclass(frozen=True, slots=True)
class LifecycleConfig:
    """broker.heartbeat.interval.ms, broker.session.timeout.ms, initial.broker.registration.timeout.ms and minikafka.heartbeat.reconnect.ms
    (0: the controller waits for a full session)."""

    node_id: int
    heartbeat_interval_ms: int
    session_timeout_ms: int
    registration_timeout_ms: int
    reconnect_ms: int


@dataclass(frozen=True, slots=True)
class Register:
    """Send a BrokerRegistration; `registration_answered`, `_unanswered` or `_refused` follows."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Send a BrokerHeartbeat; `heartbeat_answered` or `heartbeat_unanswered` follows."""

    broker_epoch: int
    want_shut_down: bool
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Registered:
    """The controller has assigned the broker epoch."""

    broker_epoch: int


@dataclass(frozen=True, slots=True)
class InService:
    """The controller has unfenced the broker, and the broker's own metadata show it, too."""


@dataclass(frozen=True, slots=True)
class OutOfService:
    """The controller has fenced the broker, or has no registration of it."""


@dataclass(frozen=True, slots=True)
class Unheard:
    """The connection of the heartbeats has ended, or an answer is late: the controller may soon elect other leaders."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The controller refuses this broker permanently. `was_registered`: it was registered before."""

    reason: str
    was_registered: bool


@dataclass(frozen=True, slots=True)
class MayGo:
    """The controlled shutdown has ended. `is_released`: the controller has allowed the broker to stop."""

    is_released: bool


@dataclass(frozen=True, slots=True)
class Notice:
    """A line for the node's log."""

    text: str
    is_warning: bool = False


Effect = Register | Heartbeat | Registered | InService | OutOfService | Unheard | Refused | MayGo | Notice


class Step(Enum):
    """What the broker is doing with regard to the controller."""

    NOT_STARTED = "not started"
    REGISTERING = "registering"
    #: The registration failed; the broker retries after the back-off.
    BACKING_OFF = "backing off"
    HEARTBEATING = "heartbeating"
    #: Waiting for the next heartbeat.
    RESTING = "resting"
    ENDED = "ended"


class _Shutdown:
    """A controlled shutdown: how many leaderships have not moved yet, and since when."""

    __slots__ = ("_all", "_began_ms", "_left", "_moved_ms", "_patience_ms", "_work_ms")

    def __init__(self, now_ms: int, timeout_ms: int, work_ms: int, leaderships: int) -> None:
        self._began_ms = self._moved_ms = now_ms
        self._patience_ms, self._work_ms = timeout_ms + work_ms, work_ms
        self._all = self._left = leaderships

    def moved(self, left: int, now_ms: int) -> None:
        if left < self._left:
            self._left, self._moved_ms = left, now_ms

    @property
    def end_ms(self) -> int:
        """When it ends, although the controller answers."""
        return min(self._moved_ms + self._patience_ms, self._began_ms + SHUTDOWN_MS_MAX)

    def silent_ms(self, answered_ms: int) -> int:
        """When a controller that last answered then counts as gone."""
        return max(answered_ms, self._moved_ms) + CONTROLLER_SILENCE_MS_MAX + self._work_ms

    @property
    def left(self) -> str:
        return f"{self._left:,} of its {counted(self._all, 'leadership')}"


class BrokerLifecycle:
    """Registers a broker and keeps its session alive.

    broker_epoch: -1 until registered; fenced: the controller's last answer; unanswered: heartbeats that no controller answered.

    Invariants: a request is in flight exactly in the steps REGISTERING and HEARTBEATING. `_due_ms` is set exactly in the steps BACKING_OFF
    and RESTING. If something happens during a request that the controller should learn (`_has_news`), a heartbeat follows as soon as the
    request has ended.
    """

    __slots__ = (
        "_answered_ms", "_backoff_ms", "_config", "_confirmed_ms", "_due_ms", "_has_asked_again", "_has_news", "_in_service",
        "_is_to_register", "_late_answers", "_lost_ms", "_own", "_refusal", "_sent_ms", "_shutdown", "_timeout_ms", "_want_shut_down",
        "broker_epoch", "fenced", "step", "unanswered",
    )  # fmt: skip

    def __init__(self, config: LifecycleConfig, now_ms: int) -> None:
        self._config = config
        self.step = Step.NOT_STARTED
        self.broker_epoch = -1
        self.fenced = True
        self.unanswered = 0
        #: Broker epoch and fencing of this broker's registration in its own metadata, None until it is there.
        self._own: tuple[int, bool] | None = None
        self._in_service = False
        self._want_shut_down = False
        #: The controlled shutdown; None before and after it.
        self._shutdown: _Shutdown | None = None
        self._answered_ms = now_ms
        self._sent_ms = now_ms
        #: When the last heartbeat was sent that the controller answered without fencing the broker.
        self._confirmed_ms = now_ms
        #: When the connection of the heartbeats ended or an answer became late; None if neither has happened.
        self._lost_ms: int | None = None
        #: Whether the heartbeat in flight was sent after the last connection loss, so that its answer came over a new connection.
        self._has_asked_again = True
        #: The timeout of the request in flight.
        self._timeout_ms = 0
        #: How often the timeout of the next heartbeat is doubled.
        self._late_answers = 0
        self._has_news = False
        #: Whether the broker registers again, in place of its next heartbeat.
        self._is_to_register = False
        self._due_ms: int | None = None
        self._backoff_ms = REGISTRATION_BACKOFF_MS
        #: The last registration error that was logged.
        self._refusal = ErrorCode.NONE

    # -- state -----------------------------------------------------------------------------------------------------

    def silence_ms(self, now_ms: int) -> int:
        """How long no controller has answered a heartbeat or a registration."""
        return now_ms - self._answered_ms

    @property
    def is_unheard(self) -> bool:
        """Whether the connection of the heartbeats has ended without a later answer, or an answer is late: the controller may be about to
        elect other leaders."""
        return self._lost_ms is not None

    def in_doubt_since_ms(self, now_ms: int) -> int | None:
        """Since when the controller may have given this broker's leaderships to others, judging by the heartbeats; None if it cannot have.

        There are two cases. First, the connection of the heartbeats ended at that time, or an answer became late (the connection may have
        ended at the controller's side), and the time to reconnect may be over. That is half of minikafka.heartbeat.reconnect.ms, because
        the controller may have noticed the end before this broker did. Second, the last heartbeat that the controller answered was sent at
        that time, and since then it has fenced this broker or a session has passed. The time of the answer does not count, because a
        suspended process finds old answers.
        """
        config = self._config
        if self._lost_ms is not None and config.reconnect_ms > 0 and now_ms - self._lost_ms > config.reconnect_ms // 2:
            return self._lost_ms
        return self._confirmed_ms if self.fenced or now_ms - self._confirmed_ms > config.session_timeout_ms else None

    def trouble(self, now_ms: int) -> str | None:
        """Why clients cannot rely on this broker, judging by its heartbeats; None if they can."""
        if self.fenced:
            return "fenced by the controller"
        if (silence_ms := self.silence_ms(now_ms)) > self._config.session_timeout_ms:
            return f"no controller has answered a heartbeat for {silence_ms} ms (broker.session.timeout.ms)"
        return None

    # -- requests of the node --------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> Sequence[Effect]:
        """Start the registration."""
        return self._register(now_ms) if self.step is Step.NOT_STARTED else ()

    def shut_down(self, timeout_ms: int, now_ms: int, work_ms: int = 0, leaderships: int = 0) -> Sequence[Effect]:
        """Ask the controller to move leaderships away. `MayGo` follows when they have, when none has moved for `timeout_ms`, or after
        SHUTDOWN_MS_MAX. `work_ms`: how much longer the controller may take because it decides on very many partitions before it answers;
        `leaderships`: how many there are."""
        if self.broker_epoch < 0 or self.step is Step.ENDED:
            return [MayGo(False)]
        self._want_shut_down = True
        self._answered_ms = now_ms
        self._shutdown = _Shutdown(now_ms, timeout_ms, work_ms, leaderships)
        return self.heartbeat_at_once(now_ms)

    def stop(self) -> None:
        """Send no more requests."""
        self.step, self._due_ms, self._shutdown = Step.ENDED, None, None

    def heartbeat_at_once(self, now_ms: int) -> Sequence[Effect]:
        """Something happened that the controller should learn at once: a directory went offline, or there is a new controller."""
        if self.step is Step.RESTING:
            return self._heartbeat(now_ms)
        self._has_news = True
        return ()

    def connection_lost(self, now_ms: int) -> Sequence[Effect]:
        """The connection of the heartbeats has ended. The controller may have noticed it, too, and may consider this broker dead."""
        self._has_asked_again = False
        return [*self._unheard(now_ms), *self.heartbeat_at_once(now_ms)]

    def _unheard(self, now_ms: int) -> list[Effect]:
        if self._lost_ms is None:
            self._lost_ms = now_ms
        return [Unheard()]

    # -- metadata --------------------------------------------------------------------------------------------------

    def registration_changed(self, broker_epoch: int, fenced: bool, now_ms: int) -> Sequence[Effect]:
        """This broker's registration in its metadata has changed."""
        self._own = (broker_epoch, fenced)
        if broker_epoch != self.broker_epoch:
            return ()
        return [*self._in_service_if_all_agree(), *self.heartbeat_at_once(now_ms)]

    def directories_are_missing(self, now_ms: int) -> Sequence[Effect]:
        """The registration has no log directories, but after an upgrade metadata.version has them (KIP-858)."""
        self._is_to_register = True
        return self.heartbeat_at_once(now_ms)

    def another_shuts_down(self, now_ms: int) -> Sequence[Effect]:
        """Another broker is shutting down. It may stop once every broker has reported that its metadata have the new leaders."""
        return () if self.fenced else self.heartbeat_at_once(now_ms)

    def topics_changed(self, now_ms: int, leaderships: int = 0) -> Sequence[Effect]:
        """Topics have changed, and so many leaderships are left: perhaps the last one has moved away."""
        if self._shutdown is not None:
            self._shutdown.moved(leaderships, now_ms)
        return self.heartbeat_at_once(now_ms) if self._want_shut_down else ()

    def _in_service_if_all_agree(self) -> list[Effect]:
        if self._own != (self.broker_epoch, False) or self.fenced or self._in_service:
            return []
        self._in_service = True
        return [Notice(f"broker {self._config.node_id} is in service (broker epoch {self.broker_epoch})"), InService()]

    def _out_of_service(self, why: str) -> list[Effect]:
        self._in_service, self.fenced = False, True
        return [Notice(why, True), OutOfService()]

    # -- registration ----------------------------------------------------------------------------------------------

    def _register(self, now_ms: int) -> list[Effect]:
        self.step, self._due_ms = Step.REGISTERING, None
        self._backoff_ms, self._refusal = REGISTRATION_BACKOFF_MS, ErrorCode.NONE
        return [self._ask_to_register()]

    def _ask_to_register(self) -> Effect:
        self._is_to_register = False
        return Register(self._config.registration_timeout_ms)

    def registration_answered(self, code: ErrorCode, broker_epoch: int, now_ms: int) -> Sequence[Effect]:
        """The controller answered. `broker_epoch` is valid only without an error."""
        if self.step is not Step.REGISTERING:
            return ()
        self._answered_ms = now_ms
        if code is ErrorCode.NONE:
            self.broker_epoch = broker_epoch
            text = f"broker {self._config.node_id} is registered with broker epoch {broker_epoch}"
            return [Registered(broker_epoch), Notice(text), *self._heartbeat(now_ms)]
        if code in _FATAL:
            return self._refuse(f"the controller refuses broker {self._config.node_id}: {code.name} ({code.text})")
        return self._back_off(code, now_ms)

    def registration_unanswered(self, now_ms: int) -> Sequence[Effect]:
        """No controller has answered in time."""
        return self._back_off(ErrorCode.REQUEST_TIMED_OUT, now_ms) if self.step is Step.REGISTERING else ()

    def registration_unsupported(self, why: str) -> Sequence[Effect]:
        """The controller does not serve BrokerRegistration."""
        if self.step is not Step.REGISTERING:
            return ()
        return self._refuse(f"the controller does not support this broker's protocol: {why}")

    def _refuse(self, reason: str) -> list[Effect]:
        self.step = Step.ENDED
        return [Refused(reason, was_registered=self.broker_epoch >= 0)]

    def _back_off(self, code: ErrorCode, now_ms: int) -> list[Effect]:
        self.step, self._due_ms = Step.BACKING_OFF, now_ms + self._backoff_ms
        self._backoff_ms = min(2 * self._backoff_ms, REGISTRATION_BACKOFF_MS_MAX)
        if code is self._refusal:
            return []
        self._refusal = code
        return [Notice(f"broker {self._config.node_id} cannot register yet: {code.name}")]

    # -- heartbeats ------------------------------------------------------------------------------------------------

    def _heartbeat(self, now_ms: int) -> list[Effect]:
        if self._is_to_register:
            return self._register(now_ms)
        self.step, self._due_ms, self._has_news = Step.HEARTBEATING, None, False
        # Without a longer timeout, no answer would ever arrive in time where every answer is late (see ControllerChannel).
        self._timeout_ms = heartbeat_timeout_ms(self._config.session_timeout_ms) << self._late_answers
        self._sent_ms, self._has_asked_again = now_ms, True
        return [Heartbeat(self.broker_epoch, self._want_shut_down, self._timeout_ms)]

    def _rest(self, now_ms: int) -> list[Effect]:
        if self._has_news:
            return self._heartbeat(now_ms)
        interval_ms = self._config.heartbeat_interval_ms
        pause_ms = min(interval_ms, SHUTDOWN_HEARTBEAT_MS) if self._want_shut_down else interval_ms
        self.step, self._due_ms = Step.RESTING, now_ms + pause_ms
        return []

    def heartbeat_unanswered(self, why: str, is_timeout: bool, now_ms: int) -> Sequence[Effect]:
        """No controller has answered. `is_timeout`: the heartbeat timed out, and there is no time for a pause."""
        if self.step is not Step.HEARTBEATING:
            return ()
        self.unanswered += 1
        if is_timeout:
            self._late_answers = min(self._late_answers + 1, LATE_ANSWERS_MAX)
            self._has_news = True
        return [Notice(f"no answer to a heartbeat: {why}", True), *self._rest(now_ms)]

    def heartbeat_answered(self, code: ErrorCode, is_fenced: bool, should_shut_down: bool, now_ms: int) -> Sequence[Effect]:
        """The controller answered."""
        if self.step is not Step.HEARTBEATING:
            return ()
        self._answered_ms = now_ms
        if LATE_PART * (now_ms - self._sent_ms) <= self._timeout_ms:
            self._late_answers = max(self._late_answers - 1, 0)
        if code is not ErrorCode.NONE:
            return self._heartbeat_refused(code, now_ms)
        effects: list[Effect] = []
        if is_fenced and not self.fenced and not self._want_shut_down:
            effects += self._out_of_service(f"the controller has fenced broker {self._config.node_id}")
        self.fenced = is_fenced
        if not is_fenced:
            self._confirmed_ms = self._sent_ms
            # An answer to an earlier heartbeat may have come over the connection that has ended.
            if self._has_asked_again:
                self._lost_ms = None
        effects += self._in_service_if_all_agree()
        return effects + (self._go(True) if should_shut_down else self._rest(now_ms))

    def _heartbeat_refused(self, code: ErrorCode, now_ms: int) -> list[Effect]:
        if code is not ErrorCode.STALE_BROKER_EPOCH:
            return [Notice(f"the controller answered a heartbeat with {code.name}", True), *self._rest(now_ms)]
        if self._want_shut_down:
            return [Notice(f"the controller answered a heartbeat with {code.name}", True), *self._go(True)]
        incarnation = f"broker epoch {self.broker_epoch} of broker {self._config.node_id}"
        return [*self._out_of_service(f"the controller does not know {incarnation}; registering again"), *self._register(now_ms)]

    def _go(self, is_released: bool) -> list[Effect]:
        if is_released:
            self.step, self._due_ms = Step.ENDED, None
        self._shutdown = None
        return [MayGo(is_released)]

    # -- time ------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When to call `on_deadline`."""
        deadlines_ms = (self._due_ms, self._go_deadline_ms(), self._late_deadline_ms())
        return min([deadline_ms for deadline_ms in deadlines_ms if deadline_ms is not None], default=None)

    def _late_deadline_ms(self) -> int | None:
        if self.step is not Step.HEARTBEATING or self._lost_ms is not None or self.fenced:
            return None
        return self._sent_ms + self._timeout_ms // LATE_PART

    def _go_deadline_ms(self) -> int | None:
        return None if self._shutdown is None else min(self._shutdown.end_ms, self._shutdown.silent_ms(self._answered_ms))

    def on_deadline(self, now_ms: int) -> Sequence[Effect]:
        """Do what is due."""
        effects: list[Effect] = []
        late_ms = self._late_deadline_ms()
        if late_ms is not None and late_ms <= now_ms:
            effects += self._unheard(now_ms)
        if self._due_ms is not None and self._due_ms <= now_ms:
            if self.step is Step.RESTING:
                effects += self._heartbeat(now_ms)
            else:
                self.step, self._due_ms = Step.REGISTERING, None
                effects.append(self._ask_to_register())
        shutdown = self._shutdown
        if shutdown is not None and shutdown.end_ms <= now_ms:
            text = f"the controller did not release this broker in time; it stops anyway, with {shutdown.left}"
            effects += [Notice(text, True), *self._go(False)]
        elif shutdown is not None and shutdown.silent_ms(self._answered_ms) <= now_ms:
            effects += [Notice(f"no controller answers: this broker stops with {shutdown.left}", True), *self._go(False)]
        return effects


def heartbeat_timeout_ms(session_timeout_ms: int) -> int:
    """The timeout of a heartbeat: short enough for another heartbeat within the session."""
    return max(session_timeout_ms // 2, 1)


def cordoned_to_report(metadata_version: int, cordoned: list[bytes], registered: Sequence[bytes]) -> list[bytes] | None:
    """The cordoned directories that a heartbeat names. None, which changes nothing, if there are none and the controller has none
    (`registered`), or if metadata.version is too low."""
    if metadata_version < CORDONS:
        return None
    return cordoned if cordoned or registered else None
