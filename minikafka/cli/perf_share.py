"""`minikafka share-consumer-perf-test`: members of a share group read as fast as possible; the lines of Kafka's tool."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click

from minikafka.cli.common import bootstrap_option, command_config_option, command_settings, run, traceback_option
from minikafka.cli.perf import MB, POLL_MS, wall_time

COLUMNS = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
GROUP_DEFAULT = "perf-share-consumer"


@click.command("share-consumer-perf-test")
@bootstrap_option
@command_config_option
@click.option("--topic", required=True, help="Topic to read.")
@click.option("--num-records", "--messages", "count", type=click.IntRange(0), required=True, help="Records to read.")
@click.option("--group", default=GROUP_DEFAULT, show_default=True, help="Share group.")
@click.option("--threads", "members", type=click.IntRange(1), default=1, show_default=True, help="Members of the group.")
@click.option("--timeout", "timeout_ms", type=int, default=10000, show_default=True, help="Maximum milliseconds to wait for a record.")
@click.option("--fetch-size", type=int, default=1 << 20, show_default=True, help="Maximum bytes of a fetch.")
@click.option("--hide-header", is_flag=True, help="Do not print the names of the columns.")
@click.option("--show-consumer-stats", is_flag=True, help="Print a line for each member, too.")
@click.option("--show-detailed-stats", is_flag=True, help="Print a line every --reporting-interval.")
@click.option("--reporting-interval", type=click.IntRange(1), default=5000, show_default=True, help="Milliseconds.")
@click.option("--print-metrics", is_flag=True, help="Accepted, no effect: the bundled client has no metrics.")
@click.option("--command-property", "command", multiple=True, metavar="NAME=VALUE", help="A client property, such as client.id.")
@click.option("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", hidden=True)
@traceback_option
def share_consumer_perf_test(bootstrap: str, command: tuple[str, ...], traceback: bool, **options: Any) -> None:
    """Read and accept records as members of a share group as fast as possible, and print the rate."""
    client_id = command_settings(command).get("client.id", "perf-share-consumer-client")
    run(lambda: _consume(bootstrap, client_id, options), traceback=traceback)


class _Member:
    """One member, and what it has read."""

    def __init__(self, number: int, client_id: str) -> None:
        self.number = number
        self.client_id = f"{client_id}-{number}"
        self.started_wall, self.started = time.time(), time.monotonic()
        self.ended = self.started
        self.bytes = self.records = 0
        self._reported, self._reported_bytes, self._reported_records = self.started, 0, 0

    def add(self, records: list[Any]) -> None:
        self.bytes += sum(len(record.value or b"") + len(record.key or b"") for record in records)
        self.records += len(records)

    def report(self, interval_s: float) -> None:
        """Print what was read since the last line, if that is long enough ago."""
        now = time.monotonic()
        if now - self._reported < interval_s:
            return
        size, count = self.bytes - self._reported_bytes, self.records - self._reported_records
        began = self.started_wall + self._reported - self.started
        click.echo(f"{row(began, now - self._reported, size, count)} for share consumer {self.number}")
        self._reported, self._reported_bytes, self._reported_records = now, self.bytes, self.records


def row(began_wall: float, seconds: float, size: int, count: int) -> str:
    """One line of the table."""
    per = max(seconds, 1e-3)
    return (
        f"{wall_time(began_wall)}, {wall_time(began_wall + seconds)}, {size / MB:.4f}, {size / MB / per:.4f}, {count / per:.4f}, {count}, "
        f"{int(seconds * 1000)}"
    )


async def _consume(bootstrap: str, client_id: str, options: dict[str, Any]) -> None:
    if not options["hide_header"]:
        click.echo(COLUMNS)
    members = [_Member(number + 1, client_id) for number in range(options["members"])]
    started_wall, started = time.time(), time.monotonic()
    await asyncio.gather(*(_read(bootstrap, member, members, options) for member in members))
    ended = max(member.ended for member in members)
    if options["show_consumer_stats"]:
        for member in members:
            line = row(member.started_wall, member.ended - member.started, member.bytes, member.records)
            click.echo(f"Share consumer {member.number} having client id {member.client_id} consumption metrics- {line}")
    size, count = sum(member.bytes for member in members), sum(member.records for member in members)
    if count < options["count"]:
        click.echo(
            f"WARNING: Exiting before consuming the expected number of records: timeout ({options['timeout_ms']} ms) exceeded."
            " You can use the --timeout option to increase the timeout.",
            err=True,
        )
    click.echo(row(started_wall, ended - started, size, count))


async def _read(bootstrap: str, member: _Member, members: list[_Member], options: dict[str, Any]) -> None:
    """Read until all members together have read enough, or none of them has read anything for the timeout."""
    from minikafka.client.share_consumer import ShareConsumer

    last = time.monotonic()
    async with ShareConsumer(bootstrap, options["group"], client_id=member.client_id, fetch_bytes_max=options["fetch_size"]) as consumer:
        await consumer.subscribe([options["topic"]])
        while sum(one.records for one in members) < options["count"]:
            records = await consumer.poll(POLL_MS)
            for record in records:
                consumer.acknowledge(record)
            member.add(records)
            member.ended = time.monotonic()
            if records:
                last = member.ended
            elif (member.ended - last) * 1000 >= options["timeout_ms"]:
                return
            if options["show_detailed_stats"]:
                member.report(options["reporting_interval"] / 1000)
