"""`minikafka console-share-consumer`: kafka-console-share-consumer.sh."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import click

from minikafka.cli.common import bootstrap_option, command_config_option, command_settings, run, traceback_option
from minikafka.cli.console import FORMATTER_PROPERTIES, FORMATTERS, POLL_MS, formatter_of, formatter_properties_of, only

DEFAULT_GROUP = "console-share-consumer"


@click.command("console-share-consumer")
@bootstrap_option
@command_config_option
@click.option("--topic", required=True, help="Topic to read.")
@click.option("--group", help=f"Share group (default: {DEFAULT_GROUP}).")
@click.option("--max-messages", type=click.IntRange(0), help="Stop after this many records.")
@click.option("--timeout-ms", type=click.IntRange(0), help="Stop when no record arrives for this long.")
@click.option("--reject", is_flag=True, help="Reject every record instead of accepting it: it is not delivered again.")
@click.option("--release", is_flag=True, help="Release every record instead of accepting it: it can be delivered again.")
@click.option("--reject-message-on-error", is_flag=True, help="Accepted, no effect: every record can be shown.")
@click.option(
    "--formatter", default=FORMATTERS[0], callback=only(*FORMATTERS), help="Formatter: DefaultMessageFormatter or NoOpMessageFormatter."
)
@click.option("--formatter-config", help="Properties file for the formatter; --formatter-property overrides it.")
@click.option(
    "--formatter-property", "--property", "formatter_properties", multiple=True, metavar="NAME=VALUE", help=", ".join(FORMATTER_PROPERTIES)
)
@click.option("--key-deserializer", help="Deserializer of keys: StringDeserializer, ByteArrayDeserializer, LongDeserializer and others.")
@click.option("--value-deserializer", help="Deserializer of values.")
@click.option(
    "--command-property", "--consumer-property", "command", multiple=True, metavar="NAME=VALUE", help="A client property, such as group.id."
)
@click.option("--enable-systest-events", is_flag=True, hidden=True)
@traceback_option
def console_share_consumer(
    bootstrap: str, command: tuple[str, ...], formatter_properties: tuple[str, ...], traceback: bool, **options: Any
) -> None:
    """Print records as a member of a share group until interrupted, or until a limit in the options is reached."""
    if options["reject"] and options["release"]:
        raise click.UsageError("At most one of --reject and --release may be specified.")
    properties = formatter_properties_of(formatter_properties, options)
    settings = command_settings(command)
    group = options["group"] or settings.get("group.id") or DEFAULT_GROUP
    show = formatter_of(properties)
    if options["formatter"].endswith("NoOpMessageFormatter"):
        show = _nothing
    count = run(lambda: _read(bootstrap, group, show, options), traceback=traceback)
    click.echo(f"Processed a total of {count} messages", err=True)


def _nothing(record: Any) -> bytes:
    return b""


async def _read(bootstrap: str, group: str, show: Callable[[Any], bytes], options: dict[str, Any]) -> int:
    from minikafka.client.share_consumer import ACCEPT, REJECT, RELEASE, ShareConsumer

    how = REJECT if options["reject"] else RELEASE if options["release"] else ACCEPT
    count, most, out = 0, options["max_messages"], sys.stdout.buffer
    async with ShareConsumer(bootstrap, group) as consumer:
        await consumer.subscribe([options["topic"]])
        loop = asyncio.get_running_loop()
        last = loop.time()
        while most is None or count < most:
            records = await consumer.poll(POLL_MS, 500 if most is None else min(500, most - count))
            for record in records if most is None else records[: most - count]:
                out.write(show(record))
                consumer.acknowledge(record, how)
                count += 1
            if records:
                out.flush()
                last = loop.time()
            elif options["timeout_ms"] is not None and (loop.time() - last) * 1000 >= options["timeout_ms"]:
                break
    return count
