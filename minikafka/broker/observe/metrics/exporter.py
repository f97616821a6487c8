"""Metrics under the names of kafka_exporter (dashboard 7589), without the exporter.

The leader exports a partition, the coordinator a group, and the active controller the number of brokers, so that sums over all brokers are
right. A group's lag is exported if the coordinator has a replica of the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from minikafka.addresses import host_port
from minikafka.broker.observe.metrics.exposition import labels

if TYPE_CHECKING:
    from minikafka.broker.observe.observed import ObservedNode

Samples = list[tuple[str, float]]
Family = tuple[str, Samples]


def exporter_families(node: ObservedNode, label: Callable[[str, int], str]) -> Iterator[Family]:
    """(name, samples) of every family; the table has their meaning."""
    image = node.metadata.image
    if node.controller is not None and node.controller.is_active:
        brokers = [broker for broker in image.brokers.values() if not broker.fenced]
        yield "kafka_brokers", [("", len(brokers))]
        rows: Samples = []
        for broker in brokers:
            host, port = next(iter(broker.listeners.values()))[:2]
            rows.append((labels(id=str(broker.broker_id), address=host_port(host, port)), 1))
        yield "kafka_broker_info", rows
    yield from _partitions(node, label)
    yield from _groups(node)


def _partitions(node: ObservedNode, label: Callable[[str, int], str]) -> Iterator[Family]:
    assert node.broker is not None
    image = node.metadata.image
    names = (
        "current_offset",
        "oldest_offset",
        "leader",
        "leader_is_preferred",
        "replicas",
        "in_sync_replica",
        "under_replicated_partition",
    )
    families: dict[str, Samples] = {name: [] for name in names}
    for partition in node.broker.replicas.partitions.values():
        leader = partition.leader
        if leader is None:
            continue
        where = label(partition.topic, partition.index)
        in_sync, replicas = len(leader.isr.committed), leader.replicas
        registration = partition.registration
        preferred = registration is not None and registration.replicas[0] == node.config.node_id
        values = (
            partition.log.high_watermark, partition.log.log_start_offset, node.config.node_id, int(preferred), len(replicas), in_sync,
            int(in_sync < len(replicas)),
        )  # fmt: skip
        for samples, value in zip(families.values(), values, strict=True):
            samples.append((where, value))
    for name, samples in families.items():
        yield f"kafka_topic_partition_{name}", samples
    topics = {p.topic for p in node.broker.replicas.partitions.values() if p.leader is not None and p.index == 0}
    yield (
        "kafka_topic_partitions",
        [(labels(topic=name), len(image.topics_by_name[name].partitions)) for name in sorted(topics) if name in image.topics_by_name],
    )


def _groups(node: ObservedNode) -> Iterator[Family]:
    assert node.broker is not None
    replicas = node.broker.replicas.partitions
    committed: Samples = []
    lags: Samples = []
    committed_sums: Samples = []
    lag_sums: Samples = []
    members: Samples = []
    for shard in node.broker.groups.loaded_shards():
        for group_id, member_count in shard.member_counts().items():
            members.append((labels(consumergroup=group_id), member_count))
            of_topic: dict[str, list[int]] = {}
            for (topic, index), entry in shard.offsets.of_group(group_id).items():
                where = labels(consumergroup=group_id, topic=topic, partition=str(index))
                committed.append((where, entry.offset))
                total = of_topic.setdefault(topic, [0, 0])
                total[0] += entry.offset
                replica = replicas.get((topic, index))
                if replica is not None:
                    lag = max(replica.log.high_watermark - entry.offset, 0)
                    total[1] += lag
                    lags.append((where, lag))
            for topic, (offset, lag) in of_topic.items():
                committed_sums.append((labels(consumergroup=group_id, topic=topic), offset))
                lag_sums.append((labels(consumergroup=group_id, topic=topic), lag))
    yield "kafka_consumergroup_current_offset", committed
    yield "kafka_consumergroup_current_offset_sum", committed_sums
    yield "kafka_consumergroup_lag", lags
    yield "kafka_consumergroup_lag_sum", lag_sums
    yield "kafka_consumergroup_members", members
