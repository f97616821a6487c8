"""`minikafka get-offsets` (kafka-get-offsets.sh) and `minikafka delete-records` (kafka-delete-records.sh)."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import EXIT_REFUSED, emit
from minikafka.cli.session import java_exception, named, numbers, operator_command, partition_filter, partitions_from_json, with_admin
from minikafka.client.errors import BrokerError, ClientError

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance

TIMES = {"latest": -1, "earliest": -2, "max-timestamp": -3, "earliest-local": -4, "latest-tiered": -5, "earliest-pending-upload": -6}
DELETE_TO_END = -1


@operator_command("get-offsets")
@click.option("--topic", help="Regular expression of topics [default: all].")
@click.option("--partitions", help="Only these partitions: 0,1.")
@click.option("--topic-partitions", help="TOPIC:FROM-TO,..: patterns with ranges, TO exclusive. t:1 is one partition, t:2- all from 2.")
@click.option("--time", "when", default="latest", show_default=True, help="earliest, latest, max-timestamp, .. or milliseconds since 1970.")
@click.option("--exclude-internal-topics", is_flag=True, help="Leave out internal topics.")
def get_offsets(bootstrap: str, output: str, traceback: bool, **options: Any) -> None:
    """Show the offsets of partitions at a given time."""
    if options["topic_partitions"] and (options["topic"] or options["partitions"]):
        raise click.UsageError("--topic-partitions cannot be combined with --topic and --partitions")
    text = options["when"]
    if text not in TIMES and not re.fullmatch(r"-?\d+", text):
        raise click.BadParameter(f"{text!r} is not a time: {', '.join(TIMES)} or milliseconds since 1970", param_hint="--time")
    timestamp = TIMES[text] if text in TIMES else int(text)
    chosen = _chooser(options)

    async def work(admin: Maintenance) -> None:
        topics = await admin.list_topics(with_internal=not options["exclude_internal_topics"])
        keys = [
            (name, p.index)
            for name in topics
            for p in admin.cluster.topics[name].partitions
            if chosen(name, p.index) and (p.leader >= 0 or output != "table")
        ]
        if not keys:
            raise ClientError("Could not match any topic-partitions with the specified filters")
        rows: list[dict[str, Any]] = []
        for topic, index in keys:
            try:
                found = (await admin.list_offsets({(topic, index): timestamp}))[(topic, index)]
            except BrokerError as error:
                click.echo(f"Skip getting offsets for topic-partition {topic}:{index} due to error: {error}", err=True)
                continue
            rows.append({"topic": topic, "partition": index, "offset": found.offset, "leader_epoch": found.leader_epoch})
        if output == "table":
            for row in rows:
                if row["offset"] >= 0:
                    click.echo(f"{row['topic']}:{row['partition']}:{row['offset']}")
        else:
            emit(rows, output, ["topic", "partition", "offset", "leader_epoch"])

    with_admin(bootstrap, work, traceback=traceback)


def _chooser(options: dict[str, Any]) -> Any:
    if options["topic_partitions"]:
        rules = partition_filter(options["topic_partitions"], "--topic-partitions")
        return lambda topic, index: any(p.fullmatch(topic) and (span is None or index in span) for p, span in rules)
    try:
        pattern = re.compile(options["topic"] or ".*")
    except re.error as error:
        raise click.BadParameter(f"{options['topic']!r}: {error}", param_hint="--topic") from error
    requested = set(numbers(options["partitions"], "--partitions")) if options["partitions"] else None
    return lambda topic, index: bool(pattern.fullmatch(topic)) and (requested is None or index in requested)


@operator_command("delete-records")
@click.option("--offset-json-file", required=True, help='{"partitions": [{"topic": "t", "partition": 0, "offset": 10}]}; -1 = to the end.')
def delete_records(bootstrap: str, offset_json_file: str, output: str, traceback: bool) -> None:
    """Delete the records of partitions before an offset."""
    requested: dict[tuple[str, int], int] = {}
    for key, offset in partitions_from_json(offset_json_file, "--offset-json-file", "offset"):
        if type(offset) is not int or offset < DELETE_TO_END:
            raise click.BadParameter(f"{named([key])} needs an offset, not {offset!r}", param_hint="--offset-json-file")
        requested[key] = offset

    async def work(admin: Maintenance) -> int:
        found = await admin.delete_records_of(requested)
        if output != "table":
            rows = [
                {
                    "topic": t, "partition": p, "low_watermark": low if isinstance(low, int) else None,
                    "error": None if isinstance(low, int) else low.code.name,
                }
                for (t, p), low in found.items()
            ]  # fmt: skip
            emit(rows, output, ["topic", "partition", "low_watermark", "error"])
        else:
            click.echo("Executing records delete operation\nRecords delete operation completed:")
            for key, low in found.items():
                if isinstance(low, int):
                    click.echo(f"partition: {named([key])}\tlow_watermark: {low}")
                else:
                    click.echo(f"partition: {named([key])}\terror: {java_exception(low.code)}: {low.message}")
        return 0 if all(isinstance(low, int) for low in found.values()) else EXIT_REFUSED

    sys.exit(with_admin(bootstrap, work, traceback=traceback))
