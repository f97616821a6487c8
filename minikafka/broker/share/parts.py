"""Builds a broker's parts for share groups (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.broker.quorum.raft_peers import RaftPeers
from minikafka.broker.share.dead_letters import DeadLetterQueues
from minikafka.broker.share.end_offsets import EndOffsets
from minikafka.broker.share.fetch import Judge, ShareFetchHandlers
from minikafka.broker.share.group_requests import ShareGroupHandlers
from minikafka.broker.share.leader import ShareLeader
from minikafka.broker.share.persister import SharePersister
from minikafka.broker.share.settings import ShareGroupSettings
from minikafka.broker.share.state_host import ShareStateHost
from minikafka.broker.share.state_requests import ShareStateHandlers

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.config.dynamic import Settings
    from minikafka.broker.coordinators.group_coordinator import GroupHost
    from minikafka.broker.coordinators.loader import StepQueue
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.controller_channel import ControllerChannel
    from minikafka.broker.front.dispatch import Dispatcher
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.net.channel import ChannelSecurity


class ShareParts:
    """The share coordinator, its clients, and the share partitions that this broker leads."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        controller: ControllerChannel,
        steps: StepQueue,
        security: ChannelSecurity | None,
        settings: Settings,
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._metadata = metadata
        self._environment = environment
        self.settings = ShareGroupSettings(config, settings, metadata)
        self.states = ShareStateHost(config, environment, replicas, metadata, controller, steps)
        self._state_handlers = ShareStateHandlers(self.states, environment)
        self._peers = RaftPeers(environment, f"broker-{config.node_id}-share-state", config.request_timeout_ms, security)
        metadata.subscribe(lambda delta, _: self._peers.renew_brokers(config.inter_broker_listener, delta))
        self._ends = EndOffsets(config, replicas, metadata, self._peers)
        self.persister = SharePersister(config, environment, metadata, self.states, self._state_handlers, self._peers)
        dead_letters = DeadLetterQueues(config, environment, metadata, controller, self._peers, self.settings)
        self.leader = ShareLeader(config, environment, replicas, metadata, self.persister, self.settings, dead_letters)

    def serve(self, groups: GroupHost, dispatcher: Dispatcher, judge: Judge | None) -> None:
        """Serve the APIs of share groups on a broker listener. `judge` (with an authorizer): finds topics that a request may not read."""
        self._state_handlers.register(dispatcher)
        ShareGroupHandlers(groups, self._metadata, self._environment, self.persister, self._ends).register(dispatcher)
        ShareFetchHandlers(
            self._config, self._environment, self._replicas, self._metadata, self.leader, self.settings, judge
        ).register(dispatcher)

    async def start(self) -> None:
        """Start the periodic work of the share coordinator."""
        await self.states.start()

    async def stop(self) -> None:
        """Answer pending requests and close connections."""
        self.leader.stop()
        await self.states.stop()
        self._peers.close()
