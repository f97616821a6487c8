"""What a cluster of processes does when something happens to it: failover, controlled shutdown, many partitions, restart after a kill.

    python tests/bench/cluster.py failover [--victim leader|controller] [--repeat 5] [--set name=value ...]
    python tests/bench/cluster.py shutdown [--repeat 5]
    python tests/bench/cluster.py partitions [--count 1000]
    python tests/bench/cluster.py recovery [--mib 2048]
    python tests/bench/cluster.py restart [--count 1000]

Three combined nodes with Kafka's default timeouts, unless `--set` says otherwise. Times are of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import time
from collections.abc import Callable

import psutil
from confluent_kafka import Producer as ConfluentProducer

from minikafka.client.admin import Admin
from minikafka.testing.cluster import ProcessCluster
from minikafka.wire.errors import ErrorCode

#: Kafka's defaults in the place of what the embedded cluster sets for quick tests.
DEFAULTS = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "replica.lag.time.max.ms": "30000",
}


def cluster_of(options: argparse.Namespace, size: int = 3) -> ProcessCluster:
    given = dict(entry.split("=", 1) for entry in options.set)
    return ProcessCluster(size, controllers=size, properties={**DEFAULTS, **given})


async def _create(bootstrap: str, topic: str, replicas: list[int]) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, assignments={0: replicas})


def active_controller(cluster: ProcessCluster) -> int:
    async def ask() -> int:
        from minikafka.net.channel import Channel
        from minikafka.net.server import SocketNetwork
        from minikafka.wire.messages.describe_quorum import DescribeQuorumRequest

        node = next(node for node in cluster.nodes.values() if node.running)
        channel = await Channel.open(SocketNetwork(asyncio.get_running_loop()), "127.0.0.1", node.port, client_id="bench")
        request = DescribeQuorumRequest(
            topics=[
                DescribeQuorumRequest.TopicData(
                    topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
                )
            ]
        )
        answer = await channel.request(request)
        channel.close()
        return int(answer.topics[0].partitions[0].leader_id)  # type: ignore[attr-defined]

    return asyncio.run(ask())


def gap(cluster: ProcessCluster, topic: str, client: list[str], strike: Callable[[], None]) -> tuple[float, int]:
    """A record a millisecond, acks=all, librdkafka's defaults: the longest time between two acknowledgements around `strike`, in ms, and
    the number of records that were refused."""
    acked: list[float] = []
    failed = 0

    def done(error: object, _: object) -> None:
        nonlocal failed
        if error is None:
            acked.append(time.monotonic())
        else:
            failed += 1

    given = dict(entry.split("=", 1) for entry in client)
    producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, **given})
    started, struck = time.monotonic(), None
    while True:
        now = time.monotonic()
        if struck is None and len(acked) > 500 and now - started > 2:
            struck = now
            strike()
        if struck is not None and acked[-1] > struck + 3:
            break
        if now - started > 60:
            raise TimeoutError("no acknowledgement for a minute")
        with contextlib.suppress(BufferError):
            producer.produce(topic, b"x" * 100, partition=0, on_delivery=done)
        producer.poll(0.001)
    producer.flush(10)
    assert struck is not None
    steps = [after - before for before, after in itertools.pairwise(acked) if after > struck]
    return max(steps) * 1000, failed


def failover(options: argparse.Namespace) -> None:
    """SIGKILL of a partition's leader."""
    found = []
    for _ in range(options.repeat):
        with cluster_of(options) as cluster:
            controller = active_controller(cluster)
            victim = controller if options.victim == "controller" else next(n for n in cluster.nodes if n != controller)
            asyncio.run(_create(cluster.bootstrap, "t", [victim, *(n for n in cluster.nodes if n != victim)]))
            milliseconds, failed = gap(cluster, "t", options.client, lambda node=victim, running=cluster: running.kill(node))  # type: ignore[misc]
            print(f"  gap {milliseconds:7.0f} ms, {failed} records refused", flush=True)
            found.append(milliseconds)
    print(f"failover, SIGKILL of the {options.victim}: median {statistics.median(found):.0f} ms, most {max(found):.0f} ms")


def shutdown(options: argparse.Namespace) -> None:
    """SIGTERM of a partition's leader: what its clients notice."""
    found = []
    for _ in range(options.repeat):
        with cluster_of(options) as cluster:
            controller = active_controller(cluster)
            victim = next(n for n in cluster.nodes if n != controller)
            asyncio.run(_create(cluster.bootstrap, "t", [victim, *(n for n in cluster.nodes if n != victim)]))
            process = cluster.nodes[victim].process
            assert process is not None
            milliseconds, failed = gap(cluster, "t", options.client, process.terminate)
            print(f"  gap {milliseconds:7.0f} ms, {failed} records refused", flush=True)
            found.append(milliseconds)
    print(f"controlled shutdown: median {statistics.median(found):.0f} ms, most {max(found):.0f} ms")


def _wait(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


def partitions(options: argparse.Namespace) -> None:
    """Partitions of RF=3 in one request, until all have a full ISR; then memory and CPU at rest."""
    with cluster_of(options) as cluster:
        async def create() -> None:
            async with Admin(cluster.bootstrap) as admin:
                await admin.create_topic("many", partitions=options.count, replication_factor=3, wait=False)

        started = time.monotonic()
        asyncio.run(create())
        created_s = time.monotonic() - started

        def full() -> bool:
            topics = cluster.metadata(["many"]).topics
            found = topics[0].partitions if topics else []
            return len(found) == options.count and all(
                p.error_code == ErrorCode.NONE and p.leader_id >= 0 and len(p.isr_nodes) == 3 for p in found
            )

        _wait(full)
        print(f"{options.count} partitions RF=3: answered in {created_s:.2f} s, full ISR seen in {time.monotonic() - started:.2f} s")

        acked = []
        producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})
        for index in range(options.count):
            producer.produce("many", b"x", partition=index, on_delivery=lambda error, _: acked.append(error is None))
        producer.flush(60)
        assert len(acked) == options.count and all(acked)
        print(f"  a record with acks=all is acknowledged by every one of them after {time.monotonic() - started:.2f} s")
        time.sleep(8)
        processes = [psutil.Process(node.process.pid) for node in cluster.nodes.values() if node.process is not None]
        before = [sum(process.cpu_times()[:2]) for process in processes]
        time.sleep(options.rest_s)
        for process, cpu in zip(processes, before, strict=True):
            share = (sum(process.cpu_times()[:2]) - cpu) / options.rest_s
            print(f"  at rest: {share * 100:.1f} % of a core, {process.memory_full_info().pss / 2**20:.0f} MiB (PSS)")


def _first_ack(cluster: ProcessCluster, topic: str, count: int = 1) -> None:
    """Until a record is acknowledged by partition 0."""
    acked: list[bool] = []
    producer = ConfluentProducer(
        {
            "bootstrap.servers": cluster.bootstrap, "acks": "all", "reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 20,
            "retry.backoff.ms": 5, "retry.backoff.max.ms": 20, "topic.metadata.refresh.fast.interval.ms": 10,
        }
    )  # fmt: skip
    producer.produce(topic, b"x", partition=count - 1, on_delivery=lambda error, _: acked.append(error is None))
    while not acked:
        producer.poll(0.005)
    assert acked[0]


def recovery(options: argparse.Namespace) -> None:
    """One node with `--mib` in an active segment that was never flushed: from the start of the process to the first acknowledgement."""
    with cluster_of(options, 1) as cluster:
        async def create() -> None:
            async with Admin(cluster.bootstrap) as admin:
                await admin.create_topic("big", partitions=1, replication_factor=1, configs={"segment.bytes": str(2**31 - 1)})

        asyncio.run(create())
        producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20, "batch.size": 900_000})
        value = os.urandom(10_000)
        for _ in range(options.mib * 2**20 // len(value) * 99 // 100):
            while True:
                try:
                    producer.produce("big", value, partition=0)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush(120)
        for kind, end in (("kill -9", lambda: cluster.kill(1)), ("clean stop", lambda: cluster.terminate(1))):
            began = time.monotonic()
            end()
            stopped_s = time.monotonic() - began
            started = time.monotonic()
            cluster.restart(1, timeout_s=120)
            serving_s = time.monotonic() - started
            _first_ack(cluster, "big")
            print(
                f"{kind}, {options.mib} MiB in the active segment: stop {stopped_s:.2f} s, serving after {serving_s:.2f} s, "
                f"first ack after {time.monotonic() - started:.2f} s"
            )
            print("\n".join(line for line in cluster.logs(60).splitlines() if "loaded" in line))


def restart(options: argparse.Namespace) -> None:
    """One node with many partitions, killed: from the start of the process to the first acknowledgement."""
    with cluster_of(options, 1) as cluster:
        async def create() -> None:
            async with Admin(cluster.bootstrap) as admin:
                await admin.create_topic("many", partitions=options.count, replication_factor=1)

        asyncio.run(create())
        producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap})
        for index in range(options.count):
            producer.produce("many", b"x" * 100, partition=index)
        producer.flush(60)
        for kind, end in (("kill -9", lambda: cluster.kill(1)), ("clean stop", lambda: cluster.terminate(1))):
            began = time.monotonic()
            end()
            stopped_s = time.monotonic() - began
            started = time.monotonic()
            cluster.restart(1, timeout_s=120)
            serving_s = time.monotonic() - started
            _first_ack(cluster, "many", options.count)
            print(
                f"{kind}, {options.count} partitions: stop {stopped_s:.2f} s, serving after {serving_s:.2f} s, "
                f"first ack after {time.monotonic() - started:.2f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {command.__name__: command for command in (failover, shutdown, partitions, recovery, restart)}
    parser.add_argument("command", choices=commands)
    parser.add_argument("--victim", choices=("leader", "controller"), default="leader")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--rest-s", type=float, default=10)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--client", action="append", default=[], metavar="NAME=VALUE", help="a setting of librdkafka")
    options = parser.parse_args()
    commands[options.command](options)


if __name__ == "__main__":
    main()
