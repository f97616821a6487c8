"""`minikafka verifiable-producer` and `verifiable-consumer`, with the JSON lines that Kafka's system tests read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import bootstrap_option, command_config_option, run, traceback_option
from minikafka.cli.numbers import FINITE
from minikafka.client.errors import ClientError
from minikafka.net.tasks import within

if TYPE_CHECKING:
    from minikafka.client.consumer import Consumer
    from minikafka.client.producer import Producer

POLL_MS = 200
COMMIT_TRIES_S = 10.0


def say(name: str, **fields: Any) -> None:
    """Print one event to standard output, and flush so that a reader can react at once."""
    sys.stdout.write(json.dumps({"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}, separators=(",", ":")) + "\n")
    sys.stdout.flush()


async def until_signalled(work: Callable[[asyncio.Event], Coroutine[Any, Any, Any]]) -> Any:
    """Run `work` with an event that SIGTERM and SIGINT set, and remove the handlers afterwards: uvloop does not remove them when it
    closes, and forked children would inherit them."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        loop.add_signal_handler(number, stopping.set)
    try:
        return await work(stopping)
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


@click.command("verifiable-producer")
@bootstrap_option
@command_config_option
@click.option("--topic", required=True, help="Topic to write to.")
@click.option("--max-messages", type=int, default=-1, show_default=True, help="Records to send; -1: until stopped.")
@click.option("--throughput", type=FINITE, default=-1, show_default=True, help="Records per second; -1: unlimited.")
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "-1", "all"]),
    default="-1",
    show_default=True,
    help="Which replicas must have a record before it is acknowledged.",
)
@click.option("--message-create-time", "-T", "create_time", type=int, default=-1, help="Timestamp of the first record, milliseconds.")
@click.option("--value-prefix", type=int, help="Values are PREFIX.NUMBER.")
@click.option(
    "--repeating-keys", type=click.IntRange(1), help="Cycle keys from 0 to this number minus one. Without it records have no key."
)
@traceback_option
def verifiable_producer(bootstrap: str, traceback: bool, **options: Any) -> None:
    """Send numbered records, and report for each whether it was acknowledged."""
    sys.exit(run(lambda: until_signalled(lambda stopping: _produce(bootstrap, options, stopping)), traceback=traceback))


async def _produce(bootstrap: str, options: dict[str, Any], stopping: asyncio.Event) -> int:
    from minikafka.client.producer import Producer

    acks, rate = options["acks"], options["throughput"]
    async with Producer(bootstrap, acks=acks, linger_ms=0, enable_idempotence=acks in ("-1", "all")) as producer:
        say("startup_complete")
        sending = _Sending(producer, options)
        await sending.send_all(stopping)
    say("shutdown_complete")
    seconds = max(time.monotonic() - sending.started_s, 0.001)
    target = int(rate) if rate == int(rate) else rate
    sent, acknowledged = sending.sent, sending.acknowledged
    say("tool_data", sent=sent, acked=acknowledged, target_throughput=target, avg_throughput=acknowledged / seconds)
    return 0 if acknowledged == sent or acks == "0" else 1


class _Sending:
    """Sends numbered records and reports the result of each."""

    def __init__(self, producer: Producer, options: dict[str, Any]) -> None:
        self._producer, self._options = producer, options
        self._waiting: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self.started_s = time.monotonic()
        self.sent = self.acknowledged = 0

    async def send_all(self, stopping: asyncio.Event) -> None:
        """Send up to --max-messages records at the given rate, until `stopping` is set. Returns when every record has a result."""
        most, rate = self._options["max_messages"], self._options["throughput"]
        while (most < 0 or self.sent < most) and not stopping.is_set() and self._failure is None:
            await self._send()
            if rate > 0 and (ahead := self.started_s + self.sent / rate - time.monotonic()) > 0:
                with contextlib.suppress(TimeoutError):
                    await within(ahead, stopping.wait())
            elif self.sent % 256 == 0:
                await asyncio.sleep(0)
        if self._failure is None:
            await self._producer.flush()
            await asyncio.gather(*self._waiting)
        if self._failure is not None:
            raise self._failure

    async def _send(self) -> None:
        prefix, keys, topic, begun = (self._options[name] for name in ("value_prefix", "repeating_keys", "topic", "create_time"))
        key = None if keys is None else str(self.sent % keys)
        value = str(self.sent) if prefix is None else f"{prefix}.{self.sent}"
        when = None if begun < 0 else begun + int((time.monotonic() - self.started_s) * 1000)
        self.sent += 1
        try:
            future = await self._producer.send(topic, value.encode(), key=None if key is None else key.encode(), timestamp_ms=when)
        except (ClientError, TimeoutError) as error:
            say("producer_send_error", topic=topic, key=key, value=value, exception=type(error).__name__, message=str(error))
            return
        task = asyncio.ensure_future(self._settle(future, key, value))
        self._waiting.add(task)
        task.add_done_callback(self._settled)

    def _settled(self, task: asyncio.Task[None]) -> None:
        """A result that cannot be reported, because nobody reads standard output, ends the command."""
        self._waiting.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()

    async def _settle(self, future: Any, key: str | None, value: str) -> None:
        try:
            stored = await future
        except ClientError as error:
            say(
                "producer_send_error", topic=self._options["topic"], key=key, value=value,
                exception=f"{type(error).__module__}.{type(error).__name__}", message=str(error),
            )  # fmt: skip
            return
        self.acknowledged += 1
        say("producer_send_success", key=key, value=value, offset=stored.offset, topic=stored.topic, partition=stored.partition)


@click.command("verifiable-consumer")
@bootstrap_option
@command_config_option
@click.option("--topic", required=True, help="Topic to read.")
@click.option("--group-id", required=True, help="Group to join.")
@click.option("--group-protocol", type=click.Choice(["classic", "consumer"]), default="classic", show_default=True, help="Group protocol.")
@click.option("--group-remote-assignor", help="With --group-protocol consumer: the broker's assignor.")
@click.option("--group-instance-id", help="Instance id for static membership.")
@click.option("--max-messages", type=int, default=-1, show_default=True, help="Records to read; -1: until stopped.")
@click.option("--session-timeout", "session_timeout_ms", type=int, default=30000, show_default=True, help="Milliseconds.")
@click.option(
    "--close-timeout", "close_ms", type=click.IntRange(0), default=30000, show_default=True, help="Milliseconds for leaving the group."
)
@click.option("--enable-autocommit", is_flag=True, help="Commit at intervals instead of after each batch.")
@click.option(
    "--reset-policy",
    type=click.Choice(["earliest", "latest", "none"]),
    default="earliest",
    show_default=True,
    help="Where to start without a committed offset.",
)
@click.option("--assignment-strategy", help="Accepted, no effect: the bundled assignors are used.")
@click.option("--verbose", is_flag=True, help="Report every record.")
@traceback_option
def verifiable_consumer(bootstrap: str, traceback: bool, **options: Any) -> None:
    """Read as a member of a group, and report assignments, records and commits."""
    run(lambda: until_signalled(lambda stopping: _consume(bootstrap, options, stopping)), traceback=traceback)


async def _consume(bootstrap: str, options: dict[str, Any], stopping: asyncio.Event) -> None:
    from minikafka.client.consumer import Consumer

    most, count = options["max_messages"], 0
    auto = options["enable_autocommit"]
    assigned: list[tuple[str, int]] = []
    made = Consumer(
        bootstrap,
        group_id=options["group_id"],
        auto_offset_reset=options["reset_policy"],
        enable_auto_commit=auto,
        session_timeout_ms=options["session_timeout_ms"],
        group_protocol=options["group_protocol"],
        group_remote_assignor=options["group_remote_assignor"],
        group_instance_id=options["group_instance_id"],
    )
    async with _closed_within(made, options["close_ms"]) as consumer:
        say("startup_complete")
        await consumer.subscribe([options["topic"]])
        while (most < 0 or count < most) and not stopping.is_set():
            records = await consumer.poll(POLL_MS, 500 if most < 0 else min(500, most - count))
            assigned = _note_assignment(assigned, sorted(consumer.assignment))
            if not records:
                continue
            count += len(records)
            _note_records(records, verbose=options["verbose"])
            if not auto:
                await _commit(consumer, records)
        if assigned:
            say("partitions_revoked", partitions=_as_rows(assigned))
    say("shutdown_complete")


@contextlib.asynccontextmanager
async def _closed_within(consumer: Consumer, close_ms: int) -> AsyncIterator[Consumer]:
    """Start a consumer, and give its close this long."""
    await consumer.start()
    try:
        yield consumer
    finally:
        with contextlib.suppress(TimeoutError):
            await within(close_ms / 1000, consumer.close())


def _as_rows(partitions: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": index} for topic, index in partitions]


def _note_assignment(before: list[tuple[str, int]], now: list[tuple[str, int]]) -> list[tuple[str, int]]:
    if before != now:
        if before:
            say("partitions_revoked", partitions=_as_rows(before))
        if now:
            say("partitions_assigned", partitions=_as_rows(now))
    return now


def rows_by_partition(records: list[Any]) -> list[tuple[dict[str, Any], list[int]]]:
    """(topic and partition, offsets in order) of records."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for record in records:
        offsets.setdefault((record.topic, record.partition), []).append(record.offset)
    return [({"topic": topic, "partition": index}, sorted(found)) for (topic, index), found in offsets.items()]


def note_each(records: list[Any]) -> None:
    """Report every record."""
    for record in records:
        say(
            "record_data", key=_text(record.key), value=_text(record.value), topic=record.topic, partition=record.partition,
            offset=record.offset,
        )  # fmt: skip


def _note_records(records: list[Any], *, verbose: bool) -> None:
    if verbose:
        note_each(records)
    rows = [
        {**place, "count": len(offsets), "minOffset": offsets[0], "maxOffset": offsets[-1]} for place, offsets in rows_by_partition(records)
    ]
    say("records_consumed", count=len(records), partitions=rows)


def _text(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).decode("utf-8", "replace")


async def _commit(consumer: Any, records: list[Any]) -> None:
    offsets = {(r.topic, r.partition): r.offset + 1 for r in records}
    rows = [{"topic": topic, "partition": index, "offset": offset} for (topic, index), offset in offsets.items()]
    try:
        await within(COMMIT_TRIES_S, consumer.commit(offsets))
    except (ClientError, TimeoutError) as error:
        say("offsets_committed", offsets=rows, success=False, error=str(error))
    else:
        say("offsets_committed", offsets=rows, success=True)
