"""`minikafka consumer-groups`: list and describe groups, with the columns of kafka-consumer-groups.sh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import bootstrap_option, command_config_option, emit, output_option, run, traceback_option

if TYPE_CHECKING:
    from minikafka.client.admin import Admin

OFFSET_COLUMNS = ["group", "topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id", "host", "client_id"]
MEMBER_COLUMNS = ["group", "consumer_id", "host", "client_id", "partitions"]
STATE_COLUMNS = ["group", "coordinator", "assignment_strategy", "state", "members"]


@click.command("consumer-groups")
@bootstrap_option
@command_config_option
@click.option("--list", "action", flag_value="list", help="List groups.")
@click.option("--describe", "action", flag_value="describe", help="Show offsets and lag, or members, or state.")
@click.option("--group", "groups", multiple=True, help="Group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--members", "view", flag_value="members", help="Describe the members.")
@click.option("--state", "view", flag_value="state", help="Describe the state; with --list, show it.")
@click.option("--offsets", "view", flag_value="offsets", help="Describe the offsets.")
@output_option
@traceback_option
def consumer_groups(
    bootstrap: str, action: str | None, groups: tuple[str, ...], all_groups: bool, view: str | None, output: str, traceback: bool
) -> None:
    """List and describe consumer groups."""
    if action is None:
        raise click.UsageError("say what to do: --list or --describe")
    if action == "describe" and not groups and not all_groups:
        raise click.UsageError("--describe needs --group or --all-groups")

    async def go() -> None:
        from minikafka.client.admin import Admin

        async with Admin(bootstrap) as admin:
            listed = await admin.list_groups() if action == "list" or all_groups else []
            if action == "list":
                rows = [{"group": name, "state": state, "protocol_type": kind} for name, kind, state in listed]
                if output == "table" and view != "state":
                    for row in rows:
                        click.echo(row["group"])
                else:
                    emit(rows, output, ["group", "state", "protocol_type"])
                return
            chosen = [name for name, _, _ in listed] if all_groups else list(groups)
            found: list[dict[str, Any]] = []
            for name in chosen:
                found += await _VIEWS[view or "offsets"](admin, name)
            emit(found, output, {"members": MEMBER_COLUMNS, "state": STATE_COLUMNS}.get(view or "", OFFSET_COLUMNS))

    run(go, traceback=traceback)


async def _offsets(admin: Admin, name: str) -> list[dict[str, Any]]:
    group = await admin.describe_group(name)
    committed = await admin.group_offsets(name)
    owners = {(topic, index): member for member in group.members for topic, indexes in member[3].items() for index in indexes}
    keys = sorted(set(committed) | set(owners))
    ends = await admin.list_offsets(dict.fromkeys(keys, "latest"))
    rows = []
    for key in keys:
        owner, offset, end = owners.get(key), committed.get(key), ends[key].offset
        rows.append(
            {
                "group": name, "topic": key[0], "partition": key[1], "current_offset": offset, "log_end_offset": end,
                "lag": None if offset is None else end - offset,
                "consumer_id": owner[0] if owner else None, "host": owner[2] if owner else None, "client_id": owner[1] if owner else None,
            }
        )  # fmt: skip
    return rows


async def _members(admin: Admin, name: str) -> list[dict[str, Any]]:
    group = await admin.describe_group(name)
    return [
        {"group": name, "consumer_id": m[0], "host": m[2], "client_id": m[1], "partitions": sum(len(indexes) for indexes in m[3].values())}
        for m in group.members
    ]


async def _state(admin: Admin, name: str) -> list[dict[str, Any]]:
    group = await admin.describe_group(name)
    where = f"{group.coordinator.host}:{group.coordinator.port} ({group.coordinator.node_id})"
    return [
        {"group": name, "coordinator": where, "assignment_strategy": group.protocol, "state": group.state, "members": len(group.members)}
    ]


_VIEWS = {"offsets": _offsets, "members": _members, "state": _state}
