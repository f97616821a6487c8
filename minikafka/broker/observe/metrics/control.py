"""The metadata quorum and the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.broker.measures.request_times import QUANTILES
from minikafka.broker.quorum.raft_figures import state_of, vote_of

if TYPE_CHECKING:
    from minikafka.broker.observe.metrics.exposition import Page
    from minikafka.broker.observe.observed import ObservedNode


def quorum(page: Page, node: ObservedNode) -> None:
    """Metrics of `__cluster_metadata`, which every node has."""
    raft, figures, now_ms = node.raft, node.raft.figures, node.environment.clock.now_ms()
    prefix = "kafka_server_raftmetrics"
    values: dict[str, float] = {
        "current_leader": -1 if raft.leader_id is None else raft.leader_id,
        "current_vote": vote_of(raft.quorum),
        "current_epoch": raft.leader_epoch,
        "high_watermark": raft.high_watermark,
        "log_end_offset": raft.log_end_offset,
        "append_records_rate": figures.appended.rate(now_ms),
        "fetch_records_rate": figures.fetched.rate(now_ms),
        "commit_latency_avg": figures.commit_latency.average(now_ms),
        "commit_latency_max": figures.commit_latency.largest(now_ms),
        "election_latency_avg": figures.election_latency.average(now_ms),
        "election_latency_max": figures.election_latency.largest(now_ms),
        "number_of_voters": len(raft.quorum.voters.node_ids),
    }
    for name, value in values.items():
        page.one(f"{prefix}_{name}", value)
    page.labelled(f"{prefix}_current_state", [({"current_state": state_of(raft.quorum)}, 1)])
    received, sent = raft.peers.carried
    for name, value in (
        ("incoming_byte", received), ("outgoing_byte", sent), ("request", raft.peers.requests), ("response", raft.peers.responses),
    ):  # fmt: skip
        page.one(f"kafka_server_raftchannelmetrics_{name}_total", value)
    prefix = "kafka_server_brokermetadatametrics"
    page.one(f"{prefix}_last_applied_record_offset", node.metadata.offset)
    page.one(f"{prefix}_last_applied_record_lag_ms", node.metadata.lag_ms(now_ms))
    page.one(f"{prefix}_metadata_apply_error_count", node.metadata.apply_errors)


def authorization(page: Page, node: ObservedNode) -> None:
    """The authorizer's decisions; nothing without an authorizer."""
    authority = node.authority
    page.one("minikafka_acls", 0 if authority is None else authority.acls.count)
    page.one("minikafka_authorizations_allowed_total", 0 if authority is None else authority.allowed)
    page.one("minikafka_authorizations_denied_total", 0 if authority is None else authority.denied)


def controller(page: Page, node: ObservedNode) -> None:
    """Metrics of the controller. A broker without one reports that it is not active."""
    prefix, host = "kafka_controller_kafkacontroller", node.controller
    is_active = host is not None and host.is_active
    page.one(f"{prefix}_activecontrollercount", is_active)
    if host is None:
        return
    image = node.metadata.image
    partitions = [p for topic in image.topics_by_name.values() for p in topic.partitions.values()] if is_active else []
    brokers = list(image.brokers.values()) if is_active else []
    values: dict[str, float] = {
        "globaltopiccount": len(image.topics_by_name) if is_active else 0,
        "globalpartitioncount": len(partitions),
        "offlinepartitionscount": sum(p.leader < 0 for p in partitions),
        "preferredreplicaimbalancecount": sum(p.leader != p.replicas[0] for p in partitions),
        "activebrokercount": sum(not b.fenced for b in brokers),
        "fencedbrokercount": sum(b.fenced for b in brokers),
        "metadataerrorcount": node.metadata.apply_errors,
        "lastappliedrecordoffset": node.metadata.offset,
        "lastcommittedrecordoffset": node.raft.high_watermark - 1,
        "lastappliedrecordlagms": node.metadata.lag_ms(node.environment.clock.now_ms()),
        "newactivecontrollerscount": host.activations,
    }
    for name, value in values.items():
        page.one(f"{prefix}_{name}", value)
    page.one("kafka_controller_controllerstats_uncleanleaderelections_total", node.timeline.unclean_elections)
    prefix, names = "kafka_controller_controllereventmanager", [name for name, _ in QUANTILES]
    for name, measured in (("eventqueuetimems", host.waits), ("eventqueueprocessingtimems", host.decisions)):
        page.quantiles(f"{prefix}_{name}", [({}, zip(names, measured.quantiles(), strict=True), measured.count)])
