"""`minikafka configs`: the flags and the output of kafka-configs.sh for topics and brokers."""

from __future__ import annotations

from typing import Any

import click

from minikafka.cli.common import bootstrap_option, command_config_option, emit, output_option, parse_pairs, run, traceback_option

TYPES = {"topics": 2, "topic": 2, "brokers": 4, "broker": 4}
USERS = "users"
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
}
TOPIC_OWN, BROKER_OWN, CLUSTER_OWN = 1, 2, 3


@click.command("configs")
@bootstrap_option
@command_config_option
@click.option("--reference", "action", flag_value="reference", help="Print the page of all properties, as Markdown; asks no broker.")
@click.option("--describe", "action", flag_value="describe", help="Show properties.")
@click.option("--alter", "action", flag_value="alter", help="Change properties.")
@click.option("--entity-type", type=click.Choice(sorted([*TYPES, USERS])), help="What the properties are of; of users: SCRAM.")
@click.option("--entity-name", help="Topic, broker id or user.")
@click.option("--entity-default", is_flag=True, help="The cluster-wide default of brokers.")
@click.option("--topic", help="Short for --entity-type topics --entity-name.")
@click.option("--broker", help="Short for --entity-type brokers --entity-name.")
@click.option("--user", help="Short for --entity-type users --entity-name.")
@click.option("--all", "show_all", is_flag=True, help="Show defaults and static properties as well.")
@click.option("--add-config", multiple=True, metavar="NAME=VALUE,..", help="Set; lists in brackets: a=[x,y].")
@click.option("--delete-config", multiple=True, metavar="NAME,..", help="Go back to the default.")
@output_option
@traceback_option
def configs(bootstrap: str, action: str | None, output: str, traceback: bool, **options: Any) -> None:
    """Describe and alter properties of topics and brokers, and passwords of users (SCRAM)."""
    if action == "reference":
        from minikafka.broker.config_reference import reference_page

        click.echo(reference_page(), nl=False)
        return
    of_user = options["user"] or options["entity_type"] == USERS
    kind, name = (0, "") if of_user else _entity(options)
    if action is None:
        raise click.UsageError("say what to do: --describe or --alter")
    added = parse_pairs(options["add_config"], "--add-config")
    deleted = [key.strip() for text in options["delete_config"] for key in text.split(",") if key.strip()]
    if action == "alter" and not (added or deleted):
        raise click.UsageError("--alter needs --add-config or --delete-config")
    if of_user:
        from minikafka.cli.users import users

        users(bootstrap, action, options["user"] or options["entity_name"], added, deleted, output, traceback)
        return
    changes: list[tuple[str, str, str | None]] = [("set", key, value) for key, value in added.items()]
    changes += [("delete", key, None) for key in deleted]

    async def go() -> None:
        from minikafka.client.admin import Admin

        async with Admin(bootstrap) as admin:
            if action == "alter":
                await admin.alter_configs(kind, name, changes)
                click.echo(f"Completed updating config for {'topic' if kind == TYPES['topics'] else 'broker'} {name}.")
                return
            found = await admin.describe_configs(kind, name)
            own = TOPIC_OWN if kind == TYPES["topics"] else BROKER_OWN if name else CLUSTER_OWN
            chosen = [entry for entry in found if options["show_all"] or entry.source == own]
            _show(kind, name, chosen, output, show_all=options["show_all"])

    run(go, traceback=traceback)


def _entity(options: dict[str, Any]) -> tuple[int, str]:
    if options["topic"]:
        return TYPES["topics"], options["topic"]
    if options["broker"]:
        return TYPES["brokers"], options["broker"]
    if options["entity_type"] and options["entity_default"]:
        return TYPES[options["entity_type"]], ""
    if not options["entity_type"] or not options["entity_name"]:
        raise click.UsageError("name the topic or broker: --entity-type and --entity-name, or --topic, or --broker")
    return TYPES[options["entity_type"]], options["entity_name"]


def _show(kind: int, name: str, entries: list[Any], output: str, *, show_all: bool) -> None:
    if output != "table":
        rows = [
            {"name": e.name, "value": e.value, "source": SOURCES.get(e.source, str(e.source)), "read_only": e.is_read_only} for e in entries
        ]
        emit(rows, output, ["name", "value", "source"])
        return
    click.echo(f"{'All' if show_all else 'Dynamic'} configs for {'topic' if kind == TYPES['topics'] else 'broker'} {name} are:")
    for entry in entries:
        value = "null" if entry.is_sensitive else entry.value
        click.echo(f"  {entry.name}={value} sensitive={str(entry.is_sensitive).lower()} source={SOURCES.get(entry.source, entry.source)}")
