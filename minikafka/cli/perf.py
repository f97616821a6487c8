"""`minikafka producer-perf-test` and `consumer-perf-test`: generate load, and print the summary lines of Kafka's tools."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from minikafka.cli.common import bootstrap_option, command_config_option, command_settings, run, traceback_option
from minikafka.cli.numbers import FINITE
from minikafka.cli.session import matching_topics
from minikafka.client.errors import ClientError
from minikafka.counted import counted

MB = 1024 * 1024
#: No keys; 0, 1, 2 and so on, again and again; random keys.
KEYS = ("none", "range", "random")
TRANSACTION_MS_DEFAULT = 3000
POLL_MS = 100
CONSUMER_COLUMNS = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec,"
    " fetch.nMsg.sec"
)


class Latencies:
    """Latencies in milliseconds; the line that Kafka's Stats prints."""

    def __init__(self, report_every_s: float = 5.0) -> None:
        self._report_every_s = report_every_s
        self._started = self._window_started = time.monotonic()
        self._all: list[float] = []
        self._bytes = 0
        self._window_from = 0
        self._window_bytes = 0

    def add(self, latency_ms: float, size: int) -> str | None:
        """Add an acknowledged record. Returns the line of a reporting window that has ended, else None."""
        self._all.append(latency_ms)
        self._bytes += size
        self._window_bytes += size
        now = time.monotonic()
        if now - self._window_started < self._report_every_s:
            return None
        rows = self._all[self._window_from :]
        seconds = now - self._window_started
        line = (
            f"{len(rows)} records sent, {len(rows) / seconds:.1f} records/sec ({self._window_bytes / seconds / MB:.2f} MB/sec), "
            f"{sum(rows) / len(rows):.1f} ms avg latency, {max(rows):.1f} ms max latency."
        )
        self._window_started, self._window_from, self._window_bytes = now, len(self._all), 0
        return line

    def total(self) -> str:
        """The summary line."""
        rows = sorted(self._all)
        seconds = max(time.monotonic() - self._started, 1e-6)
        if not rows:
            return "0 records sent, 0.000000 records/sec (0.00 MB/sec), 0.00 ms avg latency, 0.00 ms max latency."

        def at(share: float) -> int:
            return int(rows[min(int(share * len(rows)), len(rows) - 1)])

        return (
            f"{len(rows)} records sent, {len(rows) / seconds:.6f} records/sec ({self._bytes / seconds / MB:.2f} MB/sec), "
            f"{sum(rows) / len(rows):.2f} ms avg latency, {rows[-1]:.2f} ms max latency, {at(0.5)} ms 50th, {at(0.95)} ms 95th, "
            f"{at(0.99)} ms 99th, {at(0.999)} ms 99.9th."
        )


@click.command("producer-perf-test")
@bootstrap_option
@command_config_option
@click.option("--topic", required=True, help="Topic to write to.")
@click.option("--num-records", type=click.IntRange(1), help="Records to send.")
@click.option("--record-size", type=click.IntRange(1), help="Bytes per record.")
@click.option("--payload-file", type=click.Path(exists=True, dir_okay=False), help="File with records to choose from, one per line.")
@click.option("--payload-delimiter", default="\\n", show_default=True, help="Separator of the records in the file.")
@click.option("--payload-monotonic", is_flag=True, help="Send increasing numbers as records.")
@click.option("--throughput", type=FINITE, default=-1, show_default=True, help="Records per second; -1: unlimited.")
@click.option(
    "--command-property",
    "--producer-props",
    "command",
    multiple=True,
    metavar="NAME=VALUE",
    help="A client property, such as acks, linger.ms, batch.size or compression.type.",
)
@click.option("--transactional-id", help="Transactional id.  [default with a duration: a random one]")
@click.option(
    "--transaction-duration-ms",
    type=click.IntRange(1),
    help="Milliseconds until a transaction is committed.  [default with an id: 3000]",
)
@click.option("--key-distribution", type=click.Choice(KEYS), default="none", show_default=True, help="Keys of the records.")
@click.option("--record-key-range", "key_count", type=click.IntRange(1), help="With --key-distribution: keys are numbers below this one.")
@click.option("--random-seed", type=int, default=0, show_default=True, help="Seed of random payloads and keys.")
@click.option("--warmup-records", type=click.IntRange(0), default=0, help="Number of records to send before measuring.")
@click.option("--reporting-interval", type=click.IntRange(1), default=5000, show_default=True, help="Milliseconds between two lines.")
@click.option("--print-metrics", is_flag=True, help="Accepted, no effect: the bundled client has no metrics.")
@click.argument("more_properties", nargs=-1)
@traceback_option
def producer_perf_test(
    bootstrap: str,
    topic: str,
    num_records: int | None,
    command: tuple[str, ...],
    more_properties: tuple[str, ...],
    traceback: bool,
    **options: Any,
) -> None:
    """Send records as fast as possible, or at a given rate, and print the rate and latencies."""
    given = [options["record_size"] is not None, options["payload_file"] is not None, options["payload_monotonic"]]
    if sum(given) != 1:
        raise click.UsageError("specify the records: --record-size, --payload-file or --payload-monotonic")
    if num_records is None:
        raise click.UsageError("--num-records is missing")
    if options["key_distribution"] != "none" and options["key_count"] is None:
        raise click.UsageError(f"--key-distribution {options['key_distribution']} needs --record-key-range")
    settings = command_settings([*command, *more_properties])
    address = settings.pop("bootstrap.servers", bootstrap)
    run(lambda: _produce(address, topic, num_records, settings, options), traceback=traceback)


def _payloads(options: dict[str, Any]) -> Any:
    if options["payload_monotonic"]:
        return lambda number: str(number).encode()
    generator = random.Random(options["random_seed"])
    if options["payload_file"]:
        delimiter = options["payload_delimiter"].replace("\\n", "\n").replace("\\t", "\t").encode()
        with open(options["payload_file"], "rb") as file:
            lines = [line for line in file.read().split(delimiter) if line]
        if not lines:
            raise ClientError(f"{options['payload_file']} holds no records")
        return lambda number: generator.choice(lines)
    # Kafka's tool fills a record with capital letters.
    ready = [bytes(generator.choices(range(65, 91), k=options["record_size"])) for _ in range(100)]
    return lambda number: ready[number % len(ready)]


def _keys(options: dict[str, Any]) -> Callable[[int], bytes | None]:
    count = options["key_count"]
    if options["key_distribution"] == "range":
        return lambda number: str(number % count).encode()
    if options["key_distribution"] == "random":
        generator = random.Random(options["random_seed"])
        return lambda number: str(generator.randrange(count)).encode()
    return lambda number: None


async def _produce(bootstrap: str, topic: str, count: int, settings: dict[str, str], options: dict[str, Any]) -> None:
    from minikafka.client.producer import Producer
    from minikafka.client.transactional import TransactionalProducer

    payload, key = _payloads(options), _keys(options)
    acks = settings.get("acks", "all")
    warm, rate = min(options["warmup_records"], count - 1), options["throughput"]
    duration_ms = options["transaction_duration_ms"]
    transactional_id = options["transactional_id"] or settings.get("transactional.id")
    if duration_ms is not None and transactional_id is None:
        transactional_id = f"performance-producer-{uuid.uuid4()}"
    idempotent = acks in ("all", "-1") and settings.get("enable.idempotence", "true") == "true"
    how: dict[str, Any] = {
        "linger_ms": float(settings.get("linger.ms", 5)),
        "batch_size": int(settings.get("batch.size", 16384)),
        "compression": settings.get("compression.type", "none"),
        "buffer_memory": int(settings.get("buffer.memory", 32 << 20)),
    }
    if transactional_id is None:
        made = Producer(bootstrap, acks=acks, enable_idempotence=idempotent, **how)
    else:
        made = TransactionalProducer(bootstrap, transactional_id, **how)
    transaction = _Transactions(made, (duration_ms or TRANSACTION_MS_DEFAULT) / 1000)
    async with made as producer:
        await producer.cluster.topic(topic, create=True)
        await transaction.init()
        latencies = Latencies(options["reporting_interval"] / 1000)
        failed: list[BaseException] = []
        started = time.monotonic()
        await transaction.begin()
        for number in range(count):
            if number == warm and warm:
                await producer.flush()
                latencies = Latencies(options["reporting_interval"] / 1000)
            value = payload(number)
            sent = time.monotonic()
            future = await producer.send(topic, value, key=key(number))
            future.add_done_callback(_noter(latencies, failed, sent, len(value)))
            if rate > 0 and (ahead := started + (number + 1) / rate - time.monotonic()) > 0.002:
                await asyncio.sleep(ahead)
            elif number % 64 == 63:
                await asyncio.sleep(0)
            await transaction.go_on()
        await producer.flush()
        await transaction.commit()
        await asyncio.sleep(0)
    click.echo(latencies.total())
    if failed:
        raise ClientError(f"{counted(len(failed), 'record')} failed, the first with: {failed[0]}")


class _Transactions:
    """Consecutive transactions of a given length if the producer is transactional; else every method does nothing."""

    def __init__(self, producer: Any, seconds: float) -> None:
        self._producer = producer if hasattr(producer, "begin") else None
        self._seconds = seconds
        self._end = 0.0

    async def init(self) -> None:
        if self._producer is not None:
            await self._producer.init_transactions()

    async def begin(self) -> None:
        if self._producer is not None:
            self._producer.begin()
            self._end = time.monotonic() + self._seconds

    async def go_on(self) -> None:
        if self._producer is not None and time.monotonic() >= self._end:
            await self.commit()
            await self.begin()

    async def commit(self) -> None:
        if self._producer is not None:
            await self._producer.commit()


def _noter(latencies: Latencies, failed: list[BaseException], sent: float, size: int) -> Any:
    def done(future: asyncio.Future[Any]) -> None:
        error = future.exception()
        if error is not None:
            failed.append(error)
            return
        line = latencies.add((time.monotonic() - sent) * 1000, size)
        if line is not None:
            click.echo(line)

    return done


@click.command("consumer-perf-test")
@bootstrap_option
@command_config_option
@click.option("--topic", help="Topic to read.")
@click.option("--include", help="Regular expression of topics to read.")
@click.option("--num-records", "--messages", "count", type=click.IntRange(1), required=True, help="Records to read.")
@click.option("--group", default=None, help="Group (default: a new one).")
@click.option("--timeout", "timeout_ms", type=int, default=10000, show_default=True, help="Maximum milliseconds to wait for a record.")
@click.option("--fetch-size", type=int, default=1 << 20, show_default=True, help="Maximum bytes per partition and fetch.")
@click.option("--from-latest", is_flag=True, help="Start with the latest record.")
@click.option("--hide-header", is_flag=True, help="Do not print the names of the columns.")
@click.option("--show-detailed-stats", is_flag=True, help="Print a line every --reporting-interval.")
@click.option("--reporting-interval", type=click.IntRange(1), default=5000, show_default=True, help="Milliseconds.")
@click.option("--print-metrics", is_flag=True, help="Accepted, no effect: the bundled client has no metrics.")
@click.option("--command-property", "command", multiple=True, metavar="NAME=VALUE", help="A client property, such as isolation.level.")
@click.option("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", hidden=True)
@traceback_option
def consumer_perf_test(bootstrap: str, topic: str | None, count: int, command: tuple[str, ...], traceback: bool, **options: Any) -> None:
    """Read records as fast as possible and print the rate."""
    if (topic is None) == (options["include"] is None):
        raise click.UsageError("Exactly one of --include/--topic is required.")
    settings = command_settings(command)
    run(lambda: _consume(bootstrap, topic, count, settings, options), traceback=traceback)


def wall_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S:%f")[:-3]


async def _consume(bootstrap: str, topic: str | None, count: int, settings: dict[str, str], options: dict[str, Any]) -> None:
    from minikafka.client.consumer import Consumer

    group = options["group"] or f"perf-consumer-{random.SystemRandom().randrange(100_000)}"
    if not options["hide_header"]:
        click.echo(
            CONSUMER_COLUMNS.replace("start.time, end.time", "time, threadId") if options["show_detailed_stats"] else CONSUMER_COLUMNS
        )
    async with Consumer(
        bootstrap,
        group_id=group,
        auto_offset_reset="latest" if options["from_latest"] else "earliest",
        partition_fetch_bytes_max=options["fetch_size"],
        isolation_level=settings.get("isolation.level", "read_uncommitted"),
    ) as consumer:
        await consumer.subscribe([topic] if topic is not None else await matching_topics(consumer, options["include"]))
        started_wall, started = time.time(), time.monotonic()
        joined: float | None = None
        read = size = last_read = last_size = 0
        last = reported = started
        while read < count:
            records = await consumer.poll(POLL_MS, min(5000, count - read))
            now = time.monotonic()
            if joined is None and consumer.assignment:
                joined = now
            for record in records:
                size += len(record.value or b"") + len(record.key or b"")
            read += len(records)
            if records:
                last = now
            elif (now - last) * 1000 >= options["timeout_ms"]:
                click.echo(
                    f"WARNING: Exiting before consuming the expected number of records: timeout ({options['timeout_ms']} ms) exceeded."
                    " You can use the --timeout option to increase the timeout.",
                    err=True,
                )
                break
            if options["show_detailed_stats"] and (now - reported) * 1000 >= options["reporting_interval"]:
                when = f"{wall_time(time.time())}, 0"
                _row(when, size, read, size - last_size, read - last_read, now - reported, (joined or now) - started)
                reported, last_read, last_size = now, read, size
        ended = time.monotonic()
    if not options["show_detailed_stats"]:
        when = f"{wall_time(started_wall)}, {wall_time(started_wall + ended - started)}"
        _row(when, size, read, size, read, ended - started, (joined or ended) - started)


def _row(when: str, total: int, records: int, size: int, count: int, seconds: float, join_seconds: float) -> None:
    """Print one line of the table: totals, rates over `seconds`, the time to join the group, rates over the remaining time."""
    seconds = max(seconds, 1e-6)
    fetching = max(seconds - join_seconds, 1e-3)
    click.echo(
        f"{when}, {total / MB:.4f}, {size / MB / seconds:.4f}, {records}, {count / seconds:.4f}, {int(join_seconds * 1000)}, "
        f"{int(fetching * 1000)}, {size / MB / fetching:.4f}, {count / fetching:.4f}"
    )
