"""The composition root: one process as broker, controller, or both. Order of start and stop, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import cast

from minikafka.broker.audits import AuditSchedule
from minikafka.broker.authorization.authority import Authority
from minikafka.broker.authorization.data_plane import guard_data_plane
from minikafka.broker.authorization.table import ON_BROKERS, install, on_controllers
from minikafka.broker.config import BrokerConfig, Endpoint
from minikafka.broker.controller_channel import ControllerChannel
from minikafka.broker.dispatch import Dispatcher
from minikafka.broker.environment import Environment
from minikafka.broker.format import KRAFT_VERSION, read_bootstrap
from minikafka.broker.forwarding import Forwarder
from minikafka.broker.handlers.acls import AclHandlers, ControllerAclHandlers
from minikafka.broker.handlers.cluster import ClusterHandlers, ControllerClusterHandlers
from minikafka.broker.handlers.configs import ConfigHandlers
from minikafka.broker.handlers.controller import ControllerHandlers
from minikafka.broker.handlers.delegation_tokens import DelegationTokenHandlers
from minikafka.broker.handlers.fetch import FetchHandlers
from minikafka.broker.handlers.groups import GroupHandlers
from minikafka.broker.handlers.log_dirs import LogDirHandlers
from minikafka.broker.handlers.metadata import MetadataHandlers
from minikafka.broker.handlers.offsets import OffsetHandlers
from minikafka.broker.handlers.produce import ProduceHandlers
from minikafka.broker.handlers.produce_transactional import TransactionalProduce
from minikafka.broker.handlers.producer_ids import ProducerIdBlocks
from minikafka.broker.handlers.raft import RaftHandlers
from minikafka.broker.handlers.sasl import LateSaslHandlers, ScramHandlers
from minikafka.broker.handlers.topics import TopicHandlers
from minikafka.broker.handlers.transactions import TransactionHandlers
from minikafka.broker.hosts.cleaner import LogCleaner
from minikafka.broker.hosts.connection_limits import ConnectionLimiter
from minikafka.broker.hosts.connection_rates import ConnectionRates
from minikafka.broker.hosts.controller import ControllerHost
from minikafka.broker.hosts.controller_registration import ControllerRegistrar
from minikafka.broker.hosts.cordons import Cordons
from minikafka.broker.hosts.directory_moves import DirectoryMoves
from minikafka.broker.hosts.group import GroupHost
from minikafka.broker.hosts.handover import Handover
from minikafka.broker.hosts.lifecycle import BrokerLifecycle
from minikafka.broker.hosts.metadata import MetadataHost
from minikafka.broker.hosts.quotas import ClientQuotaHost
from minikafka.broker.hosts.raft import RaftHost
from minikafka.broker.hosts.raft_peers import RaftPeers
from minikafka.broker.hosts.replicas import ReplicaManager
from minikafka.broker.hosts.settings import Settings
from minikafka.broker.hosts.throttles import ReplicationThrottles
from minikafka.broker.hosts.transaction import TransactionHost
from minikafka.broker.hosts.transaction_markers import MarkerSender, MarkerWriter
from minikafka.broker.hosts.transaction_verification import TransactionVerifier
from minikafka.broker.local_configs import LocalConfigs
from minikafka.broker.node_security import NodeSecurity, super_users
from minikafka.broker.sasl_session import secured_session
from minikafka.broker.timeline import Timeline
from minikafka.broker.topic_config import log_config
from minikafka.core.controller.config import SUPPORTED_FEATURES
from minikafka.net.network import Connection, ConnectionHandler, ConnectionLimits, Listener
from minikafka.security.errors import SecurityError
from storage.config import LogConfig
from storage.errors import DirectoryLocked, NotFormatted, StorageError
from storage.log_dir import LogDirectory
from wire.records.metadata_records import FeatureLevelRecord, UserScramCredentialRecord

logger = logging.getLogger("minikafka.node")
CONTROLLED_SHUTDOWN_MS = 5_000


class StartError(Exception):
    """The node cannot start; the message says why and what to do."""


class BrokerParts:
    """What a broker has on top of the metadata."""

    def __init__(self, node: Node) -> None:
        config, environment, metadata = node.config, node.environment, node.metadata
        self.settings = Settings(config, metadata)
        self.controller_channel = ControllerChannel(
            node.raft, environment, f"broker-{config.node_id}-to-controller", node.security.controller
        )
        self.forwarder = Forwarder(self.controller_channel, metadata)
        self.cordons = Cordons(self.settings, node.directories)
        self.lifecycle = BrokerLifecycle(
            config,
            environment,
            metadata,
            self.controller_channel,
            cluster_id=node.cluster_id,
            listeners=node.registered_listeners,
            log_dirs=lambda: [d.directory_id for d in node.directories if not d.is_offline],
            offline_log_dirs=lambda: [d.directory_id for d in node.directories if d.is_offline and d.meta is not None],
            cordoned_log_dirs=self.cordons.ids,
            previous_broker_epoch=min((d.previous_broker_epoch for d in node.directories), default=-1),
        )
        self.replicas = ReplicaManager(
            config, environment, node.directories, metadata, self.controller_channel, lambda: self.lifecycle.broker_epoch
        )
        self.cleaner = LogCleaner(self.settings, environment, node.directories)
        self.replicas.fetchers.security = node.security.inter_broker
        self.replicas.on_topic_configs = self.cleaner.wake
        self.replicas.throttles = ReplicationThrottles(self.settings, metadata, config.node_id)
        self.replicas.cordons = self.cordons
        self.replicas.moves = DirectoryMoves(self.replicas, environment, self.settings)
        self.lifecycle.on_registered = self.replicas.registered
        self.settings.watch(self.lifecycle.directories_changed)
        self.settings.watch(lambda: self.replicas.fetchers.resize(self.settings.num_replica_fetchers))
        listeners = {endpoint.name: node.listeners[endpoint.name] for endpoint in config.broker_listeners}
        ConnectionLimiter(config, self.settings, listeners)
        rates = ConnectionRates(config, self.settings, environment.clock.now_ms)
        for name, listener in listeners.items():
            listener.pace = rates.of(name)
        self.groups = GroupHost(config, environment, self.replicas, metadata, self.controller_channel)
        self.producer_ids = ProducerIdBlocks(config.node_id, self.lifecycle, self.controller_channel)
        self.peers = RaftPeers(environment, f"broker-{config.node_id}-transactions", config.request_timeout_ms, node.security.inter_broker)
        metadata.subscribe(lambda delta, _: self.peers.renew_brokers(config.inter_broker_listener, delta))
        markers = MarkerWriter(self.replicas, self.groups, environment, config.request_timeout_ms)
        self.transactions = TransactionHost(
            config,
            environment,
            self.replicas,
            metadata,
            self.controller_channel,
            self.producer_ids,
            MarkerSender(config.node_id, config.inter_broker_listener, metadata, self.peers, markers),
        )
        verifier = TransactionVerifier(config.node_id, self.settings, environment, metadata, self.transactions, self.peers)
        self.dispatcher = Dispatcher("broker", environment.clock, node.features, environment.monotonic_s)
        node.quotas.guard(self.dispatcher, lambda: [node.listeners[e.name] for e in config.broker_listeners if e.name in node.listeners])
        self.produce = ProduceHandlers(self.replicas, metadata, environment)
        self.produce.transactional = TransactionalProduce(self.replicas, verifier, environment.clock.wall_ms)
        self.handover = self.produce.handover = Handover(config, environment, self.replicas, metadata, node.security.inter_broker)
        self.handover.serve = self.produce.serve_held
        self.fetch = FetchHandlers(config, self.replicas, metadata, environment)
        for handlers in (
            self.produce,
            self.fetch,
            OffsetHandlers(self.replicas, metadata, environment),
            LogDirHandlers(self.replicas),
            MetadataHandlers(config, metadata, self.forwarder, node.cluster_id, environment.clock, self.replicas.fetchers.lost_leaders),
            TopicHandlers(self.forwarder),
            ConfigHandlers(config, metadata, self.forwarder),
            ClusterHandlers(config, metadata, self.forwarder, node.cluster_id),
            GroupHandlers(self.groups, self.transactions.topic, metadata, environment),
            TransactionHandlers(
                self.transactions, markers, verifier, self.groups, self.replicas, metadata, self.producer_ids, environment
            ),
            LateSaslHandlers(),
            ScramHandlers(metadata),
            AclHandlers(node.authority, self.forwarder),
            DelegationTokenHandlers(config, node.authority),
        ):
            handlers.register(self.dispatcher)  # type: ignore[attr-defined]
        if node.authority is not None:
            guard_data_plane(node.authority, self.dispatcher, self.fetch)
            install(node.authority, self.dispatcher, ON_BROKERS)


class Node:
    """A node of the cluster.

    Life: `await start()` returns when the node is in service; `await stop()` leaves the cluster in order. `failed` is set to the reason
    when
    the node cannot go on.
    """

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        self.config = config
        self.environment = environment
        self.ready = asyncio.Event()
        self.failed: asyncio.Future[BaseException] = environment.loop.create_future()
        self.listeners: dict[str, Listener] = {}
        self.directories: list[LogDirectory] = []
        self.cluster_id = ""
        self.broker: BrokerParts | None = None
        self.audits = AuditSchedule(self)
        self.controller: ControllerHost | None = None
        self.registrar: ControllerRegistrar | None = None
        self.timeline = Timeline(environment.clock.wall_ms)
        #: Who may do what; None where authorizer.class.name is not set, and everybody may do everything.
        self.authority: Authority | None = None
        self.quotas = ClientQuotaHost(config, environment)
        self._metadata_directory: LogDirectory | None = None
        self._controller_dispatcher: Dispatcher | None = None
        self._stopping = False
        #: New connections a second that single listeners take, where they have a limit of their own.
        self.security: NodeSecurity
        #: From the beginning of the start to being in service, recovery of logs included.
        self.start_took_ms = 0
        self._bootstrap_users: dict[tuple[str, int], UserScramCredentialRecord] = {}
        self.raft: RaftHost
        self.metadata: MetadataHost

    # -- start -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Come into service. Raises StartError, StorageError, OSError."""
        config = self.config
        begun_ms = self.environment.clock.now_ms()
        try:
            self._open_security()
            self._open_directories()
            self._build_control_plane()
            if config.is_controller:
                await self._listen(config.controller_listeners, lambda: cast(Dispatcher, self._controller_dispatcher))
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
        self.start_took_ms = self.environment.clock.now_ms() - begun_ms
        self.audits.start()
        self.ready.set()

    def _open_security(self) -> None:
        try:
            self.security = NodeSecurity(self.config)
        except SecurityError as error:
            raise StartError(str(error)) from error
        self.security.use_scram_records(self._scram_record)

    def _scram_record(self, user: str, mechanism: int) -> UserScramCredentialRecord | None:
        """Controllers that know no metadata yet know the users of `storage format`: by them they find each other."""
        image = self.metadata.image
        return (image.scram if image.features else self._bootstrap_users).get((user, mechanism))

    def _open_directories(self) -> None:
        config = self.config
        for path in config.directories:
            directory = LogDirectory(self.environment.filesystem, path, on_failure=self._directory_failed, jitter_ms=self._jitter)
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
            if meta.node_id != config.node_id:
                raise StartError(f"{path} belongs to node {meta.node_id}, this is node {config.node_id}: check node.id and log.dirs")
            if self.cluster_id and meta.cluster_id != self.cluster_id:
                raise StartError(f"{path} belongs to cluster {meta.cluster_id}, the other log directories to {self.cluster_id}")
            self.cluster_id = meta.cluster_id
        if all(directory.is_offline for directory in self.directories):
            raise StartError("every log directory has failed: " + "; ".join(str(d.failure) for d in self.directories))
        path = config.metadata_directory.rstrip("/")
        found = next((d for d in self.directories if d.path == path), None)
        if found is None:
            found = LogDirectory(self.environment.filesystem, path, on_failure=self._directory_failed)
            found.open()
        self._metadata_directory = found

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
            on_failure=self._fail,
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
            )
            self.metadata.subscribe(self.authority.on_metadata)
        self.metadata.subscribe(self.quotas.on_metadata)
        if not config.is_controller:
            return
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
        dispatcher = Dispatcher("controller", environment.clock, self.features, environment.monotonic_s)
        clock = environment.clock
        LateSaslHandlers().register(dispatcher)
        RaftHandlers(self.raft, clock.wall_ms, clock.now_ms).register(dispatcher)
        handlers = ControllerHandlers(self.controller, self.quotas)
        handlers.register(dispatcher)
        ControllerAclHandlers(self.authority, handlers.handle).register(dispatcher)
        ControllerClusterHandlers(self.metadata, self.raft, self.cluster_id).register(dispatcher)
        if self.authority is not None:
            install(self.authority, dispatcher, on_controllers(self.controller.newest_image))
        self._controller_dispatcher = dispatcher

    def _bootstrap_features(self) -> Mapping[str, int] | None:
        """Feature levels (and users) that `storage format` chose; they count only while the metadata log is empty."""
        assert self._metadata_directory is not None
        records = read_bootstrap(self.environment.filesystem, self._metadata_directory.path)
        self._bootstrap_users = {(r.name, r.mechanism): r for r in records if isinstance(r, UserScramCredentialRecord)}
        return {r.name: r.feature_level for r in records if isinstance(r, FeatureLevelRecord)} or None

    async def _listen(self, endpoints: list[Endpoint], dispatcher: Callable[[], Dispatcher]) -> None:
        """Bind, because real ports are registered; connections wait until the node is in service and accepts them."""
        config = self.config
        limits = ConnectionLimits(
            frame_bytes_max=config.socket_request_max_bytes,
            connections_max=config.max_connections,
            connections_per_ip_max=config.max_connections_per_ip,
            idle_ms=config.connections_max_idle_ms,
        )
        for endpoint in endpoints:
            security = self.security.listeners.get(endpoint.name)
            session: Callable[[Connection], ConnectionHandler]
            held, tls = limits, None
            if security is None:
                session = partial(_session, dispatcher, endpoint.name)
            else:
                session = partial(secured_session, security, dispatcher, limits, self.environment)
                tls = security.tls
                if security.sasl is not None:
                    held = replace(limits, frame_bytes_max=security.sasl.frame_bytes_max)
            self.listeners[endpoint.name] = await self.environment.network.listen(endpoint.host, endpoint.port, session, held, tls)

    def _advertised_address(self, endpoint: Endpoint) -> tuple[str, int]:
        """What others connect to: the advertised address, the real port for 0, this machine's name for every address."""
        advertised = self.config.advertised.get(endpoint.name, endpoint)
        host = advertised.host if advertised.host not in ("", "0.0.0.0", "::") else socket.gethostname()
        return host, advertised.port or self.listeners[endpoint.name].port

    @property
    def registered_listeners(self) -> dict[str, tuple[str, int, int]]:
        """The broker's listeners as it registers them: name -> (host, port, security protocol)."""
        return {e.name: (*self._advertised_address(e), e.security_protocol) for e in self.config.broker_listeners}

    async def _prepare_broker(self) -> None:
        await self._listen(self.config.broker_listeners, lambda: cast(BrokerParts, self.broker).dispatcher)
        await self._load_logs()
        self.broker = BrokerParts(self)

    async def _load_logs(self) -> None:
        assert self._metadata_directory is not None
        known = await self.environment.run_blocking(LocalConfigs, self.environment.filesystem, self._metadata_directory.path)
        cluster = known.cluster(self.config.node_id)
        configs: dict[str, LogConfig] = {}

        def config_of(topic: str, partition: int, topic_id: bytes) -> LogConfig:
            found = configs.get(topic)
            if found is None:
                found = configs[topic] = log_config(self.config, known.topic(topic), cluster)
            return found

        clock = self.environment.clock
        started_ms = clock.now_ms()
        count = 0
        for directory in self.directories:
            try:
                if not directory.is_offline:
                    await self.environment.run_blocking(directory.load, config_of, clock.wall_ms())
            except StorageError as error:
                directory.fail(error)
            count += len(directory.logs)
        if all(directory.is_offline for directory in self.directories):
            raise StartError("every log directory has failed: " + "; ".join(str(d.failure) for d in self.directories))
        if count:
            clean = all(directory.is_clean for directory in self.directories)
            logger.info(
                "loaded %d logs in %d ms (%s)", count, clock.now_ms() - started_ms, "clean shutdown" if clean else "recovered after a crash"
            )

    async def _start_broker(self, broker: BrokerParts) -> None:
        await broker.replicas.start()
        broker.cleaner.start()
        await broker.groups.start()
        broker.transactions.start()
        await broker.lifecycle.start()
        waiting = asyncio.ensure_future(broker.lifecycle.ready.wait())
        done, _ = await asyncio.wait([waiting, broker.lifecycle.failed, self.failed], return_when=asyncio.FIRST_COMPLETED)
        if waiting not in done:
            waiting.cancel()
            if self.failed in done:
                raise StartError(f"the node failed while starting: {self.failed.result()}")
            broker.lifecycle.failed.result()
        for endpoint in self.config.broker_listeners:
            self.listeners[endpoint.name].accept()

    @property
    def controller_dispatcher(self) -> Dispatcher | None:
        """What serves the controller's listeners, if this node has any."""
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
            # It is in control records of the metadata log, not in the image.
            finalized.append((KRAFT_VERSION, self.raft.kraft_version))
        return supported, finalized, image.offset

    # -- failure ---------------------------------------------------------------------------------------------------

    def _fail(self, reason: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_result(reason)

    def _directory_failed(self, directory: LogDirectory, failure: StorageError) -> None:
        logger.error("log directory %s is offline: %s", directory.path, failure)
        if self._metadata_directory is None:
            return  # while directories are being opened
        if directory is self._metadata_directory or all(d.is_offline for d in self.directories):
            self.environment.loop.call_soon_threadsafe(self._fail, failure)
        elif self.broker is not None:
            self.environment.loop.call_soon_threadsafe(self.broker.lifecycle.directories_changed)

    # -- stop ------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Move leaderships away, answer what waits, write checkpoints, leave the quorum."""
        if self._stopping:
            return
        self._stopping = True
        await self.audits.stop()
        broker = self.broker
        if broker is not None:
            if self.config.controlled_shutdown_enable and not self.failed.done():
                await broker.handover.prepare()
                await broker.lifecycle.controlled_shutdown(CONTROLLED_SHUTDOWN_MS)
                await broker.handover.drain()
            await broker.cleaner.stop()
            await broker.transactions.stop()
            await broker.groups.stop()
            await broker.replicas.stop(broker_epoch=broker.lifecycle.broker_epoch)
            await broker.lifecycle.stop()
            await broker.producer_ids.close()
            broker.peers.close()
            await broker.handover.close()
            await broker.dispatcher.close()
            await broker.controller_channel.close()
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
        logger.info("node %d has stopped", self.config.node_id)

    async def _abandon(self) -> None:
        for listener in self.listeners.values():
            listener.close()
        for directory in self.directories:
            directory.abandon()


def _session(dispatcher: Callable[[], Dispatcher], listener: str, connection: Connection) -> ConnectionHandler:
    return dispatcher().session(listener)
