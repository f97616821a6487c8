"""Builds the parts of a broker on top of the metadata: replication, coordinators, handlers."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from minikafka.broker.admin.acls import AclHandlers
from minikafka.broker.admin.cluster import ClusterHandlers
from minikafka.broker.admin.config_descriptions import ConfigDescriptions
from minikafka.broker.admin.configs import ConfigHandlers
from minikafka.broker.admin.delegation_tokens import DelegationTokenHandlers
from minikafka.broker.admin.metadata import MetadataHandlers
from minikafka.broker.admin.tokens import DelegationTokens
from minikafka.broker.admin.topics import TopicHandlers
from minikafka.broker.client_metrics.requests import ClientMetricsHandlers
from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.config.dynamic import Settings
from minikafka.broker.coordinators.consumer_group_requests import ConsumerGroupHandlers
from minikafka.broker.coordinators.consumer_groups import TopicPatterns, consumer_settings
from minikafka.broker.coordinators.group_coordinator import GroupHost
from minikafka.broker.coordinators.group_requests import GroupHandlers
from minikafka.broker.coordinators.loader import StepQueue
from minikafka.broker.coordinators.producer_ids import ProducerIdBlocks
from minikafka.broker.coordinators.transaction_coordinator import TransactionHost
from minikafka.broker.coordinators.transaction_markers import MarkerSender, MarkerWriter
from minikafka.broker.coordinators.transaction_requests import TransactionHandlers
from minikafka.broker.coordinators.transaction_verification import TransactionVerifier
from minikafka.broker.environment import Environment
from minikafka.broker.front.connection_limits import ConnectionLimiter
from minikafka.broker.front.controller_channel import ControllerChannel
from minikafka.broker.front.dispatch import Dispatcher
from minikafka.broker.front.forwarding import CONNECTION_TIMEOUT_MS, Forwarder
from minikafka.broker.front.heavy_work import HeavyWork
from minikafka.broker.front.offered_apis import Features
from minikafka.broker.front.quotas import ClientQuotaHost
from minikafka.broker.partitions.cleaner import LogCleaner
from minikafka.broker.partitions.cordons import Cordons
from minikafka.broker.partitions.fetch import FetchHandlers
from minikafka.broker.partitions.handover import HandoverHost
from minikafka.broker.partitions.log_dirs import LogDirHandlers
from minikafka.broker.partitions.log_upkeep import MakeTask
from minikafka.broker.partitions.offsets import OffsetHandlers
from minikafka.broker.partitions.produce import ProduceHandlers
from minikafka.broker.partitions.produce_transactional import TransactionalProduce
from minikafka.broker.partitions.replica_manager import ReplicaManager
from minikafka.broker.partitions.replication import Replication
from minikafka.broker.partitions.throttles import ReplicationThrottles
from minikafka.broker.quorum.broker_lifecycle import BrokerLifecycleHost, OwnFacts
from minikafka.broker.quorum.metadata_log import MetadataHost
from minikafka.broker.quorum.raft_host import RaftHost
from minikafka.broker.quorum.raft_peers import RaftPeers
from minikafka.broker.security.authorization.authority import Authority
from minikafka.broker.security.authorization.data_plane import guarding_fast_paths, judge_fetch, judge_share_fetch
from minikafka.broker.security.authorization.groups import may_describe_topic
from minikafka.broker.security.authorization.streams_groups import uncreatable
from minikafka.broker.security.authorization.table import ON_BROKERS, guarding
from minikafka.broker.security.authorization.transactions import may_describe
from minikafka.broker.security.node_security import NodeSecurity
from minikafka.broker.security.sasl_requests import LateSaslHandlers, ScramHandlers
from minikafka.broker.share.parts import ShareParts
from minikafka.broker.streams.group_requests import StreamsGroupHandlers
from minikafka.broker.streams.internal_topics import InternalTopics
from minikafka.broker.streams.settings import StreamsGroupSettings
from minikafka.core.broker_lifecycle import heartbeat_timeout_ms
from minikafka.late_dataclass import dataclass
from minikafka.net.memory_budget import MemoryBudget
from minikafka.net.network import Listener
from minikafka.storage.log_dir import LogDirectory


@dataclass(frozen=True, slots=True)
class Foundation:
    """The parts of a node that a broker is built on. `authority` None: there is no authorizer, and every request is allowed."""

    config: BrokerConfig
    settings: Settings
    environment: Environment
    cluster_id: str
    directories: list[LogDirectory]
    raft: RaftHost
    metadata: MetadataHost
    security: NodeSecurity
    tokens: DelegationTokens
    #: Bounds the memory of clients' requests and responses.
    budget: MemoryBudget
    authority: Authority | None
    quotas: ClientQuotaHost
    #: The broker's listeners by name. `registered_listeners`, for the controller: name -> (host, port, security protocol).
    listeners: dict[str, Listener]
    registered_listeners: dict[str, tuple[str, int, int]]
    features: Features


class Handlers(Protocol):
    """Serves some APIs."""

    def register(self, dispatcher: Dispatcher) -> None:
        """Register them."""


class BrokerParts:
    """The parts of a broker. The node starts and stops them."""

    def __init__(self, node: Foundation) -> None:
        config, environment, metadata = node.config, node.environment, node.metadata
        self.settings = node.settings
        session_ms = config.broker_session_timeout_ms
        self.controller_channel = _channel(node, "to-controller", session_ms)
        self.heartbeat_channel = _channel(node, "heartbeats", heartbeat_timeout_ms(session_ms))
        self.forwarding_channel = _channel(node, "forwarding", CONNECTION_TIMEOUT_MS)
        long_requests = self.long_requests_channel = _channel(node, "long-forwarding", CONNECTION_TIMEOUT_MS)
        self.forwarder = Forwarder(self.forwarding_channel, metadata, environment.random, environment.supervisor, long_requests)
        self.cordons = Cordons(self.settings, node.directories, node.metadata)
        self.cleaner = LogCleaner(self.settings, environment, node.directories, self._write)
        self.replicas = self._make_replicas(node)
        self.lifecycle = self._make_lifecycle(node)
        self.settings.watch(self.lifecycle.heartbeat_at_once)
        self.settings.watch(lambda: self.replicas.fetchers.resize(self.settings.num_replica_fetchers))
        ConnectionLimiter(config, self.settings, node.listeners, environment)
        steps = StepQueue(environment)
        heavy_work = HeavyWork(environment)
        patterns = TopicPatterns(environment, metadata, heavy_work, may_describe_topic(node.authority))
        consumer = consumer_settings(config, self.settings, metadata)
        inter_broker = node.security.inter_broker
        self.shares = ShareParts(config, environment, self.replicas, metadata, self.controller_channel, steps, inter_broker, self.settings)
        self.groups = GroupHost(
            config, environment, self.replicas, metadata, self.controller_channel, steps, consumer, patterns,
            self.shares.settings.for_groups, self.shares.persister, StreamsGroupSettings(config, self.settings, metadata).for_groups,
            InternalTopics(config, environment, self.forwarder, partial(uncreatable, node.authority)),
        )  # fmt: skip
        self.producer_ids = ProducerIdBlocks(config.node_id, self.lifecycle, self.controller_channel, environment.supervisor)
        self.peers = RaftPeers(environment, f"broker-{config.node_id}-transactions", config.request_timeout_ms, node.security.inter_broker)
        metadata.subscribe(lambda delta, _: self.peers.renew_brokers(config.inter_broker_listener, delta))
        markers = MarkerWriter(self.replicas, environment, config.request_timeout_ms)
        sender = MarkerSender(config.node_id, config.inter_broker_listener, metadata, self.peers, markers)
        self.transactions = TransactionHost(
            config, environment, self.replicas, metadata, self.controller_channel, self.producer_ids, sender, steps
        )
        verifier = TransactionVerifier(config.node_id, self.settings, environment, metadata, self.transactions, self.peers)
        identity = (node.cluster_id, config.node_id)
        self.dispatcher = Dispatcher(
            "broker", environment.clock, environment.supervisor, node.features, environment.monotonic_s, identity,
            guarding(node.authority, ON_BROKERS), guarding_fast_paths(node.authority),
        )  # fmt: skip
        node.quotas.guard(self.dispatcher, node.listeners.values)
        self.handover = HandoverHost(config, environment, self.replicas, metadata, node.security.inter_broker, node.budget)
        transactional = TransactionalProduce(self.replicas, verifier, environment.clock.wall_ms, environment.supervisor)
        self.produce = ProduceHandlers(self.replicas, metadata, environment, heavy_work, transactional, self.handover)
        judge = None if node.authority is None else partial(judge_fetch, node.authority)
        self.fetch = FetchHandlers(config, self.replicas, metadata, environment, judge)
        self.client_metrics = ClientMetricsHandlers(config, metadata, environment, heavy_work)
        self._serve(node, markers, verifier, heavy_work, patterns)

    def _make_lifecycle(self, node: Foundation) -> BrokerLifecycleHost:
        def on_unheard() -> None:
            self.fetch.ask_followers()

        facts, registered = _own_facts(node, self.cordons), self.replicas.registered
        return BrokerLifecycleHost(node.config, node.environment, node.metadata, self.heartbeat_channel, facts, registered, on_unheard)

    def _write(self, directory: LogDirectory, make: MakeTask) -> None:
        self.replicas.upkeep.write(directory, make)

    def _make_replicas(self, node: Foundation) -> ReplicaManager:
        replication = Replication(
            node.config,
            node.environment,
            node.metadata,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            is_unheard=lambda: self.lifecycle.is_unheard,
            in_doubt_since_ms=lambda: self.lifecycle.in_doubt_since_ms,
            throttles=ReplicationThrottles(self.settings, node.metadata, node.config.node_id),
            security=node.security.inter_broker,
        )
        return ReplicaManager(replication, node.directories, self.controller_channel, self.settings, self.cordons, self.cleaner.wake)

    def _serve(
        self, node: Foundation, markers: MarkerWriter, verifier: TransactionVerifier, heavy_work: HeavyWork, patterns: TopicPatterns
    ) -> None:
        config, environment, metadata, authority = node.config, node.environment, node.metadata, node.authority
        all_handlers: tuple[Handlers, ...] = (
            self.produce,
            self.fetch,
            self.client_metrics,
            OffsetHandlers(self.replicas, metadata, environment, heavy_work),
            LogDirHandlers(self.replicas),
            MetadataHandlers(
                config,
                metadata,
                self.forwarder,
                node.cluster_id,
                environment.clock,
                environment.supervisor,
                self.replicas.fetchers.lost_leaders,
            ),
            TopicHandlers(self.forwarder),
            ConfigHandlers(config, ConfigDescriptions(config, metadata), self.forwarder, authority),
            ClusterHandlers(config, metadata, self.forwarder, node.cluster_id),
            GroupHandlers(self.groups, self.transactions, metadata, environment, self.shares.states),
            ConsumerGroupHandlers(config, self.groups, patterns, metadata, environment, heavy_work),
            StreamsGroupHandlers(config, self.groups, metadata, environment),
            TransactionHandlers(
                self.transactions,
                markers,
                verifier,
                self.groups,
                self.replicas,
                metadata,
                self.producer_ids,
                environment,
                heavy_work,
                may_describe(authority),
            ),
            LateSaslHandlers(),
            ScramHandlers(metadata),
            AclHandlers(authority, self.forwarder),
            DelegationTokenHandlers(config, authority, node.tokens, lambda: metadata.image, self.forwarder),
        )
        for handlers in all_handlers:
            handlers.register(self.dispatcher)
        self.shares.serve(self.groups, self.dispatcher, None if authority is None else partial(judge_share_fetch, authority))

    async def close_channels(self) -> None:
        """Close the channels to the controller. Pending requests fail with ConnectionError."""
        for channel in (self.controller_channel, self.heartbeat_channel, self.forwarding_channel, self.long_requests_channel):
            await channel.close()


def _channel(node: Foundation, purpose: str, request_timeout_ms: int) -> ControllerChannel:
    client_id = f"broker-{node.config.node_id}-{purpose}"
    return ControllerChannel(node.raft, node.environment, client_id, node.security.controller, request_timeout_ms)


def _own_facts(node: Foundation, cordons: Cordons) -> OwnFacts:
    return OwnFacts(
        cluster_id=node.cluster_id,
        listeners=node.registered_listeners,
        log_dirs=lambda: [d.directory_id for d in node.directories if not d.is_offline],
        offline_log_dirs=lambda: [d.directory_id for d in node.directories if d.is_offline and d.meta is not None],
        cordoned_log_dirs=cordons.ids,
        previous_broker_epoch=min((d.previous_broker_epoch for d in node.directories), default=-1),
    )
