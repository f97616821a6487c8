"""`minikafka health`: check a cluster and name its unhealthy partitions. Made for compose files and CI."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import EXIT_REFUSED, EXIT_UNREACHABLE, emit, run
from minikafka.cli.session import operator_command
from minikafka.counted import counted
from minikafka.net.tasks import within

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance

RETRY_S = 0.2
ATTEMPT_S_MIN = 2.0
#: Time for a fenced broker to accept a connection.
ANSWER_S = 1.0


@operator_command("health")
@click.option("--exit-when-healthy", "-e", is_flag=True, help="Wait until the cluster is healthy; combine with --timeout.")
@click.option("--watch", "-w", is_flag=True, help="Print the state again whenever it changes, until interrupted.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), default=None, help="Seconds to wait [default: 5; with -e: unlimited].")
@click.option("--brokers", type=click.IntRange(1), help="Number of brokers that must be running.")
def health(
    bootstrap: str, exit_when_healthy: bool, watch: bool, timeout_s: float | None, brokers: int | None, output: str, traceback: bool
) -> None:
    """Show the controller, the brokers, and leaderless and under-replicated partitions.

    Exit status: 0 healthy, 1 not healthy, 3 the cluster cannot be reached."""
    limit = timeout_s if timeout_s is not None else (None if exit_when_healthy or watch else 5.0)
    sys.exit(run(lambda: _watch(bootstrap, exit_when_healthy, watch, limit, brokers, output), traceback=traceback))


async def _watch(bootstrap: str, until_healthy: bool, watch: bool, limit_s: float | None, brokers: int | None, output: str) -> int:
    from minikafka.client.errors import ClientError
    from minikafka.client.maintenance import Maintenance

    deadline = None if limit_s is None else time.monotonic() + limit_s
    shown: Any = None
    while True:
        # Give the last attempt some extra time: a slightly late answer is better than none.
        left = 5.0 if deadline is None else max(deadline - time.monotonic(), ATTEMPT_S_MIN)
        admin = Maintenance(bootstrap, client_id="minikafka-health", timeout_ms=int(left * 1000))
        report: dict[str, Any]
        try:
            report = await within(left, examine(admin, brokers))
            status = 0 if report["healthy"] else EXIT_REFUSED
        except (ClientError, OSError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            report, status = {"healthy": False, "reasons": [f"the cluster cannot be reached: {reason}"]}, EXIT_UNREACHABLE
        finally:
            await admin.close()
        is_last = not watch and (not until_healthy or status == 0)
        is_late = deadline is not None and time.monotonic() >= deadline
        if (is_last or is_late or watch) and report != shown:
            _show(report, output)
            shown = report
        if is_last or is_late:
            return status
        await asyncio.sleep(RETRY_S)


async def examine(admin: Maintenance, expected_brokers: int | None = None) -> dict[str, Any]:
    """The state of a cluster: `healthy`, `reasons` (what is wrong), and the facts behind them. Raises ClientError, OSError."""
    response = await admin.cluster.refresh(None)
    fenced, silent = await _out_of_service(admin)
    # Brokers list one that was fenced a moment ago, for clients' sake.
    alive = sorted(set(admin.cluster.brokers) - {*fenced, *silent})
    node_ids, leaderless, under, offline = {*alive, *silent}, [], [], []
    for topic in response.topics:
        for p in topic.partitions:
            key = (topic.name or "", p.partition_index)
            node_ids.update(p.replica_nodes)
            if p.leader_id < 0:
                leaderless.append(key)
            if len(p.isr_nodes) < len(p.replica_nodes):
                under.append(key)
            if p.offline_replicas:
                offline.append(key)
    down = sorted(node_ids - set(alive) - set(fenced))
    controller = response.controller_id
    reasons = []
    if controller < 0:
        reasons.append("no controller is known")
    if down:
        reasons.append(f"brokers down: {', '.join(map(str, down))}")
    if fenced:
        names = ", ".join(map(str, fenced))
        reasons.append(f"brokers fenced although they answer: {names} (the controller receives no heartbeats from them)")
    if expected_brokers is not None and len(alive) < expected_brokers:
        reasons.append(f"only {len(alive)} of {counted(expected_brokers, 'broker')} running")
    if leaderless:
        reasons.append(f"leaderless partitions: {len(leaderless)}")
    if under:
        reasons.append(f"under-replicated partitions: {len(under)}")
    return {
        "healthy": not reasons,
        "reasons": reasons,
        "cluster_id": admin.cluster.cluster_id,
        "controller_id": controller,
        "brokers": alive,
        "brokers_down": down,
        "brokers_fenced": fenced,
        "leaderless_partitions": [f"{t}-{p}" for t, p in sorted(leaderless)],
        "under_replicated_partitions": [f"{t}-{p}" for t, p in sorted(under)],
        "partitions_with_offline_replicas": [f"{t}-{p}" for t, p in sorted(offline)],
    }


async def _out_of_service(admin: Maintenance) -> tuple[list[int], list[int]]:
    """Fenced brokers: those that accept connections (their processes run, but they serve no partitions), and those that do not."""
    from minikafka.client.errors import ClientError

    try:
        nodes = (await admin.describe_nodes(include_fenced=True)).brokers
    except ClientError:
        return [], []
    fenced = [node for node in nodes if getattr(node, "is_fenced", False)]  # not before KIP-1073
    answers = await asyncio.gather(*(_answers(admin, node.host, node.port) for node in fenced))
    alive = {node.broker_id for node, answered in zip(fenced, answers, strict=True) if answered}
    return sorted(alive), sorted({node.broker_id for node in fenced} - alive)


async def _answers(admin: Maintenance, host: str, port: int) -> bool:
    try:
        await within(ANSWER_S, admin.cluster.channel_at(host, port, "health"))
    except (OSError, TimeoutError):
        return False
    return True


def _show(report: dict[str, Any], output: str) -> None:
    if output != "table":
        emit([report], output, list(report))
        return
    lines: list[tuple[str, Any]] = [("Healthy", str(report["healthy"]).lower()), ("Unhealthy reasons", ", ".join(report["reasons"]) or "-")]
    if "brokers" in report:
        lines += [
            ("Cluster ID", report["cluster_id"]),
            ("Controller ID", report["controller_id"]),
            ("All nodes", ", ".join(map(str, report["brokers"]))),
            ("Nodes down", ", ".join(map(str, report["brokers_down"])) or "-"),
        ]
        for title, key in (
            ("Leaderless partitions", "leaderless_partitions"),
            ("Under-replicated partitions", "under_replicated_partitions"),
        ):
            lines.append((f"{title} ({len(report[key])})", ", ".join(report[key]) or "-"))
    width = max(len(title) for title, _ in lines) + 2
    for title, value in lines:
        click.echo(f"{title + ':':<{width}}{value}")
