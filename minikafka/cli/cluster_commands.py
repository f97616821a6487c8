"""`minikafka cluster kill 2`, `cut 3`, `status` and related commands: inject faults into a `cluster up` cluster, and watch it."""

from __future__ import annotations

import sys
from typing import Any

import click

from minikafka.cli.common import EXIT_REFUSED, bootstrap_option, emit, output_option, table


def _ask(bootstrap: str, action: str, nodes: tuple[int, ...] = (), *, wipe: bool = False) -> str:
    from minikafka.cli.cluster_control import ask

    return ask(bootstrap, action, nodes, wipe=wipe)


def _command(name: str, text: str, *, takes_nodes: bool = True) -> click.Command:
    def callback(bootstrap: str, nodes: tuple[int, ...] = (), wipe: bool = False) -> None:
        click.echo(_ask(bootstrap, name, nodes, wipe=wipe))

    function: Any = bootstrap_option(callback)
    if takes_nodes:
        function = click.argument("nodes", type=int, nargs=-1, required=True, metavar="NODE...")(function)
    if name == "start":
        function = click.option("--wipe", is_flag=True, help="Start with an empty disk.")(function)
    return click.command(name, help=text)(function)


@click.command("status")
@bootstrap_option
@click.option("--topic", help="Only partitions of this topic.")
@output_option
def status(bootstrap: str, topic: str | None, output: str) -> None:
    """Show brokers, leaders, epochs and in-sync sets, and what each replica reports: role, leader epoch, log end, high watermark."""
    import json

    found = json.loads(_ask(bootstrap, "status"))
    found["partitions"] = [row for row in found["partitions"] if topic in (None, row["topic"])]
    if topic is not None and not found["partitions"]:
        click.echo(f"error: no running broker has a replica of the topic {topic}", err=True)
        sys.exit(EXIT_REFUSED)
    if output != "table":
        emit([found], output, ["brokers", "partitions"])
        return
    if topic is None:
        click.echo(table(found["brokers"], ["broker", "address", "state", "controller"]))
    nodes = [str(row["broker"]) for row in found["brokers"]]
    rows = [
        {
            "partition": f"{row['topic']}-{row['partition']}", "leader": row["leader"], "epoch": row["leader_epoch"],
            "in_sync": ",".join(map(str, row["isr"])),
            **{f"on_{node}": _words(row["said"][node]) for node in nodes if node in row["said"]},
        }
        for row in found["partitions"]
    ]  # fmt: skip
    click.echo(table(rows, ["partition", "leader", "epoch", "in_sync", *(f"on_{node}" for node in nodes)]), nl=False)


def _words(said: dict[str, Any]) -> str:
    role = {"leader": "leads", "follower": "follows"}.get(said["role"], said["role"])
    return f"{role} in {said['leader_epoch']}, end {said['log_end_offset']}, hw {said['high_watermark']}"


COMMANDS = [
    _command("kill", "Kill brokers of `cluster up` with SIGKILL."),
    _command("stop", "Stop brokers of `cluster up` cleanly: leaderships move away first."),
    _command("start", "Start brokers of `cluster up` that have ended."),
    _command("pause", "Make brokers of `cluster up` hang, with their connections open (SIGSTOP)."),
    _command("resume", "Let paused brokers continue."),
    _command("cut", "Cut brokers of `cluster up` off from the other brokers. Clients still reach all."),
    _command("heal", "Restore all links that were cut.", takes_nodes=False),
    status,
]
