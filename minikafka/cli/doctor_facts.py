"""Collects the facts for `minikafka doctor`: health, configurations, groups, disks, clocks. Requests without an answer are left out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from minikafka.addresses import host_port
from minikafka.cli import doctor_cluster as judge
from minikafka.cli.doctor_findings import Finding
from minikafka.counted import counted

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance

#: Only this many topics are examined; a finding says so if there are more.
TOPICS_MAX, GROUPS_MAX = 200, 50
AT_ONCE = 10
TOPIC, BROKER = 2, 4
TOPIC_PROPERTIES = ["min.insync.replicas", "unclean.leader.election.enable"]
LOOPBACK = ("localhost", "127.", "::1")


async def examine(admin: Maintenance, bootstrap: list[str]) -> list[Finding]:
    """Findings about the cluster itself, as opposed to its listeners."""
    findings, count = await _health(admin)
    brokers = dict(admin.cluster.brokers)
    findings += judge.addresses({node_id: (b.host, b.port) for node_id, b in brokers.items()})
    findings += judge.cluster_ids(await _cluster_ids([*bootstrap, *(host_port(b.host, b.port) for b in brokers.values())]))
    findings += await _topics(admin, count)
    names = await _answer(admin.list_topics()) or []
    for node_id in sorted(brokers):
        configs = {c.name: c.value for c in await _answer(admin.describe_configs(BROKER, str(node_id))) or []}
        findings += judge.broker_configs(node_id, configs, count, names)
    findings += await _groups(admin)
    findings += await _disks(admin)
    findings.append(await _clock(admin))
    if any(broker.host.startswith(LOOPBACK) for broker in brokers.values()):
        findings += judge.descriptors(_descriptors())
    return findings


async def _answer(asked: Awaitable[Any]) -> Any:
    """The answer, or None if there is none or the request is not authorized."""
    from minikafka.client.errors import ClientError

    try:
        return await asked
    except (ClientError, OSError, TimeoutError):
        return None


async def _health(admin: Maintenance) -> tuple[list[Finding], int]:
    """Findings, and the number of brokers that the cluster has, those that are down included."""
    from minikafka.cli.health import examine as examine_health

    report = await examine_health(admin)
    findings = []
    if report["controller_id"] < 0:
        text = "A majority of the controllers must run: see controller.quorum.voters."
        findings.append(Finding("controller", "error", "the cluster has no active controller", text))
    else:
        findings.append(Finding("controller", "ok", f"reachable through broker {report['controller_id']}"))
    findings += judge.out_of_service(report["brokers_down"], report["brokers_fenced"])
    findings += await _versions(admin, report["brokers"])
    for title, key, state, advice in (
        ("leaderless partitions", "leaderless_partitions", "error", "Their in-sync replicas are down: start those brokers."),
        ("under-replicated partitions", "under_replicated_partitions", "warning",
         "Replicas lag or brokers are down: minikafka top shows which."),
    ):  # fmt: skip
        rows = report[key]
        findings.append(Finding(title, state, ", ".join(rows[:10]), advice) if rows else Finding(title, "ok", "none"))
    return findings, sum(len(report[key]) for key in ("brokers", "brokers_down", "brokers_fenced"))


async def _versions(admin: Maintenance, brokers: list[int]) -> list[Finding]:
    """API versions that brokers serve, and how long each broker takes to answer."""
    findings: list[Finding] = []
    views = {}
    for node_id in brokers:
        begun = time.monotonic()
        response = await _answer(admin.api_versions(node_id))
        if response is not None:
            views[node_id] = tuple((e.api_key, e.min_version, e.max_version) for e in response.api_keys)
            findings += judge.round_trip(node_id, round((time.monotonic() - begun) * 1000))
    if len(set(views.values())) > 1:
        advice = "Fine during an upgrade; finish it before raising features."
        return [*findings, Finding("versions", "warning", "brokers serve different versions of APIs", advice)]
    return [*findings, Finding("versions", "ok", f"the same APIs on {counted(len(views), 'broker')}")] if views else findings


async def _cluster_ids(addresses: list[str]) -> dict[str, str]:
    from minikafka.client.admin import Admin

    async def ask(address: str) -> str | None:
        async with Admin(address, client_id="minikafka-doctor", timeout_ms=3000) as one:
            return one.cluster.cluster_id

    unique = sorted(set(addresses))
    found = await asyncio.gather(*(_answer(ask(address)) for address in unique))
    return {address: cluster for address, cluster in zip(unique, found, strict=True) if cluster}


async def _topics(admin: Maintenance, brokers: int) -> list[Finding]:
    described = (await _answer(admin.describe_topics()) or [])[:TOPICS_MAX]
    gate = asyncio.Semaphore(AT_ONCE)

    async def look(topic: Any) -> judge.Topic:
        async with gate:
            entries = await _answer(admin.describe_configs(TOPIC, topic.name, TOPIC_PROPERTIES)) or []
        replicas, isr = tuple(tuple(p.replicas) for p in topic.partitions), tuple(tuple(p.isr) for p in topic.partitions)
        return judge.Topic(topic.name, replicas, isr, {entry.name: entry.value for entry in entries})

    findings = judge.topics(await asyncio.gather(*(look(topic) for topic in described)), brokers)
    if len(described) == TOPICS_MAX:
        findings.append(Finding("topics", "ok", f"only the first {TOPICS_MAX} were examined"))
    return findings


async def _groups(admin: Maintenance) -> list[Finding]:
    findings: list[Finding] = []
    for name, kind, _ in (await _answer(admin.list_groups()) or [])[:GROUPS_MAX]:
        found = await _answer(admin.describe_group(name)) if kind in ("consumer", "") else None
        if found is not None:
            assigned = sum(len(indexes) for member in found.members for indexes in member.assignment.values())
            findings += judge.group(name, found.state, len(found.members), assigned)
    return findings


async def _disks(admin: Maintenance) -> list[Finding]:
    from minikafka.wire.errors import ErrorCode

    findings: list[Finding] = []
    for node_id, answer in sorted((await _answer(admin.describe_log_dirs()) or {}).items()):
        for result in answer.results:
            error = ErrorCode(result.error_code).name if result.error_code else ""
            findings += judge.disk(node_id, result.log_dir, result.total_bytes, result.usable_bytes, error)
    return findings


async def _clock(admin: Maintenance) -> Finding:
    """Compare this machine's clock with the quorum leader's, whose DescribeQuorum answer holds its time."""
    response = await _answer(admin.describe_quorum())
    if response is None:
        return Finding("clocks", "warning", "cannot be compared: the quorum does not answer")
    partition = response.topics[0].partitions[0]
    leader = next((r for r in partition.current_voters if r.replica_id == partition.leader_id), None)
    if leader is None or leader.last_fetch_timestamp <= 0:
        return Finding("clocks", "ok", "cannot be compared: the quorum does not report its time")
    return judge.clock(time.time_ns() // 1_000_000 - leader.last_fetch_timestamp)


def _descriptors() -> int:
    """This machine's hard limit of open files; -1 if there is none."""
    try:
        import resource
    except ImportError:
        return -1
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]
