"""`minikafka configs`: the flags and the output of kafka-configs.sh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import (
    bootstrap_controller_option,
    bootstrap_option,
    command_config_option,
    emit,
    output_option,
    parse_pairs,
    run,
    traceback_option,
)
from minikafka.cli.quotas import KINDS, in_order

if TYPE_CHECKING:
    from minikafka.client.quotas import QuotaAdmin

#: Kafka's resource type numbers. Users, clients and ips have quotas instead of properties; users also have passwords.
TYPES = {"topics": 2, "brokers": 4, "broker-loggers": 8, "client-metrics": 16, "groups": 32}
#: Short forms of entity types that minikafka also accepts.
SINGULARS = {"topic": "topics", "broker": "brokers"}
SHORT_OPTIONS = {
    "topic": "topics", "broker": "brokers", "broker_logger": "broker-loggers", "group": "groups", "client_metrics": "client-metrics",
}  # fmt: skip
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
#: Source of the properties set on an entity itself, by type. For all brokers together it is the cluster's default.
OWN = {"topics": 1, "brokers": 2, "broker-loggers": 6, "client-metrics": 7, "groups": 8}
CLUSTER_OWN = 3


@click.command("configs")
@bootstrap_controller_option
@bootstrap_option
@command_config_option
@click.option("--reference", "action", flag_value="reference", help="Print the reference of all properties as Markdown (needs no broker).")
@click.option("--describe", "action", flag_value="describe", help="Show properties.")
@click.option("--alter", "action", flag_value="alter", help="Change properties.")
@click.option(
    "--entity-type",
    "entity_types",
    multiple=True,
    type=click.Choice(sorted([*TYPES, *KINDS, *SINGULARS])),
    help="Type of the entity. users and clients together: quotas of one user's client.",
)
@click.option("--entity-name", multiple=True, callback=in_order, help="Topic, broker id, group, user, client id or address.")
@click.option("--entity-default", count=True, callback=in_order, help="The default for all brokers, users, clients or ips.")
@click.option("--topic", help="Short for --entity-type topics --entity-name.")
@click.option("--broker", help="Short for --entity-type brokers --entity-name.")
@click.option("--broker-defaults", is_flag=True, help="Short for --entity-type brokers --entity-default.")
@click.option("--broker-logger", help="Short for --entity-type broker-loggers --entity-name.")
@click.option("--group", help="Short for --entity-type groups --entity-name.")
@click.option("--client-metrics", help="Short for --entity-type client-metrics --entity-name.")
@click.option("--user", help="Short for --entity-type users --entity-name.")
@click.option("--user-defaults", is_flag=True, help="Short for --entity-type users --entity-default.")
@click.option("--client", help="Short for --entity-type clients --entity-name.")
@click.option("--client-defaults", is_flag=True, help="Short for --entity-type clients --entity-default.")
@click.option("--ip", help="Short for --entity-type ips --entity-name.")
@click.option("--ip-defaults", is_flag=True, help="Short for --entity-type ips --entity-default.")
@click.option("--all", "show_all", is_flag=True, help="Show defaults and static properties as well.")
@click.option("--add-config", multiple=True, metavar="NAME=VALUE,..", help="Properties to set; put lists in brackets: a=[x,y].")
@click.option("--add-config-file", metavar="FILE", help="Properties file with properties to set.")
@click.option("--delete-config", multiple=True, metavar="NAME,..", help="Properties to reset to their default.")
@output_option
@traceback_option
@click.pass_context
def configs(context: click.Context, /, bootstrap: str, action: str | None, output: str, traceback: bool, **options: Any) -> None:
    """Describe and alter properties of topics, brokers, groups and client metrics, logger levels, quotas, and SCRAM passwords."""
    if action == "reference":
        from minikafka.broker.config.reference import reference_page

        click.echo(reference_page(), nl=False)
        return
    if action is None:
        raise click.UsageError("specify an action: --describe or --alter")
    added = parse_pairs(options["add_config"], "--add-config")
    if options["add_config_file"]:
        added = _file(options["add_config_file"]) | added
    deleted = [key.strip() for text in options["delete_config"] for key in text.split(",") if key.strip()]
    if action == "alter" and not (added or deleted):
        raise click.UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    types = [SINGULARS.get(text, text) for text in options["entity_types"]]
    if any(plural in KINDS for plural in types) or any(options[name] for name in QUOTA_OPTIONS):
        _quotas_or_users(context, bootstrap, action, types, added, deleted, output, traceback, options)
        return
    plural, name = _entity(types, options)
    if action == "alter" and name is None:
        raise click.UsageError("specify the entity: --entity-name" + (" or --entity-default" if plural == "brokers" else ""))
    changes: list[tuple[str, str, str | None]] = [("set", key, value) for key, value in added.items()]
    changes += [("delete", key, None) for key in deleted]

    async def go() -> None:
        from minikafka.client.quotas import QuotaAdmin

        async with QuotaAdmin(bootstrap) as admin:
            if action == "alter":
                assert name is not None
                await admin.alter_configs(TYPES[plural], name, changes)
                of_what = f"config for {plural[:-1]} {name}" if name else f"default config for {plural} in the cluster"
                click.echo(f"Completed updating {of_what}.")
                return
            names = [name] if name is not None else await _all_names(admin, plural)
            rows: list[dict[str, Any]] = []
            for one in names:
                found = await admin.describe_configs(TYPES[plural], one)
                own = OWN[plural] if one else CLUSTER_OWN
                chosen = [entry for entry in found if options["show_all"] or entry.source == own]
                if output == "table":
                    _show(plural, one, chosen, show_all=options["show_all"])
                else:
                    rows += _rows(chosen, None if name is not None else {"entity_type": plural, "entity": one or "<default>"})
            if output != "table":
                emit(rows, output, ["name", "value", "source"])

    run(go, traceback=traceback)


QUOTA_OPTIONS = ("user", "user_defaults", "client", "client_defaults", "ip", "ip_defaults")


def _quotas_or_users(
    context: click.Context, bootstrap: str, action: str, types: list[str], added: dict[str, str], deleted: list[str], output: str,
    traceback: bool, options: dict[str, Any],
) -> None:  # fmt: skip
    from minikafka.cli.quotas import pair, quotas
    from minikafka.cli.users import users

    shorts = {"users": ("user", "user_defaults"), "clients": ("client", "client_defaults"), "ips": ("ip", "ip_defaults")}
    given = {plural: (options[name], options[default]) for plural, (name, default) in shorts.items()}
    asked = pair(context, types, options["entity_name"], options["entity_default"], given)
    scram = [key for key in (*added, *deleted) if key.startswith("SCRAM-")]
    if action == "alter" and scram:
        if [plural for plural, _, _ in asked] != ["users"] or len(scram) < len(added) + len(deleted):
            raise click.UsageError(f"{scram[0]}: change passwords separately, for one user at a time")
        users(bootstrap, action, asked[0][1], added, deleted, output, traceback)
        return
    quotas(bootstrap, action, asked, added, deleted, output, traceback)


def _file(path: str) -> dict[str, str]:
    from minikafka.broker.config.broker_config import ConfigurationError, load_properties

    try:
        return load_properties(path)
    except ConfigurationError as error:
        raise click.BadParameter(str(error), param_hint="--add-config-file") from error


def _entity(types: list[str], options: dict[str, Any]) -> tuple[str, str | None]:
    """Type and name. A name of "" means the default of all brokers; None means every entity of the type. Raises click.UsageError."""
    for option, plural in SHORT_OPTIONS.items():
        if options[option]:
            return plural, str(options[option])
    if options["broker_defaults"]:
        return "brokers", ""
    if len(types) != 1:
        raise click.UsageError("specify an entity: one --entity-type with --entity-name, or --topic, --broker, --group ..")
    if options["entity_default"]:
        if types[0] != "brokers":
            raise click.UsageError(f"{types[0]} have no default")
        return types[0], ""
    if len(options["entity_name"]) > 1:
        raise click.UsageError("give only one --entity-name")
    return types[0], options["entity_name"][0] if options["entity_name"] else None


async def _all_names(admin: QuotaAdmin, plural: str) -> list[str]:
    if plural == "topics":
        return await admin.list_topics()
    if plural == "broker-loggers":
        raise click.UsageError("specify a broker: --entity-name with its id")
    if plural == "brokers":
        return [*(str(broker.node_id) for broker in (await admin.describe_cluster()).brokers), ""]
    return await admin.configured_resources(TYPES[plural])


def _rows(entries: list[Any], of_what: dict[str, str] | None) -> list[dict[str, Any]]:
    return [
        {**(of_what or {}), "name": e.name, "value": e.value, "source": SOURCES.get(e.source, str(e.source)), "read_only": e.is_read_only,
         "synonyms": [{"source": SOURCES.get(source, str(source)), "name": name, "value": value} for source, name, value in e.synonyms]}
        for e in entries
    ]  # fmt: skip


def _show(plural: str, name: str, entries: list[Any], *, show_all: bool) -> None:
    if not name:
        click.echo(f"Default configs for {plural} in the cluster are:")
    else:
        click.echo(f"{'All' if show_all else 'Dynamic'} configs for {plural[:-1]} {name} are:")
    for entry in entries:
        synonyms = ", ".join(f"{SOURCES.get(source, source)}:{key}={_text(value)}" for source, key, value in entry.synonyms)
        click.echo(f"  {entry.name}={_text(entry.value)} sensitive={str(entry.is_sensitive).lower()} synonyms={{{synonyms}}}")


def _text(value: str | None) -> str:
    return "null" if value is None else value
