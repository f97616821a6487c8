"""`minikafka consumer-groups`: kafka-consumer-groups.sh."""

from __future__ import annotations

import csv
import io
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import EXIT_REFUSED, emit
from minikafka.cli.session import java_exception, operator_command, with_admin
from minikafka.client.errors import BrokerError, ClientError
from minikafka.core.pattern import InvalidPattern, Pattern
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance

Partition = tuple[str, int]
OFFSET_COLUMNS = ["group", "topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id", "host", "client_id"]
MEMBER_COLUMNS = ["group", "consumer_id", "host", "client_id", "partitions"]
STATE_COLUMNS = ["group", "coordinator", "assignment_strategy", "state", "members"]
TITLES = {"coordinator": "COORDINATOR (ID)", "members": "#MEMBERS", "partitions": "#PARTITIONS"}
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
RESETS = ("to_earliest", "to_latest", "to_offset", "to_datetime", "by_duration", "shift_by", "to_current", "from_file")


@operator_command("consumer-groups")
@click.option("--list", "action", flag_value="list", help="List groups.")
@click.option("--describe", "action", flag_value="describe", help="Show offsets and lag, or members, or state.")
@click.option("--delete", "action", flag_value="delete", help="Delete groups without members.")
@click.option("--reset-offsets", "action", flag_value="reset", help="Set a group's offsets (with --execute).")
@click.option("--delete-offsets", "action", flag_value="delete-offsets", help="Forget a group's offsets of --topic.")
@click.option("--group", "groups", multiple=True, help="Group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="Topic, or partitions of it; may be repeated.")
@click.option("--all-topics", is_flag=True, help="Every topic that the group has offsets of.")
@click.option("--members", "view", flag_value="members", help="Describe the members.")
@click.option("--state", "view", flag_value="state", help="Describe the state; with --list, show it.")
@click.option("--offsets", "view", flag_value="offsets", help="Describe the offsets.")
@click.option("--type", "types", is_flag=False, flag_value="", metavar="[TYPE,..]", help="With --list: show types, or only these types.")
@click.option("--verbose", is_flag=True, help="With --members: what each is assigned.")
@click.option("--to-earliest", is_flag=True, help="To the first offset.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-current", is_flag=True, help="To where it is.")
@click.option("--to-offset", type=int, help="To this offset.")
@click.option("--to-datetime", help="To the first record from YYYY-MM-DDTHH:MM:SS.sss[Z] on.")
@click.option("--by-duration", help="To the first record of the last PnDTnHnMnS.")
@click.option("--shift-by", type=int, help="By so many records, back when negative.")
@click.option("--from-file", type=click.Path(exists=True, dir_okay=False), help="As an --export has written: topic,partition,offset.")
@click.option("--dry-run", is_flag=True, help="Only show what would be (the default).")
@click.option("--execute", is_flag=True, help="Do it.")
@click.option("--export", is_flag=True, help="Print as CSV.")
@click.option("--validate-regex", "regex", metavar="REGEX", help="Whether a pattern is one that groups can subscribe to (RE2).")
@click.option("--timeout", type=int, default=5000, help="Accepted for Kafka's sake.", hidden=True)
def consumer_groups(bootstrap: str, action: str | None, output: str, traceback: bool, **options: Any) -> None:
    """List, describe, reset and delete consumer groups."""
    if options["regex"] is not None:
        _validate(options["regex"])
        return
    if action is None:
        raise click.UsageError("say what to do: --list, --describe, --reset-offsets, --delete-offsets or --delete")
    if action != "list" and not options["groups"] and not options["all_groups"]:
        raise click.UsageError(f"--{action} needs --group{'' if action == 'delete-offsets' else ' or --all-groups'}")
    if action == "reset":
        chosen = [name for name in RESETS if options[name] not in (None, False)]
        if len(chosen) != 1:
            raise click.UsageError("say where to: one of " + ", ".join("--" + name.replace("_", "-") for name in RESETS))
        if not (options["topics"] or options["all_topics"] or options["from_file"]):
            raise click.UsageError("--reset-offsets needs --topic or --all-topics")
    if action == "delete-offsets" and not options["topics"]:
        raise click.UsageError("--delete-offsets needs --topic")

    async def work(admin: Maintenance) -> int:
        listed = await admin.list_groups_with_types() if action == "list" or options["all_groups"] else []
        if action == "list":
            return _list(listed, options["view"], options["types"], output)
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


#: What Kafka's tool calls types of groups.
TYPES = ("Classic", "Consumer", "Share", "Streams", "Unknown")


def _list(listed: list[tuple[str, str, str, str]], view: str | None, types: str | None, output: str) -> int:
    wanted = [name.strip().capitalize() for name in (types or "").split(",") if name.strip()]
    strange = [name for name in wanted if name not in TYPES]
    if strange:
        raise click.BadParameter(f"{strange[0].lower()}: known are {', '.join(TYPES).lower()}", param_hint="--type")
    rows = [
        {"group": name, "state": state, "protocol_type": kind, "type": group_type.capitalize()}
        for name, kind, state, group_type in listed
        if not wanted or group_type.capitalize() in wanted
    ]
    if output != "table":
        emit(rows, output, ["group", "state", "protocol_type", "type"])
    elif types is not None:
        columns = {"group": 25, "type": 20, **({"state": 20} if view == "state" else {})}
        for row in [{name: name.upper() for name in columns}, *rows]:
            click.echo(" ".join(f"{row[name]:<{width}}" for name, width in columns.items()))
    elif view == "state":
        width = max([15, *(len(name) for name, *_ in listed)])
        click.echo(f"{'GROUP':<{width}} {'STATE':<20}")
        for row in rows:
            click.echo(f"{row['group']:<{width}} {row['state']:<20}")
    else:
        for row in rows:
            click.echo(row["group"])
    return 0


@operator_command("groups")
@click.option("--list", "action", flag_value="list", help="List groups of all types.")
@click.option("--group-type", "kind", type=click.Choice([name.lower() for name in TYPES], case_sensitive=False), help="Only this type.")
@click.option("--protocol", help="Only this protocol type.")
@click.option("--consumer", "chosen", flag_value="consumer", help="Only groups of consumers, those that only store offsets included.")
@click.option("--share", "chosen", flag_value="share", help="Only share groups.")
@click.option("--streams", "chosen", flag_value="streams", help="Only streams groups: none here.")
def groups(bootstrap: str, action: str | None, output: str, traceback: bool, **options: Any) -> None:
    """List groups of all types, as kafka-groups.sh."""
    if action is None:
        raise click.UsageError("say what to do: --list")
    chosen, kind, protocol = options["chosen"], options["kind"], options["protocol"]
    if chosen and (kind or protocol):
        raise click.UsageError(f"--{chosen} does not go with --group-type and --protocol")

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
    view = options["view"] or "offsets"
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
                click.echo("\n" + _kafka_table(rows))
            if group.state == "Empty":
                click.echo(f"\nConsumer group '{name}' has no active members.", err=True)
            elif group.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
                click.echo(f"\nWarning: Consumer group '{name}' is rebalancing.", err=True)
    if output != "table":
        emit(everything, output, {"members": MEMBER_COLUMNS, "state": STATE_COLUMNS}.get(view, OFFSET_COLUMNS))
    return status


def _kafka_table(rows: list[dict[str, Any]]) -> str:
    """Columns with the names and widths of Kafka's tool."""
    least = {"partition": 10, "state": 20, "assignment_strategy": 20, "coordinator": 25}
    columns = list(rows[0])
    cells = [["-" if row[c] is None else str(row[c]) for c in columns] for row in rows]
    titles = [TITLES.get(c, c.upper().replace("_", "-")) for c in columns]
    widths = [max(least.get(c, 15), len(titles[n]), *(len(line[n]) for line in cells)) for n, c in enumerate(columns)]
    if columns[-1] in ("client_id", "new_offset", "members"):
        widths[-1] = 0
    return "\n".join(" ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) for line in [titles, *cells])


async def _offsets_view(admin: Maintenance, group: Any, verbose: bool) -> list[dict[str, Any]]:
    committed = await admin.group_offsets(group.group_id)
    owners = {(topic, index): member for member in group.members for topic, indexes in member[3].items() for index in indexes}
    keys = sorted(set(committed) | set(owners))
    ends = await admin.list_offsets(dict.fromkeys(keys, "latest"))
    rows = []
    for key in keys:
        owner, offset, end = owners.get(key), committed.get(key), ends[key].offset
        rows.append(
            {
                "group": group.group_id, "topic": key[0], "partition": key[1], "current_offset": offset, "log_end_offset": end,
                "lag": None if offset is None else end - offset,
                "consumer_id": owner[0] if owner else None, "host": owner[2] if owner else None, "client_id": owner[1] if owner else None,
            }
        )  # fmt: skip
    return rows


async def _members_view(admin: Maintenance, group: Any, verbose: bool) -> list[dict[str, Any]]:
    rows = []
    for member_id, client_id, host, assignment in group.members:
        count = sum(len(indexes) for indexes in assignment.values())
        row = {"group": group.group_id, "consumer_id": member_id, "host": host, "client_id": client_id, "partitions": count}
        if verbose:
            shown = ", ".join(f"{topic}({','.join(map(str, sorted(indexes)))})" for topic, indexes in sorted(assignment.items()))
            row["current_assignment"] = shown or "-"
        rows.append(row)
    return rows


async def _state_view(admin: Maintenance, group: Any, verbose: bool) -> list[dict[str, Any]]:
    where = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator.node_id})"
    return [
        {
            "group": group.group_id, "coordinator": where, "assignment_strategy": group.protocol or None, "state": group.state,
            "members": len(group.members),
        }
    ]  # fmt: skip


_VIEWS = {"offsets": _offsets_view, "members": _members_view, "state": _state_view}


# -- reset -------------------------------------------------------------------------------------------------------------


async def _reset(admin: Maintenance, groups: list[str], output: str, options: dict[str, Any]) -> int:
    if not options["execute"] and not options["export"] and not options["dry_run"]:
        click.echo("WARN: No action will be performed as the --execute option is missing.", err=True)
    status = 0
    found: list[dict[str, Any]] = []
    for name in groups:
        group = await admin.describe_group(name)
        if group.state not in ("Empty", "Dead"):
            click.echo(
                f"Error: Assignments can only be reset if the group '{name}' is inactive, but the current state is {group.state}.", err=True
            )
            status = EXIT_REFUSED
            continue
        offsets = await _targets(admin, name, options)
        if options["execute"] and not options["dry_run"] and offsets:
            await admin.commit_offsets(name, offsets)
        found += [{"group": name, "topic": t, "partition": p, "new_offset": offset} for (t, p), offset in sorted(offsets.items())]
    if options["export"]:
        for row in found:
            cells = [row["topic"], row["partition"], row["new_offset"]]
            click.echo(",".join(map(str, cells if len(groups) == 1 else [row["group"], *cells])))
    elif output != "table":
        emit(found, output, ["group", "topic", "partition", "new_offset"])
    elif found:
        click.echo("\n" + _kafka_table(found))
    return status


async def _targets(admin: Maintenance, group: str, options: dict[str, Any]) -> dict[Partition, int]:
    if options["from_file"]:
        wanted = _from_file(options["from_file"], group)
        return await _within(admin, wanted)
    committed = await admin.group_offsets(group)
    keys = sorted(committed) if options["all_topics"] else await partitions_of(admin, options["topics"])
    if options["to_earliest"] or options["to_latest"]:
        listed = await admin.list_offsets(dict.fromkeys(keys, "earliest" if options["to_earliest"] else "latest"))
        return {key: listed[key].offset for key in keys}
    if options["to_datetime"] or options["by_duration"]:
        when = parsed_datetime(options["to_datetime"]) if options["to_datetime"] else datetime.now(UTC) - _duration(options["by_duration"])
        at = await admin.list_offsets(dict.fromkeys(keys, int(when.timestamp() * 1000)))
        ends = await admin.list_offsets(dict.fromkeys(keys, "latest"))
        return {key: at[key].offset if at[key].offset >= 0 else ends[key].offset for key in keys}
    if options["to_offset"] is not None:
        return await _within(admin, dict.fromkeys(keys, options["to_offset"]))
    ends = await admin.list_offsets(dict.fromkeys([key for key in keys if key not in committed], "latest"))
    current = {key: committed[key] if key in committed else ends[key].offset for key in keys}
    if options["to_current"]:
        return current
    missing = [key for key in keys if key not in committed]
    if missing:
        raise ClientError(f"Cannot shift offset for partition {missing[0][0]}-{missing[0][1]} since there is no current committed offset")
    return await _within(admin, {key: offset + options["shift_by"] for key, offset in current.items()})


async def _within(admin: Maintenance, wanted: dict[Partition, int]) -> dict[Partition, int]:
    """Offsets are kept between the ends of the logs."""
    low = await admin.list_offsets(dict.fromkeys(wanted, "earliest"))
    high = await admin.list_offsets(dict.fromkeys(wanted, "latest"))
    settled = {}
    for key, offset in wanted.items():
        settled[key] = min(max(offset, low[key].offset), high[key].offset)
        if settled[key] != offset:
            side = "higher than latest" if offset > settled[key] else "lower than earliest"
            click.echo(
                f"WARN: New offset ({offset}) is {side} offset for topic partition {key[0]}-{key[1]}. Value will be set to {settled[key]}",
                err=True,
            )
    return settled


async def partitions_of(admin: Maintenance, topics: tuple[str, ...]) -> list[Partition]:
    """Partitions that TOPIC or TOPIC:0,1 stand for. Raises ClientError."""
    keys: list[Partition] = []
    for text in topics:
        name, separator, span = text.rpartition(":")
        is_span = bool(separator) and re.fullmatch(r"\d+(,\d+)*", span) is not None
        topic = name if is_span else text
        described = (await admin.describe_topics([topic]))[0]
        indexes = [int(part) for part in span.split(",")] if is_span else [p.index for p in described.partitions]
        missing = [index for index in indexes if index >= len(described.partitions)]
        if missing:
            raise ClientError(f"topic {topic} has no partition {missing[0]}")
        keys += [(topic, index) for index in indexes]
    return keys


def _from_file(path: str, group: str) -> dict[Partition, int]:
    wanted: dict[Partition, int] = {}
    with open(path, encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.reader(io.StringIO(file.read())), 1):
            if not row:
                continue
            cells = row[1:] if len(row) == 4 else row
            try:
                topic, index, offset = cells[0], int(cells[1]), int(cells[2])
            except (IndexError, ValueError) as error:
                raise ClientError(f"{path}, line {number}: must be topic,partition,offset") from error
            if len(row) == 3 or row[0] == group:
                wanted[(topic, index)] = offset
    return wanted


def parsed_datetime(text: str) -> datetime:
    """A time, of UTC unless it says otherwise. Raises click.BadParameter."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not YYYY-MM-DDTHH:MM:SS.sss", param_hint="--to-datetime") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text.upper())
    if match is None or not any(match.groups()):
        raise click.BadParameter(f"{text!r} is not PnDTnHnMnS", param_hint="--by-duration")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


# -- delete ------------------------------------------------------------------------------------------------------------


async def _delete(admin: Maintenance, groups: list[str], output: str, options: dict[str, Any]) -> int:
    failed: dict[str, BrokerError] = {}
    for name in groups:
        try:
            await admin.delete_group(name)
        except BrokerError as error:
            failed[name] = error
    good = [name for name in groups if name not in failed]
    if output != "table":
        rows = [{"group": n, "deleted": n not in failed, "error": failed[n].code.name if n in failed else None} for n in groups]
        emit(rows, output, ["group", "deleted", "error"])
    elif good and not failed:
        click.echo("Deletion of requested consumer groups (" + ", ".join(f"'{name}'" for name in good) + ") was successful.")
    for number, (name, failure) in enumerate(failed.items()):
        if not number:
            click.echo("Error: Deletion of some consumer groups failed:", err=True)
        click.echo(f"* Group '{name}' could not be deleted due to: {java_exception(failure.code)}: {failure.code.text}", err=True)
    if good and failed and output == "table":
        click.echo("These consumer groups were deleted successfully: " + ", ".join(f"'{name}'" for name in good))
    return EXIT_REFUSED if failed else 0


async def _delete_offsets(admin: Maintenance, groups: list[str], output: str, options: dict[str, Any]) -> int:
    keys = await partitions_of(admin, options["topics"])
    status = 0
    for name in groups:
        outcomes = await admin.delete_offsets(name, keys)
        rows = [
            {"topic": t, "partition": p, "status": "Successful" if code is ErrorCode.NONE else f"Error: {code.text}"}
            for (t, p), code in outcomes.items()
        ]
        if any(code is not ErrorCode.NONE for code in outcomes.values()):
            status = EXIT_REFUSED
        if output != "table":
            emit([{"group": name, **row} for row in rows], output, ["group", "topic", "partition", "status"])
        else:
            if status == 0:
                click.echo(f"Request succeeded for deleting offsets from group {name}.\n")
            else:
                click.echo(f"Encountered some partition level error, see the follow-up details:\n\n{name}")
            click.echo(_kafka_table(rows))
    return status


_ACTIONS = {"describe": _describe, "reset": _reset, "delete": _delete, "delete-offsets": _delete_offsets}
