"""A broker's life as the controller sees it: registered, fenced, unfenced, shutting down (KIP-631, KIP-841)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from minikafka.core.controller.config import SUPPORTED_FEATURES
from minikafka.core.controller.topics import random_uuid
from minikafka.core.metadata.image import METADATA_VERSION
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

REGISTRATION_BACKOFF_MS = 50
REGISTRATION_BACKOFF_MS_MAX = 500
#: Between two heartbeats while the controller moves leaderships away.
SHUTDOWN_HEARTBEAT_MS = 50
#: When all nodes stop together the controller may be gone first: nobody waits for one that has been silent for this long.
CONTROLLER_SILENCE_MS_MAX = 1000
#: 4.3-IV0, the first metadata.version with cordoned directories.
CORDONED_METADATA_VERSION = 30

#: Doublings of the time that a heartbeat may take, at most.
LATE_ANSWERS_MAX = 4
#: Answers to a registration that another try will not change.
_FATAL = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION, ErrorCode.UNSUPPORTED_VERSION})


#: Ways in which the controller may fail to answer; heartbeats go on after each of them.
_NO_ANSWER = (TimeoutError, ConnectionError, UnsupportedVersion, WireError, ApiError)


def heartbeat_timeout_ms(session_timeout_ms: int) -> int:
    """When a heartbeat's connection is taken for dead: early enough for another heartbeat within the session."""
    return max(session_timeout_ms // 2, 1)


class RegistrationFailed(Exception):
    """The controller will not have this broker; the text says why."""


class BrokerLifecycle:
    """Registers the broker and keeps its session alive.

    broker_epoch: -1 until registered; incarnation_id: 16 bytes of this process; fenced: what the controller last said;
    ready: set when the controller has unfenced the broker and this node's image says so too; failed: a future that
    RegistrationFailed is set on when the controller refuses the broker for good.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        metadata: MetadataHost,
        controller: ControllerChannel,
        *,
        cluster_id: str,
        listeners: Mapping[str, tuple[str, int, int]],
        log_dirs: Callable[[], list[bytes]],
        offline_log_dirs: Callable[[], list[bytes]],
        cordoned_log_dirs: Callable[[], list[bytes]] = list,
        previous_broker_epoch: int = -1,
    ) -> None:
        """`log_dirs`, `offline_log_dirs` and `cordoned_log_dirs` give directory ids of 16 bytes; `listeners` as in BrokerRegistration;
        `previous_broker_epoch` is what the last clean shutdown left in the log directories, -1 without one."""
        self._config = config
        self._environment = environment
        self._metadata = metadata
        self._controller = controller
        self._cluster_id = cluster_id
        self._listeners = listeners
        self._log_dirs = log_dirs
        self._offline_log_dirs = offline_log_dirs
        self._cordoned_log_dirs = cordoned_log_dirs
        self._previous_broker_epoch = previous_broker_epoch
        self.node_id: int = config.node_id
        self.incarnation_id: bytes = random_uuid(environment.random)
        self.broker_epoch = -1
        #: Called when the controller has told the broker epoch.
        self.on_registered: Callable[[], None] | None = None
        self.fenced = True
        self.ready = asyncio.Event()
        self.failed: asyncio.Future[None] = environment.loop.create_future()
        self._want_shut_down = False
        self._answered_ms = environment.clock.now_ms()
        #: Heartbeats that no controller answered.
        self.unanswered = 0
        #: By how many doublings the next heartbeat may take longer than usual.
        self._late_answers = 0
        self._stopping = False
        self._may_go = asyncio.Event()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        # The controller takes a lost connection for a sign of death: tell it at once that this is none.
        controller.on_disturbed = self._wake.set
        metadata.subscribe(self._on_metadata)

    async def start(self) -> None:
        """Begin to register in the background; `ready` tells when the broker is in service."""
        if self._task is None:
            self._task = self._environment.supervisor.start(self._run(), "heartbeats to the controller")

    async def controlled_shutdown(self, timeout_ms: int) -> bool:
        """Ask the controller to move leaderships away; True when it said that the broker may go now."""
        if self._task is None or self.broker_epoch < 0:
            return False
        self._want_shut_down = True
        self._wake.set()
        now_ms = self._environment.clock.now_ms
        deadline_ms = now_ms() + timeout_ms
        self._answered_ms = now_ms()
        while (left_ms := min(deadline_ms, self._answered_ms + CONTROLLER_SILENCE_MS_MAX) - now_ms()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._may_go.wait(), left_ms / 1000)
                return True
        if now_ms() < deadline_ms:
            log.warning("no controller answers: this broker goes without its leaderships being moved")
        else:
            log.warning("the controller did not release this broker within %d ms; it goes all the same", timeout_ms)
        return False

    async def stop(self) -> None:
        """Stop heartbeats."""
        # A cancellation may get lost in asyncio.wait_for (Python 3.11), the flag does not.
        self._stopping = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if not self.failed.done():
            self.failed.cancel()

    def directories_changed(self) -> None:
        """A log directory went offline, or others are cordoned: tell the controller at once."""
        self._wake.set()

    # -- metadata --------------------------------------------------------------------------------------------------

    def _on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for broker_id, broker in delta.changed_brokers.items():
            if broker is None:
                continue
            if broker_id == self.node_id:
                if broker.epoch == self.broker_epoch:
                    self._note(broker.fenced)
                    self._wake.set()
            elif broker.in_controlled_shutdown and not self.fenced:
                # It may go once every broker has reported that it knows of the new leaders.
                self._wake.set()
        if self._want_shut_down and delta.changed_topics:
            self._wake.set()

    def _note(self, fenced_in_image: bool) -> None:
        if not fenced_in_image and not self.fenced and not self.ready.is_set():
            log.info("broker %d is in service (broker epoch %d)", self.node_id, self.broker_epoch)
            self.ready.set()

    # -- the conversation with the controller ----------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._register()
            while not (self._may_go.is_set() or self._stopping):
                await self._heartbeat()
                await self._sleep(self._pause_ms())
        except RegistrationFailed as error:
            if not self.failed.done():
                self.failed.set_exception(error)
            if self.broker_epoch >= 0:
                # It was in service: nobody waits for its registration any more.
                self._environment.supervisor.fail(error)

    @property
    def silence_ms(self) -> int:
        """For how long no controller has answered a heartbeat or a registration."""
        return self._environment.clock.now_ms() - self._answered_ms

    @property
    def trouble(self) -> str | None:
        """Why clients cannot count on this broker, as far as its heartbeats tell; None when they do not."""
        if self.fenced:
            return "fenced by the controller"
        if self.silence_ms > self._config.broker_session_timeout_ms:
            return f"no controller has answered a heartbeat for {self.silence_ms} ms (broker.session.timeout.ms)"
        return None

    def _pause_ms(self) -> int:
        interval: int = self._config.broker_heartbeat_interval_ms
        return min(interval, SHUTDOWN_HEARTBEAT_MS) if self._want_shut_down else interval

    async def _sleep(self, pause_ms: int) -> None:
        """Until it is time, or something happened that the controller should hear of."""
        alarm = self._environment.loop.call_later(pause_ms / 1000, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            alarm.cancel()
        self._wake.clear()

    async def _register(self) -> None:
        backoff_ms = REGISTRATION_BACKOFF_MS
        said = ErrorCode.NONE
        while not self._stopping:
            code = await self._try_to_register()
            if code is ErrorCode.NONE:
                return
            if code in _FATAL:
                raise RegistrationFailed(f"the controller refuses broker {self.node_id}: {code.name} ({code.text})")
            if code is not said:
                said = code
                log.info("broker %d cannot register yet: %s", self.node_id, code.name)
            await asyncio.sleep(backoff_ms / 1000)
            backoff_ms = min(2 * backoff_ms, REGISTRATION_BACKOFF_MS_MAX)

    async def _try_to_register(self) -> ErrorCode:
        request = BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                BrokerRegistrationRequest.Listener(name=name, host=host, port=port, security_protocol=protocol)
                for name, (host, port, protocol) in self._listeners.items()
            ],
            features=[
                BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=self._config.broker_rack,
            log_dirs=self._log_dirs(),
            previous_broker_epoch=self._previous_broker_epoch,
        )
        try:
            response = await self._controller.request(request, self._config.initial_broker_registration_timeout_ms)
        except (TimeoutError, ConnectionError):
            return ErrorCode.REQUEST_TIMED_OUT
        except UnsupportedVersion as error:
            raise RegistrationFailed(f"the controller does not speak this broker's protocol: {error}") from error
        self._answered_ms = self._environment.clock.now_ms()
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            self.broker_epoch = response.broker_epoch
            if self.on_registered is not None:
                self.on_registered()
            log.info("broker %d is registered with broker epoch %d", self.node_id, self.broker_epoch)
        return code

    def _cordoned(self) -> list[bytes] | None:
        """None, which changes nothing, unless there are some or the controller thinks so, and only when everybody understands it."""
        image = self._metadata.image
        if image.features.get(METADATA_VERSION, 0) < CORDONED_METADATA_VERSION:
            return None
        cordoned, own = self._cordoned_log_dirs(), image.brokers.get(self.node_id)
        return cordoned if cordoned or (own is not None and own.cordoned_log_dirs) else None

    async def _heartbeat(self) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata.offset,
            want_fence=False,
            want_shut_down=self._want_shut_down,
            offline_log_dirs=self._offline_log_dirs(),
            cordoned_log_dirs=self._cordoned(),
        )
        base_ms = heartbeat_timeout_ms(self._config.broker_session_timeout_ms)
        # Where every answer is late, none would come in time for ever (see ControllerChannel).
        timeout_ms, sent_ms = base_ms << self._late_answers, self._environment.clock.now_ms()
        try:
            response = await self._controller.request(request, timeout_ms)
        except _NO_ANSWER as error:
            if not self._stopping:
                self.unanswered += 1
                log.warning("no answer to a heartbeat: %s", error or type(error).__name__)
            if isinstance(error, TimeoutError):
                # Half of the session has passed.
                self._late_answers = min(self._late_answers + 1, LATE_ANSWERS_MAX)
                self._wake.set()
            return
        self._answered_ms = self._environment.clock.now_ms()
        if 4 * (self._answered_ms - sent_ms) <= timeout_ms:
            self._late_answers = max(self._late_answers - 1, 0)
        code = ErrorCode(response.error_code)
        if code is ErrorCode.STALE_BROKER_EPOCH and not self._want_shut_down:
            log.warning("the controller does not know broker epoch %d of broker %d; registering again", self.broker_epoch, self.node_id)
            self.ready.clear()
            await self._register()
            self._wake.set()
            return
        if code is not ErrorCode.NONE:
            log.warning("the controller answered a heartbeat with %s", code.name)
            if code is ErrorCode.STALE_BROKER_EPOCH:
                self._may_go.set()
            return
        if response.is_fenced and not self.fenced and not self._want_shut_down:
            log.warning("the controller has fenced broker %d", self.node_id)
            self.ready.clear()
        self.fenced = response.is_fenced
        own = self._metadata.image.brokers.get(self.node_id)
        if own is not None and own.epoch == self.broker_epoch:
            self._note(own.fenced)
        if response.should_shut_down:
            self._may_go.set()
