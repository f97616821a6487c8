"""Prometheus metrics under the names that Kafka's dashboards ask for, read from the broker's state when they are scraped.

Nothing is counted on the way of a request but integers that live with what they count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

if TYPE_CHECKING:
    from minikafka.broker.dispatch import Dispatcher
    from minikafka.broker.hosts.partition import Partition
    from minikafka.broker.node import Node

TOPIC = ("topic",)
PARTITION = ("topic", "partition")
RUNNING = 3
GROUP_STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead")


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


class NodeCollector:
    """Collects everything of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        """One family after the other; safe to call at any time of the node's life."""
        node = self._node
        if not node.ready.is_set():
            return
        yield _gauge("kafka_server_kafkaserver_brokerstate", "State of the broker; 3 is running.", RUNNING)
        yield from self._quorum()
        yield from self._controller()
        if node.broker is not None:
            partitions = list(node.broker.replicas.partitions.values())
            yield from self._replicas(partitions)
            yield from self._partitions(partitions)
            yield from self._logs(partitions)
            yield from self._topics(partitions)
            yield from self._fetchers()
            yield from self._groups()
            yield from _requests(node.broker.dispatcher)
        yield from self._connections()

    def _quorum(self) -> Iterator[Metric]:
        raft = self._node.raft
        leader = raft.leader_id
        yield _gauge(
            "kafka_server_raftmetrics_current_leader", "Leader of the metadata quorum; -1 unknown.", -1 if leader is None else leader
        )
        yield _gauge("kafka_server_raftmetrics_current_epoch", "Epoch of the metadata quorum.", raft.leader_epoch)
        yield _gauge("kafka_server_raftmetrics_high_watermark", "High watermark of the metadata log.", raft.high_watermark)
        yield _gauge("kafka_server_raftmetrics_log_end_offset", "End of the metadata log.", raft.log_end_offset)

    def _controller(self) -> Iterator[Metric]:
        node = self._node
        controller = node.controller
        active = controller is not None and controller.is_active
        prefix = "kafka_controller_kafkacontroller"
        yield _gauge(f"{prefix}_activecontrollercount", "1 on the active controller.", int(active))
        if not active:
            return
        image = node.metadata.image
        partitions = [p for topic in image.topics_by_name.values() for p in topic.partitions.values()]
        yield _gauge(f"{prefix}_globaltopiccount", "Topics of the cluster.", len(image.topics_by_name))
        yield _gauge(f"{prefix}_globalpartitioncount", "Partitions of the cluster.", len(partitions))
        yield _gauge(f"{prefix}_offlinepartitionscount", "Partitions without a leader.", sum(1 for p in partitions if p.leader < 0))
        imbalance = sum(1 for p in partitions if p.leader != p.replicas[0])
        yield _gauge(f"{prefix}_preferredreplicaimbalancecount", "Partitions not led by their first replica.", imbalance)
        yield _gauge(f"{prefix}_activebrokercount", "Brokers in service.", sum(1 for b in image.brokers.values() if not b.fenced))
        yield _gauge(
            f"{prefix}_fencedbrokercount", "Brokers registered but not in service.", sum(1 for b in image.brokers.values() if b.fenced)
        )

    def _replicas(self, partitions: list[Partition]) -> Iterator[Metric]:
        node = self._node
        assert node.broker is not None
        replicas = node.broker.replicas
        led = [p for p in partitions if p.leader is not None]
        prefix = "kafka_server_replicamanager"
        yield _gauge(f"{prefix}_partitioncount", "Replicas of this broker.", len(partitions))
        yield _gauge(f"{prefix}_leadercount", "Partitions that this broker leads.", len(led))
        yield _gauge(
            f"{prefix}_underreplicatedpartitions", "Led partitions with a replica out of sync.", sum(map(_is_under_replicated, led))
        )
        yield _gauge(
            f"{prefix}_underminisrpartitioncount", "Led partitions below min.insync.replicas.", sum(_isr_margin(p) < 0 for p in led)
        )
        yield _gauge(f"{prefix}_atminisrpartitioncount", "Led partitions at min.insync.replicas.", sum(_isr_margin(p) == 0 for p in led))
        yield _gauge(f"{prefix}_offlinereplicacount", "Replicas on failed directories.", sum(p.log.failure is not None for p in partitions))
        reassigning = sum(1 for p in led if p.registration is not None and p.registration.is_reassigning)
        yield _gauge(f"{prefix}_reassigningpartitions", "Led partitions that are being moved.", reassigning)
        yield _counter(f"{prefix}_isrshrinks", "Times an in-sync set shrank.", replicas.isr_shrinks)
        yield _counter(f"{prefix}_isrexpands", "Times an in-sync set grew.", replicas.isr_expands)
        offline = sum(1 for directory in node.directories if directory.is_offline)
        yield _gauge("kafka_log_logmanager_offlinelogdirectorycount", "Failed log directories.", offline)
        for name, purgatory in (("Produce", replicas.produces), ("Fetch", replicas.fetches)):
            yield _gauge(f"kafka_server_delayedoperationpurgatory_purgatorysize_{name.lower()}", f"Parked {name} requests.", len(purgatory))
        yield _gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions.", len(node.broker.fetch.sessions))

    @staticmethod
    def _partitions(partitions: list[Partition]) -> Iterator[Metric]:
        prefix = "kafka_cluster_partition"
        under = GaugeMetricFamily(f"{prefix}_underreplicated", "1 when a replica is out of sync.", labels=PARTITION)
        below = GaugeMetricFamily(f"{prefix}_underminisr", "1 when below min.insync.replicas.", labels=PARTITION)
        at = GaugeMetricFamily(f"{prefix}_atminisr", "1 when at min.insync.replicas.", labels=PARTITION)
        count = GaugeMetricFamily(f"{prefix}_replicascount", "Replicas.", labels=PARTITION)
        in_sync = GaugeMetricFamily(f"{prefix}_insyncreplicascount", "In-sync replicas.", labels=PARTITION)
        for partition in partitions:
            if partition.leader is None:
                continue
            labels = (partition.topic, str(partition.index))
            margin = _isr_margin(partition)
            under.add_metric(labels, _is_under_replicated(partition))
            below.add_metric(labels, int(margin < 0))
            at.add_metric(labels, int(margin == 0))
            count.add_metric(labels, len(partition.leader.replicas))
            in_sync.add_metric(labels, len(partition.isr))
        yield from (under, below, at, count, in_sync)

    @staticmethod
    def _logs(partitions: list[Partition]) -> Iterator[Metric]:
        size = GaugeMetricFamily("kafka_log_log_size", "Bytes of a replica's log.", labels=PARTITION)
        start = GaugeMetricFamily("kafka_log_log_logstartoffset", "First offset.", labels=PARTITION)
        end = GaugeMetricFamily("kafka_log_log_logendoffset", "Offset after the last record.", labels=PARTITION)
        mark = GaugeMetricFamily("minikafka_partition_high_watermark", "High watermark of a replica.", labels=PARTITION)
        segments = GaugeMetricFamily("kafka_log_log_numlogsegments", "Segments.", labels=PARTITION)
        for partition in partitions:
            labels, log = (partition.topic, str(partition.index)), partition.log
            size.add_metric(labels, log.size)
            start.add_metric(labels, log.log_start_offset)
            end.add_metric(labels, log.log_end_offset)
            mark.add_metric(labels, log.high_watermark)
            segments.add_metric(labels, len(log.segments))
        yield from (size, start, end, mark, segments)

    def _topics(self, partitions: list[Partition]) -> Iterator[Metric]:
        node = self._node
        assert node.broker is not None
        sums: dict[str, list[int]] = {}
        for partition in partitions:
            entry = sums.setdefault(partition.topic, [0, 0, 0])
            entry[0] += partition.bytes_in
            entry[1] += partition.bytes_out
            entry[2] += partition.messages_in
        names = (("bytesin", "Bytes produced"), ("bytesout", "Bytes fetched by consumers"), ("messagesin", "Records produced"))
        for position, (name, text) in enumerate(names):
            family = CounterMetricFamily(f"kafka_server_brokertopicmetrics_{name}", f"{text}.", labels=TOPIC)
            for topic, entry in sums.items():
                family.add_metric((topic,), entry[position])
            yield family
        entries = {entry.name: entry for entry in node.broker.dispatcher.entries}
        for api, name in (("Produce", "produce"), ("Fetch", "fetch")):
            yield _counter(f"kafka_server_brokertopicmetrics_total{name}requests", f"{api} requests.", entries[api].count)
        yield _counter(
            "kafka_server_brokertopicmetrics_failedproducerequests",
            "Produce requests with an error.",
            node.broker.produce.requests_failed_total,
        )

    def _fetchers(self) -> Iterator[Metric]:
        node = self._node
        assert node.broker is not None
        lag = GaugeMetricFamily(
            "kafka_server_fetcherlagmetrics_consumerlag",
            "Records that a follower is behind its leader's high watermark.",
            labels=("clientId", *PARTITION),
        )
        largest = 0
        for fetcher in node.broker.replicas.fetchers.fetchers:
            client = f"ReplicaFetcherThread-{fetcher.key[1]}-{fetcher.leader_id}"
            for state in fetcher.states.values():
                log = state.partition.log
                behind = max(state.leader_high_watermark - log.log_end_offset, 0)
                largest = max(largest, behind)
                lag.add_metric((client, state.partition.topic, str(state.partition.index)), behind)
        yield lag
        family = GaugeMetricFamily(
            "kafka_server_replicafetchermanager_maxlag", "Largest lag of a followed partition.", labels=("clientId",)
        )
        family.add_metric(("Replica",), largest)
        yield family

    def _groups(self) -> Iterator[Metric]:
        assert self._node.broker is not None
        counts = self._node.broker.groups.group_counts
        prefix = "kafka_coordinator_group_groupmetadatamanager_numgroups"
        yield _gauge(prefix, "Groups coordinated here.", sum(counts.values()))
        for state in GROUP_STATES:
            yield _gauge(f"{prefix}{state.lower()}", f"Groups in state {state}.", counts.get(state, 0))

    def _connections(self) -> Iterator[Metric]:
        open_now = GaugeMetricFamily("kafka_server_socket_server_metrics_connection_count", "Open connections.", labels=("listener",))
        for name, listener in self._node.listeners.items():
            open_now.add_metric((name,), len(getattr(listener, "connections", ())))
        yield open_now


def _requests(dispatcher: Dispatcher) -> Iterator[Metric]:
    family = CounterMetricFamily("kafka_network_requestmetrics_requests", "Requests by API.", labels=("request",))
    for entry in dispatcher.entries:
        if entry.count:
            family.add_metric((entry.name,), entry.count)
    yield family


def _is_under_replicated(partition: Partition) -> int:
    leader = partition.leader
    return int(leader is not None and len(leader.isr.committed) < len(leader.replicas))


def _isr_margin(partition: Partition) -> int:
    leader = partition.leader
    return 0 if leader is None else len(leader.isr.committed) - leader.min_isr


class NodeMetrics:
    """The registry of one node, with the process's own metrics."""

    def __init__(self, node: Node) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._registry.register(NodeCollector(node))  # type: ignore[arg-type]

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self._registry)
