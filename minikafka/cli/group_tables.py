"""Output that Kafka's group tools share: tables, lists of groups by state, and the results of deletions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import EXIT_REFUSED, emit
from minikafka.cli.session import java_exception
from minikafka.client.errors import BrokerError
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance

TITLES = {"coordinator": "COORDINATOR (ID)", "members": "#MEMBERS", "partitions": "#PARTITIONS"}
WIDTH_MIN = 15


def check_choice(options: Mapping[str, Any]) -> None:
    """Check that --group is not given beside --all-groups, which would mean other groups, too. Raises click.UsageError."""
    if options["groups"] and options["all_groups"]:
        raise click.UsageError("--group and --all-groups exclude each other")


def kafka_table(rows: list[dict[str, Any]], least: Mapping[str, int], *, is_last_padded: bool = False) -> str:
    """Columns with the names and minimum widths of Kafka's tools. `least`: minimum width by column, 15 for the others."""
    columns = list(rows[0])
    cells = [["-" if row[column] is None else str(row[column]) for column in columns] for row in rows]
    titles = [TITLES.get(column, column.upper().replace("_", "-")) for column in columns]
    widths = [
        max(least.get(column, WIDTH_MIN), len(titles[place]), *(len(line[place]) for line in cells)) for place, column in enumerate(columns)
    ]
    if not is_last_padded:
        widths[-1] = 0
    return "\n".join(" ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) for line in [titles, *cells])


def echo_groups(listed: list[tuple[str, str]], requested: str | None, states: Sequence[str], output: str) -> int:
    """Print group ids. `requested`: comma-separated states to show, or "" for all, both with the states; None for the ids alone.

    Raises click.BadParameter for an unknown state."""
    by_name = {state.lower(): state for state in states}
    names = [name.strip() for name in (requested or "").split(",") if name.strip()]
    strange = [name for name in names if name.lower() not in by_name]
    if strange:
        raise click.BadParameter(f"{strange[0]}: must be one of {', '.join(states)}", param_hint="--state")
    chosen = {by_name[name.lower()] for name in names}
    rows = [{"group": name, "state": state} for name, state in listed if not chosen or state in chosen]
    if output != "table":
        emit(rows, output, ["group", "state"])
    elif requested is None:
        for row in rows:
            click.echo(row["group"])
    else:
        width = max([WIDTH_MIN, *(len(row["group"]) for row in rows)])
        for row in [{"group": "GROUP", "state": "STATE"}, *rows]:
            click.echo(f"{row['group']:<{width}} {row['state']}")
    return 0


async def delete_groups(admin: Maintenance, groups: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Delete groups. Returns, for each that could not be deleted, the error's name and the message of Kafka's tools."""
    failed: dict[str, tuple[str, str]] = {}
    for name in groups:
        try:
            await admin.delete_group(name)
        except BrokerError as error:
            failed[name] = error.code.name, f"{java_exception(error.code)}: {error.code.text}"
    return failed


def echo_deletion(kind: str, groups: list[str], failed: Mapping[str, tuple[str, str]], output: str) -> int:
    """Print which groups were deleted and which were not. `failed` comes from `delete_groups`. Returns the exit code."""
    good = [name for name in groups if name not in failed]
    shown = ", ".join(f"'{name}'" for name in good)
    if output != "table":
        rows = [{"group": name, "deleted": name in good, "error": failed[name][0] if name in failed else None} for name in groups]
        emit(rows, output, ["group", "deleted", "error"])
    elif good and not failed:
        click.echo(f"Deletion of requested {kind} groups ({shown}) was successful.")
    if failed:
        click.echo(f"Error: Deletion of some {kind} groups failed:", err=True)
        for name, (_, why) in failed.items():
            click.echo(f"* Group '{name}' could not be deleted due to: {why}", err=True)
        if good and output == "table":
            click.echo(f"\nThese {kind} groups were deleted successfully: {shown}")
    return EXIT_REFUSED if failed else 0


def outcome_rows(outcomes: Mapping[tuple[str, int], ErrorCode]) -> list[dict[str, Any]]:
    """Table rows with the result of deleting the offsets of each partition."""
    return [
        {"topic": topic, "partition": index, "status": "Successful" if code is ErrorCode.NONE else f"Error: {code.text}"}
        for (topic, index), code in outcomes.items()
    ]
