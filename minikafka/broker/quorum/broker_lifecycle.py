"""The host of a broker's life cycle (minikafka/core/broker_lifecycle.py): sends requests to the controller, runs a timer, logs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from minikafka.core.broker_lifecycle import (
    BrokerLifecycle,
    Effect,
    Heartbeat,
    InService,
    LifecycleConfig,
    MayGo,
    Notice,
    OutOfService,
    Refused,
    Register,
    Registered,
    Unheard,
    cordoned_to_report,
)
from minikafka.core.controller.config import SUPPORTED_FEATURES
from minikafka.core.controller.topics import random_uuid
from minikafka.core.metadata.image import METADATA_VERSION
from minikafka.late_dataclass import dataclass
from minikafka.net.channel import UnsupportedVersion
from minikafka.wire.errors import ApiError, ErrorCode, WireError
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from minikafka.wire.messages.broker_registration import BrokerRegistrationRequest

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage

log = logging.getLogger("minikafka.node")
#: Names this work in the message of an unexpected failure.
WORK = "heartbeats to the controller"
#: Exceptions when the controller does not answer; heartbeats go on after each of them.
_NO_ANSWER = (TimeoutError, ConnectionError, UnsupportedVersion, WireError, ApiError)


class RegistrationFailed(Exception):
    """The controller refuses to register this broker; the text gives the reason."""


def _nothing() -> None:
    """The default callback."""


@dataclass(frozen=True, slots=True)
class OwnFacts:
    """What a broker registers about itself. Directories are 16-byte ids; `listeners` as in BrokerRegistration;
    `previous_broker_epoch` is the epoch that the last clean shutdown stored in the log directories, -1 without one."""

    cluster_id: str
    listeners: Mapping[str, tuple[str, int, int]]
    log_dirs: Callable[[], list[bytes]]
    offline_log_dirs: Callable[[], list[bytes]]
    cordoned_log_dirs: Callable[[], list[bytes]] = list
    previous_broker_epoch: int = -1


class BrokerLifecycleHost:
    """Registers the broker and keeps its session alive.

    incarnation_id: 16 random bytes, new for each process. ready: set when the controller has unfenced the broker and this node's image
    shows it. failed: a future that gets RegistrationFailed as its exception if the controller refuses the broker permanently.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        metadata: MetadataHost,
        controller: ControllerChannel,
        facts: OwnFacts,
        on_registered: Callable[[], None] = _nothing,
        on_unheard: Callable[[], None] = _nothing,
    ) -> None:
        """`on_registered` is called when the controller has assigned the broker epoch. `on_unheard` is called when the heartbeat connection
        has ended or an answer is late: the controller may replace this broker soon."""
        self._environment = environment
        self._now_ms = environment.clock.now_ms
        self._metadata = metadata
        self._controller = controller
        self._facts = facts
        self._rack = config.broker_rack
        self._on_registered = on_registered
        self._on_unheard = on_unheard
        self.node_id: int = config.node_id
        self.incarnation_id: bytes = random_uuid(environment.random)
        self._core = BrokerLifecycle(
            LifecycleConfig(
                node_id=config.node_id,
                heartbeat_interval_ms=config.broker_heartbeat_interval_ms,
                session_timeout_ms=config.broker_session_timeout_ms,
                registration_timeout_ms=config.initial_broker_registration_timeout_ms,
                reconnect_ms=config.minikafka_heartbeat_reconnect_ms,
            ),
            self._now_ms(),
        )
        self.ready = asyncio.Event()
        self.failed: asyncio.Future[None] = environment.loop.create_future()
        self._released: asyncio.Future[bool] | None = None
        #: Of a broker that stops: its leaderships that have not moved yet.
        self._led: set[tuple[bytes, int]] = set()
        self._request: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        # The controller takes a lost connection as a sign that the broker died, so send a heartbeat at once.
        controller.subscribe_disturbances(self.heartbeat_at_once, self._connection_lost)
        metadata.subscribe(self._on_metadata)

    # -- state -----------------------------------------------------------------------------------------------------

    @property
    def broker_epoch(self) -> int:
        """-1 until registered."""
        return self._core.broker_epoch

    @property
    def fenced(self) -> bool:
        """Whether the broker is fenced, as the controller last reported."""
        return self._core.fenced

    @property
    def unanswered(self) -> int:
        """The number of heartbeats without an answer."""
        return self._core.unanswered

    @property
    def silence_ms(self) -> int:
        """For how long no controller has answered a heartbeat or a registration, in ms."""
        return self._core.silence_ms(self._now_ms())

    @property
    def is_unheard(self) -> bool:
        """Whether the heartbeat connection has ended and no later heartbeat has been answered, or an answer is late."""
        return self._core.is_unheard

    @property
    def in_doubt_since_ms(self) -> int | None:
        """Since when the controller may have moved this broker's leaderships to others; None if it has not."""
        return self._core.in_doubt_since_ms(self._now_ms())

    @property
    def trouble(self) -> str | None:
        """Why clients cannot rely on this broker, as far as its heartbeats show; None if they can."""
        return self._core.trouble(self._now_ms())

    # -- calls from the node ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start to register in the background. `ready` is set when the broker is in service."""
        self._carry_out(self._core.start(self._now_ms()))

    async def controlled_shutdown(self, timeout_ms: int, work_ms: int = 0) -> bool:
        """Ask the controller to move leaderships away; `work_ms` as in the core. Returns True if the controller said that the broker may
        stop."""
        if self._stopping:
            return False
        self._released = self._environment.loop.create_future()
        for topic_id, topic in self._metadata.image.topics_by_id.items():
            self._led.update((topic_id, index) for index, one in topic.partitions.items() if one.leader == self.node_id)
        self._carry_out(self._core.shut_down(timeout_ms, self._now_ms(), work_ms, len(self._led)))
        return await self._released

    async def stop(self) -> None:
        """Stop sending heartbeats."""
        self._stopping = True
        self._core.stop()
        self._arm()
        request, self._request = self._request, None
        if request is not None:
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        if not self.failed.done():
            self.failed.cancel()
        if self._released is not None and not self._released.done():
            self._released.set_result(False)

    def heartbeat_at_once(self) -> None:
        """Send a heartbeat now, because a log directory went offline, the cordoned directories changed, or the controller changed."""
        self._carry_out(self._core.heartbeat_at_once(self._now_ms()))

    def _connection_lost(self) -> None:
        self._carry_out(self._core.connection_lost(self._now_ms()))

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        now_ms = self._now_ms()
        for broker_id, broker in delta.changed_brokers.items():
            if broker is None:
                continue
            if broker_id == self.node_id:
                self._carry_out(self._core.registration_changed(broker.epoch, broker.fenced, now_ms))
            elif broker.in_controlled_shutdown:
                self._carry_out(self._core.another_shuts_down(now_ms))
        if delta.changed_topics:
            if self._led:
                self._note_moved(delta)
            self._carry_out(self._core.topics_changed(now_ms, len(self._led)))
        own = image.brokers.get(self.node_id)
        if own is None or own.log_dirs or own.epoch != self.broker_epoch or not image.has_directories:
            return
        if delta.features_changed or self.node_id in delta.changed_brokers:
            self._carry_out(self._core.directories_are_missing(now_ms))

    def _note_moved(self, delta: MetadataDelta) -> None:
        for topic_id, changed in delta.changed_topics.items():
            self._led.difference_update([(topic_id, index) for index, one in changed.changed.items() if one.leader != self.node_id])

    # -- effects ---------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        if self._stopping:
            return
        for effect in effects:
            match effect:
                case Register(timeout_ms):
                    self._request = self._environment.supervisor.start(self._register(timeout_ms), WORK)
                case Heartbeat():
                    self._request = self._environment.supervisor.start(self._heartbeat(effect), WORK)
                case Notice(text, is_warning):
                    log.log(logging.WARNING if is_warning else logging.INFO, "%s", text)
                case Registered():
                    self._on_registered()
                case InService():
                    self.ready.set()
                case OutOfService():
                    self.ready.clear()
                case Unheard():
                    self._on_unheard()
                case Refused(reason, was_registered):
                    self._refused(RegistrationFailed(reason), was_registered)
                case MayGo(is_released):
                    if self._released is not None and not self._released.done():
                        self._released.set_result(is_released)
        self._arm()

    def _refused(self, error: RegistrationFailed, was_registered: bool) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
        if was_registered:
            # The broker has been in service, so no caller waits on `failed`: end the node.
            self._environment.supervisor.fail(error)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._core.next_deadline()
        if deadline_ms is not None:
            delay_ms = max(deadline_ms - self._now_ms(), 0)
            self._timer = self._environment.supervisor.call_later(delay_ms / 1000, WORK, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._carry_out(self._core.on_deadline(self._now_ms()))

    # -- requests --------------------------------------------------------------------------------------------------

    async def _register(self, timeout_ms: int) -> None:
        facts = self._facts
        request = BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=facts.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                BrokerRegistrationRequest.Listener(name=name, host=host, port=port, security_protocol=protocol)
                for name, (host, port, protocol) in facts.listeners.items()
            ],
            features=[
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=self._rack,
            log_dirs=facts.log_dirs(),
            previous_broker_epoch=facts.previous_broker_epoch,
        )
        try:
            response = await self._controller.request(request, timeout_ms)
        except (TimeoutError, ConnectionError):
            effects = self._core.registration_unanswered(self._now_ms())
        except UnsupportedVersion as error:
            effects = self._core.registration_unsupported(str(error))
        else:
            effects = self._core.registration_answered(ErrorCode(response.error_code), response.broker_epoch, self._now_ms())
        self._carry_out(effects)

    def _cordoned(self) -> list[bytes] | None:
        image = self._metadata.image
        own = image.brokers.get(self.node_id)
        registered = None if own is None else own.cordoned_log_dirs
        return cordoned_to_report(image.features.get(METADATA_VERSION, 0), self._facts.cordoned_log_dirs(), registered or ())

    async def _heartbeat(self, heartbeat: Heartbeat) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self.node_id,
            broker_epoch=heartbeat.broker_epoch,
            current_metadata_offset=self._metadata.offset,
            want_fence=False,
            want_shut_down=heartbeat.want_shut_down,
            offline_log_dirs=self._facts.offline_log_dirs(),
            cordoned_log_dirs=self._cordoned(),
        )
        try:
            response = await self._controller.request(request, heartbeat.timeout_ms)
        except _NO_ANSWER as error:
            why = str(error) or type(error).__name__
            effects = self._core.heartbeat_unanswered(why, isinstance(error, TimeoutError), self._now_ms())
        else:
            effects = self._core.heartbeat_answered(
                ErrorCode(response.error_code), response.is_fenced, response.should_shut_down, self._now_ms()
            )
        self._carry_out(effects)
