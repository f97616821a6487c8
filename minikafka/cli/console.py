"""`minikafka console-producer` and `minikafka console-consumer`: kafka-console-producer.sh and kafka-console-consumer.sh."""

from __future__ import annotations

import asyncio
import struct
import sys
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import bootstrap_option, command_config_option, command_settings, run, traceback_option
from minikafka.cli.lines import Lines
from minikafka.cli.numbers import FINITE
from minikafka.cli.session import matching_topics
from minikafka.client.errors import ClientError

if TYPE_CHECKING:
    from minikafka.client.records import ConsumedRecord

POLL_MS = 200
ACKS = click.Choice(["all", "-1", "0", "1"])
CODECS = click.Choice(["none", "gzip", "snappy", "lz4", "zstd"])
LINE_READER = "org.apache.kafka.tools.LineMessageReader"
FORMATTERS = ("org.apache.kafka.tools.consumer.DefaultMessageFormatter", "org.apache.kafka.tools.consumer.NoOpMessageFormatter")
SERIALIZATION = "org.apache.kafka.common.serialization."
#: Kafka's deserializers of numbers -> struct format; None: a UUID as text.
NUMBERS: dict[str, str | None] = {
    "Short": ">h", "Integer": ">i", "Long": ">q", "Float": ">f", "Double": ">d", "Boolean": ">?", "UUID": None,
}  # fmt: skip
FLUSH_EVERY = 1000
READER_PROPERTIES = {
    "parse.key": "false", "key.separator": "\t", "parse.headers": "false", "headers.delimiter": "\t", "headers.separator": ",",
    "headers.key.separator": ":", "ignore.error": "false", "null.marker": None,
}  # fmt: skip
FORMATTER_PROPERTIES = {
    "print.timestamp": "false", "print.key": "false", "print.offset": "false", "print.delivery": "false", "print.epoch": "false",
    "print.partition": "false", "print.headers": "false", "print.value": "true", "key.separator": "\t", "line.separator": "\n",
    "headers.separator": ",", "null.literal": "null", "key.deserializer": None, "value.deserializer": None, "headers.deserializer": None,
}  # fmt: skip


def _properties(given: tuple[str, ...], accepted: dict[str, str | None], option: str, file: str | None = None) -> dict[str, str | None]:
    """The properties of a file and of options, which take precedence. Raises click.BadParameter."""
    found = dict(accepted)
    if file is not None:
        from minikafka.broker.config.broker_config import ConfigurationError, load_properties

        try:
            found |= {name: value for name, value in load_properties(file).items() if name in accepted}
        except ConfigurationError as error:
            raise click.BadParameter(str(error), param_hint=option.replace("property", "config")) from error
    for text in given:
        # A separator may itself be a comma or a bracket, so each option holds one property.
        name, separator, value = text.partition("=")
        if not separator or name not in accepted:
            raise click.BadParameter(f"{text!r}: must be one of {', '.join(accepted)}", param_hint=option)
        found[name] = value.replace("\\t", "\t").replace("\\n", "\n")
    return found


def only(*accepted: str) -> Callable[[click.Context, click.Parameter, str], str]:
    """A callback that accepts only these class names, with or without their package. Raises click.BadParameter."""

    def check(context: click.Context, parameter: click.Parameter, value: str) -> str:
        found = next((name for name in accepted if name.rpartition(".")[2] == value.rpartition(".")[2]), None)
        if found is None:
            hint = "; to read internal topics use minikafka dump-log --offsets-decoder" if "Formatter" in value else ""
            raise click.BadParameter(f"{value}: cannot load Java classes; use {', '.join(accepted)}{hint}")
        return found

    return check


@click.command("console-producer")
@bootstrap_option
@command_config_option
@click.option("--topic", required=True, help="Topic to write to.")
@click.option("--sync", is_flag=True, help="Wait for each record's acknowledgment.")
@click.option("--compression-codec", is_flag=False, flag_value="gzip", default="none", type=CODECS, metavar="CODEC",
              help="none, gzip, snappy, lz4 or zstd.")  # fmt: skip
@click.option("--batch-size", "--max-partition-memory-bytes", type=int, default=16384, help="Batch size in bytes.")
@click.option("--max-memory-bytes", type=int, default=32 << 20, help="Maximum bytes of records waiting to be sent.")
@click.option("--timeout", "linger_ms", type=FINITE, default=1000, help="Milliseconds a batch waits for more records.")
@click.option("--request-required-acks", "acks", default="-1", type=ACKS, metavar="ACKS", help="all, -1, 0 or 1.")
@click.option("--request-timeout-ms", type=int, default=30000, help="Request timeout in milliseconds.")
@click.option("--message-send-max-retries", type=int, default=3, hidden=True)
@click.option("--line-reader", default=LINE_READER, hidden=True, callback=only(LINE_READER), help="Accepted, no effect.")
@click.option("--reader-config", help="Properties file for the reader; --reader-property overrides it.")
@click.option("--reader-property", "--property", "reader", multiple=True, metavar="NAME=VALUE", help=", ".join(READER_PROPERTIES))
@click.option(
    "--command-property",
    "--producer-property",
    "command",
    multiple=True,
    metavar="NAME=VALUE",
    help="A client property, such as acks, linger.ms or batch.size.",
)
@traceback_option
def console_producer(
    bootstrap: str, topic: str, reader: tuple[str, ...], command: tuple[str, ...], traceback: bool, **options: Any
) -> None:
    """Write one record for each line of standard input."""
    properties = _properties(reader, READER_PROPERTIES, "--reader-property", options["reader_config"])
    settings = command_settings(command)

    async def go() -> None:
        from minikafka.client.producer import Producer

        acks = settings.get("acks", options["acks"])
        async with Producer(
            bootstrap,
            acks=acks,
            linger_ms=0 if options["sync"] else float(settings.get("linger.ms", min(options["linger_ms"], 100.0))),
            batch_size=int(settings.get("batch.size", options["batch_size"])),
            buffer_memory=int(settings.get("buffer.memory", options["max_memory_bytes"])),
            compression=settings.get("compression.type", options["compression_codec"]),
            enable_idempotence=acks in ("all", "-1"),
            request_timeout_ms=options["request_timeout_ms"],
        ) as producer:
            await _write(producer, topic, properties, options["sync"])

    run(go, traceback=traceback)


async def _write(producer: Any, topic: str, properties: dict[str, str | None], sync: bool) -> None:
    futures: list[Any] = []
    number = 0
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        click.echo(">", nl=False)
    async for line in Lines():
        number += 1
        key, value, headers = parse_line(line.rstrip(b"\r\n").decode("utf-8", "surrogateescape"), number, properties)
        futures.append(await producer.send(topic, value, key=key, headers=headers))
        if sync:
            await futures[-1]
        if len(futures) >= FLUSH_EVERY:
            done, futures = futures, []
            await asyncio.gather(*done)
        if is_terminal:
            click.echo(">", nl=False)
    await producer.flush()
    await asyncio.gather(*futures)


def parse_line(
    line: str, number: int, properties: dict[str, str | None]
) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """(key, value, headers) of a line, as Kafka's LineMessageReader splits it. Raises ClientError."""
    ignore = properties["ignore.error"] == "true"
    headers: list[tuple[str, bytes | None]] = []
    rest = line
    if properties["parse.headers"] == "true":
        head, found, tail = rest.partition(properties["headers.delimiter"] or "\t")
        if found:
            rest = tail
            headers = _headers(head, number, properties)
        elif not ignore:
            raise ClientError(f"No headers delimiter found on line number {number}: '{line}'")
    key: bytes | None = None
    if properties["parse.key"] == "true":
        head, found, tail = rest.partition(properties["key.separator"] or "\t")
        if found:
            rest, key = tail, _null_or_bytes(head, properties)
        elif not ignore:
            raise ClientError(f"No key separator found on line number {number}: '{line}'")
    return key, _null_or_bytes(rest, properties), headers


def _headers(text: str, number: int, properties: dict[str, str | None]) -> list[tuple[str, bytes | None]]:
    found = []
    for part in text.split(properties["headers.separator"] or ","):
        name, separator, value = part.partition(properties["headers.key.separator"] or ":")
        if not separator and properties["ignore.error"] != "true":
            raise ClientError(f"No header key separator found in pair '{part}' on line number {number}")
        found.append((name, _null_or_bytes(value, properties) if separator else None))
    return found


def _null_or_bytes(text: str, properties: dict[str, str | None]) -> bytes | None:
    return None if properties["null.marker"] is not None and text == properties["null.marker"] else text.encode("utf-8", "surrogateescape")


@click.command("console-consumer")
@bootstrap_option
@command_config_option
@click.option("--topic", help="Topic to read.")
@click.option("--include", help="Regular expression of topics to read.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--offset", default="latest", help="With --partition: earliest, latest or a number.")
@click.option("--group", help="Read as a member of this group.")
@click.option("--from-beginning", is_flag=True, help="Start with the earliest record if the group has no offsets.")
@click.option("--max-messages", type=click.IntRange(0), help="Stop after this many records.")
@click.option("--timeout-ms", type=click.IntRange(0), help="Stop when no record arrives for this long.")
@click.option("--skip-message-on-error", is_flag=True, help="Accepted, no effect: every record can be shown.")
@click.option(
    "--isolation-level", type=click.Choice(["read_committed", "read_uncommitted"]), default="read_uncommitted", help="Transactions."
)
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
    "--command-property",
    "--consumer-property",
    "command",
    multiple=True,
    metavar="NAME=VALUE",
    help="A client property, such as group.id or auto.offset.reset.",
)
@click.option("--enable-systest-events", is_flag=True, hidden=True)
@traceback_option
def console_consumer(
    bootstrap: str, command: tuple[str, ...], formatter_properties: tuple[str, ...], traceback: bool, **options: Any
) -> None:
    """Print records until interrupted, or until a limit in the options is reached."""
    if (options["topic"] is None) == (options["include"] is None):
        raise click.UsageError("Exactly one of --include/--topic is required.")
    if options["partition"] is not None and options["topic"] is None:
        raise click.UsageError("The topic is required when partition is specified.")
    if options["offset"] != "latest" and options["partition"] is None:
        raise click.UsageError("The partition is required when offset is specified.")
    show = formatter_of(formatter_properties_of(formatter_properties, options))
    if options["formatter"].endswith("NoOpMessageFormatter"):
        show = _show_nothing
    settings = command_settings(command)
    count = run(lambda: _read(bootstrap, show, settings, options), traceback=traceback)
    click.echo(f"Processed a total of {count} messages", err=True)


async def _read(bootstrap: str, show: Callable[[ConsumedRecord], bytes], settings: dict[str, str], options: dict[str, Any]) -> int:
    from minikafka.client.consumer import Consumer

    group = options["group"] or settings.get("group.id")
    reset = "earliest" if options["from_beginning"] else settings.get("auto.offset.reset", "latest")
    count, most = 0, options["max_messages"]
    out = sys.stdout.buffer
    membership: dict[str, Any] = {
        "group_protocol": settings.get("group.protocol", "classic").lower(), "group_remote_assignor": settings.get("group.remote.assignor"),
        "group_instance_id": settings.get("group.instance.id"),
    }  # fmt: skip
    async with Consumer(
        bootstrap, group_id=group, auto_offset_reset=reset, isolation_level=options["isolation_level"], **membership
    ) as consumer:
        await _choose(consumer, group, options)
        loop = asyncio.get_running_loop()
        last = loop.time()
        while most is None or count < most:
            records = await consumer.poll(POLL_MS, min(500, 500 if most is None else most - count))
            for record in records:
                out.write(show(record))
                count += 1
            if records:
                out.flush()
                last = loop.time()
            elif options["timeout_ms"] is not None and (loop.time() - last) * 1000 >= options["timeout_ms"]:
                break
    return count


async def _choose(consumer: Any, group: str | None, options: dict[str, Any]) -> None:
    if options["include"]:
        topics = await matching_topics(consumer, options["include"])
    else:
        topics = [options["topic"]]
    if group and options["partition"] is None:
        await consumer.subscribe(topics)
        return
    keys = []
    for name in topics:
        info = await consumer.cluster.fresh_topic(name)
        keys += [(name, p.index) for p in info.partitions if options["partition"] in (None, p.index)]
    if not keys:
        raise ClientError(f"topic {topics[0]} has no partition {options['partition']}")
    offsets = None
    text = options["offset"]
    if options["partition"] is not None and not (text == "latest" and options["from_beginning"]):
        if text in ("earliest", "latest"):
            offsets = await consumer.offsets_for(dict.fromkeys(keys, -2 if text == "earliest" else -1))
        elif text.isdigit():
            offsets = dict.fromkeys(keys, int(text))
        else:
            raise ClientError(
                f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long."
            )
    await consumer.assign(keys, offsets)


def deserializer(name: str | None, of_what: str) -> Callable[[bytes], bytes]:
    """A function from bytes to text, as Kafka's deserializer class of this name; without a name, bytes stay unchanged.

    Raises click.BadParameter."""
    word = (name or "").removeprefix(SERIALIZATION).removesuffix("Deserializer")
    if word in ("", "String", "ByteArray", "Bytes", "ByteBuffer"):
        return bytes
    if name is None or not name.endswith("Deserializer") or word not in NUMBERS:
        accepted = ", ".join([*NUMBERS, "String", "ByteArray"])
        raise click.BadParameter(f"{name}: must be a Deserializer of {accepted}", param_hint=f"{of_what}.deserializer")
    layout = NUMBERS[word]

    def read(data: bytes) -> bytes:
        if layout is None:
            return str(uuid.UUID(data.decode())).encode()
        if len(data) != struct.calcsize(layout):
            raise ClientError(f"{of_what} {data!r} is not {struct.calcsize(layout)} bytes long, which {word}Deserializer requires")
        return str(struct.unpack(layout, data)[0]).lower().encode()

    return read


def _show_nothing(_: ConsumedRecord) -> bytes:
    return b""


def formatter_properties_of(given: tuple[str, ...], options: dict[str, Any]) -> dict[str, str | None]:
    """The formatter properties in the options of a console consumer. Raises click.BadParameter."""
    properties = _properties(given, FORMATTER_PROPERTIES, "--formatter-property", options["formatter_config"])
    for name in ("key.deserializer", "value.deserializer"):
        properties[name] = options[name.replace(".", "_")] or properties[name]
    return properties


def formatter_of(properties: dict[str, str | None]) -> Callable[[ConsumedRecord], bytes]:
    """A function from a record to its line, as Kafka's DefaultMessageFormatter writes it. The epoch is shown where Kafka's tool prints
    NOT_PRESENT."""
    on = {name: value == "true" for name, value in properties.items() if name.startswith("print.")}
    key_separator = (properties["key.separator"] or "").encode()
    end = (properties["line.separator"] or "").encode()
    null = (properties["null.literal"] or "").encode()
    read_key, read_value = (deserializer(properties[f"{part}.deserializer"], part) for part in ("key", "value"))
    read_header = deserializer(properties["headers.deserializer"], "headers")
    between = properties["headers.separator"] or ","

    def line(record: ConsumedRecord) -> bytes:
        parts = []
        if on["print.timestamp"]:
            kind = "LogAppendTime" if getattr(record, "timestamp_type", 0) else "CreateTime"
            parts.append(f"{kind}:{record.timestamp}".encode() if record.timestamp >= 0 else b"NO_TIMESTAMP")
        if on["print.partition"]:
            parts.append(b"Partition:%d" % record.partition)
        if on["print.offset"]:
            parts.append(b"Offset:%d" % record.offset)
        if on["print.delivery"]:
            count = getattr(record, "delivery_count", None)
            parts.append(b"Delivery:NOT_PRESENT" if count is None else b"Delivery:%d" % count)
        if on["print.epoch"]:
            parts.append(b"Epoch:%d" % record.leader_epoch if record.leader_epoch >= 0 else b"Epoch:NOT_PRESENT")
        if on["print.headers"]:
            pairs = (name.encode() + b":" + (null if value is None else read_header(value)) for name, value in record.headers)
            parts.append(between.encode().join(pairs) or b"NO_HEADERS")
        if on["print.key"]:
            parts.append(null if record.key is None else read_key(bytes(record.key)))
        if on["print.value"]:
            parts.append(null if record.value is None else read_value(bytes(record.value)))
        return key_separator.join(parts) + end

    return line
