"""`minikafka transactions`: kafka-transactions.sh (KIP-664)."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from minikafka.cli.common import CommandGroup, bootstrap_option, command_config_option, emit, output_option, traceback_option
from minikafka.cli.session import with_admin
from minikafka.client.transactions import (
    abort_transaction,
    describe_producers,
    describe_transaction,
    force_terminate,
    list_transactions,
)

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance

LIST_COLUMNS = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIBE_COLUMNS = (
    "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
)  # fmt: skip
PRODUCER_COLUMNS = (
    "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp", "CurrentTransactionStartOffset",
)  # fmt: skip
HANGING_COLUMNS = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp", "Duration(min)")
MINUTE_MS = 60_000


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as Kafka's tool prints them: padded, each followed by a tab."""
    texts = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[number]) for row in texts) for number in range(len(columns))]
    return "".join("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) + "\n" for row in texts)


def show(columns: Sequence[str], rows: Iterable[Sequence[object]], output: str) -> None:
    """Print rows as Kafka's table, or as objects with the column names in lower case as keys, like the other commands."""
    if output in ("table", "wide"):
        click.echo(table(columns, rows), nl=False)
        return
    keys = [re.sub(r"(?<=[a-z])(?=[A-Z])|\(", "_", column).lower().rstrip(")") for column in columns]
    emit([dict(zip(keys, row, strict=True)) for row in rows], output, keys)


@click.group("transactions", cls=CommandGroup)
@bootstrap_option
@command_config_option
@traceback_option
@click.pass_context
def transactions(ctx: click.Context, bootstrap: str, traceback: bool) -> None:
    """List, describe and abort transactions; find hanging ones."""
    ctx.obj = (bootstrap, traceback)


def _run(ctx: click.Context, work: Callable[[Maintenance], Awaitable[int]]) -> None:
    bootstrap, traceback = ctx.obj
    sys.exit(with_admin(bootstrap, work, traceback=traceback))


@transactions.command("list")
@click.option("--duration-filter", type=int, default=-1, help="Only transactions that have been open for more than this many milliseconds.")
@click.option("--transactional-id-pattern", help="Only ids that match this regular expression.")
@output_option
@click.pass_context
def list_(ctx: click.Context, duration_filter: int, transactional_id_pattern: str | None, output: str) -> None:
    """List the transactions of every coordinator."""

    async def work(admin: Maintenance) -> int:
        found = await list_transactions(admin, duration_ms=duration_filter, pattern=transactional_id_pattern)
        rows = [(state.transactional_id, node, state.producer_id, state.transaction_state) for node, state in found]
        show(LIST_COLUMNS, rows, output)
        return 0

    _run(ctx, work)


@transactions.command("describe")
@click.option("--transactional-id", required=True, help="The id.")
@output_option
@click.pass_context
def describe(ctx: click.Context, transactional_id: str, output: str) -> None:
    """Show the transaction of a transactional id."""

    async def work(admin: Maintenance) -> int:
        coordinator, state = await describe_transaction(admin, transactional_id)
        start_ms = state.transaction_start_time_ms
        is_open = start_ms >= 0
        row = (
            coordinator, transactional_id, state.producer_id, state.producer_epoch, state.transaction_state, state.transaction_timeout_ms,
            start_ms if is_open else None, int(time.time() * 1000) - start_ms if is_open else None,
            ",".join(f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions),
        )  # fmt: skip
        show(DESCRIBE_COLUMNS, [row], output)
        return 0

    _run(ctx, work)


@transactions.command("describe-producers")
@click.option("--broker-id", type=int, help="Ask this replica instead of the leader.")
@click.option("--topic", required=True, help="The topic.")
@click.option("--partition", type=int, required=True, help="The partition.")
@output_option
@click.pass_context
def describe_producers_(ctx: click.Context, broker_id: int | None, topic: str, partition: int, output: str) -> None:
    """Show the active producers of a partition."""

    async def work(admin: Maintenance) -> int:
        rows = [
            (
                p.producer_id, p.producer_epoch, p.coordinator_epoch, p.last_sequence, p.last_timestamp,
                p.current_txn_start_offset if p.current_txn_start_offset >= 0 else None,
            )
            for p in await describe_producers(admin, topic, partition, broker_id)
        ]  # fmt: skip
        show(PRODUCER_COLUMNS, rows, output)
        return 0

    _run(ctx, work)


@transactions.command("abort")
@click.option("--topic", required=True, help="The topic.")
@click.option("--partition", type=int, required=True, help="The partition.")
@click.option("--start-offset", type=int, help="First offset of the transaction; or give the producer and epochs.")
@click.option("--producer-id", type=int, help="The producer id.")
@click.option("--producer-epoch", type=int, help="Its epoch.")
@click.option("--coordinator-epoch", type=int, help="The coordinator's epoch.")
@click.pass_context
def abort(
    ctx: click.Context,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a hanging transaction in one partition."""
    if start_offset is None and None in (producer_id, producer_epoch, coordinator_epoch):
        raise click.UsageError("give --start-offset, or all of --producer-id, --producer-epoch and --coordinator-epoch")

    async def work(admin: Maintenance) -> int:
        ids = (producer_id, producer_epoch, coordinator_epoch)
        if start_offset is not None:
            open_ = [p for p in await describe_producers(admin, topic, partition) if p.current_txn_start_offset == start_offset]
            if not open_:
                click.echo(f"no open transaction of {topic}-{partition} begins at offset {start_offset}", err=True)
                return 1
            ids = (open_[0].producer_id, open_[0].producer_epoch, max(open_[0].coordinator_epoch, 0))
        await abort_transaction(admin, topic, partition, *ids)  # type: ignore[arg-type]
        return 0

    _run(ctx, work)


@transactions.command("forceTerminateTransaction")
@click.option("--transactionalId", "--transactional-id", "transactional_id", required=True, help="The id.")
@click.pass_context
def force_terminate_transaction(ctx: click.Context, transactional_id: str) -> None:
    """Abort the transaction of a transactional id, and fence its producer."""

    async def work(admin: Maintenance) -> int:
        await force_terminate(admin, transactional_id)
        return 0

    _run(ctx, work)


@transactions.command("find-hanging")
@click.option("--broker-id", type=int, help="Only partitions with a replica on this broker.")
@click.option(
    "--max-transaction-timeout",
    type=int,
    default=15,
    show_default=True,
    help="The brokers' transaction.max.timeout.ms, in minutes.",
)
@click.option("--topic", help="Only this topic.")
@click.option("--partition", type=int, help="Only this partition of --topic.")
@output_option
@click.pass_context
def find_hanging(
    ctx: click.Context, broker_id: int | None, max_transaction_timeout: int, topic: str | None, partition: int | None, output: str
) -> None:
    """Find transactions that are open in a partition but that no coordinator will end."""
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    if topic is None and broker_id is None:
        raise click.UsageError("give --broker-id or --topic")

    async def work(admin: Maintenance) -> int:
        rows = await _hanging(admin, broker_id, max_transaction_timeout * MINUTE_MS, topic, partition)
        show(HANGING_COLUMNS, rows, output)
        return 0

    _run(ctx, work)


async def _hanging(
    admin: Maintenance, broker_id: int | None, timeout_ms: int, topic: str | None, partition: int | None
) -> list[tuple[object, ...]]:
    """Transactions that have been open for longer than the timeout, and that the producer's coordinator does not have, or not with this
    partition."""
    now_ms = int(time.time() * 1000)
    late = []
    for described in await admin.describe_topics(None if topic is None else [topic]):
        for p in described.partitions:
            if (partition is None or p.index == partition) and (broker_id is None or broker_id in p.replicas):
                for producer in await describe_producers(admin, described.name, p.index, broker_id):
                    if producer.current_txn_start_offset >= 0 and now_ms - producer.last_timestamp > timeout_ms:
                        late.append((described.name, p.index, producer))
    if not late:
        return []
    ids = {state.producer_id: state.transactional_id for _, state in await list_transactions(admin)}
    rows: list[tuple[object, ...]] = []
    for name, index, producer in late:
        if producer.producer_id in ids:
            _, state = await describe_transaction(admin, ids[producer.producer_id])
            if any(t.topic == name and index in t.partitions for t in state.topics):
                continue
        rows.append(
            (
                name, index, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch, producer.current_txn_start_offset,
                producer.last_timestamp, (now_ms - producer.last_timestamp) // MINUTE_MS,
            )
        )  # fmt: skip
    return rows
