"""The names of Apache Kafka's loggers, and the corresponding logger of minikafka for each.

The names are those that a broker of Apache Kafka 4.3 lists after its start, and a few of earlier versions that runbooks name.
"""

from __future__ import annotations

OWN = "minikafka"

#: package: loggers in it; - stands for no package.
_NAMES = """\
-: LogFutureTimestampLogger kafka
com.yammer.metrics.reporting: JmxReporter
kafka: controller
kafka.authorizer: logger
kafka.cluster: Partition Replica
kafka.controller: KafkaController
kafka.coordinator: group transaction
kafka.coordinator.transaction: TransactionCoordinator TransactionMarkerChannelManager
kafka.log: LogCleaner LogManager
kafka.network: ConnectionQuotas DataPlaneAcceptor Processor RequestChannel RequestChannel$ SocketServer
kafka.request: logger
kafka.server: BrokerServer ClientQuotaManager ConfigAdminManager ControllerApis ControllerRegistrationManager ControllerServer KafkaApis
    KafkaRaftServer KafkaRequestHandler ReplicaFetcherThread ReplicaManager ReplicaManager$LogDirFailureHandler ReplicationQuotaManager
    SharedServer
kafka.server.metadata: BrokerMetadataPublisher DynamicConfigPublisher
kafka.server.share: ShareCoordinatorMetadataCacheHelperImpl SharePartitionManager
kafka.utils: Log4jControllerRegistration$
org.apache: kafka
org.apache.kafka: controller raft
org.apache.kafka.clients: ClientUtils ClusterConnectionStates CommonClientConfigs NetworkClient
org.apache.kafka.common.config: AbstractConfig ConfigDef
org.apache.kafka.common.metrics: JmxReporter Metrics
org.apache.kafka.common.metrics.stats: Percentiles
org.apache.kafka.common.network: ChannelBuilders NetworkReceive Selector
org.apache.kafka.common.protocol: Errors
org.apache.kafka.common.record.internal: ControlRecordType
org.apache.kafka.common.security.oauthbearer: DefaultJwtRetriever
org.apache.kafka.common.utils: AppInfoParser KafkaThread LoggingSignalHandler ThreadUtils Utils
org.apache.kafka.controller: AclControlManager BrokerHeartbeatManager ClientQuotaControlManager ClusterControlManager
    ConfigurationControlManager DelegationTokenControlManager EventPerformanceMonitor FeatureControlManager OffsetControlManager
    PeriodicTaskControlManager ProducerIdControlManager QuorumController ReplicationControlManager ScramControlManager
org.apache.kafka.coordinator.common.runtime: CoordinatorLoaderImpl CoordinatorRuntime MultiThreadedEventProcessor
    MultiThreadedEventProcessor$EventProcessorThread
org.apache.kafka.coordinator.group: GroupConfig GroupCoordinatorConfig GroupCoordinatorService
org.apache.kafka.coordinator.group.assignor: SimpleAssignor UniformAssignor
org.apache.kafka.coordinator.share: ShareCoordinatorService
org.apache.kafka.coordinator.transaction: RPCProducerIdManager
org.apache.kafka.deferred: DeferredEventQueue
org.apache.kafka.image.loader: MetadataBatchLoader MetadataLoader
org.apache.kafka.image.publisher: BrokerRegistrationTracker SnapshotEmitter SnapshotGenerator
org.apache.kafka.metadata: KRaftMetadataCache ListenerInfo
org.apache.kafka.metadata.properties: MetaPropertiesEnsemble
org.apache.kafka.metadata.publisher: AclPublisher FeaturesPublisher
org.apache.kafka.metadata.util: BatchFileReader
org.apache.kafka.queue: KafkaEventQueue
org.apache.kafka.raft: CandidateState FileQuorumStateStore KafkaNetworkChannel KafkaNetworkChannel$SendThread KafkaRaftClient
    KafkaRaftClientDriver LeaderState ProspectiveState QuorumState TimingWheelExpirationService$ExpiredOperationReaper UnattachedState
org.apache.kafka.raft.internals: AddVoterHandler DefaultRequestSender KRaftControlRecordStateMachine KafkaRaftLog RecordsIterator
    RemoveVoterHandler UpdateVoterHandler VoterSetHistory
org.apache.kafka.server: AssignmentsManager BrokerFeatures BrokerLifecycleManager ClientMetricsManager DelayedActionQueue FetchManager
    FetchSessionCacheShard NodeToControllerChannelManagerImpl NodeToControllerRequestThread
org.apache.kafka.server.config: ConfigSynonym DynamicProducerStateManagerConfig
org.apache.kafka.server.fault: LoggingFaultHandler ProcessTerminatingFaultHandler
org.apache.kafka.server.logger: LoggingController
org.apache.kafka.server.metrics: LinuxIoMetricsCollector
org.apache.kafka.server.network: EndpointReadyFutures
org.apache.kafka.server.purgatory: DelayedOperationPurgatory DelayedOperationPurgatory$ExpiredOperationReaper
org.apache.kafka.server.quota: ClientQuotaManager ClientQuotaManager$ThrottledChannelReaper ControllerMutationQuotaManager
org.apache.kafka.server.share.persister: DefaultStatePersister PersisterStateManager$SendThread
org.apache.kafka.server.transaction: AddPartitionsToTxnManager
org.apache.kafka.server.util: FileLock KafkaScheduler NetworkPartitionMetadataClient
org.apache.kafka.server.util.timer: SystemTimerReaper$Reaper
org.apache.kafka.snapshot: Snapshots
org.apache.kafka.storage.internals.checkpoint: CheckpointFileWithFailureHandler CleanShutdownFileHandler
org.apache.kafka.storage.internals.epoch: LeaderEpochFileCache
org.apache.kafka.storage.internals.log: AbstractIndex Cleaner LocalLog LogCleaner LogCleaner$CleanerThread LogDirFailureChannel
    LogLoader LogSegment OffsetIndex ProducerStateManager TimeIndex UnifiedLog
org.apache.kafka.storage.internals.utils: Throttler
org.apache.kafka.storage.log.metrics: BrokerTopicStats
org.apache.kafka.timeline: SnapshotRegistry
state.change: logger
"""

#: Prefix of a logger's name -> our logger. The longest matching prefix counts.
_OURS = {
    "kafka": OWN,
    "kafka.authorizer": "minikafka.authorizer",
    "kafka.cluster": "minikafka.replicas",
    "kafka.controller": "minikafka.controller",
    "kafka.coordinator.group": "minikafka.coordinator",
    "kafka.coordinator.transaction": "minikafka.transaction",
    "kafka.log": "minikafka.replicas",
    "kafka.log.LogCleaner": "minikafka.cleaner",
    "kafka.network": "minikafka.net",
    "kafka.request": "minikafka.net",
    "kafka.server": "minikafka.node",
    "kafka.server.ClientQuotaManager": "minikafka.quotas",
    "kafka.server.ConfigAdminManager": "minikafka.config",
    "kafka.server.ControllerApis": "minikafka.controller",
    "kafka.server.ControllerRegistrationManager": "minikafka.controller",
    "kafka.server.ControllerServer": "minikafka.controller",
    "kafka.server.KafkaApis": "minikafka.net",
    "kafka.server.KafkaRequestHandler": "minikafka.net",
    "kafka.server.ReplicaFetcherThread": "minikafka.fetcher",
    "kafka.server.ReplicaManager": "minikafka.replicas",
    "kafka.server.ReplicationQuotaManager": "minikafka.quotas",
    "kafka.server.metadata": "minikafka.metadata",
    "kafka.server.metadata.DynamicConfigPublisher": "minikafka.config",
    "kafka.server.share": "minikafka.coordinator",
    "org.apache.kafka": OWN,
    "org.apache.kafka.clients": "minikafka.network",
    "org.apache.kafka.common.config": "minikafka.config",
    "org.apache.kafka.common.network": "minikafka.net",
    "org.apache.kafka.common.security": "minikafka.security",
    "org.apache.kafka.controller": "minikafka.controller",
    "org.apache.kafka.coordinator": "minikafka.coordinator",
    "org.apache.kafka.coordinator.transaction": "minikafka.transaction",
    "org.apache.kafka.image": "minikafka.metadata",
    "org.apache.kafka.metadata": "minikafka.metadata",
    "org.apache.kafka.metadata.publisher.AclPublisher": "minikafka.authorizer",
    "org.apache.kafka.raft": "minikafka.raft",
    "org.apache.kafka.server": "minikafka.node",
    "org.apache.kafka.server.AssignmentsManager": "minikafka.replicas",
    "org.apache.kafka.server.ClientMetricsManager": "minikafka.clients",
    "org.apache.kafka.server.config": "minikafka.config",
    "org.apache.kafka.server.quota": "minikafka.quotas",
    "org.apache.kafka.server.share": "minikafka.coordinator",
    "org.apache.kafka.server.transaction": "minikafka.transaction",
    "org.apache.kafka.snapshot": "minikafka.raft",
    "org.apache.kafka.storage": "minikafka.replicas",
    "org.apache.kafka.storage.internals.log.Cleaner": "minikafka.cleaner",
    "org.apache.kafka.storage.internals.log.LogCleaner": "minikafka.cleaner",
    "state.change.logger": "minikafka.replicas",
}


def _ours(name: str) -> str:
    beginning = name
    while beginning not in _OURS and beginning:
        beginning = beginning.rpartition("$" if "$" in beginning else ".")[0]
    return _OURS.get(beginning, OWN)


def _all() -> dict[str, str]:
    found, package = {}, ""
    for word in _NAMES.split():
        if word.endswith(":"):
            package = "" if word == "-:" else f"{word[:-1]}."
        else:
            found[package + word] = _ours(package + word)
    return found


#: Kafka's name of a logger -> ours.
KAFKA_LOGGERS = _all()
