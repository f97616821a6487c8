"""`python tests/differential/run.py --seeds 0..200`: the same requests to Apache Kafka and to minikafka, and what they answer otherwise."""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import click
import uvloop

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from differential.comparison import Comparison, Difference  # noqa: E402
from differential.drawing import sequence  # noqa: E402
from differential.side import Side  # noqa: E402
from differential.target import Target  # noqa: E402
from helpers import apache_kafka  # noqa: E402

from minikafka.testing.cluster import ProcessCluster  # noqa: E402

#: What Apache Kafka's single broker has of its own in tests, and what keeps groups from waiting.
PROPERTIES = {
    "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1", "transaction.state.log.num.partitions": "1",
    "log.retention.ms": "-1", "group.consumer.assignment.interval.ms": "0", "log.segment.delete.delay.ms": "60000",
    "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1", "auto.create.topics.enable": "false",
    # Everybody may do everything, and there are ACLs.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "secret",
    "broker.session.timeout.ms": "60000", "controller.quorum.append.linger.ms": "0", "offset.metadata.max.bytes": "20",
    # Transactional ids that no sequence names any more are forgotten.
    "transactional.id.expiration.ms": "180000", "transaction.remove.expired.transaction.cleanup.interval.ms": "60000",
    "group.share.assignment.interval.ms": "0", "group.streams.assignment.interval.ms": "0", "group.streams.initial.rebalance.delay.ms": "0",
    # The bounds of groups' own times, and what they are compared with, as clusters for tests have them.
    "group.consumer.heartbeat.interval.ms": "100", "group.streams.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500", "group.consumer.min.heartbeat.interval.ms": "100",
    "group.streams.min.session.timeout.ms": "500", "group.streams.min.heartbeat.interval.ms": "100",
}  # fmt: skip
LENGTH = 25
LANES = 16
#: After so many sequences those that differ play alone.
ROUND = 1000


@contextmanager
def brokers(
    directory: Path, version: str, properties: Mapping[str, str] = MappingProxyType({}), *, release: str | None = None
) -> Iterator[tuple[str, str]]:
    """A broker of each kind, alone in its cluster: the addresses of Apache Kafka's and of ours. They stop in the end. Apache Kafka's has
    the features of an older `release` if it is given, which is then that of ours by itself."""
    given = {**PROPERTIES, **properties}
    kafka = apache_kafka.KafkaBroker(directory / "kafka", given, version=version)
    kafka.format(release=release)
    ours = {**given, "min.insync.replicas": "1", "default.replication.factor": "1", "log.cleaner.dedupe.buffer.size": "10485760"}
    with kafka.running(60), ProcessCluster(1, directory=directory / "ours", properties=ours, release=None if release else "4.4") as cluster:
        yield kafka.bootstrap, cluster.bootstrap


class Lanes:
    """Comparisons that play at once on the same two brokers, each with names of its own: most of a sequence is waiting."""

    def __init__(self, addresses: tuple[str, str], count: int, shortens: bool = True) -> None:
        self._shortens = shortens
        self._targets = [Target(address) for address in addresses]
        self._sides = [[Side(target) for target in self._targets] for _ in range(count)]
        self._comparisons = [Comparison(*sides, lane) for lane, sides in enumerate(self._sides)]
        self._told: dict[object, int] = {}

    async def prepare(self) -> None:
        """Before the first sequence."""
        for target, side in zip(self._targets, self._sides[0], strict=True):
            await target.prepare()
            await side.prepare()

    async def play(self, seeds: Iterable[int], length: int) -> AsyncIterator[tuple[str, bool]]:
        """What differs, and whether it also does when the sequence plays alone."""
        differing: dict[int, list[Difference]] = {}
        left = iter(seeds)

        async def play(comparison: Comparison) -> None:
            for seed in left:
                found = await comparison.play(sequence(seed, length))
                if found:
                    differing[seed] = found

        async with asyncio.TaskGroup() as tasks:
            for comparison in self._comparisons:
                tasks.create_task(play(comparison))
        for seed in sorted(differing):
            yield await self._alone(seed, length, differing[seed])

    async def _alone(self, seed: int, length: int, seen: list[Difference]) -> tuple[str, bool]:
        steps = sequence(seed, length)
        found = await self._comparisons[0].play(steps)
        if not found:
            return f"seed {seed} differed among others: " + "; ".join(map(str, seen)), False
        kind = found[0].kind
        if kind in self._told:
            return f"seed {seed} differs like seed {self._told[kind]}", True
        self._told[kind] = seed
        if not self._shortens:
            return f"seed {seed} differs: {found[0]}", True
        return await self._comparisons[0].tell(steps, f"seed {seed}") or f"seed {seed} differs: {found[0]}", True

    async def close(self) -> None:
        """Close the connections."""
        for side in itertools.chain.from_iterable(self._sides):
            side.close()
        for target in self._targets:
            await target.close()


def differing(
    addresses: tuple[str, str], seeds: Sequence[int], length: int = LENGTH, lanes: int = LANES, tell: Callable[[str], None] = str,
    shortens: bool = True,
) -> list[tuple[str, bool]]:
    """What differs on two brokers, told as soon as it is found, and whether it also does when the sequence plays alone."""

    async def play() -> list[tuple[str, bool]]:
        ready = Lanes(addresses, lanes, shortens)
        await ready.prepare()
        found = []
        for begin in range(0, len(seeds), ROUND):
            async for one in ready.play(seeds[begin : begin + ROUND], length):
                tell(one[0])
                found.append(one)
        await ready.close()
        return found

    return uvloop.run(play())


@click.command()
@click.option("--seeds", default="0..20", help="FIRST..LAST, without the last.")
@click.option("--length", default=LENGTH, help="Requests of a sequence.")
@click.option("--lanes", default=LANES, help="Sequences that play at once.")
@click.option("--shorten/--no-shorten", default=True, help="Look for the fewest requests that show a difference: a minute each.")
def main(seeds: str, length: int, lanes: int, shorten: bool) -> None:
    """Exit status 1 when an answer differs that differences.toml does not name."""
    why = apache_kafka.missing()
    if why:
        raise click.ClickException(why)
    first, _, last = seeds.partition("..")
    wanted = range(int(first), int(last))
    with tempfile.TemporaryDirectory(prefix="md-") as directory, brokers(Path(directory), apache_kafka.NEXT) as addresses:
        began_s = time.monotonic()
        found = differing(addresses, wanted, length, lanes, click.echo, shorten)
        rate = len(wanted) / (time.monotonic() - began_s)
    failed = sum(is_certain for _, is_certain in found)
    click.echo(f"{failed} of {len(wanted)} sequences differ; {len(found) - failed} differed among others, not alone; {rate:.1f} a second")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
