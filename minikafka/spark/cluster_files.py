"""Formats a new cluster around existing partition logs: identity, metadata log, checkpoints (runs on the driver only).

The files are those of a cluster whose nodes all stopped cleanly while every replica was in sync. The metadata log holds the brokers
(fenced, at the epoch in their clean-shutdown files) and partitions without a leader, all of whose replicas are eligible leaders
(KIP-966). So the first broker that starts may lead any partition, the others join the in-sync sets as they start, and none of them is
suspected of having lost records. With in-sync sets instead of eligible leader replicas, each broker's registration would remove it from
the sets, and only the last broker could lead.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minikafka.addresses import host_port
from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.config.rules import BrokerConfigRules
from minikafka.broker.config.topic_config import log_config
from minikafka.broker.quorum.format import FEATURES, FormatError, format_storage, random_uuid
from minikafka.broker.quorum.metadata_batch import batch_of
from minikafka.broker.quorum.raft_log import MetadataLog
from minikafka.core.controller.config import SUPPORTED_FEATURES
from minikafka.core.controller.configs import ConfigControl
from minikafka.core.controller.features import bootstrap_records
from minikafka.core.controller.placement import UsableBroker, place_replicas
from minikafka.core.controller.state import ControllerState
from minikafka.core.controller.topics import CLUSTER_METADATA_TOPIC
from minikafka.core.metadata.image import NO_LEADER, BrokerRegistration, PartitionRegistration, empty_image
from minikafka.core.metadata.versions import NEWEST, versioned
from minikafka.core.raft.events import AppendLeaderChange
from minikafka.core.raft.types import ElectionState, Endpoint, ReplicaKey
from minikafka.core.raft.voters import BOOTSTRAP_OFFSET, Voter, VoterSet
from minikafka.core.topic_name import topic_name_fault
from minikafka.counted import counted
from minikafka.spark.cluster_nodes import NodePlan, plan_nodes
from minikafka.spark.cluster_segments import FilesFailed, LogRules, Syncer, copy_file
from minikafka.spark.cluster_staging import check_target
from minikafka.storage import checkpoint
from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import OsFileSystem, write_atomically
from minikafka.storage.log_dir import LOCK, METADATA_TOPIC, LogDirectory, read_meta_properties
from minikafka.wire.errors import ApiError
from minikafka.wire.records.frame import encode_metadata_record
from minikafka.wire.records.metadata_records import TopicRecord
from minikafka.wire.uuid import uuid_from_text, uuid_to_text

RECORDS_PER_BATCH = 4000
#: Epoch of the metadata log's first leader. The nodes elect the next leader in a later epoch.
QUORUM_EPOCH = 1
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state", CLUSTER_METADATA_TOPIC)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster to write into `directory`. `nodes`: each as `ID@HOST:PORT[:CONTROLLER_PORT]`, or all as server.properties files; without
    any, `node_count` nodes on localhost.

    `replication_factor` -1: as many replicas as there are brokers, at most three. `topic_configs`: overrides of the topic.
    """

    directory: str
    nodes: tuple[str, ...] = ()
    node_count: int = 3
    replication_factor: int = -1
    cluster_id: str = ""
    topic_configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ClusterPlan:
    """All decisions made before a row is read. `replicas`: per partition the node ids, preferred leader first."""

    directory: str
    cluster_id: str
    nodes: list[NodePlan]
    topic: str
    topic_id: bytes
    replicas: list[list[int]]
    configs: dict[str, str]
    log: LogConfig

    @property
    def brokers(self) -> list[NodePlan]:
        return [node for node in self.nodes if node.is_broker]

    @property
    def topic_id_text(self) -> str:
        return uuid_to_text(self.topic_id)

    @property
    def replication_factor(self) -> int:
        return len(self.replicas[0])

    @property
    def rules(self) -> LogRules:
        log = self.log
        return LogRules(log.segment_bytes, log.segment_ms, log.segment_index_bytes, log.index_interval_bytes, log.max_message_bytes)

    def node(self, node_id: int) -> NodePlan:
        return next(node for node in self.nodes if node.node_id == node_id)

    def set_config(self, name: str, value: str) -> None:
        """Add an override to the topic's configuration."""
        self.configs[name] = value
        self.log = log_config(self.brokers[0].config, self.configs)


def plan_cluster(options: ClusterOptions, topic: str, partitions: int) -> ClusterPlan:
    """Check the options and make the plan. Errors that Kafka also reports use Kafka's wording. Raises FilesFailed."""
    directory = os.path.abspath(options.directory)
    check_target(directory)
    fault = topic_name_fault(topic)
    if fault is not None:
        raise FilesFailed(fault)
    if topic in INTERNAL_TOPICS:
        raise FilesFailed(f"{topic} is an internal topic of Kafka, which its brokers write themselves")
    if options.cluster_id:
        try:
            uuid_from_text(options.cluster_id)
        except ValueError as error:
            raise FilesFailed(f"--cluster-id: {error}; make one with `minikafka storage random-uuid`") from error
    if not options.nodes and options.node_count < 1:
        raise FilesFailed("--nodes: a cluster has at least one node")
    nodes = plan_nodes(options.nodes, options.node_count)
    brokers = [node for node in nodes if node.is_broker]
    factor = options.replication_factor if options.replication_factor != -1 else min(3, len(brokers))
    usable = [UsableBroker(node.node_id, node.config.broker_rack, False) for node in brokers]
    if factor > len(brokers):
        given = counted(len(brokers), "broker")
        raise FilesFailed(f"--replication-factor {factor}: the cluster has only {given}; give more with --node or --nodes")
    try:
        replicas = place_replicas(usable, partitions, factor, random.Random())
        rules = BrokerConfigRules(brokers[0].config)
        overrides, _ = ConfigControl(ControllerState(empty_image(), 0), rules).for_new_topic(topic, list(options.topic_configs.items()))
    except ApiError as error:
        raise FilesFailed(str(error.message or error)) from error
    return ClusterPlan(
        directory, options.cluster_id or uuid_to_text(random_uuid(os.urandom)), nodes, topic, random_uuid(os.urandom), replicas,
        dict(overrides), log_config(brokers[0].config, overrides),
    )  # fmt: skip


def write_cluster(plan: ClusterPlan, root: str, ends: Sequence[int], wall_ms: int) -> None:
    """Format every node under `root` (which becomes the plan's directory), with metadata log, checkpoints and server.properties.

    ends: the log end offset of each partition. The caller adds the partitions' directories. Raises FilesFailed, OSError.
    """
    filesystem = OsFileSystem()
    configs = {node.node_id: node.configured(f"{root}/{node.folder}/data") for node in plan.nodes}
    directory_ids = _format(filesystem, plan, configs, wall_ms)
    epochs = _write_metadata(filesystem, plan, configs, directory_ids, wall_ms)
    for node in plan.nodes:
        data = f"{root}/{node.folder}/data"
        node.write_properties(f"{root}/{node.folder}/server.properties", f"{plan.directory}/{node.folder}/data")
        if node.is_broker:
            own = {(plan.topic, number): ends[number] for number, nodes in enumerate(plan.replicas) if node.node_id in nodes}
            for name in (checkpoint.RECOVERY_POINT_CHECKPOINT, checkpoint.REPLICATION_OFFSET_CHECKPOINT):
                write_atomically(filesystem, f"{data}/{name}", checkpoint.encode_offsets(own))
            write_atomically(filesystem, f"{data}/{checkpoint.LOG_START_OFFSET_CHECKPOINT}", checkpoint.encode_offsets({}))
        checkpoint.write_clean_shutdown(filesystem, f"{data}/{checkpoint.CLEAN_SHUTDOWN}", epochs.get(node.node_id, -1))


def _format(filesystem: OsFileSystem, plan: ClusterPlan, configs: Mapping[int, BrokerConfig], wall_ms: int) -> dict[int, bytes]:
    """Format the nodes, with static voters if the properties name any, else as one dynamic quorum. Returns their directory ids."""
    initial = None if configs[plan.nodes[0].node_id].voters else _initial_controllers(plan, configs)
    ids = {}
    for node in plan.nodes:
        config = configs[node.node_id]
        try:
            format_storage(
                filesystem, config, cluster_id=plan.cluster_id, wall_ms=wall_ms, random_bytes=os.urandom,
                initial_controllers=initial if node.is_controller else None,
            )  # fmt: skip
        except FormatError as error:
            raise FilesFailed(f"node {node.node_id} cannot be formatted: {error}") from error
        meta = read_meta_properties(filesystem, config.metadata_directory)
        assert meta is not None
        ids[node.node_id] = meta.directory_id
    return ids


def _initial_controllers(plan: ClusterPlan, configs: Mapping[int, BrokerConfig]) -> str:
    """`id@host:port:directory-id,...` with new directory ids."""
    entries = []
    for node in plan.nodes:
        if node.is_controller:
            config = configs[node.node_id]
            endpoint = config.advertised[config.controller_listener]
            host = "localhost" if endpoint.host in ("", "0.0.0.0", "::") else endpoint.host
            entries.append(f"{node.node_id}@{host_port(host, endpoint.port)}:{uuid_to_text(random_uuid(os.urandom))}")
    return ",".join(entries)


def _write_metadata(
    filesystem: OsFileSystem, plan: ClusterPlan, configs: Mapping[int, BrokerConfig], directory_ids: Mapping[int, bytes], wall_ms: int
) -> dict[int, int]:
    """Write the same metadata log on every controller. Returns the epoch of every broker."""
    controllers = [node for node in plan.nodes if node.is_controller]
    first = controllers[0]
    config = configs[first.node_id]
    clock = _clock(wall_ms)
    root = LogDirectory(filesystem, config.metadata_directory)
    root.open()
    try:
        log = MetadataLog(root, config, clock)
        log.load(_static_voters(config))
        version, current = log.history.kraft_version, log.history.latest
        said = (version, current) if version > 0 and log.history.latest_offset == BOOTSTRAP_OFFSET else (None, None)
        log.append_leader_change(AppendLeaderChange(QUORUM_EPOCH, first.node_id, current.node_ids, current.node_ids, *said))
        epochs = _append_records(log, plan, configs, directory_ids)
        log.persist(ElectionState(QUORUM_EPOCH), version, current.node_ids)
        source = log.directory
        log.close()
    finally:
        root.abandon()
    os.unlink(f"{config.metadata_directory}/{LOCK}")
    with Syncer() as syncer:
        for node in controllers[1:]:
            target = f"{configs[node.node_id].metadata_directory}/{METADATA_TOPIC}-0"
            os.makedirs(target, exist_ok=True)
            for name in sorted(os.listdir(source)):
                if not os.path.exists(f"{target}/{name}"):
                    copy_file(f"{source}/{name}", f"{target}/{name}", syncer)
    return epochs


def _clock(wall_ms: int) -> Callable[[], int]:
    """A clock that starts at `wall_ms`, the time of the load."""
    begun = time.monotonic()
    return lambda: wall_ms + int((time.monotonic() - begun) * 1000)


def _static_voters(config: BrokerConfig) -> VoterSet:
    name = config.controller_listener
    return VoterSet(Voter(ReplicaKey(node_id), (Endpoint(name, host, port),)) for node_id, (host, port) in config.voters.items())


def _append_records(
    log: MetadataLog, plan: ClusterPlan, configs: Mapping[int, BrokerConfig], directory_ids: Mapping[int, bytes]
) -> dict[int, int]:
    """Append features, brokers and the topic, in this order. A broker's epoch is the offset of its registration, as in a controller."""
    levels = {name: level for name, (_, _, level) in FEATURES.items()}
    _append(log, bootstrap_records(levels, configs[plan.nodes[0].node_id].min_insync_replicas))
    epochs = {}
    for node in plan.brokers:
        epoch = epochs[node.node_id] = log.log.log_end_offset
        _append(log, [_registration(node, epoch, directory_ids[node.node_id]).to_record()])
    state = ControllerState(empty_image(), 0)
    _, configured = ConfigControl(state, BrokerConfigRules(plan.brokers[0].config)).for_new_topic(plan.topic, list(plan.configs.items()))
    records: list[Any] = [TopicRecord(name=plan.topic, topic_id=plan.topic_id), *configured]
    for number, nodes in enumerate(plan.replicas):
        directories = [directory_ids[node_id] for node_id in nodes]
        partition = PartitionRegistration(nodes, (), NO_LEADER, directories=directories, elr=nodes)
        records.append(partition.to_record(plan.topic_id, number))
    for start in range(0, len(records), RECORDS_PER_BATCH):
        _append(log, records[start : start + RECORDS_PER_BATCH])
    return epochs


def _append(log: MetadataLog, records: Sequence[Any]) -> None:
    log.append_batch(batch_of(encode_metadata_record(*versioned(record, NEWEST)) for record in records), QUORUM_EPOCH)


def _registration(node: NodePlan, epoch: int, directory_id: bytes) -> BrokerRegistration:
    config = node.config
    listeners = {}
    for endpoint in config.broker_listeners:
        advertised = config.advertised[endpoint.name]
        host = advertised.host if advertised.host not in ("", "0.0.0.0", "::") else os.uname().nodename
        listeners[endpoint.name] = (host, advertised.port, endpoint.security_protocol)
    return BrokerRegistration(
        node.node_id, epoch, random_uuid(os.urandom), listeners, dict(SUPPORTED_FEATURES), config.broker_rack, True, False, [directory_id]
    )
