"""`minikafka share-groups`: kafka-share-groups.sh."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import EXIT_REFUSED, emit
from minikafka.cli.group_offsets import check_reset, echo_csv, partitions_of, share_reset_options, targets
from minikafka.cli.group_tables import check_choice, delete_groups, echo_deletion, echo_groups, kafka_table
from minikafka.cli.session import java_exception, operator_command, with_admin
from minikafka.client.errors import BrokerError, ClientError
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance
    from minikafka.client.share_groups import ShareGroupDescription

STATES = ("Empty", "Stable", "Dead")
SHARE = "share"
_LEAST = {"partition": 10, "coordinator": 25, "state": 15, "group_epoch": 12, "assignment_epoch": 16}
_LEAST |= {"members": 8, "leader_epoch": 13, "start_offset": 13, "member_epoch": 12, "new_offset": 10, "lag": 0}


@operator_command("share-groups")
@click.option("--list", "action", flag_value="list", help="List share groups.")
@click.option("--describe", "action", flag_value="describe", help="Show offsets and lag, or members, or state.")
@click.option("--delete", "action", flag_value="delete", help="Delete share groups without members.")
@click.option("--reset-offsets", "action", flag_value="reset", help="Set a group's start offsets (with --execute).")
@click.option("--delete-offsets", "action", flag_value="delete-offsets", help="Delete a group's offsets of --topic.")
@click.option("--group", "groups", multiple=True, help="Share group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="Every share group.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="Topic, or partitions of it; may be repeated.")
@click.option("--all-topics", is_flag=True, help="Every topic that the group has offsets for.")
@click.option("--members", "view", flag_value="members", help="Describe the members.")
@click.option("--offsets", "view", flag_value="offsets", help="Describe the offsets.")
@click.option(
    "--state", "states", is_flag=False, flag_value="", metavar="[STATE,..]", help="Describe the state; with --list, show it, or only these."
)
@click.option("--verbose", is_flag=True, help="Also show epochs and the members' assignments.")
@share_reset_options
@click.option("--timeout", type=int, default=30_000, help="Accepted, no effect.", hidden=True)
def share_groups(bootstrap: str, action: str | None, output: str, traceback: bool, **options: Any) -> None:
    """List, describe, reset and delete share groups."""
    _check(action, options)

    async def work(admin: Maintenance) -> int:
        listed: list[tuple[str, str]] = []
        if action in ("list", "delete") or options["all_groups"]:
            listed = [(name, state) for name, _, state, kind in await admin.list_groups_with_types() if kind == SHARE]
        if action == "list":
            return echo_groups(listed, options["states"], STATES, output)
        chosen = [name for name, _ in listed] if options["all_groups"] else list(dict.fromkeys(options["groups"]))
        if action == "delete":
            return await _delete(admin, chosen, dict(listed), output)
        return await _ACTIONS[action or ""](admin, chosen, output, options)

    sys.exit(with_admin(bootstrap, work, traceback=traceback))


def _check(action: str | None, options: dict[str, Any]) -> None:
    """Check the combination of options. Raises click.UsageError."""
    if action is None:
        raise click.UsageError("specify an action: --list, --describe, --reset-offsets, --delete-offsets or --delete")
    check_choice(options)
    has_groups = bool(options["groups"]) or (options["all_groups"] and action not in ("reset", "delete-offsets"))
    if action != "list" and not has_groups:
        raise click.UsageError(f"--{action} needs --group")
    if action == "reset":
        check_reset(options)
        if not (options["topics"] or options["all_topics"] or options["from_file"]):
            raise click.UsageError("--reset-offsets needs --topic, --all-topics or --from-file")
        if options["dry_run"] == options["execute"]:
            raise click.UsageError("--reset-offsets needs --dry-run or --execute")
    if action == "delete-offsets" and not options["topics"]:
        raise click.UsageError("--delete-offsets needs --topic")


# -- describe ----------------------------------------------------------------------------------------------------------


async def _describe(admin: Maintenance, groups: list[str], output: str, options: dict[str, Any]) -> int:
    from minikafka.client.share_groups import ShareGroupAdmin

    shares, status, everything = ShareGroupAdmin(admin), 0, []
    view = "state" if options["states"] is not None else options["view"] or "offsets"
    for name in groups:
        try:
            group = await shares.describe(name)
        except BrokerError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            click.echo(f"Error: Share group '{name}' does not exist.", err=True)
            status = EXIT_REFUSED
            continue
        if view == "offsets":
            rows = await _offset_rows(shares, name, options["verbose"])
        else:
            rows = (_member_rows if view == "members" else _state_rows)(group, options["verbose"])
        everything += rows
        if output == "table":
            if rows:
                click.echo("\n" + kafka_table(rows, _LEAST))
            elif view == "offsets":
                click.echo(f"\nShare group '{name}' has no offset information.")
            if group.state == "Empty" and view != "state":
                click.echo(f"\nShare group '{name}' has no active members.", err=True)
    if output != "table":
        emit(everything, output, list(everything[0]) if everything else ["group"])
    return status


async def _offset_rows(shares: Any, group_id: str, verbose: bool) -> list[dict[str, Any]]:
    rows = []
    for (topic, index), offset in sorted((await shares.offsets(group_id)).items()):
        row: dict[str, Any] = {"group": group_id, "topic": topic, "partition": index}
        if verbose:
            row["leader_epoch"] = offset.leader_epoch if offset.start_offset >= 0 else None
        row["start_offset"] = None if offset.start_offset < 0 else offset.start_offset
        row["lag"] = None if offset.lag < 0 else offset.lag
        rows.append(row)
    return rows


def _member_rows(group: ShareGroupDescription, verbose: bool) -> list[dict[str, Any]]:
    rows = []
    for member_id, epoch, client_id, host, assignment in group.members:
        count = sum(len(indexes) for indexes in assignment.values())
        shown = ";".join(f"{topic}:{','.join(map(str, sorted(indexes)))}" for topic, indexes in sorted(assignment.items()))
        row: dict[str, Any] = {"group": group.group_id, "consumer_id": member_id, "host": host, "client_id": client_id, "partitions": count}
        if verbose:
            row["member_epoch"] = epoch
        row["assignment"] = shown or None
        rows.append(row)
    return rows


def _state_rows(group: ShareGroupDescription, verbose: bool) -> list[dict[str, Any]]:
    row: dict[str, Any] = {
        "group": group.group_id, "coordinator": f"{group.coordinator[0]}  ({group.coordinator[1]})", "state": group.state,
    }  # fmt: skip
    if verbose:
        row |= {"group_epoch": group.group_epoch, "assignment_epoch": group.assignment_epoch}
    return [{**row, "members": len(group.members)}]


# -- offsets -----------------------------------------------------------------------------------------------------------


async def _reset(admin: Maintenance, groups: list[str], output: str, options: dict[str, Any]) -> int:
    from minikafka.client.share_groups import ShareGroupAdmin

    shares, group_id = ShareGroupAdmin(admin), groups[0]
    if len(groups) > 1:
        raise ClientError("--reset-offsets takes one share group at a time")
    try:
        group = await shares.describe(group_id)
    except BrokerError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    else:
        if group.members:
            raise ClientError(f"Share group '{group_id}' is not empty.")
    starts = await shares.offsets(group_id) if options["all_topics"] or options["to_current"] else {}
    keys = sorted(starts) if options["all_topics"] else await partitions_of(admin, options["topics"])
    current = {key: start.start_offset for key, start in starts.items() if start.start_offset >= 0}
    offsets = await targets(admin, group_id, keys, current, options)
    if options["execute"] and offsets:
        await shares.alter_offsets(group_id, offsets)
    rows = [{"group": group_id, "topic": t, "partition": p, "new_offset": offset} for (t, p), offset in sorted(offsets.items())]
    if options["export"]:
        echo_csv(rows, is_one_group=True)
    elif output != "table":
        emit(rows, output, ["group", "topic", "partition", "new_offset"])
    elif rows:
        click.echo("\n" + kafka_table(rows, _LEAST))
    return 0


async def _delete_offsets(admin: Maintenance, groups: list[str], output: str, options: dict[str, Any]) -> int:
    from minikafka.client.share_groups import ShareGroupAdmin

    if len(groups) > 1:
        raise ClientError("--delete-offsets takes one share group at a time")
    outcomes = await ShareGroupAdmin(admin).delete_offsets(groups[0], dict.fromkeys(options["topics"]))
    rows = [
        {"topic": topic, "status": "Successful" if code is ErrorCode.NONE else f"Error: {code.text}"}
        for topic, code in sorted(outcomes.items())
    ]
    if output != "table":
        emit([{"group": groups[0], **row} for row in rows], output, ["group", "topic", "status"])
    elif rows:
        click.echo("\n" + kafka_table(rows, _LEAST))
    return EXIT_REFUSED if any(code is not ErrorCode.NONE for code in outcomes.values()) else 0


async def _delete(admin: Maintenance, groups: list[str], states: dict[str, str], output: str) -> int:
    failed: dict[str, tuple[str, str]] = {}
    for name in groups:
        if name not in states:
            failed[name] = "GROUP_ID_NOT_FOUND", f"java.lang.IllegalArgumentException: Group '{name}' is not a share group."
        elif states[name] != "Empty":
            failed[name] = "NON_EMPTY_GROUP", f"{java_exception(ErrorCode.NON_EMPTY_GROUP)}: Share group '{name}' is not EMPTY."
    failed |= await delete_groups(admin, [name for name in groups if name not in failed])
    return echo_deletion("share", groups, failed, output)


_ACTIONS = {"describe": _describe, "reset": _reset, "delete-offsets": _delete_offsets}
