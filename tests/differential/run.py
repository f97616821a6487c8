"""`python tests/differential/run.py --seeds 0..200`: the same requests to Apache Kafka and to minikafka, and what they answer otherwise."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import click

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from differential.comparison import Comparison  # noqa: E402
from differential.side import Side  # noqa: E402
from helpers import apache_kafka  # noqa: E402

from minikafka.testing.cluster import ProcessCluster  # noqa: E402

#: What Apache Kafka's single broker has of its own in tests, and what keeps groups from waiting.
PROPERTIES = {
    "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1", "transaction.state.log.num.partitions": "1",
    "log.retention.ms": "-1", "group.consumer.assignment.interval.ms": "0", "log.segment.delete.delay.ms": "60000",
}  # fmt: skip
LENGTH = 25


@contextmanager
def brokers(directory: Path, version: str, properties: Mapping[str, str] = MappingProxyType({})) -> Iterator[tuple[str, str]]:
    """A broker of each kind, alone in its cluster: the addresses of Apache Kafka's and of ours. They stop in the end."""
    given = {**PROPERTIES, **properties}
    kafka = apache_kafka.KafkaBroker(directory / "kafka", given, version=version)
    kafka.format()
    ours = {**given, "min.insync.replicas": "1", "default.replication.factor": "1", "log.cleaner.dedupe.buffer.size": "10485760"}
    with kafka.running(60), ProcessCluster(1, directory=directory / "ours", properties=ours) as cluster:
        yield kafka.bootstrap, cluster.bootstrap


@contextmanager
def both(directory: Path) -> Iterator[Comparison]:
    """Two brokers, ready for sequences."""
    with brokers(directory, apache_kafka.NEXT) as addresses:
        sides = [Side(address) for address in addresses]
        for side in sides:
            side.prepare()
        yield Comparison(*sides)
        for side in sides:
            side.close()


@click.command()
@click.option("--seeds", default="0..20", help="FIRST..LAST, without the last.")
@click.option("--length", default=LENGTH, help="Requests of a sequence.")
def main(seeds: str, length: int) -> None:
    """Exit status 1 when an answer differs that differences.toml does not name."""
    why = apache_kafka.missing()
    if why:
        raise click.ClickException(why)
    first, _, last = seeds.partition("..")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="md-") as directory, both(Path(directory)) as comparison:
        for seed in range(int(first), int(last)):
            found = comparison.play_seed(seed, length)
            if found is not None:
                failed += 1
                click.echo(found)
    click.echo(f"{failed} of {int(last) - int(first)} sequences differ")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
