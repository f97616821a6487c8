"""`minikafka consumer-groups`: kafka-consumer-groups.sh."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from minikafka.addresses import host_port
from minikafka.cli.common import EXIT_REFUSED, emit
from minikafka.cli.group_offsets import check_reset, echo_csv, partitions_of, reset_options, targets
from minikafka.cli.group_tables import check_choice, delete_groups, echo_deletion, kafka_table, outcome_rows
from minikafka.cli.session import operator_command, with_admin
from minikafka.client.errors import BrokerError
from minikafka.core.pattern import InvalidPattern, Pattern
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance

Partition = tuple[str, int]
OFFSET_COLUMNS = ["group", "topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id", "host", "client_id"]
MEMBER_COLUMNS = ["group", "consumer_id", "host", "client_id", "partitions"]
MEMBER_DETAILS = ["current_epoch", "current_assignment", "target_epoch", "target_assignment"]
STATE_COLUMNS = ["group", "coordinator", "assignment_strategy", "state", "members"]
_LEAST = {"partition": 10, "state": 20, "assignment_strategy": 20, "coordinator": 25, "current_assignment": 20, "target_assignment": 20}


@operator_command("consumer-groups")
@click.option("--list", "action", flag_value="list", help="List groups.")
@click.option("--describe", "action", flag_value="describe", help="Show offsets and lag, or members, or state.")
@click.option("--delete", "action", flag_value="delete", help="Delete groups without members.")
@click.option("--reset-offsets", "action", flag_value="reset", help="Set a group's offsets (with --execute).")
@click.option("--delete-offsets", "action", flag_value="delete-offsets", help="Delete a group's offsets of --topic.")
@click.option("--group", "groups", multiple=True, help="Group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="Topic, or partitions of it; may be repeated.")
@click.option("--all-topics", is_flag=True, help="Every topic that the group has committed offsets for.")
@click.option("--members", "view", flag_value="members", help="Describe the members.")
@click.option(
    "--state", "states", is_flag=False, flag_value="", metavar="[STATE,..]", help="Describe the state; with --list, show it, or only these."
)
@click.option("--offsets", "view", flag_value="offsets", help="Describe the offsets.")
@click.option("--type", "types", is_flag=False, flag_value="", metavar="[TYPE,..]", help="With --list: show types, or only these types.")
@click.option("--verbose", is_flag=True, help="Also show epochs, and members' assignments.")
@reset_options
@click.option("--validate-regex", "regex", metavar="REGEX", help="Check whether groups can subscribe with this pattern (RE2).")
@click.option("--timeout", type=int, default=5000, help="Accepted, no effect.", hidden=True)
def consumer_groups(bootstrap: str, action: str | None, output: str, traceback: bool, **options: Any) -> None:
    """List, describe, reset and delete consumer groups."""
    if options["regex"] is not None:
        _validate(options["regex"])
        return
    if action is None:
        raise click.UsageError("specify an action: --list, --describe, --reset-offsets, --delete-offsets or --delete")
    check_choice(options)
    if action != "list" and not options["groups"] and not options["all_groups"]:
        raise click.UsageError(f"--{action} needs --group{'' if action == 'delete-offsets' else ' or --all-groups'}")
    if action == "reset":
        check_reset(options)
        if not (options["topics"] or options["all_topics"] or options["from_file"]):
            raise click.UsageError("--reset-offsets needs --topic or --all-topics")
    if action == "delete-offsets" and not options["topics"]:
        raise click.UsageError("--delete-offsets needs --topic")

    async def work(admin: Maintenance) -> int:
        everything = await admin.list_groups_with_types() if action == "list" or options["all_groups"] else []
        # Groups of Kafka Connect and such are classic, too.
        listed = [row for row in everything if row[3] == "consumer" or (row[3] == "classic" and row[1] in ("consumer", ""))]
        if action == "list":
            return _list(listed, options["states"], options["types"], output)
        chosen = [name for name, *_ in listed] if options["all_groups"] else list(dict.fromkeys(options["groups"]))
        return await _ACTIONS[action](admin, chosen, output, options)

    sys.exit(with_admin(bootstrap, work, traceback=traceback))


def _validate(regex: str) -> None:
    try:
        Pattern(regex)
    except InvalidPattern as error:
        click.echo(f"The regular expression `{regex}` is invalid: {error}.")
    else:
        click.echo(f"The regular expression `{regex}` is valid.")


#: Group types, as Kafka's tools name them, and those of consumer groups.
TYPES = ("Classic", "Consumer", "Share", "Streams", "Unknown")
CONSUMER_TYPES = TYPES[:2]
STATES = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Empty", "Dead", "Unknown")


def _named(given: str | None, known: Sequence[str], option: str) -> set[str]:
    """The known names in a comma-separated list, whatever their case. Raises click.BadParameter."""
    by_name = {name.lower(): name for name in known}
    names = [name.strip() for name in (given or "").split(",") if name.strip()]
    strange = [name for name in names if name.lower() not in by_name]
    if strange:
        raise click.BadParameter(f"{strange[0]}: must be one of {', '.join(known)}", param_hint=option)
    return {by_name[name.lower()] for name in names}


def _list(listed: list[tuple[str, str, str, str]], states: str | None, types: str | None, output: str) -> int:
    chosen_types, chosen_states = _named(types, CONSUMER_TYPES, "--type"), _named(states, STATES, "--state")
    rows = [
        {"group": name, "state": state, "protocol_type": kind, "type": group_type.capitalize()}
        for name, kind, state, group_type in listed
        if (not chosen_types or group_type.capitalize() in chosen_types) and (not chosen_states or state in chosen_states)
    ]
    if output != "table":
        emit(rows, output, ["group", "state", "protocol_type", "type"])
    elif types is not None or states is not None:
        columns = {"group": 25} | ({} if types is None else {"type": 20}) | ({} if states is None else {"state": 20})
        for row in [{name: name.upper() for name in columns}, *rows]:
            click.echo(" ".join(f"{row[name]:<{width}}" for name, width in columns.items()))
    else:
        for row in rows:
            click.echo(row["group"])
    return 0


@operator_command("groups")
@click.option("--list", "action", flag_value="list", help="List groups of all types.")
@click.option("--group-type", "kind", type=click.Choice([name.lower() for name in TYPES], case_sensitive=False), help="Only this type.")
@click.option("--protocol", help="Only this protocol type.")
@click.option("--consumer", "chosen", flag_value="consumer", help="Only consumer groups, including groups that only store offsets.")
@click.option("--share", "chosen", flag_value="share", help="Only share groups.")
@click.option("--streams", "chosen", flag_value="streams", help="Only streams groups.")
def groups(bootstrap: str, action: str | None, output: str, traceback: bool, **options: Any) -> None:
    """List groups of all types, like kafka-groups.sh."""
    if action is None:
        raise click.UsageError("specify an action: --list")
    chosen, kind, protocol = options["chosen"], options["kind"], options["protocol"]
    if chosen and (kind or protocol):
        raise click.UsageError(f"--{chosen} cannot be combined with --group-type and --protocol")

    async def work(admin: Maintenance) -> int:
        rows = [
            {"group": name, "type": group_type.capitalize(), "protocol": protocol_type}
            for name, protocol_type, _, group_type in await admin.list_groups_with_types()
            if kind in (None, group_type) and protocol in (None, protocol_type) and chosen in (None, "consumer", group_type)
            and (chosen in (None, "share") or protocol_type in ("consumer", ""))
        ]  # fmt: skip
        if output != "table":
            emit(rows, output, ["group", "type", "protocol"])
            return 0
        for row in [{name: name.upper() for name in ("group", "type", "protocol")}, *rows]:
            click.echo(" ".join(f"{row[name]:<20}" for name in row))
        return 0

    sys.exit(with_admin(bootstrap, work, traceback=traceback))


# -- describe ----------------------------------------------------------------------------------------------------------


async def _describe(admin: Maintenance, groups: list[str], output: str, options: dict[str, Any]) -> int:
    view = "state" if options["states"] is not None else options["view"] or "offsets"
    status, everything = 0, []
    for name in groups:
        group = await admin.describe_group(name)
        if group.state == "Dead":
            click.echo(f"Error: Consumer group '{name}' does not exist.", err=True)
            status = EXIT_REFUSED
            continue
        rows = await _VIEWS[view](admin, group, options["verbose"])
        everything += rows
        if output == "table":
            if rows:
                click.echo("\n" + _table(rows))
            if group.state == "Empty":
                click.echo(f"\nConsumer group '{name}' has no active members.", err=True)
            elif group.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
                click.echo(f"\nWarning: Consumer group '{name}' is rebalancing.", err=True)
    if output != "table":
        columns = {"members": MEMBER_COLUMNS, "state": STATE_COLUMNS}.get(view, OFFSET_COLUMNS)
        emit(everything, output, list(everything[0]) if everything else columns)
    return status


def _table(rows: list[dict[str, Any]]) -> str:
    return kafka_table(rows, _LEAST, is_last_padded=list(rows[0])[-1] not in ("client_id", "new_offset", "members"))


async def _offsets_view(admin: Maintenance, group: Any, verbose: bool) -> list[dict[str, Any]]:
    committed = await admin.group_offsets_and_epochs(group.group_id)
    owners = {(topic, index): member for member in group.members for topic, indexes in member.assignment.items() for index in indexes}
    keys = sorted(set(committed) | set(owners))
    ends = await admin.list_offsets(dict.fromkeys(keys, "latest"))
    rows = []
    for key in keys:
        owner, (offset, leader_epoch), end = owners.get(key), committed.get(key, (None, -1)), ends[key].offset
        row: dict[str, Any] = {"group": group.group_id, "topic": key[0], "partition": key[1]}
        if verbose:
            row["leader_epoch"] = leader_epoch if leader_epoch >= 0 else None
        row |= {"current_offset": offset, "log_end_offset": end, "lag": None if offset is None else end - offset}
        row |= {"consumer_id": None, "host": None, "client_id": None}
        if owner is not None:
            row |= {"consumer_id": owner.member_id, "host": owner.host, "client_id": owner.client_id}
        rows.append(row)
    return rows


async def _members_view(admin: Maintenance, group: Any, verbose: bool) -> list[dict[str, Any]]:
    rows = []
    has_instances = any(member.group_instance_id for member in group.members)
    for member in group.members:
        row: dict[str, Any] = {"group": group.group_id, "consumer_id": member.member_id}
        if has_instances:
            row["group_instance_id"] = member.group_instance_id
        count = sum(len(indexes) for indexes in member.assignment.values())
        row |= {"host": member.host, "client_id": member.client_id, "partitions": count}
        if verbose:
            values = (member.epoch, _shown(member.assignment), group.assignment_epoch, _shown(member.target or {}))
            row |= dict(zip(MEMBER_DETAILS, values, strict=True))
        rows.append(row)
    return rows


def _shown(assignment: Mapping[str, Sequence[int]]) -> str | None:
    return ";".join(f"{topic}:{','.join(map(str, sorted(indexes)))}" for topic, indexes in sorted(assignment.items())) or None


async def _state_view(admin: Maintenance, group: Any, verbose: bool) -> list[dict[str, Any]]:
    where = f"{host_port(group.coordinator.host, group.coordinator.port)}  ({group.coordinator.node_id})"
    row: dict[str, Any] = {"group": group.group_id, "coordinator": where, "assignment_strategy": group.protocol or None}
    row["state"] = group.state
    if verbose:
        row |= {"group_epoch": group.group_epoch, "target_assignment_epoch": group.assignment_epoch}
    return [{**row, "members": len(group.members)}]


_VIEWS = {"offsets": _offsets_view, "members": _members_view, "state": _state_view}


# -- reset -------------------------------------------------------------------------------------------------------------


async def _reset(admin: Maintenance, groups: list[str], output: str, options: dict[str, Any]) -> int:
    if not options["execute"] and not options["export"] and not options["dry_run"]:
        click.echo("WARN: No action will be performed as the --execute option is missing.", err=True)
    status = 0
    found: list[dict[str, Any]] = []
    for name in groups:
        state = await _state_of(admin, name)
        if state not in ("Empty", "Dead"):
            click.echo(
                f"Error: Assignments can only be reset if the group '{name}' is inactive, but the current state is {state}.", err=True
            )
            status = EXIT_REFUSED
            continue
        committed = await admin.group_offsets(name)
        keys = sorted(committed) if options["all_topics"] else await partitions_of(admin, options["topics"])
        offsets = await targets(admin, name, keys, committed, options)
        if options["execute"] and not options["dry_run"] and offsets:
            await admin.commit_offsets(name, offsets)
        found += [{"group": name, "topic": t, "partition": p, "new_offset": offset} for (t, p), offset in sorted(offsets.items())]
    if options["export"]:
        echo_csv(found, is_one_group=len(groups) == 1)
    elif output != "table":
        emit(found, output, ["group", "topic", "partition", "new_offset"])
    elif found:
        click.echo("\n" + _table(found))
    return status


async def _state_of(admin: Maintenance, name: str) -> str:
    """The state of a group; Dead for one that does not exist, which is created with its first offset."""
    try:
        return (await admin.describe_group(name)).state
    except BrokerError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return "Dead"


# -- delete ------------------------------------------------------------------------------------------------------------


async def _delete(admin: Maintenance, groups: list[str], output: str, options: dict[str, Any]) -> int:
    return echo_deletion("consumer", groups, await delete_groups(admin, groups), output)


async def _delete_offsets(admin: Maintenance, groups: list[str], output: str, options: dict[str, Any]) -> int:
    keys = await partitions_of(admin, options["topics"])
    status = 0
    for name in groups:
        outcomes = await admin.delete_offsets(name, keys)
        rows = outcome_rows(outcomes)
        if any(code is not ErrorCode.NONE for code in outcomes.values()):
            status = EXIT_REFUSED
        if output != "table":
            emit([{"group": name, **row} for row in rows], output, ["group", "topic", "partition", "status"])
        else:
            if status == 0:
                click.echo(f"Request succeeded for deleting offsets from group {name}.\n")
            else:
                click.echo(f"Encountered some partition level error, see the follow-up details:\n\n{name}")
            click.echo(_table(rows))
    return status


_ACTIONS = {"describe": _describe, "reset": _reset, "delete": _delete, "delete-offsets": _delete_offsets}
