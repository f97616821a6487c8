"""`minikafka doctor`: dial every address that a cluster advertises, and say what is wrong and what to do."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minikafka.cli.common import EXIT_REFUSED, EXIT_UNREACHABLE, emit, run
from minikafka.cli.session import operator_command

if TYPE_CHECKING:
    from minikafka.client.cluster import BrokerInfo
    from minikafka.client.maintenance import Maintenance

DIAL_TIMEOUT_S = 3.0
CLOCK_SKEW_MS_MAX = 5000


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: `state` is ok, warning or error; `advice` is what to do."""

    check: str
    state: str
    text: str
    advice: str = ""


@operator_command("doctor")
def doctor(bootstrap: str, output: str, traceback: bool) -> None:
    """Resolve and dial every advertised listener, compare what the brokers say, and explain. Exit status 1 when something is wrong, 3
    when nothing answers."""
    findings: list[Finding] = run(lambda: _examine(bootstrap), traceback=traceback)
    if output != "table":
        rows = [{"check": f.check, "state": f.state, "text": f.text, "advice": f.advice} for f in findings]
        emit(rows, output, ["check", "state", "text", "advice"])
    else:
        _show(findings)
    if all(f.check == "bootstrap" for f in findings):
        sys.exit(EXIT_UNREACHABLE)
    sys.exit(EXIT_REFUSED if any(f.state == "error" for f in findings) else 0)


def _show(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    marks = {"ok": "[green]ok     [/]", "warning": "[yellow]warning[/]", "error": "[bold red]error  [/]"}
    for f in findings:
        console.print(f"{marks[f.state]} {escape(f.check)}: {escape(f.text)}")
        if f.advice:
            console.print(f"        {escape(f.advice)}")


async def _examine(bootstrap: str) -> list[Finding]:
    from minikafka.client.cluster import parse_bootstrap
    from minikafka.client.maintenance import Maintenance

    findings: list[Finding] = []
    reached: list[tuple[str, int]] = []
    for host, port in parse_bootstrap(bootstrap):
        problem = await _dial(host, port)
        if problem is None:
            reached.append((host, port))
            findings.append(Finding("bootstrap", "ok", f"{host}:{port} answers"))
        else:
            findings.append(Finding("bootstrap", "error" if not reached else "warning", f"{host}:{port}: {problem[0]}", problem[1]))
    if not reached:
        return findings
    findings = [Finding(f.check, "warning", f.text, f.advice) if f.state == "error" else f for f in findings]
    async with Maintenance(",".join(f"{host}:{port}" for host, port in reached), client_id="minikafka-doctor", timeout_ms=5000) as admin:
        for broker in sorted(admin.cluster.brokers.values(), key=lambda b: b.node_id):
            findings += await _broker(broker, reached)
        findings += await _cluster(admin)
    return findings


async def _dial(host: str, port: int) -> tuple[str, str] | None:
    """What is wrong with an address, and what to do; None when a broker answers there."""
    from minikafka.cli.connection import properties_in_use
    from minikafka.client.cluster import client_security
    from minikafka.net.channel import Channel
    from minikafka.net.network import AuthenticationFailed
    from minikafka.net.server import SocketNetwork
    from minikafka.wire.errors import WireError

    loop = asyncio.get_running_loop()
    try:
        await asyncio.wait_for(loop.getaddrinfo(host, port, type=socket.SOCK_STREAM), DIAL_TIMEOUT_S)
    except (OSError, TimeoutError):
        return (
            "the name cannot be resolved",
            "Use a name that this machine knows: advertised.listeners must hold what clients can resolve, not a container's own name.",
        )
    try:
        channel = await Channel.open(
            SocketNetwork(loop),
            host,
            port,
            client_id="minikafka-doctor",
            timeout_ms=int(DIAL_TIMEOUT_S * 1000),
            security=client_security(properties_in_use()),
        )
    except ConnectionRefusedError:
        return "the connection is refused", "Nobody listens there: is the broker running, and is this port published by its container?"
    except TimeoutError:
        return (
            "no answer",
            "The connection opens into nothing, or what listens does not speak Kafka: a firewall, a TLS listener, another program?",
        )
    except AuthenticationFailed as error:
        return str(error), "Compare security.protocol, ssl.* and sasl.* of --command-config (or -X) with what the listener wants."
    except (OSError, WireError) as error:
        return (
            f"the connection breaks ({error})",
            "What listens closed the connection: a TLS or SASL listener takes no plain text (-X), a controller's no clients.",
        )
    channel.close()
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


async def _broker(broker: BrokerInfo, bootstrap: list[tuple[str, int]]) -> list[Finding]:
    where = f"{broker.host}:{broker.port}"
    check = f"broker {broker.node_id} advertises {where}"
    if broker.host in ("0.0.0.0", "::", ""):
        return [Finding(check, "error", "this is no address", "Set advertised.listeners to a host that clients can reach.")]
    problem = await _dial(broker.host, broker.port)
    if problem is not None:
        return [Finding(check, "error", problem[0], problem[1])]
    if _is_loopback(broker.host) and not all(_is_loopback(host) for host, _ in bootstrap):
        return [
            Finding(
                check, "error", "it answers, but on this machine's own loopback: perhaps another broker",
                "You asked a remote broker and it sends clients to localhost: set advertised.listeners to its address.",
            )
        ]  # fmt: skip
    if _is_loopback(broker.host):
        return [Finding(check, "ok", "answers; only programs on this machine can use this address")]
    return [Finding(check, "ok", "answers")]


async def _cluster(admin: Maintenance) -> list[Finding]:
    from minikafka.cli.health import examine
    from minikafka.client.errors import ClientError

    report = await examine(admin)
    findings = []
    if report["controller_id"] < 0:
        findings.append(
            Finding("controller", "error", "none is known", "A majority of the controllers must run: see controller.quorum.voters.")
        )
    else:
        findings.append(Finding("controller", "ok", f"broker {report['controller_id']} speaks for it"))
    views: dict[int, Any] = {}
    for node_id in report["brokers"]:
        try:
            response = await admin.api_versions(node_id)
            views[node_id] = tuple((e.api_key, e.min_version, e.max_version) for e in response.api_keys)
        except (ClientError, OSError, TimeoutError):
            continue
    if len(set(views.values())) > 1:
        findings.append(
            Finding(
                "versions",
                "warning",
                "brokers serve different versions of APIs",
                "Fine during an upgrade; finish it before raising features.",
            )
        )
    elif views:
        findings.append(Finding("versions", "ok", f"all {len(views)} brokers serve the same APIs"))
    for title, key, advice in (
        ("leaderless partitions", "leaderless_partitions", "Their in-sync replicas are down: start those brokers."),
        ("under-replicated partitions", "under_replicated_partitions", "Replicas lag or brokers are down: minikafka top shows which."),
    ):  # fmt: skip
        rows = report[key]
        if rows:
            findings.append(Finding(title, "error" if key.startswith("leaderless") else "warning", ", ".join(rows[:10]), advice))
        else:
            findings.append(Finding(title, "ok", "none"))
    findings.append(await _clock(admin))
    return findings


async def _clock(admin: Maintenance) -> Finding:
    """The quorum's leader tells its time when it describes itself."""
    from minikafka.client.errors import ClientError

    try:
        partition = (await admin.describe_quorum()).topics[0].partitions[0]
    except (ClientError, OSError, TimeoutError) as error:
        return Finding("clocks", "warning", f"cannot be compared: {error}")
    leader = next((r for r in partition.current_voters if r.replica_id == partition.leader_id), None)
    if leader is None or leader.last_fetch_timestamp <= 0:
        return Finding("clocks", "ok", "the quorum does not tell its time")
    skew_ms = time.time_ns() // 1_000_000 - leader.last_fetch_timestamp
    if abs(skew_ms) > CLOCK_SKEW_MS_MAX:
        return Finding(
            "clocks",
            "warning",
            f"the controller's clock is {skew_ms} ms from this machine's",
            "Timestamps and retention will surprise: run NTP.",
        )
    return Finding("clocks", "ok", f"the controller's clock is within {max(abs(skew_ms), 1)} ms of this machine's")
