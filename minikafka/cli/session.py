"""Shared by the operator tools: an admin connection per command, output formats, Kafka's error class names, JSON files."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import bootstrap_option, command_config_option, output_option, run, traceback_option

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance
    from minikafka.wire.errors import ErrorCode

Partition = tuple[str, int]


def operator_command(name: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """A click command with the options that all operator tools have."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        for option in (traceback_option, output_option, command_config_option, bootstrap_option):
            function = option(function)
        made: click.Command = click.command(name, **settings)(function)  # type: ignore[no-untyped-call]
        return made

    return decorate


def with_admin(bootstrap: str, work: Callable[[Maintenance], Awaitable[Any]], *, traceback: bool = False) -> Any:
    """Run `work(admin)`. An error becomes one line and an exit code (common.run)."""

    async def go() -> Any:
        from minikafka.client.maintenance import Maintenance

        async with Maintenance(bootstrap, client_id="minikafka-cli") as admin:
            return await work(admin)

    return run(go, traceback=traceback)


def java_exception(code: ErrorCode) -> str:
    """The Java exception class for an error, as Kafka's tools print it."""
    words = "".join(part.capitalize() for part in code.name.split("_"))
    special = {"NotLeaderOrFollower": "NotLeaderOrFollower", "RequestTimedOut": "Timeout", "UnknownServerError": "UnknownServer"}
    return f"org.apache.kafka.common.errors.{special.get(words, words)}Exception"


def read_json_file(path: str, option: str) -> Any:
    """The contents of a JSON file. Raises click.BadParameter."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path}: {getattr(error, 'strerror', None) or error}", param_hint=option) from error


def partitions_from_json(path: str, option: str, extra: str | None = None) -> list[tuple[Partition, Any]]:
    """`{"partitions": [{"topic", "partition", extra}, ..]}`: each partition with its extra field. Raises click.BadParameter."""
    data = read_json_file(path, option)
    try:
        rows = data["partitions"]
        found = [((str(row["topic"]), int(row["partition"])), row.get(extra) if extra else None) for row in rows]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise click.BadParameter(
            f'{path} is not {{"partitions": [{{"topic": .., "partition": ..}}]}} ({error!r})', param_hint=option
        ) from error
    if not found:
        raise click.BadParameter(f"{path} names no partition", param_hint=option)
    names = [key for key, _ in found]
    twice = next((key for key in names if names.count(key) > 1), None)
    if twice is not None:
        raise click.BadParameter(f"{path} names {twice[0]}-{twice[1]} twice", param_hint=option)
    return found


def named(partitions: Iterable[Partition]) -> str:
    """t-0, t-1."""
    return ", ".join(f"{topic}-{index}" for topic, index in partitions)


def numbers(text: str, option: str) -> list[int]:
    """Parse `1,2,3`. Raises click.BadParameter."""
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of numbers", param_hint=option) from None


def partition_filter(text: str, option: str) -> list[tuple[re.Pattern[str], range | None]]:
    """Parse kafka-get-offsets.sh's `topic:1-3,topic:7,topic:-2,other`: topic patterns with ranges of partitions (None: all)."""
    rules: list[tuple[re.Pattern[str], range | None]] = []
    for part in text.split(","):
        topic, _, span = part.strip().partition(":")
        try:
            pattern = re.compile(topic or ".*")
            if not span:
                rules.append((pattern, None))
                continue
            low, dash, high = span.partition("-")
            first = int(low) if low else 0
            last = int(high) if high else (2**31 - 1 if dash else first + 1)
        except (ValueError, re.error) as error:
            raise click.BadParameter(f"{part!r} is not TOPIC:FROM-TO: {error}", param_hint=option) from error
        rules.append((pattern, range(first, last)))
    return rules


async def matching_topics(consumer: Any, include: str) -> list[str]:
    """Topics, except internal ones, whose whole name matches a pattern. Raises ClientError."""
    from minikafka.client.errors import ClientError

    try:
        pattern = re.compile(include)
    except re.error as error:
        raise ClientError(f"--include {include}: {error}") from error
    await consumer.cluster.refresh(None)
    topics = [name for name, topic in consumer.cluster.topics.items() if pattern.fullmatch(name) and not topic.is_internal]
    if not topics:
        raise ClientError(f"no topic matches {include}")
    return topics
