"""The active controller on its node: runs the core over the metadata log, and answers when its decisions are committed."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from minikafka.broker.config.rules import BrokerConfigRules
from minikafka.broker.measures.durations import Durations
from minikafka.broker.quorum.change_lines import BALANCE, change_lines, reason_in_batch, reason_of
from minikafka.broker.quorum.controller_events import ControllerEvents
from minikafka.broker.quorum.metadata_batch import MetadataBatch
from minikafka.broker.quorum.raft_host import NotLeader
from minikafka.broker.supervise import Ends
from minikafka.core.controller.config import DEFAULT_FEATURES, SUPPORTED_FEATURES, ControllerConfig
from minikafka.core.controller.controller import Controller
from minikafka.core.controller.state import RECORDS_PER_BATCH
from minikafka.core.controller.topics import random_uuid
from minikafka.core.metadata.image import METADATA_VERSION
from minikafka.core.metadata.versions import NEWEST, REGISTERED_CONTROLLERS, versioned
from minikafka.steps import Steps, paced
from minikafka.storage.errors import ResourceShortage
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from minikafka.wire.messages.alter_partition import AlterPartitionRequest
from minikafka.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from minikafka.wire.messages.broker_registration import BrokerRegistrationRequest
from minikafka.wire.messages.controller_registration import ControllerRegistrationRequest
from minikafka.wire.records.frame import encode_metadata_record
from minikafka.wire.records.metadata_records import PartitionChangeRecord, PartitionRecord

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.quorum.raft_host import RaftHost
    from minikafka.core.controller.forwarded import Forwarded
    from minikafka.core.controller.state import Result
    from minikafka.core.metadata.image import MetadataImage

log = logging.getLogger("minikafka.controller")

#: Records encoded, or lines logged, in one step.
STEP_RECORDS, STEP_LINES = 256, 64
#: A longer reconnection means that the broker was cut off; it is no measure of its connection time.
CONNECT_MS_MAX = 1000

#: Requests that only nodes of the cluster send.
_OF_NODES = (
    BrokerHeartbeatRequest, BrokerRegistrationRequest, ControllerRegistrationRequest, AlterPartitionRequest, AssignReplicasToDirsRequest,
    AllocateProducerIdsRequest,
)  # fmt: skip

#: Called with (response, None), or with (None, error) if the whole request fails.
Respond = Callable[[Any, ApiError | None], None]


def controller_config(config: BrokerConfig, cluster_id: str) -> ControllerConfig:
    """The core's configuration, from the node's."""
    return ControllerConfig(
        cluster_id=cluster_id,
        node_id=config.node_id,
        num_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        min_insync_replicas=config.min_insync_replicas,
        unclean_leader_election_enable=config.unclean_leader_election_enable,
        delete_topic_enable=config.delete_topic_enable,
        broker_session_timeout_ms=config.broker_session_timeout_ms,
        minikafka_heartbeat_reconnect_ms=config.minikafka_heartbeat_reconnect_ms,
        auto_leader_rebalance_enable=config.auto_leader_rebalance_enable,
        leader_imbalance_check_interval_ms=config.leader_imbalance_check_interval_seconds * 1000,
        leader_imbalance_per_broker_percentage=config.leader_imbalance_per_broker_percentage,
        unclean_leader_election_interval_ms=config.unclean_leader_election_interval_ms,
        delegation_tokens_enable=bool(config.delegation_token_secret_key),
        delegation_token_max_lifetime_ms=config.delegation_token_max_lifetime_ms,
        delegation_token_expiry_time_ms=config.delegation_token_expiry_time_ms,
    )


class _HeartbeatConnection:
    """The connection that carried a broker's last heartbeat. `connect_ms`: see BrokerSessions.disconnected."""

    __slots__ = ("closed_ms", "connect_ms", "connection", "epoch")

    def __init__(self, epoch: int, connection: Any, connect_ms: int | None) -> None:
        self.epoch = epoch
        self.connection = connection
        self.connect_ms = connect_ms
        self.closed_ms: int | None = None


class ControllerHost:
    """Holds the core while this node leads the metadata quorum; on other nodes it answers NOT_CONTROLLER.

    A request sees everything appended so far. It is answered when the log is committed up to what it saw, so that a fail-over
    cannot take back any answer. The MetadataHost must subscribe to the quorum before this host does: when this host learns
    that it leads, the image then holds all committed records.

    An unexpected exception ends the term, as in QuorumController's renounce, because the core may lack records that are in the log. The
    next active controller, which may be this node in a new epoch, starts from the committed records.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        raft: RaftHost,
        metadata: MetadataHost,
        *,
        cluster_id: str,
        features: Mapping[str, int] | None = None,
        users: Sequence[Any] = (),
        listeners: Callable[[], Mapping[str, tuple[str, int, int]]] | None = None,
        own_incarnation: Callable[[], bytes] | None = None,
    ) -> None:
        """`features`: feature levels for a cluster whose log is still empty (bootstrap.checkpoint). `users`: its first
        credentials. `listeners`: returns this controller's advertised endpoints when it registers itself.
        `own_incarnation`: returns the incarnation id of the broker in this process, if there is one."""
        self._config = controller_config(config, cluster_id)
        self._environment = environment
        self.supervisor = environment.supervisor
        self._raft = raft
        self._metadata = metadata
        self._features = dict(features or DEFAULT_FEATURES)
        self._users = list(users)
        self._listeners = listeners
        self._own_incarnation = own_incarnation
        self._rules = BrokerConfigRules(config)
        #: 16 random bytes, new for each process.
        self.incarnation_id: bytes = random_uuid(environment.random)
        self._core: Controller | None = None
        self._events = ControllerEvents(environment)
        self._epoch = -1
        #: Everything before this offset has been delivered to this host.
        self._delivered = 0
        self._waiting: deque[tuple[int, Respond, Any]] = deque()
        self._heartbeat_connections: dict[int, _HeartbeatConnection] = {}
        #: broker id -> the connection of its last registration, and how long that took to be made.
        self._registration_connections: dict[int, tuple[Any, int | None]] = {}
        self._predecessor: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        #: How long decisions take, without their time in the queue. Long ones include the turns of others in between.
        self.decisions = Durations(environment.monotonic_s)
        self.activations = 0
        self._silence = f"nothing was heard of it for {config.broker_session_timeout_ms} ms (broker.session.timeout.ms)"
        raft.subscribe(self)
        raft.subscribe_doubt(self._doubt_changed)

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller."""
        return self._core is not None

    @property
    def waits(self) -> Durations:
        """How long events waited before the controller began them."""
        return self._events.waits

    @property
    def core(self) -> Controller | None:
        """The core while this node is active, else None. For tests and metrics."""
        return self._core

    def newest_image(self) -> MetadataImage:
        """The image on which the active controller decides, appended records included; on other nodes the committed image."""
        return self._metadata.image if self._core is None else self._core.image

    # -- requests --------------------------------------------------------------------------------------------------

    def handle(
        self,
        request: Any,
        version: int,
        respond: Respond,
        connection: Any = None,
        spend: Callable[[int], None] | None = None,
        connect_ms: int | None = None,
        forwarded: Forwarded | None = None,
        is_direct: bool = False,
        client: Hashable = None,
    ) -> None:
        """Decide on a request and call `respond` once, now or after the commit. `connection`: where the request came from.
        `spend(count)` is called with the number of partitions that the request creates or deletes, and may refuse them (KIP-599).
        `connect_ms`: for a registration or a heartbeat of a broker that reconnects at once, the time from the start of its connection to
        this request.
        `forwarded`: how often a broker has sent this client request before, perhaps to another controller.
        `is_direct`: a client sent it here, and no broker has looked at it.
        `client`: who asks. Clients take turns."""
        core = self._core
        if core is None:
            respond(None, ApiError(ErrorCode.NOT_CONTROLLER, "The active controller appears to be another node."))
            return
        try:
            if connection is not None:
                self._watch_connection(core, request, connection, connect_ms)
            if isinstance(request, BrokerHeartbeatRequest):
                # Before its turn comes, as in Kafka: a broker is not silent because many events are before its heartbeat.
                core.broker_heard(request.broker_id, request.broker_epoch, self._environment.clock.now_ms())
        except Exception as error:
            self._renounce(type(request).__name__, error)
            respond(None, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        event = _Request(self, request, respond, lambda core, now_ms: core.handle(request, version, now_ms, spend, forwarded, is_direct))
        self._events.add(event, is_urgent=isinstance(request, _OF_NODES), client=client)

    async def ask(self, request: Any, version: int) -> Any:
        """Like `handle`, for callers that can await. Raises ApiError."""
        future: asyncio.Future[Any] = self._environment.loop.create_future()

        def respond(response: Any, error: ApiError | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(response)

        self.handle(request, version, respond)
        return await future

    def _watch_connection(self, core: Controller, request: Any, connection: Any, connect_ms: int | None) -> None:
        """Remember which connection carries a broker's heartbeats. If it closes, the broker can be fenced before its session times out."""
        now_ms = self._environment.clock.now_ms()
        if isinstance(request, BrokerHeartbeatRequest):
            heartbeats = self._heartbeat_connections.get(request.broker_id)
            if heartbeats is not None and heartbeats.connection is connection:
                heartbeats.epoch = request.broker_epoch
                return
            registered_over, registered_ms = self._registration_connections.pop(request.broker_id, (None, None))
            if registered_over is connection:
                # The commit of the registration, which the first heartbeat waits for, is no part of the time to connect.
                connect_ms = registered_ms
            if (
                connect_ms is not None
                and heartbeats is not None
                and heartbeats.closed_ms is not None
                and heartbeats.epoch == request.broker_epoch
            ):
                # From the end of the old connection to the first heartbeat on the new one: this is the full cost of reconnecting.
                connect_ms = max(connect_ms, now_ms - heartbeats.closed_ms)
            took_ms = None if connect_ms is None else min(connect_ms, CONNECT_MS_MAX)
            self._heartbeat_connections[request.broker_id] = _HeartbeatConnection(request.broker_epoch, connection, took_ms)
        elif isinstance(request, BrokerRegistrationRequest):
            heartbeats = self._heartbeat_connections.get(request.broker_id)
            if heartbeats is not None and heartbeats.connection.closed:
                core.broker_disconnected(request.broker_id, heartbeats.epoch, now_ms, heartbeats.connect_ms)
            self._registration_connections[request.broker_id] = (connection, connect_ms)

    def connection_closed(self, connection: Any) -> None:
        """A connection has ended. If it carried heartbeats, its broker may have died."""
        core = self._core
        if core is None:
            return
        for broker_id, heartbeats in self._heartbeat_connections.items():
            if heartbeats.connection is connection:
                heartbeats.closed_ms = self._environment.clock.now_ms()
                core.broker_disconnected(broker_id, heartbeats.epoch, heartbeats.closed_ms, heartbeats.connect_ms)
                self._arm()

    def _why_silent(self, broker_id: int) -> str:
        """The reason for the end of a broker's session."""
        heartbeats = self._heartbeat_connections.get(broker_id)
        return (
            "its connection closed and it did not come back" if heartbeats is not None and heartbeats.connection.closed else self._silence
        )

    def decide(self, event: _Request, decision: Callable[[Controller, int], Steps[Result]]) -> Steps[None]:
        """Decide on a request, write the records, and answer when they are committed."""
        core = self._core
        assert core is not None
        kind = type(event.request)
        try:
            with self.decisions.measured():
                core.log_ends_at(self._raft.log_end_offset)
                result = yield from decision(core, self._environment.clock.now_ms())
                # A kraft.version upgrade has appended its own batch.
                core.log_ends_at(self._raft.log_end_offset)
                last = yield from self._write(core, result.records, result.atomic, reason_of(event.request) if result.records else "")
                if result.written is not None:
                    result.written(last)
        except NotLeader:
            self._deactivate()
            event.dropped()
            return
        except ApiError as error:
            event.answer(None, error)
            return
        except Exception as error:
            event.is_failed = True
            self._renounce(kind.__name__, error)
            event.answer(None, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self._answer_when_committed(last, event.answer, result.response)
        self._arm()

    def _write(
        self, core: Controller, records: list[Any], atomic: bool, why: str = "", why_fenced: Callable[[int], str] | None = None
    ) -> Steps[int]:
        """Append and replay records. Returns the offset that must be committed before the answer is sent. `why` is the reason in log lines,
        `why_fenced` that of brokers that are fenced. Raises NotLeader."""
        step = len(records) if atomic else RECORDS_PER_BATCH
        partitions = sum(isinstance(record, PartitionChangeRecord | PartitionRecord) for record in records)
        for start in range(0, len(records), step or 1):
            level = core.state.image.features.get(METADATA_VERSION, NEWEST)
            fitting, batch = list[Any](), MetadataBatch()
            for record, is_step in paced(records[start : start + step], STEP_RECORDS):
                written, version = versioned(record, level)
                fitting.append(written)
                batch.add(encode_metadata_record(written, version))
                if is_step:
                    yield
            try:
                last = self._raft.append(batch, epoch=self._epoch)
            except ResourceShortage as error:
                raise self._short_of_resources(error) from error
            # The log may have inserted a control batch in between (a change of voters).
            delta = yield from core.replay(fitting, last - len(fitting) + 1)
            reason = reason_in_batch(records, start, step, why)
            for (log_level, line), is_step in paced(change_lines(delta, reason, why_fenced, partitions), STEP_LINES):
                log.log(log_level, "%s", line)
                if is_step:
                    yield
        return core.state.next_offset - 1

    # -- answers ---------------------------------------------------------------------------------------------------

    def _answer_when_committed(self, offset: int, respond: Respond, response: Any) -> None:
        if offset < self._delivered and not self._waiting and not self._raft.is_in_doubt:
            respond(response, None)
        else:
            self._waiting.append((offset, respond, response))

    def on_high_watermark(self, offset: int) -> None:
        """Send the answers that waited for the commit of the log up to `offset` (exclusive)."""
        if self._core is None:
            # A node that starts as a follower gets no call of `on_leader_change`.
            self._note_leader(self._raft.leader_id)
        self._delivered = offset
        self._answer_waiting(offset)

    def _answer_waiting(self, offset: int) -> None:
        """Send answers, unless this controller may have been replaced without knowing it. Otherwise a broker that the successor has
        replaced, too, would go on believing that it is in service."""
        waiting = self._waiting
        while waiting and waiting[0][0] < offset and not self._raft.is_in_doubt:
            _, respond, response = waiting.popleft()
            respond(response, None)

    def _doubt_changed(self, is_in_doubt: bool) -> None:
        # Requests whose records have been delivered are answered by the listener of the log, the others when theirs are.
        if not is_in_doubt and self._core is not None:
            self._answer_waiting(self._metadata.offset + 1)

    def on_part(self, records: list[tuple[int, Any]]) -> None:
        """Unused: the MetadataHost maintains the image."""

    def on_commit(self, base_offset: int, epoch: int, records: list[tuple[int, Any]]) -> None:
        """Unused: the MetadataHost maintains the image."""

    def on_snapshot(self, snapshot_id: Any, records: Iterable[Any]) -> None:
        """Unused: the MetadataHost maintains the image."""

    # -- becoming and ceasing to be active -------------------------------------------------------------------------

    def on_leader_change(self, leader_id: int | None, epoch: int, is_self: bool) -> None:
        """Become the active controller, or cease to be it."""
        self._note_leader(leader_id)
        if is_self and (self._core is None or epoch != self._epoch):
            self._deactivate()
            self._activate(epoch)
        elif not is_self:
            self._deactivate()

    def _note_leader(self, leader_id: int | None) -> None:
        if leader_id is not None and leader_id >= 0 and leader_id != self._config.node_id:
            self._predecessor = leader_id

    def _activate(self, epoch: int) -> None:
        self._epoch = epoch
        self.activations += 1
        now_ms = self._environment.clock.now_ms()
        image = self._metadata.image
        core = Controller(
            self._config, self._rules, self._environment.random, image, self._raft.log_end_offset, now_ms, self._predecessor, self._raft
        )
        self._core = core
        self._predecessor = None
        own = image.brokers.get(self._config.node_id)
        if own is not None and self._own_incarnation is not None and own.incarnation_id != self._own_incarnation():
            # The session in the log belongs to the previous process of this node, which is dead.
            core.broker_disconnected(own.broker_id, own.epoch, now_ms)
        log.info("controller %d is active in epoch %d with metadata up to offset %d", self._config.node_id, epoch, image.offset)
        self._events.add(_Task(partial(self._begin, core, now_ms)), is_urgent=True)

    def _begin(self, core: Controller, now_ms: int) -> Steps[None]:
        """Begin the term. An unexpected exception ends the node: it would fail the next term, too."""
        try:
            yield from core.load()
            bootstrap = core.bootstrap(self._features, self._users)
            yield from self._write(core, bootstrap.records, True)
            yield from self._register_itself(core, now_ms)
        except NotLeader:
            self._deactivate()
            return
        self._arm()

    def _register_itself(self, core: Controller, now_ms: int) -> Steps[None]:
        """Register as ControllerRegistrar would, but without waiting for the first image. Controllers register once per process."""
        own, level = core.image.controllers.get(self._config.node_id), core.image.features.get(METADATA_VERSION, 0)
        is_known = own is not None and own.incarnation_id == self.incarnation_id
        if self._listeners is not None and not is_known and level >= REGISTERED_CONTROLLERS:
            result = yield from core.handle(self.registration_request(), 0, now_ms)
            yield from self._write(core, result.records, True)

    def registration_request(self) -> ControllerRegistrationRequest:
        """This controller's endpoints and supported features."""
        listeners = {} if self._listeners is None else self._listeners()
        return ControllerRegistrationRequest(
            controller_id=self._config.node_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                ControllerRegistrationRequest.Listener(name=name, host=host, port=port, security_protocol=protocol)
                for name, (host, port, protocol) in listeners.items()
            ],
            features=[
                ControllerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
        )

    def _deactivate(self) -> None:
        if self._core is None:
            return
        log.info("controller %d is no longer active", self._config.node_id)
        self._core = None
        self._heartbeat_connections.clear()
        self._registration_connections.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for _, respond, _ in waiting:
            respond(None, no_longer_active())
        self._events.clear()

    def _renounce(self, what: str, error: Exception) -> None:
        """Resign as controller and as leader of the quorum, because the core may differ from the log."""
        epoch = self._epoch
        self._deactivate()

        def resign(reason: str) -> None:
            # In a later turn, because this call may come from within the quorum.
            self.supervisor.call_soon("the controller's resignation", self._raft.resign, epoch)

        self.supervisor.caught(f"the controller's {what}", error, Ends("term", resign))

    def _short_of_resources(self, error: ResourceShortage) -> NotLeader:
        """Give up the term: another controller may have what this one lacks, and who asked asks again. Returns what to raise."""
        log.warning("controller %d gives up the leadership of the quorum: %s", self._config.node_id, error)
        # In a later turn, because this call may come from within the quorum.
        self.supervisor.call_soon("the controller's resignation", self._raft.resign, self._epoch)
        return NotLeader("descriptors or memory were lacking")

    async def stop(self) -> None:
        """Cease to be the active controller."""
        self._deactivate()

    # -- timers ----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the timer to the core's next deadline, unless it is due earlier anyway. Heartbeats only postpone deadlines."""
        core = self._core
        if core is None:
            return
        deadline_ms = core.next_deadline()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._environment.clock.now_ms())
        self._timer = self.supervisor.call_later(delay_ms / 1000, "the controller's timer", self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._core is not None:
            self._events.add(_Task(partial(self._on_deadline, self._core)), is_urgent=True)

    def _on_deadline(self, core: Controller) -> Steps[None]:
        try:
            core.log_ends_at(self._raft.log_end_offset)
            for decision in core.on_deadline(self._environment.clock.now_ms()):
                records = yield from decision
                yield from self._write(core, records, False, BALANCE, self._why_silent)
        except NotLeader:
            self._deactivate()
            return
        except Exception as error:
            self._renounce("timer", error)
            return
        self._arm()


def no_longer_active() -> ApiError:
    """The answer to what a controller leaves undecided."""
    return ApiError(ErrorCode.NOT_CONTROLLER, "This node is no longer the active controller.")


class _Request:
    """A request to decide on."""

    __slots__ = ("_decision", "_host", "_respond", "is_failed", "request")

    def __init__(
        self, host: ControllerHost, request: Any, respond: Respond, decision: Callable[[Controller, int], Steps[Result]]
    ) -> None:
        self.request = request
        #: Whether deciding failed unexpectedly, so that the answer is another than that of a controller that is replaced.
        self.is_failed = False
        self._host, self._decision = host, decision
        self._respond: Respond | None = respond

    def steps(self) -> Steps[None]:
        """See Event."""
        return self._host.decide(self, self._decision)

    def answer(self, response: Any, error: ApiError | None) -> None:
        """Answer, unless that was done."""
        respond, self._respond = self._respond, None
        if respond is not None:
            respond(response, error)

    def dropped(self) -> None:
        """See Event."""
        if not self.is_failed:
            self.answer(None, no_longer_active())


class _Task:
    """Something that nobody waits for."""

    __slots__ = ("steps",)

    def __init__(self, steps: Callable[[], Steps[None]]) -> None:
        self.steps = steps

    def dropped(self) -> None:
        """Do nothing: no client waits for these steps."""
