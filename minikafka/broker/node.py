"""The composition root: one process as broker, controller, or both. It only defines the order of start and stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from minikafka.addresses import host_port
from minikafka.broker.admin.acls import ControllerAclHandlers
from minikafka.broker.admin.cluster import ControllerClusterHandlers
from minikafka.broker.admin.config_descriptions import ConfigDescriptions
from minikafka.broker.admin.delegation_tokens import ControllerTokenHandlers
from minikafka.broker.admin.tokens import DelegationTokens
from minikafka.broker.broker_parts import BrokerParts, Foundation
from minikafka.broker.config.broker_config import BrokerConfig, Endpoint
from minikafka.broker.config.dynamic import Settings
from minikafka.broker.config.listener_security import super_users
from minikafka.broker.config.topic_config import log_config
from minikafka.broker.early_imports import import_early
from minikafka.broker.environment import Environment
from minikafka.broker.front.connection_rates import ConnectionRates
from minikafka.broker.front.controller_channel import ControllerChannel
from minikafka.broker.front.dispatch import Dispatcher
from minikafka.broker.front.quotas import ClientQuotaHost
from minikafka.broker.observe.audits import AuditSchedule
from minikafka.broker.observe.timeline import Timeline
from minikafka.broker.quorum.controller_host import ControllerHost
from minikafka.broker.quorum.controller_registration import ControllerRegistrar
from minikafka.broker.quorum.controller_requests import ControllerHandlers
from minikafka.broker.quorum.format import KRAFT_VERSION, format_added_directories, read_bootstrap
from minikafka.broker.quorum.local_configs import LocalConfigs
from minikafka.broker.quorum.metadata_log import MetadataHost
from minikafka.broker.quorum.raft_host import RaftHost
from minikafka.broker.quorum.raft_requests import RaftHandlers
from minikafka.broker.security.authorization.authority import Authority
from minikafka.broker.security.authorization.table import guarding, on_controllers
from minikafka.broker.security.node_security import NodeSecurity
from minikafka.broker.security.sasl_requests import LateSaslHandlers, ScramHandlers
from minikafka.broker.security.sasl_session import secured_session
from minikafka.core.controller.config import SUPPORTED_FEATURES
from minikafka.counted import counted
from minikafka.net.memory_budget import NODE_FREE_BYTES, MemoryBudget
from minikafka.net.network import Connection, ConnectionHandler, ConnectionLimits, Listener
from minikafka.net.tasks import done_before
from minikafka.security.errors import SecurityError
from minikafka.steps import Steps
from minikafka.storage.config import LogConfig
from minikafka.storage.errors import DirectoryLocked, NotFormatted, ResourceShortage, StorageError
from minikafka.storage.log_dir import LogDirectory, MetaProperties
from minikafka.storage.lost_files import note_lost_records
from minikafka.storage.open_files import OPEN_FILES_MAX
from minikafka.wire.records.metadata_records import FeatureLevelRecord, UserScramCredentialRecord

logger = logging.getLogger("minikafka.node")
#: How long a broker that stops waits for its next leadership to move.
CONTROLLED_SHUTDOWN_MS = 5_000
#: The controller decides on each partition of a broker that stops, before it answers: 9,000 took 1.3 s of a busy machine.
SHUTDOWN_MS_PER_PARTITION = 1


class StartError(Exception):
    """The node cannot start; the message says why and what to do."""


class Node:
    """A node of the cluster.

    `await start()` returns when the node is in service. `await stop()` is a controlled shutdown. `failed` is set to the reason when the
    node cannot continue.
    """

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        self.config = config
        self.environment = environment
        self.ready = asyncio.Event()
        self.supervisor = environment.supervisor
        self.failed = self.supervisor.failed
        self.failed.add_done_callback(self._log_state)
        self.listeners: dict[str, Listener] = {}
        self.directories: list[LogDirectory] = []
        self.cluster_id = ""
        self.broker: BrokerParts | None = None
        self.audits = AuditSchedule(config, lambda: self.metadata.image, self._inter_broker_address, self.supervisor)
        self.controller: ControllerHost | None = None
        self.registrar: ControllerRegistrar | None = None
        self.timeline = Timeline(environment.clock.wall_ms)
        #: The authorizer; None if authorizer.class.name is not set, and every request is allowed.
        self.authority: Authority | None = None
        self.quotas = ClientQuotaHost(config, environment)
        #: None until `_open_directories` has opened all directories.
        self._metadata_directory: LogDirectory | None = None
        self._controller_dispatcher: Dispatcher | None = None
        self._stopping = False
        #: TLS and SASL of every listener and of connections to other nodes.
        self.security: NodeSecurity
        #: Bounds the memory of clients' requests and responses.
        self.budget = MemoryBudget(config.queued_max_request_bytes)
        self.node_budget = MemoryBudget(-1, NODE_FREE_BYTES)
        #: Duration of the start, recovery of logs included.
        self.start_took_ms = 0
        self._bootstrap_users: dict[tuple[str, int], UserScramCredentialRecord] = {}
        self.raft: RaftHost
        self.metadata: MetadataHost

    # -- start -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the node; return when it is in service. Raises StartError, StorageError, OSError."""
        config = self.config
        started_ms = self.environment.clock.now_ms()
        import_early()
        try:
            self._open_security()
            self._open_directories()
            self._build_control_plane()
            if config.is_controller:
                await self._listen(config.controller_listeners, lambda: cast(Dispatcher, self._controller_dispatcher), lambda _: None)
                self.raft.set_listeners([(e.name, *self._advertised_address(e)) for e in config.controller_listeners])
            if config.is_broker:
                await self._prepare_broker()
            await self.raft.start()
            for endpoint in config.controller_listeners if config.is_controller else []:
                self.listeners[endpoint.name].accept()
            if self.broker is not None:
                await self._start_broker(self.broker)
        except BaseException:
            await self._abandon()
            raise
        self.start_took_ms = self.environment.clock.now_ms() - started_ms
        self.audits.start()
        self.ready.set()

    def _open_security(self) -> None:
        self.tokens = DelegationTokens(self.config.delegation_token_secret_key, lambda: self.metadata.image)
        try:
            self.security = NodeSecurity(self.config, self._scram_record, self.tokens.login)
        except SecurityError as error:
            raise StartError(str(error)) from error

    def _scram_record(self, user: str, mechanism: int) -> UserScramCredentialRecord | None:
        """The credentials of a user. Before there is metadata, controllers authenticate each other with users of `storage format`."""
        image = self.metadata.image
        return (image.scram if image.features else self._bootstrap_users).get((user, mechanism))

    def _open_directories(self) -> None:
        config, filesystem = self.config, self.environment.filesystem
        for path in format_added_directories(
            filesystem, config.directories, config.metadata_directory, self.environment.random.randbytes, self.environment.clock.wall_ms()
        ):
            logger.info("formatted new log directory %s", path)
        # A quarter of the descriptors; half of them may be connections.
        open_files_max = min(OPEN_FILES_MAX, max(self.environment.connections_max // (2 * len(config.directories)), 1))
        # Files that cannot be closed yet; a sixteenth of the descriptors is for what is neither a connection nor a segment.
        unsynced_files_max = max(self.environment.connections_max * 7 // (8 * len(config.directories)), 1)
        for path in config.directories:
            directory = LogDirectory(
                filesystem, path, on_failure=self._directory_failed, jitter_ms=self._jitter, open_files_max=open_files_max,
                unsynced_files_max=unsynced_files_max,
            )  # fmt: skip
            self.directories.append(directory)
            try:
                meta = directory.open()
            except (DirectoryLocked, NotFormatted):
                raise
            except StorageError as error:
                if directory.path == config.metadata_directory.rstrip("/"):
                    raise
                logger.error("log directory %s cannot be used: %s", path, error)
                continue
            self._check_owner(path, meta)
        if all(directory.is_offline for directory in self.directories):
            raise StartError("every log directory has failed: " + "; ".join(str(d.failure) for d in self.directories))
        path = config.metadata_directory.rstrip("/")
        found = next((d for d in self.directories if d.path == path), None)
        if found is None:
            found = LogDirectory(self.environment.filesystem, path, on_failure=self._directory_failed)
            self._check_owner(path, found.open())
        self._metadata_directory = found

    def _check_owner(self, path: str, meta: MetaProperties) -> None:
        """Raises StartError if a directory belongs to another node, or to another cluster than the previous directories."""
        if meta.node_id != self.config.node_id:
            raise StartError(f"{path} belongs to node {meta.node_id}, this is node {self.config.node_id}: check node.id and log.dirs")
        if self.cluster_id and meta.cluster_id != self.cluster_id:
            raise StartError(f"{path} belongs to cluster {meta.cluster_id}, the other log directories to {self.cluster_id}")
        self.cluster_id = meta.cluster_id

    def _jitter(self, jitter_ms: int) -> int:
        return self.environment.random.randrange(jitter_ms) if jitter_ms > 0 else 0

    def _build_control_plane(self) -> None:
        config, environment = self.config, self.environment
        assert self._metadata_directory is not None
        self.raft = RaftHost(
            config.node_id,
            config,
            environment,
            self._metadata_directory,
            cluster_id=self.cluster_id,
            is_controller=config.is_controller,
            on_failure=self.supervisor.fail,
            security=self.security.controller,
        )
        self.metadata = MetadataHost(
            self.raft,
            environment.clock,
            snapshot_bytes=config.metadata_log_max_record_bytes_between_snapshots,
            snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
        )
        self.metadata.subscribe(self.timeline.on_metadata)
        self.metadata.subscribe(self.security.on_metadata)
        if config.authorizer_class_name:
            self.authority = Authority(
                super_users(config),
                allow_everyone=config.allow_everyone_if_no_acl_found,
                creates_topics=config.auto_create_topics_enable,
                now_ms=environment.clock.now_ms,
                load=self._load_acls,
            )
            self.metadata.subscribe(self.authority.on_metadata)
        self.metadata.subscribe(self.quotas.on_metadata)
        if config.is_controller:
            self._build_controller()

    def _build_controller(self) -> None:
        config, environment = self.config, self.environment
        self.controller = ControllerHost(
            config,
            environment,
            self.raft,
            self.metadata,
            cluster_id=self.cluster_id,
            features=self._bootstrap_features(),
            users=list(self._bootstrap_users.values()),
            listeners=lambda: {e.name: (*self._advertised_address(e), e.security_protocol) for e in config.controller_listeners},
            own_incarnation=(lambda: cast(BrokerParts, self.broker).lifecycle.incarnation_id) if config.is_broker else None,
        )
        channel = ControllerChannel(self.raft, environment, f"controller-{config.node_id}-to-controller", self.security.controller)
        self.registrar = ControllerRegistrar(config.node_id, environment, self.metadata, self.controller, channel)
        guards = guarding(self.authority, on_controllers(self.controller.newest_image))
        dispatcher = Dispatcher(
            "controller", environment.clock, environment.supervisor, self.features, environment.monotonic_s, guarded=guards
        )
        LateSaslHandlers().register(dispatcher)
        RaftHandlers(self.raft, environment).register(dispatcher)
        handlers = ControllerHandlers(self.controller, self.quotas)
        handlers.register(dispatcher)
        ControllerAclHandlers(self.authority, handlers.handle).register(dispatcher)
        ConfigDescriptions(self.config, self.metadata).register(dispatcher)
        ControllerClusterHandlers(self.metadata, self.raft, self.cluster_id).register(dispatcher)
        ScramHandlers(self.metadata).register(dispatcher)
        tokens = DelegationTokens(self.config.delegation_token_secret_key, self.controller.newest_image)
        ControllerTokenHandlers(self.config, self.authority, tokens, self.controller, environment).register(dispatcher)
        self._controller_dispatcher = dispatcher

    def _bootstrap_features(self) -> Mapping[str, int] | None:
        """Feature levels (and users) that `storage format` stored. They apply only while the metadata log is empty."""
        assert self._metadata_directory is not None
        records = read_bootstrap(self.environment.filesystem, self._metadata_directory.path)
        self._bootstrap_users = {(r.name, r.mechanism): r for r in records if isinstance(r, UserScramCredentialRecord)}
        return {r.name: r.feature_level for r in records if isinstance(r, FeatureLevelRecord)} or None

    async def _listen(
        self, endpoints: list[Endpoint], dispatcher: Callable[[], Dispatcher], pace_of: Callable[[str], Callable[[], int] | None]
    ) -> None:
        """Bind the listeners, because the actual ports are registered. They accept connections only when the node is in service.

        `pace_of(listener)`: the function that limits the listener's rate of new connections (`ConnectionRates.of`), or None.
        """
        config = self.config
        limits = ConnectionLimits(
            frame_bytes_max=config.socket_request_max_bytes,
            connections_max=config.max_connections,
            connections_per_ip_max=config.max_connections_per_ip,
            idle_ms=config.connections_max_idle_ms,
            budget=self.budget,
        )
        brokers_only = {config.inter_broker_listener} if len(config.broker_listeners) > 1 else set()
        brokers_only |= {endpoint.name for endpoint in endpoints} - {endpoint.name for endpoint in config.broker_listeners}
        for endpoint in endpoints:
            security = self.security.listeners.get(endpoint.name)
            session: Callable[[Connection], ConnectionHandler]
            # Clients must not be able to stop replication or the quorum.
            limits = replace(limits, budget=self.node_budget if endpoint.name in brokers_only else self.budget)
            listener_limits, tls = limits, None
            if security is None:
                session = partial(_session, dispatcher, endpoint.name)
            else:
                session = partial(secured_session, security, dispatcher, limits, self.environment)
                tls = security.tls
                if security.sasl is not None:
                    listener_limits = replace(limits, frame_bytes_max=security.sasl.frame_bytes_max)
            self.listeners[endpoint.name] = await self.environment.network.listen(
                endpoint.host, endpoint.port, session, listener_limits, tls, pace_of(endpoint.name)
            )

    def _advertised_address(self, endpoint: Endpoint) -> tuple[str, int]:
        """The address for others: as advertised, with the actual port for 0 and this machine's name for a wildcard address."""
        advertised = self.config.advertised.get(endpoint.name, endpoint)
        host = advertised.host if advertised.host not in ("", "0.0.0.0", "::") else socket.gethostname()
        return host, advertised.port or self.listeners[endpoint.name].port

    @property
    def registered_listeners(self) -> dict[str, tuple[str, int, int]]:
        """The broker's listeners for its registration: name -> (host, port, security protocol)."""
        return {e.name: (*self._advertised_address(e), e.security_protocol) for e in self.config.broker_listeners}

    def _inter_broker_address(self) -> str:
        host, port, _ = self.registered_listeners[self.config.inter_broker_listener]
        return host_port(host, port)

    async def _prepare_broker(self) -> None:
        settings = Settings(self.config, self.metadata)
        rates = ConnectionRates(self.config, settings, self.environment.clock.now_ms)
        await self._listen(self.config.broker_listeners, lambda: cast(BrokerParts, self.broker).dispatcher, rates.of)
        await self._load_logs()
        self.broker = BrokerParts(
            Foundation(
                config=self.config,
                settings=settings,
                environment=self.environment,
                cluster_id=self.cluster_id,
                directories=self.directories,
                raft=self.raft,
                metadata=self.metadata,
                security=self.security,
                tokens=self.tokens,
                budget=self.budget,
                authority=self.authority,
                quotas=self.quotas,
                listeners={endpoint.name: self.listeners[endpoint.name] for endpoint in self.config.broker_listeners},
                registered_listeners=self.registered_listeners,
                features=self.features,
            )
        )

    async def _load_logs(self) -> None:
        assert self._metadata_directory is not None
        local = await self.environment.run_blocking(LocalConfigs, self.environment.filesystem, self._metadata_directory.path)
        cluster = local.cluster(self.config.node_id)
        configs: dict[str, LogConfig] = {}

        def config_of(topic: str, partition: int, topic_id: bytes) -> LogConfig:
            found = configs.get(topic)
            if found is None:
                found = configs[topic] = log_config(self.config, local.topic(topic), cluster)
            return found

        clock = self.environment.clock
        started_ms = clock.now_ms()
        count = 0
        for directory in self.directories:
            try:
                if not directory.is_offline:
                    await self.environment.run_blocking(directory.load, config_of, clock.wall_ms())
            except ResourceShortage as error:
                raise StartError(str(error)) from error
            except StorageError as error:
                directory.fail(error)
            count += len(directory.logs)
        if all(directory.is_offline for directory in self.directories):
            raise StartError("every log directory has failed: " + "; ".join(str(d.failure) for d in self.directories))
        note_lost_records(self.directories)
        if count:
            clean = all(directory.is_clean for directory in self.directories)
            how = "clean shutdown" if clean else "recovered after a crash"
            logger.info("loaded %s in %d ms (%s)", counted(count, "log"), clock.now_ms() - started_ms, how)

    async def _start_broker(self, broker: BrokerParts) -> None:
        await broker.replicas.start()
        broker.cleaner.start()
        await broker.groups.start()
        broker.transactions.start()
        await broker.shares.start()
        await broker.lifecycle.start()
        waiting = self.supervisor.start(self._ready(broker), "waiting for the controller")
        ends: list[asyncio.Future[Any]] = [waiting, broker.lifecycle.failed, self.failed]
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if waiting not in done:
            waiting.cancel()
            if self.failed in done:
                raise StartError(f"the node failed while starting: {self.failed.result()}")
            broker.lifecycle.failed.result()
        for endpoint in self.config.broker_listeners:
            self.listeners[endpoint.name].accept()

    async def _ready(self, broker: BrokerParts) -> None:
        await broker.lifecycle.ready.wait()
        if self.authority is not None:
            await self.authority.loaded.wait()

    def _load_acls(self, steps: Steps[None]) -> None:
        if not self.environment.shares.take_some(steps):
            self.supervisor.start(self.environment.shares.take(steps), "loading ACLs")

    @property
    def controller_dispatcher(self) -> Dispatcher | None:
        """The dispatcher of the controller listeners; None if this node is not a controller."""
        return self._controller_dispatcher

    @property
    def stopping(self) -> bool:
        """Whether `stop` has begun."""
        return self._stopping

    # -- facts -----------------------------------------------------------------------------------------------------

    def features(self) -> tuple[list[tuple[str, int, int]], list[tuple[str, int]], int]:
        """Supported and finalized features for ApiVersions, and the epoch of the finalized ones."""
        supported = [(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()]
        image = self.metadata.image
        finalized = [(name, level) for name, level in image.features.items() if level > 0]
        if self.raft.kraft_version > 0:
            # kraft.version is in control records of the metadata log, not in the image.
            finalized.append((KRAFT_VERSION, self.raft.kraft_version))
        return supported, finalized, image.offset

    # -- failure ---------------------------------------------------------------------------------------------------

    def _log_state(self, failed: asyncio.Future[BaseException]) -> None:
        """Log the state of a node that cannot continue."""
        if failed.cancelled():
            return
        broker = self.broker
        lines = [f"node {self.config.node_id} cannot continue: {failed.result()}"]
        if hasattr(self, "metadata"):
            raft = self.raft
            lines.append(f"metadata quorum: epoch {raft.leader_epoch}, leader {'none' if raft.leader_id is None else raft.leader_id}")
            lines.append(f"high watermark {raft.high_watermark}, image at offset {self.metadata.offset}")
        if self.controller is not None:
            lines.append(f"controller: {'active' if self.controller.is_active else 'not active'}")
        if broker is not None:
            lifecycle, partitions = broker.lifecycle, broker.replicas.partitions.values()
            lines.append(f"broker epoch {lifecycle.broker_epoch}, {'fenced' if lifecycle.fenced else 'not fenced'}")
            lines.append(f"{counted(len(partitions), 'partition')}, leader of {sum(p.leader is not None for p in partitions)}")
        logger.critical("%s", "; ".join(lines))

    def _directory_failed(self, directory: LogDirectory, failure: StorageError) -> None:
        logger.error("log directory %s is offline: %s", directory.path, failure)
        if self._metadata_directory is None:
            return  # while directories are being opened
        if directory is self._metadata_directory or all(d.is_offline for d in self.directories):
            self.environment.loop.call_soon_threadsafe(self.supervisor.fail, failure)
        elif self.broker is not None:
            self.environment.loop.call_soon_threadsafe(self.broker.lifecycle.heartbeat_at_once)

    # -- stop ------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Hand over leaderships, answer pending requests, write checkpoints, leave the quorum. If an unexpected exception ends the node,
        before or meanwhile, nothing more of this: it may wait for the part that has failed, and would write what that says."""
        if self._stopping:
            return
        self._stopping = True
        if self.supervisor.is_broken or not await done_before(self.supervisor.broken, self._stop_in_order()):
            await self._abandon()

    async def _stop_in_order(self) -> None:
        await self.audits.stop()
        broker = self.broker
        if broker is not None:
            if self.config.controlled_shutdown_enable and not self.failed.done():
                await broker.handover.prepare()
                work_ms = SHUTDOWN_MS_PER_PARTITION * len(broker.replicas.partitions)
                await broker.lifecycle.controlled_shutdown(CONTROLLED_SHUTDOWN_MS, work_ms)
                await broker.handover.drain()
            await broker.cleaner.stop()
            await broker.transactions.stop()
            await broker.groups.stop()
            await broker.shares.stop()
            await broker.replicas.stop(broker_epoch=broker.lifecycle.broker_epoch)
            await broker.lifecycle.stop()
            await broker.producer_ids.close()
            broker.peers.close()
            await broker.handover.close()
            await broker.dispatcher.close()
            await broker.close_channels()
        if self.controller is not None and self.registrar is not None:
            await self.registrar.stop()
            await self.controller.stop()
        if self._metadata_directory is not None and self._metadata_directory.is_offline:
            self.raft.abandon()
        else:
            await self.raft.stop()
        for listener in self.listeners.values():
            listener.close()
        if self._controller_dispatcher is not None:
            await self._controller_dispatcher.close()
        if broker is None:
            for directory in self.directories:
                directory.abandon()
        self.supervisor.close()
        logger.info("node %d has stopped", self.config.node_id)

    async def _abandon(self) -> None:
        """End like a killed process: nothing in memory is written or sent any more. The next start recovers from the disk."""
        self.supervisor.close()
        for listener in self.listeners.values():
            listener.close()
        if hasattr(self, "raft"):
            self.raft.abandon()
        if self.registrar is not None:
            await self.registrar.stop()
        if self.broker is not None:
            await self.broker.close_channels()
            self.broker.peers.close()
        for directory in self.directories:
            directory.abandon()


def _session(dispatcher: Callable[[], Dispatcher], listener: str, connection: Connection) -> ConnectionHandler:
    return dispatcher().session(listener)
