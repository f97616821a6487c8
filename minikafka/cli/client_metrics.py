"""`minikafka client-metrics`: the flags and the output of kafka-client-metrics.sh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import bootstrap_option, command_config_option, emit, output_option, run, traceback_option

if TYPE_CHECKING:
    from minikafka.client.quotas import QuotaAdmin

CLIENT_METRICS = 16
METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
#: Options that each action accepts.
_ALLOWED = {
    "alter": {"name", "generate_name", "metrics", "interval", "match"},
    "delete": {"name"},
    "describe": {"name"},
    "list": set(),
}  # fmt: skip


@click.command("client-metrics")
@bootstrap_option
@command_config_option
@click.option("--alter", "actions", flag_value="alter", multiple=True, help="Create or change a subscription.")
@click.option("--delete", "actions", flag_value="delete", multiple=True, help="Delete a subscription.")
@click.option("--describe", "actions", flag_value="describe", multiple=True, help="Show subscriptions.")
@click.option("--list", "actions", flag_value="list", multiple=True, help="List the names of the subscriptions.")
@click.option("--name", help="The subscription's name.")
@click.option("--generate-name", is_flag=True, help="Give the subscription a random name.")
@click.option("--metrics", metavar="M1,M2", multiple=True, help="Prefixes of metric names. * selects all metrics, an empty value none.")
@click.option("--interval", metavar="MS", help="How often clients push metrics, in milliseconds. An empty value resets to the default.")
@click.option(
    "--match",
    metavar="K1=V1,K2=V2",
    multiple=True,
    help="Select clients: patterns for client_instance_id, client_id, client_software_name, client_software_version, "
    "client_source_address, client_source_port. An empty value selects all.",
)
@output_option
@traceback_option
def client_metrics(bootstrap: str, actions: tuple[str, ...], output: str, traceback: bool, **options: Any) -> None:
    """Choose which metrics clients push to the brokers (KIP-714)."""
    action = _checked(actions, options)

    async def go() -> None:
        from minikafka.client.quotas import QuotaAdmin

        async with QuotaAdmin(bootstrap) as admin:
            if action == "list":
                _list(await admin.configured_resources(CLIENT_METRICS), output)
            elif action == "describe":
                await _describe(admin, options["name"], output)
            else:
                name = _random_name() if options["generate_name"] else str(options["name"])
                changes = _changes(options) if action == "alter" else [("delete", key, None) for key in (METRICS, INTERVAL_MS, MATCH)]
                await admin.alter_configs(CLIENT_METRICS, name, changes)
                click.echo(f"{'Altered' if action == 'alter' else 'Deleted'} client metrics config for {name}.")

    run(go, traceback=traceback)


def _checked(actions: tuple[str, ...], options: dict[str, Any]) -> str:
    """The one action. Raises click.UsageError."""
    if len(actions) != 1:
        raise click.UsageError("Command must include exactly one action: --alter, --delete, --describe or --list.")
    action = actions[0]
    for name, value in options.items():
        if value not in (None, False, ()) and name not in _ALLOWED[action]:
            raise click.UsageError(f'Option "[{action}]" can\'t be used with option "[{name.replace("_", "-")}]"')
    if action == "alter" and (options["name"] is None) != options["generate_name"]:
        raise click.UsageError("One of --name or --generate-name must be specified with --alter.")
    if action == "delete" and options["name"] is None:
        raise click.UsageError("A client metrics resource name must be specified with --delete.")
    interval = options["interval"]
    if interval and not interval.lstrip("-").isdecimal():
        raise click.UsageError("Invalid interval value. Enter an integer, or leave empty to reset.")
    return action


def _changes(options: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    """The changes that the options ask for; an empty value resets a property to its default."""
    found: list[tuple[str, str, str | None]] = []
    interval = options["interval"]
    given = ((INTERVAL_MS, () if interval is None else (interval,)), (METRICS, options["metrics"]), (MATCH, options["match"]))
    for key, values in given:
        if values:
            text = ",".join(values)
            found.append(("set", key, text) if text else ("delete", key, None))
    return found


def _random_name() -> str:
    import uuid

    from minikafka.wire.uuid import uuid_to_text

    while (name := uuid_to_text(uuid.uuid4().bytes)).startswith("-"):
        pass
    return name


def _list(names: list[str], output: str) -> None:
    if output != "table":
        emit([{"name": name} for name in names], output, ["name"])
        return
    for name in names:
        click.echo(name)


async def _describe(admin: QuotaAdmin, requested: str | None, output: str) -> None:
    configured = await admin.configured_resources(CLIENT_METRICS)
    if requested is not None and requested not in configured:
        click.echo(f"The client metric resource {requested} doesn't exist and doesn't have dynamic config.")
        return
    rows = []
    for name in configured if requested is None else [requested]:
        entries = sorted(await admin.describe_configs(CLIENT_METRICS, name), key=lambda entry: entry.name)
        rows.append({"name": name, **{entry.name: entry.value for entry in entries}})
        if output == "table":
            click.echo(f"Client metrics configs for {name} are:")
            for entry in entries:
                click.echo(f"  {entry.name}={entry.value}")
    if output != "table":
        emit(rows, output, ["name", INTERVAL_MS, MATCH, METRICS])
