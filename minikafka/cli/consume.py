"""`minikafka consume`: print records to standard output, with kcat's format strings or as JSON."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.client_settings import arguments
from minikafka.cli.common import OUTPUTS, bootstrap_option, command_config_option, run, to_yaml, traceback_option
from minikafka.client.errors import ClientError
from minikafka.counted import counted

if TYPE_CHECKING:
    from minikafka.client.consumer import Consumer
    from minikafka.client.records import ConsumedRecord

DEFAULT_FORMAT = "%s\\n"
POLL_MS = 200
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}


#: Start offsets that kcat accepts with -o.
KCAT_OFFSET = re.compile(r"beginning|start|end|-?\d+|s?@\d+|end-\d+")


class _OutputOrOffset(click.Choice):  # type: ignore[type-arg]
    """A format or, as in kcat, a start offset."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Raises click.BadParameter."""
        return value if isinstance(value, str) and KCAT_OFFSET.fullmatch(value) else super().convert(value, param, ctx)


#: Placeholders and escapes in a format string.
WORDS = re.compile(r"%[tpoksThSK%]|\\[ntr0\\]")


def _check_template(context: click.Context, parameter: click.Parameter, template: str | None) -> str | None:
    unknown = re.search(r"%.?", WORDS.sub("", template or ""))
    if unknown is not None:
        raise click.BadParameter(f"{unknown[0]} is unknown; use %t %p %o %k %s %T %h %S %K or %%")
    return template


@click.command("consume")
@bootstrap_option
@command_config_option
@click.argument("topic_argument", required=False, metavar="[TOPIC]")
@click.option("--topic", "-t", help="Topic to read. With --group and -X group.protocol=consumer also ^PATTERN.")
@click.option("--group", "-g", help="Read as a member of this group and commit offsets.")
@click.option("--partition", "-p", "partitions", multiple=True, type=click.IntRange(0), help="Only this partition; may be repeated.")
@click.option("--offset", help="Start at earliest, latest, end-N (the last N), an offset, or @milliseconds since 1970.")
@click.option("--from-beginning", is_flag=True, help="Start with the earliest record.")
@click.option("--max-messages", "-n", "-c", "records_max", type=click.IntRange(1), help="Stop after this many records.")
@click.option("--exit-at-end", "-e", "exit_at_end", is_flag=True, help="Stop at the end that the log had when the command started.")
@click.option("--timeout-ms", type=click.IntRange(1), help="Stop when no record arrives for this long.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_uncommitted",
    show_default=True,
    help="read_uncommitted also shows records of open and aborted transactions.",
)
@click.option(
    "--format",
    "-f",
    "template",
    default=None,
    callback=_check_template,
    help="kcat's format: %t topic %p partition %o offset %k key %s value %T timestamp %h headers %S %K lengths; \\n \\t.",
)
@click.option(
    "--output",
    "-o",
    type=_OutputOrOffset(OUTPUTS),
    multiple=True,
    help="json, jsonl, yaml: objects. table, wide: one line per record. Or a start offset as in kcat: beginning, end, N, -N, s@TIME.",
)
@click.option("-J", "kcat_json", is_flag=True, help="One line of JSON per record, with kcat's field names.")
@click.option("--rack", default="", help="Read from a replica in this rack, if there is one.")
@traceback_option
def consume(bootstrap: str, topic_argument: str | None, topic: str | None, traceback: bool, **options: Any) -> None:
    """Read records until interrupted, or until a limit in the options is reached."""
    words = options.pop("output")
    options["output"] = next((word for word in words if word in OUTPUTS), None)
    options["offset"] = next((word for word in words if word not in OUTPUTS), options["offset"])
    name = topic or topic_argument
    if not name:
        raise click.UsageError("Which topic? Give its name: minikafka consume TOPIC")
    settings = arguments()
    options["group"] = settings.pop("group_id", options["group"])
    options["settings"] = {
        "auto_offset_reset": "earliest" if options["from_beginning"] else "latest",
        "isolation_level": options["isolation_level"],
        "client_rack": options["rack"],
        **settings,
    }
    if name.startswith("^") and options["exit_at_end"]:
        raise click.UsageError("--exit-at-end cannot be combined with a pattern")
    if options["group"] and (options["partitions"] or options["offset"]):
        raise click.UsageError("--partition and --offset cannot be combined with --group")

    async def go() -> int:
        return await _consume(bootstrap, name, options)

    count = run(go, traceback=traceback)
    click.echo(f"Processed a total of {count} messages", err=True)


async def _consume(bootstrap: str, topic: str, options: dict[str, Any]) -> int:
    from minikafka.client.consumer import Consumer

    show = _formatter(options)
    count = 0
    async with Consumer(bootstrap, group_id=options["group"], **options["settings"]) as consumer:
        ends = await _begin(consumer, topic, options)
        loop = asyncio.get_running_loop()
        last = loop.time()
        while not _is_finished(consumer, ends, count, options):
            left = (options["records_max"] - count) if options["records_max"] else 500
            records = await consumer.poll(POLL_MS, min(left, 500))
            for record in records:
                sys.stdout.write(show(record, count))
                count += 1
            if records:
                last = loop.time()
                sys.stdout.flush()
            elif options["timeout_ms"] and (loop.time() - last) * 1000 >= options["timeout_ms"]:
                break
    if options["output"] == "json":
        sys.stdout.write("]\n" if count else "[]\n")
    sys.stdout.flush()
    return count


async def _begin(consumer: Consumer, topic: str, options: dict[str, Any]) -> dict[tuple[str, int], int]:
    """Assign or subscribe. Returns the end offsets at which --exit-at-end stops."""
    if options["group"] and topic.startswith("^"):
        # librdkafka's syntax for a pattern, which the broker evaluates.
        await consumer.subscribe(pattern=topic)
        return {}
    info = await consumer.cluster.fresh_topic(topic)
    chosen = [(topic, index) for index in options["partitions"]] or [(topic, p.index) for p in info.partitions]
    missing = [index for _, index in chosen if index >= len(info.partitions)]
    if missing:
        raise ClientError(f"topic {topic} has {counted(len(info.partitions), 'partition')}; there is no partition {missing[0]}")
    ends = await consumer.offsets_for(dict.fromkeys(chosen, -1)) if options["exit_at_end"] else {}
    if options["group"]:
        await consumer.subscribe([topic])
    else:
        await consumer.assign(chosen, await _offsets(consumer, chosen, options))
    return ends


async def _offsets(consumer: Consumer, chosen: list[tuple[str, int]], options: dict[str, Any]) -> dict[tuple[str, int], int] | None:
    text = options["offset"]
    if text is None:
        return None
    text = text.removeprefix("s") if text.startswith("s@") else f"end{text}" if text.startswith("-") else text
    if text in ("earliest", "latest", "beginning", "start", "end"):
        return await consumer.offsets_for(dict.fromkeys(chosen, -1 if text in ("latest", "end") else -2))
    if text.startswith("@") and text[1:].isdigit():
        found = await consumer.offsets_for(dict.fromkeys(chosen, int(text[1:])))
        ends = await consumer.offsets_for(dict.fromkeys(chosen, -1))
        return {key: offset if offset >= 0 else ends[key] for key, offset in found.items()}
    if text.startswith("end-") and text[4:].isdigit():
        ends = await consumer.offsets_for(dict.fromkeys(chosen, -1))
        starts = await consumer.offsets_for(dict.fromkeys(chosen, -2))
        return {key: max(ends[key] - int(text[4:]), starts[key]) for key in chosen}
    if text.isdigit():
        return dict.fromkeys(chosen, int(text))
    raise click.BadParameter(f"{text!r} is not earliest, latest, end-N, a number or @milliseconds", param_hint="--offset")


def _is_finished(consumer: Consumer, ends: dict[tuple[str, int], int], count: int, options: dict[str, Any]) -> bool:
    if options["records_max"] and count >= options["records_max"]:
        return True
    if not options["exit_at_end"]:
        return False
    mine = {key: end for key, end in ends.items() if not options["group"] or key in consumer.assignment}
    return bool(mine) and all((consumer.position(key) or 0) >= end for key, end in mine.items())


def _formatter(options: dict[str, Any]) -> Callable[[ConsumedRecord, int], str]:
    if options["kcat_json"]:
        return lambda record, number: json.dumps(_as_kcat(record)) + "\n"
    if options["output"] in ("json", "jsonl"):
        lead = options["output"] == "json"
        return lambda record, number: (
            (("," if number else "[") + "\n  " if lead else "") + json.dumps(_as_dict(record)) + ("" if lead else "\n")
        )
    if options["output"] == "yaml":
        return lambda record, number: to_yaml([_as_dict(record)])
    if options["output"] in ("table", "wide"):
        return lambda record, number: (
            f"{record.topic}-{record.partition}@{record.offset}  {_time(record.timestamp)}  "
            f"{_text(record.key) if record.key is not None else '-'}  {_text(record.value) if record.value is not None else '-'}"
            f"{_more(record) if options['output'] == 'wide' else ''}\n"
        )
    template = options["template"] or DEFAULT_FORMAT
    return lambda record, number: _render(template, record)


def _more(record: ConsumedRecord) -> str:
    headers = ",".join(f"{name}={_text(value)}" for name, value in record.headers) or "-"
    return f"  headers {headers}  epoch {record.leader_epoch}"


def _render(template: str, record: ConsumedRecord) -> str:
    values: dict[str, Callable[[], str]] = {
        "%t": lambda: record.topic,
        "%p": lambda: str(record.partition),
        "%o": lambda: str(record.offset),
        "%k": lambda: _text(record.key),
        "%s": lambda: _text(record.value),
        "%T": lambda: str(record.timestamp),
        "%h": lambda: ",".join(f"{name}={_text(value)}" for name, value in record.headers),
        "%S": lambda: str(len(record.value) if record.value is not None else -1),
        "%K": lambda: str(len(record.key) if record.key is not None else -1),
        "%%": lambda: "%",
    }
    return WORDS.sub(lambda match: _ESCAPES.get(match[0]) or values[match[0]](), template)


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


def _time(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def _as_kcat(record: ConsumedRecord) -> dict[str, Any]:
    """kcat's JSON envelope, without the field `broker`. Headers are a flat list of alternating names and values."""
    headers = [text for name, value in record.headers for text in (name, None if value is None else _text(value))]
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": "logappend" if getattr(record, "timestamp_type", 0) else "create",
        "ts": record.timestamp,
        **({"headers": headers} if headers else {}),
        "key": None if record.key is None else _text(record.key),
        "payload": None if record.value is None else _text(record.value),
    }


def _as_dict(record: ConsumedRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else _text(record.key),
        "value": None if record.value is None else _text(record.value),
        "headers": [{"key": name, "value": None if value is None else _text(value)} for name, value in record.headers],
        "leader_epoch": record.leader_epoch,
    }
