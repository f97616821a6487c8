"""A large consumer group (KIP-848): how long it takes to settle, and what it costs the coordinator.

    python tests/bench/consumer_groups.py --members 100 --partitions 1000
    python tests/bench/consumer_groups.py --members 1000 --partitions 10000 --interval-ms 1000

Members are bare heartbeats over a few connections, so that they cost less than what is measured. Shown are the time from the last join
until every partition is owned and every member has reached the last epoch, the processor time of the broker from the first join on, and its
share of a core while the group is quiet.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from pathlib import Path
from typing import Any, cast

from minikafka.client.admin import Admin
from minikafka.client.cluster import Cluster
from minikafka.client.group import find_coordinator
from minikafka.testing.cluster import ProcessCluster
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

QUIET_S = 10
CONNECTIONS = 8
MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Member:
    """Owns what it is told, and gives up at once."""

    def __init__(self, number: int) -> None:
        self.member_id = f"member-{number:05}"
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}
        self.reported: dict[bytes, list[int]] = {}
        self.beats = self.refused = 0

    async def beat(self, channel: Any, topics: list[str]) -> None:
        """One heartbeat."""
        request = ConsumerGroupHeartbeatRequest(group_id="bench", member_id=self.member_id, member_epoch=self.epoch)
        if self.epoch == 0:
            request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 60_000, topics, []
        elif self.reported != self.owned:
            entry = ConsumerGroupHeartbeatRequest.TopicPartitions
            request.topic_partitions = [entry(topic_id=topic_id, partitions=found) for topic_id, found in self.owned.items()]
        reported = dict(self.owned)
        answer = cast(ConsumerGroupHeartbeatResponse, await channel.request(request, 1, 120_000))
        if answer.error_code in MOVED:
            self.refused += 1
            await asyncio.sleep(0.1)
            return
        assert not answer.error_code, answer
        self.epoch, self.reported = answer.member_epoch, reported
        self.beats += 1
        if answer.assignment is not None:
            self.owned = {topic.topic_id: list(topic.partitions) for topic in answer.assignment.topic_partitions}

    async def live(self, channel: Any, topics: list[str], interval_s: float) -> None:
        """Heartbeats for ever; at once when there is something to tell."""
        while True:
            begun = time.monotonic()
            await self.beat(channel, topics)
            if self.reported == self.owned:
                await asyncio.sleep(max(interval_s - (time.monotonic() - begun), 0))


def processor_s(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(cluster: ProcessCluster, options: argparse.Namespace) -> None:
    """The figures."""
    topics = [f"t{number:03}" for number in range(options.topics)]
    async with Admin(cluster.bootstrap) as admin:
        for name in topics:
            await admin.create_topic(name, partitions=options.partitions // options.topics, replication_factor=options.brokers)
    meta = Cluster(cluster.bootstrap)
    coordinator = await find_coordinator(meta, "bench", 60_000)
    channels = [await meta.channel_at(coordinator.host, coordinator.port, f"bench-{number}") for number in range(CONNECTIONS)]
    members = [Member(number) for number in range(options.members)]
    process = cluster.nodes[coordinator.node_id].process
    assert process is not None
    pid = process.pid
    used_s, begun = processor_s(pid), time.monotonic()
    interval_s = options.interval_ms / 1000
    lives = [member.live(channels[number % CONNECTIONS], topics, interval_s) for number, member in enumerate(members)]
    tasks = [asyncio.ensure_future(life) for life in lives]
    while not all(member.epoch for member in members):
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.01)
    joined = time.monotonic()
    while not is_settled(members, options.partitions):
        assert time.monotonic() < joined + 300, sorted({member.epoch for member in members})
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.02)
    settled = time.monotonic()
    print(
        f"{options.members} members, {options.partitions} partitions, {options.brokers} broker(s), a heartbeat in {options.interval_ms} ms:"
        f" all joined after {joined - begun:.2f} s, settled {settled - joined:.2f} s later;"
        f" {processor_s(pid) - used_s:.2f} s of processor time of the coordinator's broker;"
        f" {sum(member.refused for member in members)} heartbeats told that the coordinator has moved"
    )
    used_s, beats = processor_s(pid), sum(member.beats for member in members)
    await asyncio.sleep(QUIET_S)
    beats = sum(member.beats for member in members) - beats
    share = (processor_s(pid) - used_s) / QUIET_S
    print(f"quiet: {beats / QUIET_S:.0f} heartbeats a second, {100 * share:.1f} % of a core; load average {os.getloadavg()[0]:.1f}")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await meta.close()


def is_settled(members: list[Member], partitions: int) -> bool:
    """Whether all are in one epoch, and everything is owned once."""
    if len({member.epoch for member in members}) != 1:
        return False
    owned = [(topic_id, index) for member in members for topic_id, found in member.owned.items() for index in found]
    return len(owned) == partitions == len(set(owned))


def main() -> None:
    """Figures of one group."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--interval-ms", type=int, default=100)
    options = parser.parse_args()
    properties = {
        "group.consumer.heartbeat.interval.ms": str(options.interval_ms), "group.consumer.min.heartbeat.interval.ms": "1",
        "offsets.topic.num.partitions": "1", "broker.session.timeout.ms": "60000",
    }  # fmt: skip
    with ProcessCluster(options.brokers, properties=properties) as cluster:
        asyncio.run(measure(cluster, options))


if __name__ == "__main__":
    main()
