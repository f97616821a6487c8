"""Prometheus metrics under the names that Kafka's dashboards ask for, read from the broker's state when they are scraped.

Nothing is counted on the way of a request but integers that live with what they count. A scrape is made in steps between which the loop can
do its work (`NodeMetrics.steps`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from minikafka.broker.exposition import Page, labels, sums
from minikafka.broker.metrics_exporter import exporter_families

if TYPE_CHECKING:
    from minikafka.broker.dispatch import Dispatcher
    from minikafka.broker.hosts.partition import Partition
    from minikafka.broker.node import Node

STARTING, RUNNING, SHUTTING_DOWN = 1, 3, 6
GROUP_STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead")
PARTITIONS_A_STEP = 250
#: name -> (help, how to read it from a leader's partition); written for 250 partitions at a time.
LOG_GAUGES = {
    "kafka_log_log_size": "Bytes of a replica's log.",
    "kafka_log_log_logstartoffset": "First offset.",
    "kafka_log_log_logendoffset": "Offset after the last record.",
    "kafka_log_log_numlogsegments": "Segments.",
    "minikafka_partition_high_watermark": "High watermark of a replica.",
    "minikafka_partition_leader_epoch": "Epoch of the leader that a replica knows.",
}
LEADER_GAUGES = {
    "kafka_cluster_partition_underreplicated": "1 when a replica is out of sync.",
    "kafka_cluster_partition_underminisr": "1 when below min.insync.replicas.",
    "kafka_cluster_partition_atminisr": "1 when at min.insync.replicas.",
    "kafka_cluster_partition_replicascount": "Replicas.",
    "kafka_cluster_partition_insyncreplicascount": "In-sync replicas.",
    "kafka_cluster_partition_laststableoffsetlag": "Records between the last stable offset and the high watermark.",
}
TOPIC_COUNTERS = (("bytesin", "Bytes produced."), ("bytesout", "Bytes fetched by consumers."), ("messagesin", "Records produced."))


class NodeMetrics:
    """Everything of one node; safe to ask at any time of its life."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._labels: dict[tuple[str, int], str] = {}
        self._cpu_before = (0.0, 0)
        self._idle = 1.0

    def render(self) -> bytes:
        """The text exposition format."""
        return b"".join(self.steps())

    def steps(self) -> Iterator[bytes]:
        """The same in pieces; between two of them the loop may run."""
        yield generate_latest(self._registry)
        node = self._node
        if not node.ready.is_set():
            yield self._page(self._state, STARTING)
            return
        yield self._page(self._state, SHUTTING_DOWN if node.stopping else RUNNING) + self._page(self._quorum) + self._page(self._controller)
        if node.broker is None:
            yield self._page(self._connections)
            return
        partitions = list(node.broker.replicas.partitions.values())
        led = [p for p in partitions if p.leader is not None]
        yield self._page(self._replicas, partitions, led) + self._page(self._fetchers) + self._page(self._groups)
        yield self._page(self._requests, node.broker.dispatcher) + self._page(self._connections) + self._page(self._topics, partitions)
        yield from self._in_parts(LOG_GAUGES, partitions, _log_values)
        yield from self._in_parts(LEADER_GAUGES, led, _leader_values)
        for family in exporter_families(node, self._label):
            page = Page()
            page.gauges(*family)
            yield page.text().encode()

    def _page(self, work: object, *arguments: object) -> bytes:
        page = Page(self._node.config.minikafka_metrics_dialects)
        work(page, *arguments)  # type: ignore[operator]
        return page.text().encode()

    def _label(self, topic: str, index: int) -> str:
        key = (topic, index)
        found = self._labels.get(key)
        if found is None:
            found = self._labels[key] = labels(topic=topic, partition=str(index))
        return found

    def _in_parts(self, gauges: dict[str, str], partitions: list[Partition], values_of: object) -> Iterator[bytes]:
        """Families of one sample a partition. Their lines are gathered side by side, because the state is read only once."""
        rows: list[list[str]] = [[f"# HELP {name} {text}\n# TYPE {name} gauge"] for name, text in gauges.items()]
        names = list(gauges)
        for start in range(0, len(partitions), PARTITIONS_A_STEP):
            for partition in partitions[start : start + PARTITIONS_A_STEP]:
                label = self._label(partition.topic, partition.index)
                for lines, name, value in zip(rows, names, values_of(partition), strict=True):  # type: ignore[operator]
                    lines.append(f"{name}{label} {value}")
            yield b""
        yield "\n".join(line for lines in rows for line in (*lines, "")).replace("\n\n", "\n").encode()

    # -- families --------------------------------------------------------------------------------------------------

    def _state(self, page: Page, state: int) -> None:
        page.gauge("kafka_server_kafkaserver_brokerstate", "State of the broker; 1 starting, 3 running, 6 stopping.", state)
        times, now_ms = os.times(), self._node.environment.clock.now_ms()
        cpu_s, before = times.user + times.system, self._cpu_before
        if before[1] and now_ms > before[1]:
            self._idle = min(max(1 - 1000 * (cpu_s - before[0]) / (now_ms - before[1]), 0.0), 1.0)
        self._cpu_before = (cpu_s, now_ms)
        page.gauge(
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "Share of the time since the last scrape in which this process (one loop) was idle, 0 to 1.",
            self._idle,
        )
        page.gauge("kafka_network_socketserver_networkprocessoravgidle_percent", "The same: it is the same loop.", self._idle)

    def _quorum(self, page: Page) -> None:
        raft = self._node.raft
        leader = -1 if raft.leader_id is None else raft.leader_id
        prefixes = ["kafka_server_raftmetrics"] + ["kafka_server_raft_metrics"] * ("r" in self._node.config.minikafka_metrics_dialects)
        for prefix in prefixes:
            page.gauge(f"{prefix}_current_leader", "Leader of the metadata quorum; -1 unknown.", leader)
            page.gauge(f"{prefix}_current_epoch", "Epoch of the metadata quorum.", raft.leader_epoch)
            page.gauge(f"{prefix}_high_watermark", "High watermark of the metadata log.", raft.high_watermark)
            page.gauge(f"{prefix}_log_end_offset", "End of the metadata log.", raft.log_end_offset)
            state = "leader" if raft.is_leader else "follower" if self._node.controller is not None else "observer"
            page.gauges(f"{prefix}_current_state", "Role in the metadata quorum.", [(labels(current_state=state), 1)])

    def _controller(self, page: Page) -> None:
        node, prefix = self._node, "kafka_controller_kafkacontroller"
        is_active = node.controller is not None and node.controller.is_active
        page.gauge(f"{prefix}_activecontrollercount", "1 on the active controller.", is_active)
        if node.controller is None:
            return
        image = node.metadata.image
        partitions = [p for topic in image.topics_by_name.values() for p in topic.partitions.values()] if is_active else []
        page.gauge(f"{prefix}_globaltopiccount", "Topics of the cluster.", len(image.topics_by_name) if is_active else 0)
        page.gauge(f"{prefix}_globalpartitioncount", "Partitions of the cluster.", len(partitions))
        page.gauge(f"{prefix}_offlinepartitionscount", "Partitions without a leader.", sum(p.leader < 0 for p in partitions))
        imbalance = sum(p.leader != p.replicas[0] for p in partitions)
        page.gauge(f"{prefix}_preferredreplicaimbalancecount", "Partitions not led by their first replica.", imbalance)
        brokers = image.brokers.values() if is_active else ()
        page.gauge(f"{prefix}_activebrokercount", "Brokers in service.", sum(not b.fenced for b in brokers))
        page.gauge(f"{prefix}_fencedbrokercount", "Brokers registered but not in service.", sum(b.fenced for b in brokers))
        page.counter(
            "kafka_controller_controllerstats_uncleanleaderelections",
            "Elections of leaders that were out of sync, seen in the metadata while this node is the active controller.",
            node.timeline.unclean_elections,
        )

    def _replicas(self, page: Page, partitions: list[Partition], led: list[Partition]) -> None:
        node, prefix = self._node, "kafka_server_replicamanager"
        assert node.broker is not None
        replicas = node.broker.replicas
        page.gauge(f"{prefix}_partitioncount", "Replicas of this broker.", len(partitions))
        page.gauge(f"{prefix}_leadercount", "Partitions that this broker leads.", len(led))
        under = sum(map(_is_under_replicated, led))
        page.gauge(f"{prefix}_underreplicatedpartitions", "Led partitions with a replica out of sync.", under)
        margins = [_isr_margin(p) for p in led]
        page.gauge(f"{prefix}_underminisrpartitioncount", "Led partitions below min.insync.replicas.", sum(m < 0 for m in margins))
        page.gauge(f"{prefix}_atminisrpartitioncount", "Led partitions at min.insync.replicas.", sum(m == 0 for m in margins))
        failed = sum(p.log.failure is not None for p in partitions)
        page.gauge(f"{prefix}_offlinereplicacount", "Replicas on failed directories.", failed)
        moving = sum(p.registration is not None and p.registration.is_reassigning for p in led)
        page.gauge(f"{prefix}_reassigningpartitions", "Led partitions that are being moved.", moving)
        page.counter(f"{prefix}_isrshrinks", "Times an in-sync set shrank.", replicas.isr_shrinks)
        page.counter(f"{prefix}_isrexpands", "Times an in-sync set grew.", replicas.isr_expands)
        page.counter(f"{prefix}_failedisrupdates", "Changes of in-sync sets that the controller refused.", replicas.isr_refusals)
        offline = sum(directory.is_offline for directory in node.directories)
        page.gauge("kafka_log_logmanager_offlinelogdirectorycount", "Failed log directories.", offline)
        for name, purgatory in (("Produce", replicas.produces), ("Fetch", replicas.fetches)):
            page.gauge(f"kafka_server_delayedoperationpurgatory_purgatorysize_{name.lower()}", f"Parked {name} requests.", len(purgatory))
        page.gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions.", len(node.broker.fetch.sessions))
        rows = [
            (labels(topic=p.topic, partition=str(p.index), reason=reason), count)
            for p in partitions
            if p.truncations
            for reason, count in p.truncations.items()
        ]
        page.counters("minikafka_log_truncations", "Times a follower cut its log, by reason.", rows, persec=False)

    def _topics(self, page: Page, partitions: list[Partition]) -> None:
        node, prefix = self._node, "kafka_server_brokertopicmetrics"
        assert node.broker is not None
        rows = ((p.topic, {"bytesin": p.bytes_in, "bytesout": p.bytes_out, "messagesin": p.messages_in}) for p in partitions)
        by_topic = sums(rows)
        for name, text in TOPIC_COUNTERS:
            total = sum(entry[name] for entry in by_topic.values())
            samples = [("", total), *((labels(topic=topic), entry[name]) for topic, entry in by_topic.items())]
            page.counters(f"{prefix}_{name}", text, samples)
        entries = {entry.name: entry for entry in node.broker.dispatcher.entries}
        for api, name in (("Produce", "produce"), ("Fetch", "fetch")):
            page.counter(f"{prefix}_total{name}requests", f"{api} requests.", entries[api].count)
        page.counter(f"{prefix}_failedproducerequests", "Produce requests with an error.", node.broker.produce.requests_failed_total)

    def _fetchers(self, page: Page) -> None:
        assert self._node.broker is not None
        fetchers = self._node.broker.replicas.fetchers.fetchers
        rows: list[tuple[str, float]] = []
        failed = 0
        for fetcher in fetchers:
            client = f"ReplicaFetcherThread-{fetcher.key[1]}-{fetcher.leader_id}"
            for state in fetcher.states.values():
                log = state.partition.log
                failed += log.failure is not None
                behind = max(state.leader_high_watermark - log.log_end_offset, 0)
                rows.append((labels(clientId=client, topic=state.partition.topic, partition=str(state.partition.index)), behind))
        page.gauges("kafka_server_fetcherlagmetrics_consumerlag", "Records that a follower is behind its leader's high watermark.", rows)
        replica = labels(clientId="Replica")
        prefix = "kafka_server_replicafetchermanager"
        page.gauges(f"{prefix}_maxlag", "Largest lag of a followed partition.", [(replica, max((lag for _, lag in rows), default=0))])
        page.gauges(f"{prefix}_failedpartitionscount", "Followed partitions on failed directories.", [(replica, failed)])

    def _groups(self, page: Page) -> None:
        assert self._node.broker is not None
        counts = self._node.broker.groups.group_counts
        prefix = "kafka_coordinator_group_groupmetadatamanager_numgroups"
        page.gauge(prefix, "Groups coordinated here.", sum(counts.values()))
        for state in GROUP_STATES:
            page.gauge(f"{prefix}{state.lower()}", f"Groups in state {state}.", counts.get(state, 0))

    @staticmethod
    def _requests(page: Page, dispatcher: Dispatcher) -> None:
        prefix = "kafka_network_requestmetrics"
        served = [entry for entry in dispatcher.entries if entry.count]
        page.counters(f"{prefix}_requests", "Requests by API.", [(labels(request=e.name), e.count) for e in served])
        failed = [(labels(request=e.name, error="UNKNOWN_SERVER_ERROR"), e.errors) for e in served]
        page.counters(f"{prefix}_errors", "Requests that failed inside the broker.", failed)

    def _connections(self, page: Page) -> None:
        listeners = self._node.listeners.items()
        prefixes = ["kafka_server_socket_server_metrics"]
        if "c" in self._node.config.minikafka_metrics_dialects:
            prefixes.append("kafka_server_socketservermetrics")
        for prefix in prefixes:
            rows = [(labels(listener=n, networkProcessor="0"), len(getattr(l, "connections", ()))) for n, l in listeners]  # noqa: E741
            page.gauges(f"{prefix}_connection_count", "Open connections.", rows)
        accepted = [(labels(listener=n), getattr(l, "accepted_total", 0)) for n, l in listeners]  # noqa: E741
        page.counters("minikafka_connections_accepted", "Connections accepted.", accepted, persec=False)


def _log_values(partition: Partition) -> tuple[int, ...]:
    log = partition.log
    return log.size, log.log_start_offset, log.log_end_offset, len(log.segments), log.high_watermark, partition.leader_epoch


def _leader_values(partition: Partition) -> tuple[int, ...]:
    leader = partition.leader
    if leader is None:
        return 0, 0, 0, 0, 0, 0  # it has lost its office while the scrape waited
    in_sync, size = len(leader.isr.committed), len(leader.replicas)
    margin, log = in_sync - leader.min_isr, partition.log
    return int(in_sync < size), int(margin < 0), int(margin == 0), size, in_sync, max(log.high_watermark - log.last_stable_offset, 0)


def _is_under_replicated(partition: Partition) -> int:
    leader = partition.leader
    return int(leader is not None and len(leader.isr.committed) < len(leader.replicas))


def _isr_margin(partition: Partition) -> int:
    leader = partition.leader
    return 0 if leader is None else len(leader.isr.committed) - leader.min_isr
