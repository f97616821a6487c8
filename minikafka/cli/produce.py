"""`minikafka produce`: send lines of standard input as records, as text or as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from minikafka.cli.client_settings import arguments
from minikafka.cli.common import OUTPUTS, bootstrap_option, command_config_option, run, traceback_option
from minikafka.cli.lines import Lines
from minikafka.client.errors import ClientError


@click.command("produce")
@bootstrap_option
@command_config_option
@click.argument("topic_argument", required=False, metavar="[TOPIC]")
@click.option("--topic", "-t", help="Topic to write to.")
@click.option("--key", "-k", help="Key of every record.")
@click.option("--key-separator", "-K", help="Each line is a key, this separator and a value.")
@click.option("--partition", "-p", type=click.IntRange(0), help="Partition of every record.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="Header of every record; may be repeated.")
@click.option(
    "--format",
    "-f",
    "line_format",
    type=click.Choice(["lines", "jsonl"]),
    default="lines",
    show_default=True,
    help="jsonl: each line is an object with key, value, partition, timestamp, headers.",
)
@click.option("--null-marker", help="A key or value with this text is null.")
@click.option(
    "--acks",
    type=click.Choice(["all", "-1", "0", "1"]),
    default="all",
    show_default=True,
    help="Which replicas must have a record before it is acknowledged.",
)
@click.option(
    "--compression",
    "-z",
    "--compression-codec",
    "compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Codec.",
)
@click.option("--linger-ms", type=click.FloatRange(0), default=5.0, show_default=True, help="How long a batch waits for more records.")
@click.option("--timeout-ms", type=click.IntRange(1), default=120_000, show_default=True, help="How long to try to send a record.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["none", *OUTPUTS]),
    default="none",
    show_default=True,
    help="Report the partition and offset of each record in this format.",
)
@traceback_option
def produce(bootstrap: str, topic_argument: str | None, topic: str | None, traceback: bool, **options: Any) -> None:
    """Write one record for each line of standard input. Exit status 0 means that every record was acknowledged."""
    name = topic or topic_argument
    if not name:
        raise click.UsageError("Which topic? Give its name: minikafka produce TOPIC")

    async def go() -> None:
        await _produce(bootstrap, name, options)

    run(go, traceback=traceback)


async def _produce(bootstrap: str, topic: str, options: dict[str, Any]) -> None:
    from minikafka.client.producer import Producer

    headers = [_header(text) for text in options["headers"]]
    if sys.stdin.isatty():
        click.echo("one record per line; end with Ctrl-D", err=True)
    settings = {
        "acks": options["acks"],
        "compression": options["compression"],
        "linger_ms": options["linger_ms"],
        "delivery_timeout_ms": options["timeout_ms"],
        **arguments(),
    }
    settings.setdefault("enable_idempotence", settings["acks"] in ("all", "-1"))
    async with Producer(bootstrap, **settings) as producer:
        futures = []
        number = 0
        async for line in Lines():
            number += 1
            record = _parse(line.rstrip(b"\r\n"), number, options)
            futures.append(
                await producer.send(
                    topic,
                    record["value"],
                    key=record["key"],
                    partition=record.get("partition", options["partition"]),
                    headers=record.get("headers") or headers,
                    timestamp_ms=record.get("timestamp"),
                )
            )
        await producer.flush()
        stored = [future.result() for future in futures]
    _report([{"topic": m.topic, "partition": m.partition, "offset": m.offset, "timestamp": m.timestamp} for m in stored], options["output"])


def _report(rows: list[dict[str, Any]], output: str) -> None:
    from minikafka.cli.common import emit

    if output != "none":
        emit(rows, output, ["topic", "partition", "offset", "timestamp"])


def _header(text: str) -> tuple[str, bytes | None]:
    name, separator, value = text.partition("=")
    return name, value.encode() if separator else None


def _parse(line: bytes, number: int, options: dict[str, Any]) -> dict[str, Any]:
    if options["line_format"] == "jsonl":
        return _parse_json(line, number)
    marker = options["null_marker"].encode() if options["null_marker"] is not None else None
    key: bytes | None = options["key"].encode() if options["key"] is not None else None
    value: bytes | None = line
    if options["key_separator"]:
        head, separator, tail = line.partition(options["key_separator"].encode())
        if not separator:
            raise ClientError(f"line {number} has no key separator {options['key_separator']!r}")
        key, value = head, tail
    return {
        "key": None if key == marker and marker is not None else key,
        "value": None if marker is not None and value == marker else value,
    }


def _parse_json(line: bytes, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ClientError(f"line {number} is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise ClientError(f"line {number} is not a JSON object")
    unknown = set(record) - {"key", "value", "partition", "timestamp", "headers", "topic", "offset", "leader_epoch"}
    if unknown:
        raise ClientError(f"line {number} has unknown fields: {', '.join(sorted(unknown))}")
    parsed: dict[str, Any] = {"key": _bytes(record.get("key")), "value": _bytes(record.get("value"))}
    if record.get("timestamp") is not None:
        parsed["timestamp"] = _whole(record["timestamp"], 2**63 - 1, f"line {number}: timestamp (milliseconds since 1970)")
    if record.get("partition") is not None:
        parsed["partition"] = _whole(record["partition"], 2**31 - 1, f"line {number}: partition")
    parsed["headers"] = _headers(record.get("headers") or [], number)
    return parsed


def _whole(value: Any, largest: int, what: str) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ClientError(f"{what} must be a non-negative integer, not {json.dumps(value)}")
    return value


def _headers(headers: Any, number: int) -> list[tuple[str, bytes | None]]:
    """Headers from an object, or from a list of objects with key and value, as `consume` prints them."""
    if isinstance(headers, dict):
        return [(name, _bytes(value)) for name, value in headers.items()]
    if not isinstance(headers, list) or not all(isinstance(h, dict) and isinstance(h.get("key"), str) for h in headers):
        raise ClientError(f'line {number}: headers must be an object, or a list of objects like {{"key": "name", "value": "text"}}')
    return [(header["key"], _bytes(header.get("value"))) for header in headers]


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
