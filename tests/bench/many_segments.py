"""A node with very many partitions of four segments each on few descriptors: it makes them, serves them, cleans them and starts again.

`PYTHONPATH=.:tests python -m bench.many_segments [--partitions 10000] [--descriptors 4096]`. The limit is set for this process and the
node's. Printed for each step: the time, the node's descriptors and memory, and the longest turn of its loop. It ends with an error when a
record is missing or a turn took longer than 20 ms of processor time (on a busy machine: in units of work, as the tests have it).
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from typing import Any

from helpers.work_unit import unit_s, usual_unit_s

from minikafka.client.admin import TOPIC, Admin
from minikafka.net.channel import Channel
from minikafka.net.server import SocketNetwork
from minikafka.testing import EmbeddedCluster
from minikafka.wire.batch import build_batch, iterate_batches
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.produce import ProduceRequest

SEGMENTS = 4
AT_ONCE = 250
#: 20 ms, in units that take half a millisecond on a quiet machine.
TURN_UNITS = 40
CONFIGS = {
    "segment.ms": "1000", "cleanup.policy": "delete", "retention.ms": "-1", "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}  # fmt: skip
NODE = {"log.cleaner.backoff.ms": "2000", "log.retention.check.interval.ms": "5000", "num.partitions": "1"}


class Steps:
    """Prints what each step took, and collects what was wrong."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._began_s = time.monotonic()
        self.problems: list[str] = []

    def done(self, what: str) -> None:
        """A step is done."""
        metrics = self._cluster.metrics(self._cluster.brokers[0].node_id)
        turns = {name: value for name, value in metrics.items() if name.startswith("minikafka_loop_longest_turn_cpu")}
        wall_s = max((value for name, value in metrics.items() if name.startswith("minikafka_loop_longest_turn_seconds")), default=0.0)
        name, cpu_s = max(turns.items(), key=lambda item: item[1], default=("", 0.0))
        memory = metrics["process_resident_memory_bytes"] / (1 << 20)
        took_s = time.monotonic() - self._began_s
        held = f"{metrics['process_open_fds']:.0f} descriptors, {memory:.0f} MiB"
        print(f"{what}: {took_s:.1f} s, {held}, longest turn {1000 * wall_s:.0f} ms, {1000 * cpu_s:.1f} of CPU, in {name[40:]}", flush=True)
        if cpu_s > TURN_UNITS * max(unit_s(), usual_unit_s()):
            self.problems.append(f"{what}: {1000 * cpu_s:.1f} ms in {name}")
        self._began_s = time.monotonic()


async def opened(port: int) -> Channel:
    network = SocketNetwork(asyncio.get_running_loop())
    return await Channel.open(network, "127.0.0.1", port, client_id="many")


async def create(port: int, partitions: int) -> None:
    channel = await opened(port)
    kind = CreateTopicsRequest
    configs = [kind.CreatableTopicConfig(name=name, value=value) for name, value in CONFIGS.items()]
    topic = kind.CreatableTopic(name="many", num_partitions=partitions, replication_factor=1, configs=configs)
    answer: Any = await channel.request(kind(topics=[topic], timeout_ms=300_000), timeout_ms=300_000)
    assert answer.topics[0].error_code == 0, answer.topics[0]
    channel.close()


async def produce(port: int, partitions: int) -> None:
    """One record for each segment: the times of their records make the segments roll."""
    channel = await opened(port)
    for number in range(SEGMENTS):
        for at in range(0, partitions, AT_ONCE):
            await produce_some(channel, range(at, min(at + AT_ONCE, partitions)), number)
    channel.close()


async def produce_some(channel: Channel, indexes: range, number: int) -> None:
    kind, left = ProduceRequest, list(indexes)
    deadline_s = time.monotonic() + 120
    while left:
        rows = [(0, 1_700_000_000_000 + 10_000 * number, b"k%d" % number, b"v", ())]
        data = [kind.PartitionProduceData(index=index, records=bytes(build_batch(rows))) for index in left]
        request = kind(acks=-1, timeout_ms=60_000, topic_data=[kind.TopicProduceData(name="many", partition_data=data)])
        answer: Any = await channel.request(request, 9, 120_000)
        left = [one.index for topic in answer.responses for one in topic.partition_responses if one.error_code]
        assert time.monotonic() < deadline_s, f"{len(left)} partitions take no records"
        if left:
            await asyncio.sleep(0.5)


async def count(port: int, partitions: int) -> int:
    """Records of all partitions, each asked for by its offset: a read ends with its segment."""
    channel, found = await opened(port), 0
    for at in range(0, partitions, AT_ONCE):
        for offset in range(SEGMENTS):
            found += await count_some(channel, range(at, min(at + AT_ONCE, partitions)), offset)
    channel.close()
    return found


async def count_some(channel: Channel, indexes: range, offset: int) -> int:
    """While very many files have bytes that are not synced, no descriptor may be left for another: such a read is tried again."""
    kind, left, found = FetchRequest, list(indexes), 0
    deadline_s = time.monotonic() + 120
    while left:
        wanted = [kind.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 16) for index in left]
        topics = [kind.FetchTopic(topic="many", partitions=wanted)]
        request = kind(max_wait_ms=0, max_bytes=1 << 28, session_id=0, session_epoch=-1, topics=topics)
        answer: Any = await channel.request(request, 12, 120_000)
        left = []
        for one in answer.responses[0].partitions:
            if one.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                left.append(one.partition_index)
            found += any(batch.base_offset <= offset <= batch.last_offset for batch in iterate_batches(bytes(one.records or b"")))
        assert time.monotonic() < deadline_s, f"{len(left)} partitions cannot be read"
        if left:
            await asyncio.sleep(0.5)
    return found


async def compact(port: int) -> None:
    async with Admin(f"127.0.0.1:{port}") as admin:
        await admin.alter_configs(TOPIC, "many", [("set", "cleanup.policy", "compact")])


async def cleaned(cluster: EmbeddedCluster, partitions: int) -> None:
    """Wait until every log was compacted: the records of the first segments have other keys, so all of them stay."""
    deadline_s = time.monotonic() + 1_800
    while True:
        checkpoint = cluster.brokers[0].log_dir / "cleaner-offset-checkpoint"
        logs = sum(line.startswith("many ") for line in checkpoint.read_text().splitlines()) if checkpoint.exists() else 0
        if logs >= partitions:
            return
        assert time.monotonic() < deadline_s, f"{logs} of {partitions} logs were cleaned"
        await asyncio.sleep(1)


def run(partitions: int, descriptors: int) -> list[str]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    with EmbeddedCluster(1, config=NODE, mode="process") as cluster:
        steps = Steps(cluster)
        steps.done("start")
        port = cluster.brokers[0].port
        asyncio.run(create(port, partitions))
        steps.done("create")
        asyncio.run(produce(port, partitions))
        steps.done("produce")
        for what in ("read", "compact", "read", "restart", "read"):
            if what == "read":
                found = asyncio.run(count(cluster.brokers[0].port, partitions))
                if found != SEGMENTS * partitions:
                    steps.problems.append(f"{found} of {SEGMENTS * partitions} records")
            elif what == "compact":
                asyncio.run(compact(cluster.brokers[0].port))
                asyncio.run(cleaned(cluster, partitions))
            else:
                cluster.brokers[0].terminate()
                cluster.brokers[0].start()
            steps.done(what)
        return steps.problems


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--descriptors", type=int, default=4_096)
    options = parser.parse_args()
    problems = run(options.partitions, options.descriptors)
    print("\n".join(problems) or "nothing wrong")
    raise SystemExit(bool(problems))
