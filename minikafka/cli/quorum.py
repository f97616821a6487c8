"""`minikafka metadata-quorum`: kafka-metadata-quorum.sh."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from minikafka.addresses import host_port, split_host_port
from minikafka.cli.common import (
    CommandGroup,
    bootstrap_controller_option,
    bootstrap_option,
    command_config_option,
    emit,
    output_option,
    traceback_option,
)
from minikafka.cli.session import with_admin
from minikafka.wire.uuid import uuid_from_text, uuid_to_text

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance

REPLICATION_COLUMNS = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")
NO_DIRECTORY = bytes(16)


@click.group("metadata-quorum", cls=CommandGroup)
@bootstrap_controller_option
@bootstrap_option
@command_config_option
@click.pass_context
def metadata_quorum(context: click.Context, bootstrap: str) -> None:
    """Show and change the quorum of controllers that keeps the cluster's metadata."""
    context.obj = bootstrap


@metadata_quorum.command("describe")
@click.option("--status", "view", flag_value="status", help="Show leader, epoch, high watermark, voters and observers.")
@click.option("--replication", "view", flag_value="replication", help="Show log end offset and lag of each replica.")
@click.option("--human-readable", "-hr", is_flag=True, help="Show times as ages.")
@click.option("--bootstrap-server", "-b", "own_bootstrap", help="host:port of one or more brokers.")
@output_option
@traceback_option
@click.pass_obj
def describe(bootstrap: str, view: str | None, human_readable: bool, own_bootstrap: str | None, output: str, traceback: bool) -> None:
    """Show the state of the quorum."""
    if view is None:
        raise click.UsageError("specify --status or --replication")

    async def work(admin: Maintenance) -> None:
        response = await admin.describe_quorum()
        if view == "replication":
            _replication(response, human_readable, output)
        else:
            await admin.cluster.refresh([])
            _status(response, admin.cluster.cluster_id or "", output)

    with_admin(own_bootstrap or bootstrap, work, traceback=traceback)


def _replicas(partition: Any) -> list[tuple[Any, str]]:
    voters = [(r, "Leader" if r.replica_id == partition.leader_id else "Follower") for r in partition.current_voters]
    return sorted(voters, key=lambda row: row[1] != "Leader") + [(r, "Observer") for r in partition.observers]


def _lag(end: int, replica: Any) -> int:
    return end - int(replica.log_end_offset)


def _replication(response: Any, human_readable: bool, output: str) -> None:
    partition = response.topics[0].partitions[0]
    leader = next((r for r in partition.current_voters if r.replica_id == partition.leader_id), None)
    end = leader.log_end_offset if leader is not None else -1
    now_ms = time.time_ns() // 1_000_000

    def when(timestamp_ms: int) -> str:
        if not human_readable:
            return str(timestamp_ms)
        return "unknown" if timestamp_ms < 0 else f"{max(now_ms - timestamp_ms, 0)} ms ago"

    rows = []
    for replica, status in _replicas(partition):
        values = (
            str(replica.replica_id), uuid_to_text(getattr(replica, "replica_directory_id", NO_DIRECTORY)), str(replica.log_end_offset),
            str(_lag(end, replica)), when(replica.last_fetch_timestamp), when(replica.last_caught_up_timestamp), status,
        )  # fmt: skip
        rows.append(dict(zip(REPLICATION_COLUMNS, values, strict=True)))
    if output != "table":
        emit(rows, output, list(REPLICATION_COLUMNS))
        return
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in REPLICATION_COLUMNS}
    for line in [dict(zip(REPLICATION_COLUMNS, REPLICATION_COLUMNS, strict=True)), *rows]:
        click.echo("".join(f"{line[name]:<{widths[name]}}\t" for name in REPLICATION_COLUMNS))


def _status(response: Any, cluster_id: str, output: str) -> None:
    partition = response.topics[0].partitions[0]
    leader = next((r for r in partition.current_voters if r.replica_id == partition.leader_id), None)
    followers = [r for r in partition.current_voters if r is not leader]
    end = leader.log_end_offset if leader is not None else -1
    slowest = max(followers, key=lambda r: _lag(end, r), default=None)
    lag = 0 if slowest is None else _lag(end, slowest)
    lag_ms = 0
    if slowest is not None and leader is not None and slowest.last_caught_up_timestamp >= 0:
        lag_ms = max(leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp, 0)
    elif slowest is not None:
        lag_ms = -1
    nodes = {node.node_id: [f"{e.name}://{host_port(e.host, e.port)}" for e in node.listeners] for node in getattr(response, "nodes", [])}

    def member(replica: Any) -> dict[str, Any]:
        directory = getattr(replica, "replica_directory_id", NO_DIRECTORY)
        entry: dict[str, Any] = {"id": replica.replica_id}
        if directory != NO_DIRECTORY:
            entry["directoryId"] = uuid_to_text(directory)
        if replica.replica_id in nodes:
            entry["endpoints"] = nodes[replica.replica_id]
        return entry

    import json

    found = {
        "ClusterId": cluster_id,
        "LeaderId": partition.leader_id,
        "LeaderEpoch": partition.leader_epoch,
        "HighWatermark": partition.high_watermark,
        "MaxFollowerLag": lag,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": [member(r) for r in partition.current_voters],
        "CurrentObservers": [member(r) for r in partition.observers],
    }
    if output != "table":
        emit([found], output, list(found))
        return
    for name, value in found.items():
        shown = json.dumps(value) if isinstance(value, list) else value
        click.echo(f"{name + ':':<24}{shown}")


_dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")


def _controller_here() -> tuple[int, str, tuple[str, ...]]:
    """(node id, directory id, listeners) of the controller whose properties --command-config names. Raises click.UsageError."""
    from minikafka.broker.config.broker_config import BrokerConfig, ConfigurationError
    from minikafka.cli.connection import properties_in_use
    from minikafka.storage.errors import StorageError
    from minikafka.storage.filesystem import OsFileSystem
    from minikafka.storage.log_dir import read_meta_properties

    needed = "give --controller-id, --directory-id and --listener, or --command-config with the controller's properties"
    given = dict(properties_in_use())
    if "node.id" not in given:
        raise click.UsageError(needed)
    try:
        config = BrokerConfig.from_properties(given)
        found = read_meta_properties(OsFileSystem(), config.metadata_directory)
    except (ConfigurationError, StorageError, OSError) as error:
        raise click.UsageError(f"the controller of --command-config: {error}") from error
    if found is None:
        raise click.UsageError(f"{config.metadata_directory} is not formatted: is this the controller's machine?")
    own = [config.advertised[listener.name] for listener in config.controller_listeners]
    return found.node_id, uuid_to_text(found.directory_id), tuple(map(str, own))


@metadata_quorum.command("add-controller")
@click.option("--controller-id", type=int, help="Node id of the new voter.")
@click.option("--directory-id", help="Its directory.id from meta.properties.")
@click.option("--listener", "listeners", multiple=True, metavar="NAME://host:port", help="A listener of the controller; may be repeated.")
@_dry_run_option
@traceback_option
@click.pass_obj
def add_controller(
    bootstrap: str, controller_id: int | None, directory_id: str | None, listeners: tuple[str, ...], dry_run: bool, traceback: bool
) -> None:
    """Make a running controller a voter (KIP-853).

    On the controller's machine, give its properties file as --command-config, as with Kafka's tool. Elsewhere, give --controller-id,
    --directory-id and --listener."""
    if controller_id is None or directory_id is None or not listeners:
        found = _controller_here()
        controller_id = found[0] if controller_id is None else controller_id
        directory_id, listeners = directory_id or found[1], listeners or found[2]
    endpoints = []
    for text in listeners:
        name, separator, address = text.partition("://")
        try:
            endpoints.append((name, *split_host_port(address if separator else "")))
        except ValueError:
            raise click.BadParameter(f"{text!r} is not NAME://host:port", param_hint="--listener") from None
    directory = _directory(directory_id)

    async def work(admin: Maintenance) -> None:
        await admin.cluster.refresh([])
        if not dry_run:
            await admin.add_controller(admin.cluster.cluster_id or "", controller_id, directory, endpoints)
        where = " and ".join(f"{name}://{host_port(host, port)}" for name, host, port in endpoints)
        did = "DRY RUN of adding" if dry_run else "Added"
        click.echo(f"{did} controller {controller_id} with directory id {directory_id} and endpoints: {where}")

    with_admin(bootstrap, work, traceback=traceback)


@metadata_quorum.command("remove-controller")
@click.option("--controller-id", "-i", type=int, required=True, help="Node id of the voter.")
@click.option("--controller-directory-id", "-d", required=True, help="Its directory.id.")
@click.option("--unregister", is_flag=True, help="Also unregister the controller (metadata.version 4.4-IV2).")
@_dry_run_option
@traceback_option
@click.pass_obj
def remove_controller(
    bootstrap: str, controller_id: int, controller_directory_id: str, unregister: bool, dry_run: bool, traceback: bool
) -> None:
    """Remove a voter from the quorum (KIP-853)."""
    directory = _directory(controller_directory_id)

    async def work(admin: Maintenance) -> None:
        await admin.cluster.refresh([])
        if not dry_run:
            await admin.remove_controller(admin.cluster.cluster_id or "", controller_id, directory)
        did = "DRY RUN of removing" if dry_run else "Removed"
        click.echo(f"{did} KRaft controller {controller_id} with directory id {controller_directory_id}")
        if unregister and not dry_run:
            await admin.unregister_controller(controller_id)
            click.echo(f"Controller {controller_id} is no longer registered.")

    with_admin(bootstrap, work, traceback=traceback)


def _directory(text: str) -> bytes:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="directory id") from error
