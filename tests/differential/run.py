"""`python tests/differential/run.py --seeds 0..200`: the same requests to Apache Kafka and to minikafka, and what they answer otherwise."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
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
    "broker.session.timeout.ms": "60000",
    # The bounds of groups' own times, and what they are compared with, as clusters for tests have them.
    "group.consumer.heartbeat.interval.ms": "100", "group.streams.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500", "group.consumer.min.heartbeat.interval.ms": "100",
    "group.streams.min.session.timeout.ms": "500", "group.streams.min.heartbeat.interval.ms": "100",
}  # fmt: skip
LENGTH = 25
LANES = 6


@contextmanager
def brokers(
    directory: Path, version: str, properties: Mapping[str, str] = MappingProxyType({}), *, release: str | None = None
) -> Iterator[tuple[str, str]]:
    """A broker of each kind, alone in its cluster: the addresses of Apache Kafka's and of ours. They stop in the end. Apache Kafka's has
    the features of an older `release` if it is given."""
    given = {**PROPERTIES, **properties}
    kafka = apache_kafka.KafkaBroker(directory / "kafka", given, version=version)
    kafka.format(release=release)
    ours = {**given, "min.insync.replicas": "1", "default.replication.factor": "1", "log.cleaner.dedupe.buffer.size": "10485760"}
    with kafka.running(60), ProcessCluster(1, directory=directory / "ours", properties=ours) as cluster:
        yield kafka.bootstrap, cluster.bootstrap


class Lanes:
    """Comparisons that play at once on the same two brokers, each with names of its own: most of a sequence is waiting."""

    def __init__(self, addresses: tuple[str, str], count: int) -> None:
        kafka, ours = addresses
        self._lanes = [(Side(kafka, lane), Side(ours, lane)) for lane in range(count)]
        for side in (side for lane in self._lanes for side in lane):
            side.prepare()
        self._comparisons = [Comparison(*sides, lane) for lane, sides in enumerate(self._lanes)]

    @property
    def seen_once(self) -> int:
        """Sequences whose answers differed once and not again."""
        return sum(comparison.seen_once for comparison in self._comparisons)

    def play(self, seeds: Iterable[int], length: int) -> Iterator[str]:
        """What differs, in the order in which it is found."""
        left = Queue[int]()
        for seed in seeds:
            left.put(seed)
        found = Queue[str | None]()

        def play(comparison: Comparison) -> None:
            try:
                while True:
                    told = comparison.play_seed(left.get_nowait(), length)
                    if told is not None:
                        found.put(told)
            except Empty:
                return
            finally:
                found.put(None)

        with ThreadPoolExecutor(len(self._comparisons)) as pool:
            playing = [pool.submit(play, comparison) for comparison in self._comparisons]
            for _ in playing:
                while (told := found.get()) is not None:
                    yield told
        for one in playing:
            one.result()

    def close(self) -> None:
        """Close the connections."""
        for side in (side for lane in self._lanes for side in lane):
            side.close()


@contextmanager
def both(directory: Path, lanes: int = LANES) -> Iterator[Lanes]:
    """Two brokers, ready for sequences."""
    with brokers(directory, apache_kafka.NEXT) as addresses:
        ready = Lanes(addresses, lanes)
        yield ready
        ready.close()


@click.command()
@click.option("--seeds", default="0..20", help="FIRST..LAST, without the last.")
@click.option("--length", default=LENGTH, help="Requests of a sequence.")
@click.option("--lanes", default=LANES, help="Sequences that play at once.")
def main(seeds: str, length: int, lanes: int) -> None:
    """Exit status 1 when an answer differs that differences.toml does not name."""
    why = apache_kafka.missing()
    if why:
        raise click.ClickException(why)
    first, _, last = seeds.partition("..")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="md-") as directory, both(Path(directory), lanes) as ready:
        for told in ready.play(range(int(first), int(last)), length):
            failed += 1
            click.echo(told)
        once = ready.seen_once
    click.echo(f"{failed} of {int(last) - int(first)} sequences differ; {once} differed once and not again")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
