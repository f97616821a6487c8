"""`minikafka cluster`: the subcommands of kafka-cluster.sh, and `cluster up` with the commands that control its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import (
    CommandGroup,
    bootstrap_controller_option,
    bootstrap_option,
    command_config_option,
    emit,
    older_config_option,
    output_option,
    traceback_option,
)
from minikafka.cli.session import with_admin

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance

ENDPOINT_TYPES = {1: "broker", 2: "controller"}
COLUMNS = ["id", "host", "port", "rack", "state", "endpoint_type"]


@click.group("cluster", cls=CommandGroup)
def cluster() -> None:
    """Start a cluster on this machine (`cluster up`), control it, or inspect a running one."""


@cluster.command("cluster-id")
@bootstrap_controller_option
@bootstrap_option
@command_config_option
@older_config_option
@output_option
@traceback_option
def cluster_id(bootstrap: str, output: str, traceback: bool) -> None:
    """Show the cluster's id."""

    async def work(admin: Maintenance) -> None:
        await admin.cluster.refresh([])
        if output == "table":
            click.echo(f"Cluster ID: {admin.cluster.cluster_id}")
        else:
            emit([{"cluster_id": admin.cluster.cluster_id}], output, ["cluster_id"])

    with_admin(bootstrap, work, traceback=traceback)


@cluster.command("list-endpoints")
@bootstrap_controller_option
@bootstrap_option
@command_config_option
@older_config_option
@click.option("--include-fenced-brokers", is_flag=True, help="Also list brokers that are registered but fenced.")
@output_option
@traceback_option
def list_endpoints(bootstrap: str, include_fenced_brokers: bool, output: str, traceback: bool) -> None:
    """List the addresses that clients can connect to."""
    from minikafka.client.cluster import ask_controllers

    if include_fenced_brokers and ask_controllers.get():
        raise click.UsageError("--include-fenced-brokers needs --bootstrap-server")

    async def work(admin: Maintenance) -> None:
        response = await admin.describe_nodes(include_fenced=include_fenced_brokers)
        kind = ENDPOINT_TYPES.get(response.endpoint_type, str(response.endpoint_type))
        rows: list[dict[str, Any]] = [
            {
                "id": b.broker_id, "host": b.host, "port": b.port, "rack": b.rack,
                "state": "fenced" if getattr(b, "is_fenced", False) else "unfenced", "endpoint_type": kind,
            }
            for b in sorted(response.brokers, key=lambda b: b.broker_id)
        ]  # fmt: skip
        if output != "table":
            emit(rows, output, COLUMNS)
            return
        # Like Kafka's tool: host and rack columns as wide as their longest value, and no state column for controllers.
        columns = [column for column in COLUMNS if column != "state" or kind != "controller"]
        hosts = max((len(row["host"]) for row in rows), default=10)
        racks = max((len(row["rack"]) for row in rows if row["rack"]), default=10)
        widths = {"id": 10, "host": min(hosts, 100), "port": 10, "rack": racks, "state": 10, "endpoint_type": 15}
        click.echo(" ".join(column.upper().ljust(widths[column]) for column in columns))
        for row in rows:
            click.echo(" ".join(str("null" if row[column] is None else row[column]).ljust(widths[column]) for column in columns))

    with_admin(bootstrap, work, traceback=traceback)


@cluster.command("unregister")
@bootstrap_controller_option
@bootstrap_option
@command_config_option
@older_config_option
@click.option("--id", "-i", "broker_id", type=int, required=True, help="Id of the broker.")
@traceback_option
def unregister(bootstrap: str, broker_id: int, traceback: bool) -> None:
    """Unregister a broker that will not return."""

    async def work(admin: Maintenance) -> None:
        await admin.unregister(broker_id)
        click.echo(f"Broker {broker_id} is no longer registered.")

    with_admin(bootstrap, work, traceback=traceback)


@cluster.command("unregister-controller")
@bootstrap_controller_option
@bootstrap_option
@command_config_option
@older_config_option
@click.option("--id", "-i", "controller_id", type=int, required=True, help="Id of the controller.")
@traceback_option
def unregister_controller(bootstrap: str, controller_id: int, traceback: bool) -> None:
    """Unregister a controller that will not return (KIP-1312; metadata.version 4.4-IV2)."""

    async def work(admin: Maintenance) -> None:
        await admin.unregister_controller(controller_id)
        click.echo(f"Controller {controller_id} is no longer registered.")

    with_admin(bootstrap, work, traceback=traceback)


@cluster.command("api-versions")
@bootstrap_controller_option
@bootstrap_option
@command_config_option
@older_config_option
@output_option
@traceback_option
def api_versions(bootstrap: str, output: str, traceback: bool) -> None:
    """Show the APIs and versions that each broker or controller serves."""
    from minikafka.cli.api_versions import show_versions

    show_versions(bootstrap, output, traceback=traceback)


def _add_controls() -> None:
    from minikafka.cli.cluster_commands import COMMANDS
    from minikafka.cli.cluster_up import up

    for command in (up, *COMMANDS):
        cluster.add_command(command)


_add_controls()
