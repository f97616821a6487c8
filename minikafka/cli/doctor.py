"""`minikafka doctor`: connect to every address that a cluster advertises, and report what is wrong and how to fix it."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from minikafka.addresses import host_port
from minikafka.cli.common import EXIT_REFUSED, EXIT_UNREACHABLE, emit, run
from minikafka.cli.doctor_findings import Finding, mismatch, refusal_advice
from minikafka.cli.session import operator_command
from minikafka.net.tasks import within

if TYPE_CHECKING:
    from minikafka.client.cluster import BrokerInfo

DIAL_TIMEOUT_S = 3.0


@operator_command("doctor")
def doctor(bootstrap: str, output: str, traceback: bool) -> None:
    """Find common mistakes in listeners, TLS and SASL, replication, groups, disks and clocks, and explain how to fix them.

    Exit status: 0 nothing is wrong, 1 something is wrong, 3 nothing answers."""
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
    labels = {"ok": "[green]ok     [/]", "warning": "[yellow]warning[/]", "error": "[bold red]error  [/]"}
    for f in findings:
        console.print(f"{labels[f.state]} {escape(f.check)}: {escape(f.text)}")
        if f.advice:
            console.print(f"        {escape(f.advice)}")


async def _examine(bootstrap: str) -> list[Finding]:
    from minikafka.cli import doctor_facts
    from minikafka.client.cluster import parse_bootstrap
    from minikafka.client.maintenance import Maintenance

    findings: list[Finding] = []
    reached: list[tuple[str, int]] = []
    for host, port in parse_bootstrap(bootstrap):
        where, problem = host_port(host, port), await _dial(host, port)
        if problem is None:
            reached.append((host, port))
            findings.append(Finding("bootstrap", "ok", f"{where} answers"))
        else:
            findings.append(Finding("bootstrap", "error" if not reached else "warning", f"{where}: {problem[0]}", problem[1]))
    if not reached:
        return findings
    findings = [Finding(f.check, "warning", f.text, f.advice) if f.state == "error" else f for f in findings]
    servers = [host_port(host, port) for host, port in reached]
    async with Maintenance(",".join(servers), client_id="minikafka-doctor", timeout_ms=5000) as admin:
        for broker in sorted(admin.cluster.brokers.values(), key=lambda b: b.node_id):
            findings += await _broker(broker, reached)
        findings += await doctor_facts.examine(admin, servers)
    return findings


async def _dial(host: str, port: int) -> tuple[str, str] | None:
    """What is wrong with an address, and how to fix it; None if a broker answers there."""
    from minikafka.cli.connection import properties_in_use
    from minikafka.client.cluster import client_security
    from minikafka.net.channel import Channel
    from minikafka.net.network import AuthenticationFailed
    from minikafka.net.server import SocketNetwork
    from minikafka.wire.errors import WireError

    loop = asyncio.get_running_loop()
    try:
        await within(DIAL_TIMEOUT_S, loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (OSError, TimeoutError):
        return "the name cannot be resolved", _unresolved(host)
    properties = properties_in_use()
    try:
        channel = await Channel.open(
            SocketNetwork(loop),
            host,
            port,
            client_id="minikafka-doctor",
            timeout_ms=int(DIAL_TIMEOUT_S * 1000),
            security=client_security(properties),
        )
    except ConnectionRefusedError:
        return "the connection is refused", "Nothing listens there. Is the broker running? Does its container publish this port?"
    except AuthenticationFailed as error:
        text = str(error).removeprefix(f"{host_port(host, port)}: ")
        return await _mismatch(host, port, properties) or (text, refusal_advice(text))
    except TimeoutError:
        return await _mismatch(host, port, properties) or (
            "no answer", "A firewall drops the packets, or a program that does not speak Kafka's protocol listens there."
        )  # fmt: skip
    except (OSError, WireError) as error:
        advice = refusal_advice(str(error), "The other side closes the connection. Is it a Kafka broker?")
        return await _mismatch(host, port, properties) or (f"the connection breaks ({error})", advice)
    channel.close()
    # A SASL listener answers ApiVersions before authentication.
    return None if properties.get("sasl.mechanism") else await _mismatch(host, port, properties)


async def _mismatch(host: str, port: int, properties: Mapping[str, str]) -> tuple[str, str] | None:
    from minikafka.cli.doctor_listener import listen_at

    try:
        return mismatch(await listen_at(host, port), properties)
    except (OSError, TimeoutError):
        return None


def _unresolved(host: str) -> str:
    if "." not in host:
        return (
            f"{host} looks like a container's name, which resolves only in the container's network: add a listener for outside "
            "clients, and advertise it as localhost or as this machine's name."
        )
    return "Use a name that this machine can resolve: advertised.listeners must hold names that clients can resolve."


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_here(host: str) -> bool:
    """Whether a host is this machine, under any of its names and addresses: only its own can be listened on."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
    except OSError:
        return False
    return True


async def _broker(broker: BrokerInfo, bootstrap: list[tuple[str, int]]) -> list[Finding]:
    where = host_port(broker.host, broker.port)
    check = f"broker {broker.node_id} advertises {where}"
    if broker.host in ("0.0.0.0", "::", ""):
        return [Finding(check, "error", "this is not an address", "Set advertised.listeners to a host that clients can reach.")]
    problem = await _dial(broker.host, broker.port)
    if problem is not None:
        return [Finding(check, "error", problem[0], problem[1])]
    if _is_loopback(broker.host) and not await asyncio.to_thread(lambda: all(_is_here(host) for host, _ in bootstrap)):
        return [
            Finding(
                check, "error", "it answers, but on this machine's own loopback: perhaps it is another broker",
                "The broker is remote but sends clients to localhost: set advertised.listeners to its address.",
            )
        ]  # fmt: skip
    if _is_loopback(broker.host):
        return [Finding(check, "ok", "answers; only programs on this machine can use this address")]
    return [Finding(check, "ok", "answers")]
