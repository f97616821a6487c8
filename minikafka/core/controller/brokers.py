"""Brokers: registration, heartbeats, fencing, controlled shutdown (KIP-631, KIP-841, KIP-903)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from minikafka.core.controller.config import ControllerConfig
from minikafka.core.controller.partitions import PartitionControl
from minikafka.core.controller.sessions import BrokerSessions
from minikafka.core.controller.state import RECORDS_PER_BATCH, ControllerState, Result
from minikafka.core.metadata.image import (
    METADATA_VERSION,
    BrokerRegistration,
    is_reserved_directory,
)
from minikafka.core.metadata.versions import NEWEST, REGISTERED_CONTROLLERS, UNREGISTERED_CONTROLLERS
from minikafka.steps import Steps
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from minikafka.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from minikafka.wire.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from minikafka.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from minikafka.wire.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse
from minikafka.wire.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)

FENCE = 1
UNFENCE = -1
IN_CONTROLLED_SHUTDOWN = 1
#: So many records of a decision are in one batch, also where a heartbeat leads to two decisions.
TOGETHER_MAX = RECORDS_PER_BATCH // 2

# States of a broker as the controller sees it (BrokerControlState).
FENCED = "fenced"
UNFENCED = "unfenced"
CONTROLLED_SHUTDOWN = "controlled shutdown"
SHUTDOWN_NOW = "shutdown now"


class BrokerControl:
    """Decides about brokers. Sessions are in memory only; registrations are in the log."""

    def __init__(self, config: ControllerConfig, state: ControllerState, partitions: PartitionControl, sessions: BrokerSessions) -> None:
        self._config = config
        self._state = state
        self._partitions = partitions
        self.sessions = sessions

    def check_epoch(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        """The registration, or ApiError STALE_BROKER_EPOCH."""
        broker = self._state.image.brokers.get(broker_id)
        if broker is None:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != broker_epoch:
            raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}")
        return broker

    # -- registration ----------------------------------------------------------------------------------------------

    def register(self, request: BrokerRegistrationRequest, now_ms: int) -> Steps[Result]:
        """BrokerRegistration. The broker epoch is the offset of the first record of its batch (usually the registration itself).

        A new incarnation first takes its predecessor out of ISRs, and, unless it shows the epoch of a clean shutdown,
        out of the eligible replicas too. The same incarnation keeps its epoch (KAFKA-16952).
        """
        if request.cluster_id != self._config.cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID, f"Expected cluster ID {self._config.cluster_id}, but got cluster ID {request.cluster_id}"
            )
        broker_id = request.broker_id
        existing = self._state.image.brokers.get(broker_id)
        same = existing is not None and existing.incarnation_id == request.incarnation_id
        if existing is not None and not same:
            self._check_predecessor(existing, request)
        if request.is_migrating_zk_broker:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
        if self._state.image.has_directories:
            self._check_directories(request)
        self._check_features(request)
        records: list[Any] = []
        if not same:
            clean = existing is not None and existing.epoch == request.previous_broker_epoch
            records += yield from self._remove_predecessor(broker_id, clean)
        epoch = existing.epoch if same and existing is not None else self._state.next_offset
        records.append(_registration(request, epoch, existing if same else None))
        self.sessions.touch(broker_id, epoch, now_ms)
        return Result(BrokerRegistrationResponse(broker_epoch=epoch), records)

    def _check_predecessor(self, existing: BrokerRegistration, request: BrokerRegistrationRequest) -> None:
        """Refuse a second broker with the id of a broker that still has a session.

        Kafka makes a restarted broker wait until its dead predecessor's session ends. Here it need not wait if the predecessor's connection
        is closed and the new process holds one of its log directories: only one process can lock a directory, so the predecessor is gone.
        """
        if not self.sessions.is_valid(existing.broker_id, existing.epoch) or existing.in_controlled_shutdown:
            return
        inherits = any(directory in existing.log_dirs for directory in request.log_dirs)
        if inherits and self.sessions.is_disconnected(existing.broker_id):
            return
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should self-resolve once the "
            "heartbeat manager expires the broker's session.",
        )

    def _remove_predecessor(self, broker_id: int, clean: bool) -> Steps[list[PartitionChangeRecord]]:
        if clean or not self._state.image.is_elr_enabled:
            return self._partitions.leave_and_join(self._partitions.in_isr(broker_id), leaving=broker_id)
        return self._partitions.leave_and_join(self._partitions.in_isr_or_elr(broker_id), unclean=broker_id)

    def _check_directories(self, request: BrokerRegistrationRequest) -> None:
        directories = request.log_dirs
        if not directories:
            raise ApiError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
        if any(is_reserved_directory(directory) for directory in directories):
            raise ApiError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
        if len(set(directories)) != len(directories):
            raise ApiError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
        for broker in self._state.image.brokers.values():
            if broker.broker_id == request.broker_id:
                continue
            for directory in directories:
                if directory in broker.log_dirs:
                    raise ApiError(
                        ErrorCode.INVALID_REGISTRATION,
                        f"Broker {broker.broker_id} is already registered with directory {directory.hex()}",
                    )

    def _check_features(self, request: BrokerRegistrationRequest) -> None:
        """In Kafka's order: what the request names, then whether it names metadata.version, then the finalized features it leaves out."""
        finalized = self._state.image.features
        supported = {entry.name: (entry.min_supported_version, entry.max_supported_version) for entry in request.features}
        for name, (low, high) in supported.items():
            _check_level(name, finalized.get(name, 0), low, high)
        if METADATA_VERSION not in supported:
            raise ApiError(ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION}'")
        for name, level in finalized.items():
            if name not in supported:
                _check_level(name, level, 0, 0)

    def unregister(self, request: UnregisterBrokerRequest) -> Steps[Result]:
        """UnregisterBroker: take the broker out of every ISR and forget it."""
        broker = self._state.image.brokers.get(request.broker_id)
        if broker is None:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered")
        records: list[Any] = []
        records += yield from self._partitions.leave_and_join(self._partitions.in_isr(broker.broker_id), leaving=broker.broker_id)
        records.append(UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch))
        self.sessions.remove(broker.broker_id)
        return Result(UnregisterBrokerResponse(error_message=None), records)

    def unregister_controller(self, request: UnregisterControllerRequest) -> Result:
        """UnregisterController (KIP-1312): afterwards the removed node no longer limits feature levels."""
        controller_id = request.controller_id
        if controller_id == self._config.node_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")
        if self._state.image.features.get(METADATA_VERSION, NEWEST) < UNREGISTERED_CONTROLLERS:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "The current MetadataVersion is too old to support controller unregistration.")
        if controller_id not in self._state.image.controllers:
            raise ApiError(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"Controller ID {controller_id} is not currently registered.")
        return Result(UnregisterControllerResponse(error_message=None), [UnregisterControllerRecord(controller_id=controller_id)])

    def register_controller(self, request: ControllerRegistrationRequest) -> Result:
        """ControllerRegistration (KIP-919). Raises UNSUPPORTED_VERSION below the metadata.version that has it."""
        if self._state.image.features.get(METADATA_VERSION, NEWEST) < REGISTERED_CONTROLLERS:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "The current MetadataVersion is too old to support controller registrations.")
        record = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=request.zk_migration_ready,
            end_points=[
                RegisterControllerRecord.ControllerEndpoint(
                    name=entry.name, host=entry.host, port=entry.port, security_protocol=entry.security_protocol
                )
                for entry in request.listeners
            ],
            features=[
                RegisterControllerRecord.ControllerFeature(
                    name=entry.name, min_supported_version=entry.min_supported_version, max_supported_version=entry.max_supported_version
                )
                for entry in request.features
            ],
        )
        return Result(ControllerRegistrationResponse(error_message=None), [record])

    # -- heartbeats ------------------------------------------------------------------------------------------------

    def heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> Steps[Result]:
        """BrokerHeartbeat: extends the session, and moves the broker between fenced, unfenced and shutting down."""
        broker = self.check_epoch(request.broker_id, request.broker_epoch)
        broker_id = broker.broker_id
        current = FENCED if broker.fenced else CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else UNFENCED
        state = self._next_state(broker, current, request)
        # One step at a time: two changes of a partition in one batch would both start from the same state.
        records = yield from self._directories(broker, request) if state == current else self._enter(broker, state)
        if state is SHUTDOWN_NOW:
            self.sessions.remove(broker_id)
        else:
            self.sessions.touch(broker_id, broker.epoch, now_ms, request.current_metadata_offset)
        response = BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= broker.unfence_offset,
            is_fenced=state in {FENCED, SHUTDOWN_NOW},
            should_shut_down=state is SHUTDOWN_NOW,
        )
        result = Result(response, records, atomic=False)
        if state is CONTROLLED_SHUTDOWN and current is not CONTROLLED_SHUTDOWN:
            result.written = partial(self.sessions.start_controlled_shutdown, broker_id)
        return result

    def _next_state(self, broker: BrokerRegistration, current: str, request: BrokerHeartbeatRequest) -> str:
        if current == FENCED:
            if request.want_shut_down:
                return SHUTDOWN_NOW
            # It must have seen the record that fenced it, too: a heartbeat from before the fencing must not unfence the broker.
            caught_up = request.current_metadata_offset >= broker.unfence_offset
            return UNFENCED if caught_up and not request.want_fence else FENCED
        if current == UNFENCED:
            if request.want_fence:
                return SHUTDOWN_NOW if request.want_shut_down else FENCED
            if not request.want_shut_down:
                return UNFENCED
            return CONTROLLED_SHUTDOWN if self._state.leads_any(broker.broker_id) else SHUTDOWN_NOW
        if self._state.leads_any(broker.broker_id):
            return CONTROLLED_SHUTDOWN
        offset = self.sessions.controlled_shutdown_offset(broker.broker_id)
        # After a controller failover the offset is unknown: wait for everything that the new controller inherited.
        needed = self._state.next_offset - 1 if offset is None else offset
        if offset is None:
            self.sessions.start_controlled_shutdown(broker.broker_id, needed)
        return SHUTDOWN_NOW if self._lowest_active_offset(needed) >= needed else CONTROLLED_SHUTDOWN

    def _lowest_active_offset(self, enough: int) -> int:
        """The lowest metadata offset that active brokers have reported; `enough` if there are none."""
        offsets = [self.sessions.metadata_offset(broker.broker_id) for broker in self._state.image.brokers.values() if broker.is_active]
        return min(offsets, default=enough)

    def _enter(self, broker: BrokerRegistration, state: str) -> Steps[list[Any]]:
        if state is UNFENCED:
            return (yield from self._unfence(broker))
        if state is CONTROLLED_SHUTDOWN:
            leaving = yield from self._partitions.leave_and_join(self._partitions.in_isr(broker.broker_id), leaving=broker.broker_id)
            entering = BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN
            )
            return _ordered(entering, leaving)
        if broker.fenced:
            return []
        return (yield from self.fence(broker))

    def fence(self, broker: BrokerRegistration) -> Steps[list[Any]]:
        """Records that take a broker out of service: its partitions first, then itself."""
        records: list[Any] = []
        records += yield from self._partitions.leave_and_join(self._partitions.in_isr(broker.broker_id), leaving=broker.broker_id)
        records.append(BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=FENCE))
        return records

    def _unfence(self, broker: BrokerRegistration) -> Steps[list[Any]]:
        record = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=UNFENCE)
        joining = yield from self._partitions.leave_and_join(self._state.leaderless_partitions(), joining=broker.broker_id)
        return [record, *joining]

    def _directories(self, broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> Steps[list[Any]]:
        """Records for directories that went offline, whose partitions fail over, and for cordoned ones (KIP-858, KIP-1066)."""
        records: list[Any] = []
        offline = [directory for directory in request.offline_log_dirs if directory in broker.log_dirs]
        if offline:
            left = [directory for directory in broker.log_dirs if directory not in offline]
            change = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=left)
            records += _ordered(change, (yield from self._partitions.offline_directories(broker, offline)))
        cordoned = request.cordoned_log_dirs
        if cordoned is not None and tuple(cordoned) != broker.cordoned_log_dirs:
            records.append(
                BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned))
            )
        return records

    # -- sessions --------------------------------------------------------------------------------------------------

    def activate(self, now_ms: int, predecessor: int | None = None) -> None:
        """A new controller starts a full session for every unfenced broker, but only a short one for the broker on `predecessor`'s node."""
        for broker in self._state.image.brokers.values():
            if not broker.fenced:
                self.sessions.touch(broker.broker_id, broker.epoch, now_ms)
                if broker.broker_id == predecessor:
                    self.sessions.suspect(broker.broker_id, now_ms)

    def expire(self, now_ms: int) -> Iterator[Steps[list[Any]]]:
        """The records, in steps, for each broker whose session has ended. The caller appends and replays them before the next."""
        for broker_id, epoch in self.sessions.expired(now_ms, self._is_last):
            broker = self._state.image.brokers.get(broker_id)
            if broker is not None and broker.epoch == epoch and not broker.fenced:
                yield self.fence(broker)

    def _is_last(self, broker_id: int) -> bool:
        """Whether no other broker is in service."""
        others = (broker for other_id, broker in self._state.image.brokers.items() if other_id != broker_id)
        return all(broker.fenced or broker.in_controlled_shutdown for broker in others)


def _check_level(name: str, level: int, low: int, high: int) -> None:
    if level != 0 and not low <= level <= high:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register because the broker does not support finalized version {level} of {name}. "
            f"The broker wants a version between {low} and {high}, inclusive.",
        )


def _registration(request: BrokerRegistrationRequest, epoch: int, same: BrokerRegistration | None) -> RegisterBrokerRecord:
    """The record of a registration. `same`: the earlier registration of the same incarnation, None for a new incarnation."""
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=entry.name, host=entry.host, port=entry.port, security_protocol=entry.security_protocol
            )
            for entry in request.listeners
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(
                name=entry.name, min_supported_version=entry.min_supported_version, max_supported_version=entry.max_supported_version
            )
            for entry in request.features
        ],
        rack=request.rack,
        fenced=same.fenced if same is not None else True,
        in_controlled_shutdown=same.in_controlled_shutdown if same is not None else False,
        log_dirs=list(request.log_dirs),
    )


def _ordered(of_broker: BrokerRegistrationChangeRecord, of_partitions: list[Any]) -> list[Any]:
    """What is said of a broker first, as in Kafka, if all of it is written together. Otherwise last: once it is said, a successor would not
    go on with the partitions."""
    return [of_broker, *of_partitions] if len(of_partitions) < TOGETHER_MAX else [*of_partitions, of_broker]
