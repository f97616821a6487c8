"""The new offsets that the --reset-offsets options of Kafka's tools ask for, for groups of every type."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from minikafka.client.errors import ClientError

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance

Partition = tuple[str, int]
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
RESETS = ("to_earliest", "to_latest", "to_offset", "to_datetime", "by_duration", "shift_by", "to_current", "from_file")
_OF_CONSUMERS = (
    click.option("--by-duration", help="Reset to the first record of the last PnDTnHnMnS."),
    click.option("--shift-by", type=int, help="Shift the offset by this many records; negative values go back."),
)
_OPTIONS = (
    click.option("--to-earliest", is_flag=True, help="Reset to the earliest offset."),
    click.option("--to-latest", is_flag=True, help="Reset to the log end offset."),
    click.option("--to-current", is_flag=True, help="Reset to the current committed offset."),
    click.option("--to-offset", type=int, help="Reset to this offset."),
    click.option("--to-datetime", help="Reset to the first record at or after YYYY-MM-DDTHH:MM:SS.sss[Z]."),
    *_OF_CONSUMERS,
    click.option("--from-file", type=click.Path(exists=True, dir_okay=False), help="CSV file written by --export: topic,partition,offset."),
    click.option("--dry-run", is_flag=True, help="Only show the new offsets."),
    click.option("--execute", is_flag=True, help="Apply the new offsets."),
    click.option("--export", is_flag=True, help="Print the new offsets as CSV."),
)


def reset_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add all reset options to a command."""
    return _with(command, _OPTIONS)


def share_reset_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the reset options of share groups, whose offsets cannot be shifted."""
    return _with(command, [option for option in _OPTIONS if option not in _OF_CONSUMERS])


def _with(command: Callable[..., Any], options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def check_reset(options: Mapping[str, Any]) -> None:
    """Check that exactly one reset target is given. Raises click.UsageError."""
    ways = [name for name in RESETS if name in options]
    if len([name for name in ways if options[name] not in (None, False)]) != 1:
        raise click.UsageError("specify the new offset with one of " + ", ".join("--" + name.replace("_", "-") for name in ways))


def echo_csv(found: list[dict[str, Any]], *, is_one_group: bool) -> None:
    """Print rows of group, topic, partition and new_offset in the format that --from-file reads."""
    for row in found:
        cells = [row["topic"], row["partition"], row["new_offset"]]
        click.echo(",".join(map(str, cells if is_one_group else [row["group"], *cells])))


async def targets(
    admin: Maintenance, group: str, keys: list[Partition], committed: Mapping[Partition, int], options: Mapping[str, Any]
) -> dict[Partition, int]:
    """The new offsets for these partitions, or for those in --from-file. Raises ClientError."""
    if options.get("from_file"):
        return await _within(admin, _from_file(options["from_file"], group))
    if options["to_earliest"] or options["to_latest"]:
        listed = await admin.list_offsets(dict.fromkeys(keys, "earliest" if options["to_earliest"] else "latest"))
        return {key: listed[key].offset for key in keys}
    if options["to_datetime"] or options.get("by_duration"):
        when = _datetime(options["to_datetime"]) if options["to_datetime"] else datetime.now(UTC) - _duration(options["by_duration"])
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


async def _within(admin: Maintenance, requested: dict[Partition, int]) -> dict[Partition, int]:
    """The offsets, limited to the range of each partition's log."""
    low = await admin.list_offsets(dict.fromkeys(requested, "earliest"))
    high = await admin.list_offsets(dict.fromkeys(requested, "latest"))
    settled = {}
    for key, offset in requested.items():
        settled[key] = min(max(offset, low[key].offset), high[key].offset)
        if settled[key] != offset:
            side = "higher than latest" if offset > settled[key] else "lower than earliest"
            click.echo(
                f"WARN: New offset ({offset}) is {side} offset for topic partition {key[0]}-{key[1]}. Value will be set to {settled[key]}",
                err=True,
            )
    return settled


async def partitions_of(admin: Maintenance, topics: tuple[str, ...]) -> list[Partition]:
    """The partitions that TOPIC or TOPIC:0,1 names. Raises ClientError."""
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
    requested: dict[Partition, int] = {}
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
                requested[(topic, index)] = offset
    return requested


def _datetime(text: str) -> datetime:
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
