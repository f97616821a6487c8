"""What clients notice when leaderships move in order: a broker that is stopped, an election of preferred leaders, a reassignment.

    python tests/bench/handover.py [--client librdkafka --client java ...] [--move shutdown --move elect --move reassign]
                                   [--repeat 3] [--partitions 4] [--rate 1000] [--kafka] [--set name=value ...]

Three combined nodes with Kafka's default timeouts. All partitions are led by one broker that is not the active controller; a producer
writes `--rate` records a second with acks=all and its own defaults, round the partitions. Gap: the longest time between two
acknowledgements of one partition around the move, the worst of the partitions; reading: the longest pause of a reader (librdkafka);
failed: records that the client gave up; lost and twice: what the reader finds after it all. `--kafka` measures Apache Kafka instead
(where Java and Maven are).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.apache_kafka import class_path
from helpers.mixed_cluster import BOTH, KAFKA, MINI, MixedCluster

from minikafka.client.maintenance import Maintenance

DEFAULTS = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000", "replica.lag.time.max.ms": "30000"}
BEFORE_S, AFTER_S = 1.5, 1.5


class Load:
    """A producer in a thread of its own: `acks` has (partition, time) of each acknowledgement."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int) -> None:
        self.bootstrap, self.topic, self.partitions, self.rate = bootstrap, topic, partitions, rate
        self.acks: list[tuple[int, float]] = []
        self.failed = 0
        self.sent = 0
        self.stopping = False
        self._thread = threading.Thread(target=self.run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping = True
        self._thread.join(60)

    def run(self) -> None:
        raise NotImplementedError

    def wait(self, begun_s: float) -> int:
        """Until the next record is due; its number."""
        due = begun_s + self.sent / self.rate
        while (left := due - time.monotonic()) > 0:
            time.sleep(left)
        self.sent += 1
        return self.sent - 1

    def done(self, partition: int, error: Any) -> None:
        if error is None:
            self.acks.append((partition, time.monotonic()))
        else:
            self.failed += 1


class Librdkafka(Load):
    settings: dict[str, Any] = {}

    def run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0, **self.settings})
        begun_s = time.monotonic()
        while not self.stopping:
            number = self.wait(begun_s)
            partition = number % self.partitions
            producer.produce(self.topic, b"%d" % number, partition=partition, on_delivery=lambda error, _, p=partition: self.done(p, error))
            producer.poll(0)
        producer.flush(30)


class Idempotent(Librdkafka):
    settings = {"enable.idempotence": True}


class Asynchronous(Load):
    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        send, stop = await self.open()
        begun_s, waiting = time.monotonic(), set()

        async def settle(partition: int, sent: Awaitable[Any]) -> None:
            try:
                await sent
            except Exception as error:  # whatever a client gives up with counts
                self.done(partition, error)
            else:
                self.done(partition, None)

        while not self.stopping:
            left_s = begun_s + self.sent / self.rate - time.monotonic()
            await asyncio.sleep(max(left_s, 0))
            partition, value = self.sent % self.partitions, b"%d" % self.sent
            self.sent += 1
            task = asyncio.ensure_future(settle(partition, await send(value, partition)))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.gather(*waiting)
        await stop()


class Bundled(Asynchronous):
    async def open(self) -> tuple[Callable[..., Any], Callable[[], Any]]:
        from minikafka.client.producer import Producer

        producer = Producer(self.bootstrap, linger_ms=0)
        await producer.start()
        return lambda value, partition: producer.send(self.topic, value, partition=partition), producer.close


class Aiokafka(Asynchronous):
    async def open(self) -> tuple[Callable[..., Any], Callable[[], Any]]:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all")
        await producer.start()
        return lambda value, partition: producer.send(self.topic, value, partition=partition), producer.stop


class KafkaPython(Load):
    def run(self) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=self.bootstrap, acks="all")
        begun_s = time.monotonic()
        while not self.stopping:
            number = self.wait(begun_s)
            partition = number % self.partitions
            sent = producer.send(self.topic, b"%d" % number, partition=partition)
            sent.add_callback(lambda _, p=partition: self.done(p, None))
            sent.add_errback(lambda error, p=partition: self.done(p, error))
        producer.flush(30)
        producer.close()


class Java(Load):
    """Apache Kafka's VerifiableProducer, with the producer's own defaults: a line of JSON for each acknowledgement."""

    def run(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".properties") as properties:
            # The tool would repeat nothing.
            properties.write("retries=2147483647\nenable.idempotence=true\n")
            properties.flush()
            self._run(properties.name)

    def _run(self, properties: str) -> None:
        command = [
            "java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path(),
            "org.apache.kafka.tools.VerifiableProducer",
            "--bootstrap-server", self.bootstrap, "--topic", self.topic, "--throughput", str(self.rate), "--acks", "-1",
            "--command-config", properties,
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        threading.Thread(target=self._until_stopped, args=(process,), daemon=True).start()
        shift_s = time.monotonic() - time.time()
        for line in process.stdout:
            try:
                reported = json.loads(line)
            except ValueError:
                continue
            if reported.get("name") == "producer_send_success":
                self.acks.append((reported["partition"], reported["timestamp"] / 1000 + shift_s))
                self.sent = max(self.sent, int(reported["value"]) + 1)
            elif reported.get("name") == "producer_send_error":
                self.failed += 1
        process.wait()

    def _until_stopped(self, process: subprocess.Popen[str]) -> None:
        while not self.stopping:
            time.sleep(0.05)
        process.terminate()


CLIENTS: dict[str, type[Load]] = {
    "librdkafka": Librdkafka, "idempotent": Idempotent, "java": Java, "bundled": Bundled, "aiokafka": Aiokafka, "kafka-python": KafkaPython,
}  # fmt: skip


class Reading:
    """librdkafka reads along: when records came, and how often each value was found."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "log_level": 0, "enable.auto.commit": False})
        self.consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        self.seen: Counter[bytes] = Counter()
        self.at: list[tuple[int, float]] = []
        self.stopping = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.stopping:
            for message in self.consumer.consume(500, 0.01):
                if message.error() is None:
                    self.seen[message.value()] += 1
                    self.at.append((message.partition(), time.monotonic()))

    def close(self, wanted: int) -> None:
        deadline = time.monotonic() + 10
        while len(self.seen) < wanted and time.monotonic() < deadline:
            time.sleep(0.05)
        self.stopping = True
        self.thread.join()
        self.consumer.close()


def longest_ms(times: list[tuple[int, float]], since_s: float, partitions: int) -> float:
    """The longest pause of any partition that ends after `since_s`."""
    by_partition: dict[int, list[float]] = defaultdict(list)
    for partition, at_s in times:
        by_partition[partition].append(at_s)
    assert len(by_partition) == partitions, f"records of {len(by_partition)} of {partitions} partitions"
    steps = [b - a for found in by_partition.values() for a, b in itertools.pairwise(sorted(found)) if b > since_s]
    return max(steps) * 1000


class Bench:
    def __init__(self, options: argparse.Namespace, cluster: MixedCluster) -> None:
        self.options, self.cluster = options, cluster
        self.partitions: int = options.partitions
        controller = cluster.quorum_leader()[0]
        self.first = next(n for n in cluster.nodes if n != controller)
        self.replicas = [self.first, *(n for n in cluster.nodes if n != self.first)]

    async def _with(self, do: Callable[[Maintenance], Awaitable[Any]]) -> None:
        async with Maintenance(self.cluster.bootstrap) as admin:
            await do(admin)

    def _keys(self, topic: str) -> list[tuple[str, int]]:
        return [(topic, index) for index in range(self.partitions)]

    def create(self, topic: str, replicas: list[int]) -> None:
        assignments = dict.fromkeys(range(self.partitions), replicas)
        asyncio.run(self._with(lambda admin: admin.create_topic(topic, assignments=assignments)))

    def reassign(self, topic: str, replicas: list[int]) -> None:
        asyncio.run(self._with(lambda admin: admin.alter_reassignments(dict.fromkeys(self._keys(topic), replicas))))

    def prepare(self, move: str, topic: str) -> Callable[[], Any]:
        """Make the topic; what makes its leaderships move."""
        if move == "shutdown":
            self.create(topic, self.replicas)
            return self.cluster.nodes[self.first].process.terminate  # type: ignore[union-attr]
        if move == "reassign":
            self.create(topic, self.replicas)
            return lambda: self.reassign(topic, self.replicas[1:])
        # Led by the first, and then the second is made the preferred one.
        self.create(topic, self.replicas)
        self.reassign(topic, [*self.replicas[1:], self.first])
        return lambda: asyncio.run(self._with(lambda admin: admin.elect(self._keys(topic), unclean=False)))

    def run(self, client: str, move: str, number: int) -> tuple[float, float, int, int, int]:
        topic = f"{client}-{move}-{number}"
        # Its partitioner stays with a partition for 16 KiB, seconds at this rate: there would be gaps without any move.
        self.partitions = 1 if client == "java" else self.options.partitions
        strike = self.prepare(move, topic)
        self.cluster.wait_for(
            lambda: [leader for leader, _ in self.cluster.partitions(topic).values()] == [self.first] * self.partitions, "leaders"
        )
        reading = Reading(self.cluster.bootstrap, topic, self.partitions)
        load = CLIENTS[client](self.cluster.bootstrap, topic, self.partitions, self.options.rate)
        load.start()
        deadline = time.monotonic() + 30
        while len({p for p, _ in list(load.acks)}) < self.partitions or not reading.at:
            assert time.monotonic() < deadline, "no acknowledgements"
            time.sleep(0.05)
        time.sleep(BEFORE_S)
        struck_s = time.monotonic()
        strike()
        time.sleep(AFTER_S)
        load.stop()
        reading.close(len(load.acks))
        gap_ms = longest_ms(load.acks, struck_s, self.partitions)
        pause_ms = longest_ms(reading.at, struck_s, self.partitions)
        lost = max(len(load.acks) - len(reading.seen), 0)
        twice = sum(count - 1 for count in reading.seen.values())
        if move == "shutdown":
            self.cluster.nodes[self.first].process.wait(30)  # type: ignore[union-attr]
            self.cluster.start(self.first)
        return gap_ms, pause_ms, load.failed, lost, twice


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", action="append", choices=CLIENTS)
    parser.add_argument("--move", action="append", choices=("shutdown", "elect", "reassign"))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--verbose", action="store_true", help="the last lines of every node's log")
    options = parser.parse_args()
    given = dict(entry.split("=", 1) for entry in options.set)
    kind = KAFKA if options.kafka else MINI
    with (
        tempfile.TemporaryDirectory() as directory,
        MixedCluster(Path(directory), [(n, kind, BOTH) for n in (1, 2, 3)], properties={**DEFAULTS, **given}) as cluster,
    ):
        cluster.format()
        cluster.start()
        bench = Bench(options, cluster)
        for move in options.move or ("shutdown", "elect", "reassign"):
            for client in options.client or CLIENTS:
                found = [bench.run(client, move, number) for number in range(options.repeat)]
                gaps, pauses = [row[0] for row in found], [row[1] for row in found]
                print(
                    f"{kind} {move} {client}: gap median {statistics.median(gaps):.0f} ms ({', '.join(f'{gap:.0f}' for gap in gaps)}), "
                    f"reading {statistics.median(pauses):.0f} ms; failed {sum(row[2] for row in found)}, "
                    f"lost {sum(row[3] for row in found)}, twice {sum(row[4] for row in found)}",
                    flush=True,
                )
        if options.verbose:
            print(cluster.logs(40))


if __name__ == "__main__":
    main()
