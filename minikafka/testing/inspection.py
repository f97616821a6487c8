"""Inspects a cluster: questions to one broker, a description of all of them, an audit of their logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.addresses import split_host_port
from minikafka.testing.errors import ClusterError
from minikafka.testing.probe import exchange, metadata
from minikafka.wire.errors import WireError
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest

if TYPE_CHECKING:
    from pathlib import Path

    from minikafka.security.client import ClientSecurity
    from minikafka.testing.broker_handle import BrokerHandle

PROBE_TIMEOUT_S = 2.0
COORDINATOR_VERSION = 3
PROBE_GROUP = "minikafka-is-ready"
FINDINGS_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition in one broker's metadata; leader -1 = none."""

    topic: str
    index: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    partition_epoch: int


def brokers_of(address: str, security: ClientSecurity | None = None) -> set[int]:
    """Node ids of the live brokers in a broker's metadata."""
    return {broker.node_id for broker in metadata(*split_host_port(address), [], PROBE_TIMEOUT_S, security).brokers}


def has_coordinator(address: str, security: ClientSecurity | None = None) -> bool:
    """Whether a group's coordinator can be found, which means that __consumer_offsets exists and has a leader."""
    request = FindCoordinatorRequest(key=PROBE_GROUP, key_type=0)
    answer: Any = exchange(*split_host_port(address), request, COORDINATOR_VERSION, PROBE_TIMEOUT_S, security)
    return not answer.error_code


def topic_of(address: str, name: str, security: ClientSecurity | None = None) -> Any | None:
    """The topic in a broker's metadata, or None."""
    found = metadata(*split_host_port(address), [name], PROBE_TIMEOUT_S, security).topics
    return found[0] if found and not found[0].error_code else None


def is_healthy(address: str, names: list[str] | None, security: ClientSecurity | None = None) -> bool:
    """Whether every partition has a leader and all its replicas in sync."""
    topics = metadata(*split_host_port(address), names, PROBE_TIMEOUT_S, security).topics
    return all(
        not topic.error_code
        and topic.partitions
        and all(p.leader_id >= 0 and len(p.isr_nodes) == len(p.replica_nodes) for p in topic.partitions)
        for topic in topics
    )


def client_config(bootstrap: str, client: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that connect a client of this kind, and `more`. Raises ValueError for an unknown kind."""
    if client in ("confluent", "java", "minikafka"):
        base: dict[str, Any] = {"bootstrap.servers": bootstrap}
    elif client == "aiokafka":
        base = {"bootstrap_servers": bootstrap}
    elif client == "kafka-python":
        base = {"bootstrap_servers": bootstrap.split(",")}
    elif client == "spark":
        base = {"kafka.bootstrap.servers": bootstrap}
    else:
        raise ValueError(f"client={client}: must be confluent, aiokafka, kafka-python, java, minikafka or spark")
    return {**base, **more}


def parse_metrics(text: str) -> dict[str, float]:
    """The samples of a text exposition: name{labels} -> value."""
    samples = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


class Cluster(Protocol):
    """The part of EmbeddedCluster that is inspected."""

    @property
    def cluster_id(self) -> str: ...

    @property
    def mode(self) -> str: ...

    @property
    def directory(self) -> Path: ...

    @property
    def brokers(self) -> Sequence[BrokerHandle]: ...

    @property
    def client_security(self) -> ClientSecurity | None: ...


def describe(cluster: Cluster) -> str:
    """Brokers, partitions and replicas, one line each."""
    lines = [f"cluster {cluster.cluster_id} ({cluster.mode} mode), {cluster.directory}"]
    alive = []
    for broker in cluster.brokers:
        state = "paused" if broker.paused else "running" if broker.running else "ended"
        lines.append(f"  broker {broker.node_id} {broker.address} {state}{' controller' if broker.is_controller else ''}")
        if state == "running":
            alive.append(broker)
    offsets: dict[tuple[str, int], list[str]] = {}
    for broker in alive:
        try:
            for row in broker.ask("replicas"):
                text = f"{broker.node_id}:{row['log_start_offset']}..{row['high_watermark']}..{row['log_end_offset']}"
                offsets.setdefault((row["topic"], row["partition"]), []).append(text)
        except ClusterError as error:
            lines.append(f"  {error}")
    for broker in alive:
        try:
            topics = metadata(*split_host_port(broker.address), None, PROBE_TIMEOUT_S, cluster.client_security).topics
        except (OSError, WireError) as error:
            lines.append(f"  broker {broker.node_id} does not answer: {error}")
            continue
        for topic in topics:
            for p in sorted(topic.partitions, key=lambda entry: entry.partition_index):
                logs = " ".join(offsets.get((topic.name or "", p.partition_index), []))
                lines.append(
                    f"  {topic.name}-{p.partition_index} leader {p.leader_id} epoch {p.leader_epoch} replicas {p.replica_nodes}"
                    f" isr {p.isr_nodes} start..hw..end {logs}"
                )
        break
    return "\n".join(lines)


def audit(cluster: Cluster, topics: list[str], *, raise_on_mismatch: bool) -> Any:
    """Audit the log directories of every broker. Raises ClusterError if the outcome is FAIL, or INCOMPLETE although there are records."""
    from minikafka.spark.audit import UNPROVEN, AuditOptions, run_audit
    from minikafka.spark.engine_local import LocalEngine
    from minikafka.spark.report import build, one_line

    options = AuditOptions(tuple(topics), self_check=len(cluster.brokers) == 1)
    result = run_audit([str(broker.log_dir) for broker in cluster.brokers], LocalEngine(1), options)
    unproven = result.outcome == "INCOMPLETE" and (
        result.findings.total("error") > 0 or any(one.verdict in UNPROVEN for one in result.partitions)
    )
    if raise_on_mismatch and (result.outcome == "FAIL" or unproven):
        report = build(result, [])
        shown = [f"{f['level']} {f['check']}: {f['message']}" for f in report["findings"][:FINDINGS_SHOWN_MAX]]
        raise ClusterError("\n".join([one_line(report), *shown, describe(cluster)]))
    return result
