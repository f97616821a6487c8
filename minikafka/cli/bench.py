"""`minikafka bench`: measure a running cluster's throughput and latency in about a minute, and leave nothing behind."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import bootstrap_option, command_config_option, emit, output_option, run, traceback_option

if TYPE_CHECKING:
    from minikafka.client.bench import Measured

COLUMNS = ("measure", "requests_per_s", "megabytes_per_s", "p50_ms", "p99_ms", "max_ms", "client_busy")
UNITS = {"KIB": 1 << 10, "MIB": 1 << 20, "KB": 1000, "MB": 1_000_000, "K": 1 << 10, "M": 1 << 20, "B": 1, "": 1}
BATCH_BYTES_MIN, BATCH_BYTES_MAX = 128, 1_000_000
FETCH_BYTES_MAX = 50 << 20


def sizes(text: str, least: int, most: int, option: str) -> list[int]:
    """`1KiB,16KiB,1000000` in bytes. Raises click.BadParameter."""
    found = []
    for entry in text.split(","):
        digits = entry.strip().rstrip("KMIBkmib ")
        unit = UNITS.get(entry.strip()[len(digits) :].strip().upper())
        if not digits.isdigit() or unit is None:
            text = f"{entry.strip() or 'nothing'} is not a size: give bytes, or a number with KiB, MiB, KB or MB"
            raise click.BadParameter(text, param_hint=option)
        size = int(digits) * unit
        if not least <= size <= most:
            raise click.BadParameter(f"{entry.strip()} is not between {least} and {most} bytes", param_hint=option)
        found.append(size)
    return found


@click.command()
@bootstrap_option
@command_config_option
@output_option
@click.option("--batch-sizes", default="1KiB,16KiB,1MB", show_default=True, help="Sizes of produced batches, in bytes.")
@click.option("--fetch-sizes", default="16KiB,1MiB", show_default=True, help="Fetch sizes, in bytes.")
@click.option("--partitions", type=click.IntRange(1, 1000), default=6, show_default=True, help="Number of partitions of the topic.")
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32),
    default=None,
    help="Replicas of each partition [default: three, or the number of brokers if that is less].",
)
@click.option("--in-flight", type=click.IntRange(1, 100), default=3, show_default=True, help="Requests in flight per partition.")
@click.option("--seconds", type=click.FloatRange(0.05, 600), default=2.0, show_default=True, help="Duration of each measurement.")
@click.option(
    "--megabytes-max", type=click.FloatRange(1), default=500.0, show_default=True, help="Maximum megabytes per measurement."
)
@click.option("--topic", default=None, help="Topic to create and delete [default: a random name].")
@traceback_option
def bench(bootstrap: str, output: str, traceback: bool, **options: Any) -> None:
    """Measure a running cluster: minikafka, or anything else that speaks Kafka's protocol.

    The command creates a topic, fills it with prepared batches (acks=1, then acks=all), reads it, measures the latency of single
    records, and deletes it. CLIENT-BUSY is the share of a core that this client uses: near 1, the client is the bottleneck.
    """
    batch_sizes = sizes(options["batch_sizes"], BATCH_BYTES_MIN, BATCH_BYTES_MAX, "--batch-sizes")
    fetch_sizes = sizes(options["fetch_sizes"], BATCH_BYTES_MIN, FETCH_BYTES_MAX, "--fetch-sizes")
    topic = options["topic"] or f"minikafka-bench-{secrets.token_hex(4)}"

    def progress(measured: Measured) -> None:
        if output in ("table", "wide"):
            click.echo(f"{measured.measure}: {measured.requests_per_s:,.0f}/s, {measured.megabytes_per_s:,.1f} MB/s", err=True)

    async def work() -> list[Measured]:
        from minikafka.client.bench import measure

        return await measure(
            bootstrap,
            topic,
            partitions=options["partitions"],
            replication_factor=options["replication_factor"] or 0,
            batch_sizes=batch_sizes,
            fetch_sizes=fetch_sizes,
            seconds=options["seconds"],
            in_flight=options["in_flight"],
            megabytes_max=options["megabytes_max"],
            on_measured=progress,
        )

    found = run(work, traceback=traceback)
    emit([_row(measured) for measured in found], output, COLUMNS)


def _row(measured: Measured) -> dict[str, Any]:
    digits = {"requests_per_s": 0, "megabytes_per_s": 1, "p50_ms": 2, "p99_ms": 2, "max_ms": 2, "client_busy": 2}
    row = asdict(measured)
    # On a busy machine the rate can be as low as one a second: do not round it to zero.
    return {name: round(value, digits[name] if value >= 10 else 4) if name in digits else value for name, value in row.items()}
