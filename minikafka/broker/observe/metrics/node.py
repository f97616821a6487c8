"""All metrics of one node under the names of `table`, read from the broker's state at each scrape.

The request path only increments integers in the objects that they belong to, and times a sample of requests. A scrape runs in steps, so
that the loop can do other work in between (`NodeMetrics.steps`).
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from minikafka.broker.measures.readings import Readings
from minikafka.broker.observe.last_audit import LastAudit
from minikafka.broker.observe.metrics import clients, control, replicas, traffic
from minikafka.broker.observe.metrics.audit import audit
from minikafka.broker.observe.metrics.exporter import exporter_families
from minikafka.broker.observe.metrics.exposition import Page, head, labels
from minikafka.broker.observe.metrics.quotas import quotas
from minikafka.broker.supervise import NODE

if TYPE_CHECKING:
    from minikafka.broker.observe.observed import ObservedNode
    from minikafka.broker.partitions.partition import Partition
    from minikafka.net.peer_lines import PeerLines

STARTING, RUNNING, SHUTTING_DOWN = 1, 3, 6
PARTITIONS_A_STEP = 250
RUSAGE_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class NodeMetrics:
    """Renders all metrics of one node. Can be called on the node's loop at any time, even while it starts or stops."""

    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._labels: dict[tuple[str, int], str] = {}
        self._last_audit = LastAudit(node.config.minikafka_audit_report_dir)
        self._readings = Readings()
        self._started_ms = node.environment.clock.now_ms()
        self._started_cpu_s = _cpu_s()
        self._readings.rate("cpu", self._started_cpu_s, self._started_ms)

    def render(self) -> bytes:
        """All metrics in the text exposition format."""
        return b"".join(self.steps())

    def steps(self) -> Iterator[bytes]:
        """All metrics in chunks, so that the loop can run in between."""
        yield generate_latest(self._registry)
        node = self._node
        if not node.ready.is_set():
            yield self._page(self._state, STARTING)
            return
        yield self._page(self._state, SHUTTING_DOWN if node.stopping else RUNNING)
        yield self._page(control.quorum, node) + self._page(control.controller, node)
        yield self._page(traffic.connections, node, self._readings)
        yield self._page(control.authorization, node) + self._page(quotas, node)
        broker = node.broker
        if broker is None:
            yield from self._requests()
            return
        partitions = list(broker.replicas.partitions.values())
        led = [p for p in partitions if p.leader is not None]
        yield self._page(replicas.replicas, node, partitions, led)
        yield self._page(replicas.fetchers, node, self._readings) + self._page(replicas.logs, node)
        yield self._page(replicas.cleaner, node)
        yield self._page(audit, self._last_audit, node.audits)
        yield self._page(traffic.transactions, node, self._readings)
        yield self._page(traffic.groups, node) + self._page(traffic.waiting, node)
        yield self._page(clients.client_metrics, broker)
        yield from clients.pushed(Page(node.config.minikafka_metrics_dialects), broker)
        yield from self._requests()
        yield self._page(traffic.topics, node, self._readings, partitions)
        yield from self._in_parts(replicas.LOG_GAUGES, partitions, replicas.log_values)
        yield from self._in_parts(replicas.LEADER_GAUGES, led, replicas.leader_values)
        for name, samples in exporter_families(node, self._label):
            yield self._page(Page.many, name, samples)

    def _page(self, work: Any, *arguments: object) -> bytes:
        page = Page(self._node.config.minikafka_metrics_dialects)
        work(page, *arguments)
        return page.text().encode()

    def _requests(self) -> Iterator[bytes]:
        """Metrics of requests, one phase per step: sorting the quantiles of many APIs takes long."""
        rows = traffic.request_rows(self._node)
        yield self._page(traffic.requests, rows)
        for phase, family in traffic.phases(rows):
            yield self._page(Page.quantiles, phase, family)

    def _label(self, topic: str, index: int) -> str:
        key = (topic, index)
        found = self._labels.get(key)
        if found is None:
            found = self._labels[key] = labels(topic=topic, partition=str(index))
        return found

    def _in_parts(self, names: tuple[str, ...], partitions: list[Partition], values_of: Any) -> Iterator[bytes]:
        """Families with one sample per partition. All their lines are collected in one pass, because the state is read only once."""
        page = Page(self._node.config.minikafka_metrics_dialects)
        heads = [page.heads(name) for name in names]
        rows: list[list[str]] = [[head(*found[0])] if found else [] for found in heads]
        for start in range(0, len(partitions), PARTITIONS_A_STEP):
            for partition in partitions[start : start + PARTITIONS_A_STEP]:
                label = self._label(partition.topic, partition.index)
                for lines, name, value in zip(rows, names, values_of(partition), strict=True):
                    lines.append(f"{name}{label} {value}")
            yield b""
        yield "\n".join(line for lines in rows for line in (*lines, "")).replace("\n\n", "\n").encode()

    def _peer_lines(self) -> Iterator[PeerLines]:
        """All objects that log lines about peers."""
        node = self._node
        for listener in node.listeners.values():
            yield listener.lines
        for dispatcher in (node.controller_dispatcher, None if node.broker is None else node.broker.dispatcher):
            if dispatcher is not None:
                yield dispatcher.lines

    def _state(self, page: Page, state: int) -> None:
        page.one("kafka_server_kafkaserver_brokerstate", state)
        now_ms, cpu_s = self._node.environment.clock.now_ms(), _cpu_s()
        elapsed_s = (now_ms - self._started_ms) / 1000
        idle_s = max(elapsed_s - (cpu_s - self._started_cpu_s), 0.0)
        busy = self._readings.rate("cpu", cpu_s, now_ms)
        idle = min(max(1.0 - busy, 0.0), 1.0)
        page.one("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", idle)
        page.one("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total", int(idle_s * 1e9))
        page.one("kafka_network_socketserver_networkprocessoravgidle_percent", idle)
        page.one("minikafka_start_seconds", self._node.start_took_ms / 1000)
        broker = self._node.broker
        page.one("minikafka_heartbeats_unanswered_total", 0 if broker is None else broker.lifecycle.unanswered)
        page.one("minikafka_heartbeat_silence_seconds", 0 if broker is None else broker.lifecycle.silence_ms / 1000)
        unexpected = {NODE: 0, **self._node.supervisor.unexpected}
        page.many("minikafka_unexpected_exceptions_total", ((labels(ended=kind), count) for kind, count in unexpected.items()))
        left_out: Counter[str] = Counter()
        for source in self._peer_lines():
            left_out += source.left_out
        page.many("minikafka_peer_lines_left_out_total", ((labels(kind=kind), count) for kind, count in left_out.items()))
        page.one("minikafka_request_memory_bytes", self._node.budget.used + self._node.node_budget.used)
        exhausted_total = self._node.budget.exhausted_total + self._node.node_budget.exhausted_total
        page.one("minikafka_request_memory_exhausted_total", exhausted_total)
        watch = self._node.environment.loop_watch
        if watch is not None:
            longest = watch.longest
            what = labels(what=longest.what)
            page.many("minikafka_loop_longest_turn_seconds", [(what, longest.wall_s)])
            page.many("minikafka_loop_longest_turn_cpu_seconds", [(what, longest.cpu_s)])
            page.one("minikafka_loop_stalls_total", watch.stalls)
            page.one("minikafka_loop_stalled_seconds_total", watch.stalled_s)
        read_written = _disk_bytes()
        if read_written is not None:
            page.one("kafka_server_kafkaserver_linux_disk_read_bytes", read_written[0])
            page.one("kafka_server_kafkaserver_linux_disk_write_bytes", read_written[1])


def _cpu_s() -> float:
    """CPU time of the loop's thread, in seconds."""
    used = resource.getrusage(RUSAGE_THREAD)
    return used.ru_utime + used.ru_stime


def _disk_bytes() -> tuple[int, int] | None:
    """(bytes read, bytes written) from /proc/self/io; None if it does not exist."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            found = dict(line.split(": ", 1) for line in file.read().splitlines())
        return int(found["read_bytes"]), int(found["write_bytes"])
    except (OSError, KeyError, ValueError):
        return None
